"""What a release consists of: the wheel's contents and size, one version everywhere, extras that are tried."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tools import badges, release

import stiefel_init

ROOT = Path(__file__).parents[2]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(out.iterdir())


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = release.members(wheel)
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert source <= set(names)
    assert "stiefel_init/py.typed" in names
    assert not [name for name in names if release.stray(name)]
    assert all(map(release.stray, ("stiefel_init/lab/results/table1.csv", "stiefel_init_records/notes.txt")))
    assert wheel.stat().st_size <= release.LIMIT


def test_there_is_one_version() -> None:
    version = stiefel_init.__version__
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version  # type: ignore[index]
    assert f"version = {{{version}}}" in (ROOT / "docs" / "cite.md").read_text()


def test_every_extra_for_users_is_tried_and_documented() -> None:
    extras = set(PROJECT["optional-dependencies"]) - {"dev", "site", "release"}
    assert set(release.EXTRAS) - {"core"} == extras
    start = (ROOT / "docs" / "start.md").read_text()
    assert all(f"`{extra}`" in start for extra in extras)


def test_the_workflows_run_what_there_is() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        text = path.read_text()
        for line in re.findall(r"run: make ([a-z -]+)", text):
            assert set(line.split()) <= targets, path.name
        for file in re.findall(r"\btests/[\w/.]+", text):
            assert (ROOT / file).exists(), file


def test_the_badges_say_what_the_project_says() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in badges.FOLDER.glob("*.svg")}
    assert kept == badges.badges()
    readme = (ROOT / "README.md").read_text()
    assert all(f"docs/badges/{name}" in readme for name in kept)


def test_the_readme_is_one_screen_and_links_on() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    assert re.findall(r"!\[[^]]+\]\(docs/(\w+).svg\)", text) == ["idea", "measured"]
    assert "|  | default | He | `initialize_` |" in text
    assert len(re.findall(r"^\| .+(?:MNIST|CIFAR-10) \|", text, re.MULTILINE)) == 5, "rows of the one table"
    for call in ("initialize_(model)", "param_groups(model, 1e-3)", "diagnose(model"):
        assert call in text
