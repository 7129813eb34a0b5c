"""docs/diagnose.md and docs/watch.md show what their code prints, and name every column, rule and limit."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from stiefel_init.health import AT_INITIALIZATION, IN_TRAINING, rows
from stiefel_init.health.at_initialization import causes
from stiefel_init.health.rule import EVERYTHING
from stiefel_init.torch import callbacks

ROOT = Path(__file__).parents[2]
DIAGNOSE, WATCH, RULES = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("diagnose", "watch", "rules"))
EXAMPLE = re.compile(r"```python\n(.*?)```\n.*?```text\n(.*?)```", re.DOTALL)


def test_the_page_of_diagnose_shows_what_its_code_prints(capsys: pytest.CaptureFixture) -> None:
    """Word for word, numbers to 2 %: they come out of 25 layers of rounding."""
    blocks = EXAMPLE.findall(DIAGNOSE)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for code, shown in blocks:
        exec(compile(code, "docs/diagnose.md", "exec"), names)
        printed = capsys.readouterr().out.split()
        assert len(printed) == len(shown.split())
        for found, expected in zip(printed, shown.split()):
            try:
                assert float(found) == pytest.approx(float(expected), rel=0.02, abs=1e-6)
            except ValueError:
                assert found == expected


def test_the_page_of_watch_shows_what_its_code_prints(capsys: pytest.CaptureFixture) -> None:
    code, shown = EXAMPLE.findall(WATCH)[0]
    exec(compile(code, "docs/watch.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_pages_name_every_column_rule_and_limit() -> None:
    for column in rows.LAYER_COLUMNS:
        assert f"`{column}`" in DIAGNOSE or column.startswith("predicted_"), column
    for column in rows.ROW_COLUMNS:
        assert f"`{column}`" in WATCH, column
    for kind, rule in AT_INITIALIZATION.items():
        limits = ("—" if math.isinf(limit) else f"{limit:,g}" for limit in (rule.threshold, rule.warning))
        assert f"| {kind} | {rule.quantity} | {' | '.join(limits)} |" in RULES, kind
    for kind, other in IN_TRAINING.items():
        row = f"| {kind} | {other.quantity} | {other.threshold:,g} | {other.lasting} | {other.source} |"
        assert row in RULES, kind
    limits_of_causes = (causes.BIAS, causes.SCALE, causes.MOVED, causes.LOW)
    assert (rows.ENOUGH, rows.LEARNED, *limits_of_causes, set(causes.DEEP.values())) == (
        16,
        0.5,
        10,
        100,
        1,
        -1,
        {20, 1},
    )
    assert "need 16 samples or more" in " ".join(RULES.split())


def test_every_rule_warns_first_and_hides_known_ones() -> None:
    for rules in (AT_INITIALIZATION, IN_TRAINING):
        for rule in rules.values():
            assert rule.warning <= rule.threshold or math.isinf(rule.warning), rule.kind
            assert rule.hides == EVERYTHING or {*rule.hides, *rule.hides_warnings} < {*rules, "not finite"}, rule.kind


def test_the_limits_are_those_that_the_study_chose() -> None:
    record = json.loads((ROOT / "benchmarks" / "records" / "diagnosis-cpu.json").read_text())
    from_study = {kind: rule.threshold for kind, rule in AT_INITIALIZATION.items() if rule.source == "study"}
    assert len(from_study) > 15
    for kind, threshold in from_study.items():
        assert math.isinf(threshold) or record["chosen"][kind] == threshold, kind


def test_callbacks_are_known_by_name() -> None:
    assert all(name in WATCH for name in callbacks.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        callbacks.Nothing  # noqa: B018
