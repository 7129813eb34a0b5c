"""The cache: verified arrays, one .npz file per set, written whole or not at all."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from .. import files
from .catalog import differences
from .formats import Arrays


class UnavailableError(Exception):
    """A source that cannot serve a set now, and why, in a few words."""


class DamagedError(UnavailableError):
    """The cache holds something, but not the set."""


def location(name: str) -> Path:
    """The set's file in the cache: under STIEFEL_INIT_CACHE, otherwise in the platform's cache folder."""
    if chosen := os.environ.get("STIEFEL_INIT_CACHE"):
        folder = Path(os.path.expanduser(chosen))
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "stiefel-init"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "stiefel-init"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stiefel-init"
    return folder / f"{name}.npz"


def read(path: Path, digests: Mapping[str, str]) -> Arrays:
    """The arrays in `path`, verified; a damaged file is set aside as *.damaged."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UnavailableError(f"{path} is not there") from None
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read ({error.strerror})") from None
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in digests}
        damage = "; ".join(differences(arrays, digests).values())
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise nearly anything
        damage = f"{type(error).__name__}: {error}"
    if damage:
        raise DamagedError(f"{path} is damaged ({damage}) and {files.set_aside(path)}")
    return arrays


def write(path: Path, arrays: Arrays) -> None:
    """Write `arrays` to `path`; whatever happens, `path` is either complete or unchanged."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, buffer.getvalue())
