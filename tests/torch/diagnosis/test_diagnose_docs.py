"""docs/diagnose.md shows what its code prints, and names every column and threshold."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from stiefel_init.health import AT_INITIALIZATION as RULES
from stiefel_init.health import rows
from stiefel_init.health.at_initialization import causes
from stiefel_init.health.rows import LAYER_COLUMNS

PAGE_FILE = Path(__file__).parents[3] / "docs" / "diagnose.md"
PAGE = PAGE_FILE.read_text()


def test_the_page_shows_what_its_code_prints(capsys: pytest.CaptureFixture) -> None:
    """Word for word, numbers to 2 %: they come out of 25 layers of rounding."""
    blocks = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
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


def test_the_page_names_every_column_rule_and_limit() -> None:
    for column in LAYER_COLUMNS:
        assert f"`{column}`" in PAGE or column.startswith("predicted_"), column
    for kind, rule in RULES.items():
        limits = ("—" if math.isinf(limit) else f"{limit:,g}" for limit in (rule.threshold, rule.warning))
        assert f"| {kind} | {rule.quantity} | {' | '.join(limits)} |" in PAGE, kind
    text = " ".join(PAGE.split())
    assert (rows.ENOUGH, rows.LEARNED, causes.BIAS, causes.SCALE, causes.MOVED, causes.LOW) == (
        16,
        0.5,
        10,
        100,
        1,
        -1,
    )
    assert set(causes.DEEP.values()) == {20, 1}
    assert "need 16 samples or more" in text


def test_every_limit_is_where_it_warns_first() -> None:
    for rule in RULES.values():
        assert rule.warning <= rule.threshold or math.isinf(rule.warning), rule.kind


def test_the_limits_are_those_that_the_study_chose() -> None:
    record = json.loads((PAGE_FILE.parents[1] / "benchmarks" / "records" / "diagnosis-cpu.json").read_text())
    from_study = {kind: rule.threshold for kind, rule in RULES.items() if rule.source == "study"}
    assert len(from_study) > 15
    for kind, threshold in from_study.items():
        assert math.isinf(threshold) or record["chosen"][kind] == threshold, kind
