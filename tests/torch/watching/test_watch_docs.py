"""docs/watch.md shows what its code prints, and names every column and rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stiefel_init.health import IN_TRAINING
from stiefel_init.health.rows import ROW_COLUMNS
from stiefel_init.torch import callbacks

PAGE = (Path(__file__).parents[3] / "docs" / "watch.md").read_text()


def test_the_page_shows_what_its_code_prints(capsys: pytest.CaptureFixture) -> None:
    code, shown = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(compile(code, "docs/watch.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_page_names_every_column_rule_and_limit() -> None:
    for column in ROW_COLUMNS:
        assert f"`{column}`" in PAGE, column
    for rule in IN_TRAINING.values():
        assert f"| {rule.kind} | {rule.quantity} | {rule.threshold:,g} | {rule.lasting} | {rule.source} |" in PAGE, (
            rule.kind
        )


def test_callbacks_are_known_by_name() -> None:
    assert all(f"{name}" in PAGE for name in callbacks.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        callbacks.Nothing  # noqa: B018
