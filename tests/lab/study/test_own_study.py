"""The page of a user's own study: the table, the best of each row in bold, and the learning curves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stiefel_init.lab.data import load
from stiefel_init.lab.study import files as study_files
from stiefel_init.lab.study import page as study_page
from stiefel_init.lab.study import plan
from stiefel_init.lab.study.rates import Rates
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.runner import run


@pytest.mark.parametrize(("dataset", "best"), [("diabetes", min), ("digits", max)])
def test_the_page_of_a_study_marks_the_best(dataset: str, best: Callable[..., float], tmp_path: Path) -> None:
    records = run([Cell(dataset, scheme, 2, 8, epochs=2) for scheme in ("stiefel", "he", "random")], device="cpu")
    study = plan.Study([record.cell for record in records], 1, Rates((1.0,)), load(dataset), {})
    outcome = plan.run_study(study, lambda cells: records)
    folder, content = study_files.write(outcome, tmp_path)
    page = study_page.page(outcome, content, folder).read_text()
    top = best(record.score for record in records)
    assert f"<strong>{top:.1f}</strong></td>" in page
    assert page.count("<strong>") == 1
