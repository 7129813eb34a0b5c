"""The source that made a record: a hash of the package, and its commit.

The hash is git's for the package's folder, computed from the files themselves, so it is known without git too.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import subprocess
from collections.abc import Collection
from pathlib import Path

from ...core.errors import StiefelError

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
    if _git("rev-parse", "HEAD:./") != source_hash():
        return None
    return _git("rev-parse", "--short=12", "HEAD")


def commits_of(hashes: Collection[str], folder: Path = PACKAGE) -> dict[str, str]:
    """The oldest commits whose package has these hashes; a hash that no commit of this repository has is left out.

    Raises:
        StiefelError: if the package does not run from a clone of its repository.
    """
    listed = _git("log", "--all", "--reverse", "--topo-order", "--format=%H", folder=folder)
    commits = (listed or "").split()
    trees = _git("cat-file", "--batch-check=%(objectname)", given="\n".join(f"{c}:./" for c in commits), folder=folder)
    if trees is None or _git("rev-parse", "HEAD:./", folder=folder) is None:
        raise StiefelError(f"{folder} is not in a clone of the repository, which knows its commits; run this in one.")
    found: dict[str, str] = {}
    for name, tree in zip(commits, trees.splitlines()):
        if tree in hashes:
            found.setdefault(tree, name[:12])
    return found


def _git(*arguments: str, given: str | None = None, folder: Path = PACKAGE) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", *arguments], cwd=folder, input=given, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout.strip()
    return None
