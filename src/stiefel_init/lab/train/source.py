"""The source that made a record: a hash of the package, and its commit.

The hash is git's for the package's folder, computed from the files themselves, so it is known without git too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
_IGNORED = ("__pycache__", ".DS_Store")
_EMPTY = hashlib.sha1(b"tree 0\0", usedforsecurity=False).digest()


@functools.cache
def source_hash(folder: Path = PACKAGE) -> str:
    """The id of git's tree object for a folder."""
    return _tree(folder).hex()


def _tree(folder: Path) -> bytes:
    entries = []
    for path in folder.iterdir():
        if path.name in _IGNORED or path.suffix == ".pyc":
            continue
        if path.is_dir():
            if (tree := _tree(path)) != _EMPTY:  # git has no empty folders
                entries.append((path.name + "/", b"40000 " + path.name.encode() + b"\0" + tree))
        else:
            content = path.read_bytes()
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).digest()
            entries.append((path.name, b"100644 " + path.name.encode() + b"\0" + blob))
    body = b"".join(entry for _, entry in sorted(entries))
    return hashlib.sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).digest()


@functools.cache
def commit() -> str | None:
    """The checked-out commit, if the package runs from a source tree and its files are those of that commit."""
    if git("rev-parse", "HEAD:./") != source_hash():
        return None
    return git("rev-parse", "--short=12", "HEAD")


def git(*arguments: str, given: str | None = None, folder: Path = PACKAGE) -> str | None:
    """What git says, run in a folder; None if it fails, or is not there."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", *arguments], cwd=folder, input=given, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout.strip()
    return None
