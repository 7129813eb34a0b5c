"""Which source a record was made with: the hash that git has for the package's folder, and its commit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from laboratory import ROOT

from stiefel_init.lab.train import source

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
PACKAGE = ROOT / "src" / "stiefel_init"


def git(folder: Path, *words: str) -> str:
    """What git answers, whatever the user's own settings are."""
    mine = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "core.autocrlf=false")
    command = ["git", *who, *words]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **mine}, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit_all(folder: Path) -> None:
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder in a repository, with names that sort differently as files and as folders."""
    folder = tmp_path / "package"
    contents = {
        "__init__.py": b"", "a.py": b"1\n", "a-b.csv": b"x,y\r\n", "a/x.py": b"2\n", "a/b/c.py": b"3\n",
        "a0": b"\x00\xff", "Z.py": b"no newline", "z/paper.csv": b"4\n",
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (tmp_path / ".gitignore").write_text("__pycache__/\n*.pyc\n")
    commit_all(tmp_path)
    return folder


def test_the_hash_of_a_folder_is_the_one_that_git_gives_it(small: Path) -> None:
    """git keeps no empty folders; what Python compiled is no source."""
    for name in ("__pycache__/a.cpython-311.pyc", "a/__pycache__/x.cpython-311.pyc", "a.pyc", "gone/__pycache__/o.pyc"):
        (small / name).parent.mkdir(parents=True, exist_ok=True)
        (small / name).write_bytes(b"compiled")
    (small / "empty").mkdir()
    assert git(small, "status", "--porcelain") == ""
    assert source.source_hash.__wrapped__(small) == git(small, "rev-parse", "HEAD:./")
    assert source._tree(small / "a").hex() == git(small, "rev-parse", "HEAD:./a")


def told(place: Path) -> tuple[str, str | None]:
    """(source_hash, commit) as the package at `place` tells them."""
    code = "from stiefel_init.lab.train.source import commit, source_hash; print(source_hash(), commit())"
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-B", "-c", code]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True)
    found, commit = done.stdout.split()
    return found, None if commit == "None" else commit


def test_a_package_in_a_source_tree_names_the_commit_that_has_its_files(tmp_path: Path) -> None:
    package = tmp_path / "src" / "stiefel_init"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    (tmp_path / "src" / ".gitignore").write_text("stiefel_init/\n")
    commit_all(tmp_path / "src")
    assert told(tmp_path / "src") == (source._tree(package).hex(), None), "in someone else's repository"
    (tmp_path / "src" / ".gitignore").unlink()
    commit_all(tmp_path / "src")
    found, commit = told(tmp_path / "src")
    assert found == git(tmp_path / "src", "rev-parse", "HEAD:stiefel_init")
    assert commit == git(tmp_path / "src", "rev-parse", "--short=12", "HEAD")
    with (package / "core" / "errors.py").open("ab") as file:
        file.write(b"# changed\n")
    changed, commit = told(tmp_path / "src")
    assert changed != found
    assert commit is None, "the files are not those of the commit"
