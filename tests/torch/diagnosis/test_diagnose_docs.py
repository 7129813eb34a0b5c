"""docs/diagnose.md shows what its code prints, and names every column and threshold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stiefel_init.torch.diagnosis import _verdict
from stiefel_init.torch.diagnosis._layer import COLUMNS

PAGE = (Path(__file__).parents[3] / "docs" / "diagnose.md").read_text()


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


def test_the_page_names_every_column_and_threshold() -> None:
    for column in COLUMNS:
        assert f"`{column}`" in PAGE or column.startswith("predicted_"), column
    text = " ".join(PAGE.split())
    assert (_verdict.SPREAD, _verdict.FADED, _verdict.GRADIENT) == (1000, 1 / 1000, 1000)
    assert (_verdict.DEAD, _verdict.DISTINCT, _verdict.ENOUGH) == (0.25, 0.25, 16)
    assert "with 16 samples or more" in text
