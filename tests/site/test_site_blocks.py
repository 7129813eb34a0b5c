"""The code on the site's pages: Python runs as it stands, and the command line takes every command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from paper.__main__ import app as maintainers
from paper.results import Results
from paper.zoo import Zoo
from paper.zoo.entry import AUTHOR, OURS
from paper.zoo.study import DROP_IN

from stiefel_init.lab.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="docs/ is part of the source tree")

ELSEWHERE = {  # pages with tests of their own, which run their blocks
    "README.md": "test_readme.py",
    "CONTRIBUTING.md": "test_extending.py",
    "docs/diagnose.md": "health/test_health_docs.py",
    "docs/frameworks.md": "test_frameworks.py",
    "docs/initialize.md": "torch/initialize/test_initialize_docs.py",
    "docs/recipe.md": "torch/initialize/test_initialize_docs.py",
    "docs/single-weights.md": "test_frameworks.py",
    "docs/on-the-set.md": "torch/optim/test_on_set_docs.py",
    "docs/theory.md": "theory/test_theory_docs.py",
    "docs/watch.md": "health/test_health_docs.py",
}
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
}
BLOCKS = [
    pytest.param(name, block, id=f"{name}-{number}")
    for name, text in TEXTS.items()
    if name not in ELSEWHERE
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
]


@pytest.mark.parametrize(("name", "block"), BLOCKS)
def test_a_block_of_the_site_runs(name: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, name, "exec"), {})


def test_all_other_blocks_are_run_by_tests_of_their_own() -> None:
    for page, test in ELSEWHERE.items():
        assert "```python" in TEXTS[page]
        assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")


COMMANDS = sorted(
    {
        found.group(1).partition("  #")[0].strip()
        for text in TEXTS.values()
        for found in re.finditer(
            r"^(?:    |)(?:RAY_ADDRESS=\S+ )?((?:stiefel-init|python -m paper) .+)$", text, re.MULTILINE
        )
        if "\n```" in text or found.group(0).startswith("    ")
    }
)


def parsed(line: str) -> Any:
    """What the command line makes of it, without doing it."""
    program, words = app, shlex.split(line.partition(" #")[0])[1:]
    if words[:2] == ["-m", "paper"]:
        program, words = maintainers, words[2:]
    while words and words[0] == "--plugin":
        words = words[2:]
    command: Any = typer.main.get_command(program)
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            return words and words[0].startswith("-")
        command = command.commands[words.pop(0)]
    return command.make_context("stiefel-init", [word for word in words if word != "--help"])


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_line_takes_a_command_of_the_docs(line: str) -> None:
    if line.split()[1].isupper() or "COMMAND" in line:
        return
    assert parsed(line)


def test_there_are_commands_and_a_wrong_one_would_be_found() -> None:
    assert len(COMMANDS) > 20
    assert not parsed("stiefel-init trian")
    assert not parsed("python -m paper train")
    with pytest.raises(Exception, match="--no-such-option"):
        parsed("stiefel-init train --no-such-option 3")


def test_the_decision_tree_says_what_the_records_say() -> None:
    """Which networks the page calls better, or level or a little better."""
    page = " ".join(TEXTS["docs/which-initialization.md"].split())
    found = {each.entry.name: each for each in Zoo().evidence(Results()) or []}
    for name in ("VGG", "ViTForImageClassification", "nanoGPT"):
        assert found[name].word(OURS, AUTHOR) == "better", name
    for name in ("ResNet, batch norm", "ResNetForImageClassification", "LSTM language model", "GRU forecast"):
        assert "worse" not in {found[name].word(way, AUTHOR) for way in (OURS, DROP_IN)}, name
    assert "or take `initialize_(model)`: [level or a little better](zoo.md)" in page
    assert "With LSTM or GRU [it hardly matters](zoo.md)" in page
