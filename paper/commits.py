"""The commits that made records, found by the hashes of their source."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.train.source import PACKAGE, git


def commits_of(hashes: Collection[str], folder: Path = PACKAGE) -> dict[str, str]:
    """The oldest commits whose package has these hashes; a hash that no commit of this repository has is left out.

    Raises:
        StiefelError: if the package does not run from a clone of its repository.
    """
    listed = git("log", "--all", "--reverse", "--topo-order", "--format=%H", folder=folder)
    commits = (listed or "").split()
    trees = git("cat-file", "--batch-check=%(objectname)", given="\n".join(f"{c}:./" for c in commits), folder=folder)
    if trees is None or git("rev-parse", "HEAD:./", folder=folder) is None:
        raise StiefelError(f"{folder} is not in a clone of the repository, which knows its commits; run this in one.")
    found: dict[str, str] = {}
    for name, tree in zip(commits, trees.splitlines()):
        if tree in hashes:
            found.setdefault(tree, name[:12])
    return found
