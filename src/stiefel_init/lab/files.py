"""Files that are written completely or not at all, and the directories for them."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path

from ..core.errors import StiefelError


def replace(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, sync it and rename it: whatever happens, it is complete or unchanged."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:  # Ctrl-C too leaves nothing half-written
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_whole(path: Path, content: bytes | str) -> Path:
    """`replace`, for the command line: what goes wrong is a sentence."""
    try:
        replace(path, content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise StiefelError(
            f"{path} could not be written ({error.strerror}); free some space or choose another --out, then rerun: "
            "finished work is kept."
        ) from error
    return path


def set_aside(path: Path) -> str:
    """Rename a damaged file to NAME.damaged; returns the rest of a sentence about it."""
    aside = path.with_name(path.name + ".damaged")
    try:
        os.replace(path, aside)
    except OSError as error:  # another process may have been faster
        return f"cannot be set aside ({error.strerror})"
    return f"was set aside as {aside.name}"


def refuse_file(directory: Path) -> None:
    """Refuse a `directory` that is a file."""
    if directory.exists() and not directory.is_dir():
        raise StiefelError(f"--out {directory} is a file; give a directory.")


def prepare(directory: Path) -> Path:
    """`directory`, created if needed and checked to be writable."""
    refuse_file(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise StiefelError(f"--out {directory} cannot be written to ({error.strerror}); give another.") from error
    return directory
