"""The paper's claims: the verdicts follow the numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from laboratory import record
from paper.experiment import Claim, Trained
from paper.figures.figure1 import Alignment, Figure1
from paper.registry import EXPERIMENTS
from paper.tables.images import Table1, Table3
from paper.tables.tabular import Table5

from stiefel_init.lab.train.cell import Cell

Truth = Callable[[Cell], float | None]


def table1(score: Truth) -> list[Claim]:
    return Table1().claims([record(cell, score(cell)) for cell in Table1().cells(3)])


def good(cell: Cell) -> float:
    return (95.0 if str(cell.scheme) == "stiefel" else 90.0) + 0.01 * cell.seed


def test_best_when_deep() -> None:
    assert table1(good)[0].verdict == "holds"

    def one_row_lost(cell: Cell) -> float:
        return 99.0 if (str(cell.scheme), cell.depth, cell.dataset) == ("lee lapack", 70, "mnist") else good(cell)

    lost = table1(one_row_lost)[0]
    assert lost.verdict == "holds in part"
    assert "mnist, depth 70: lee 99.00, stiefel 95.01" in lost.evidence
    shallow = table1(lambda c: 99.0 if (str(c.scheme), c.depth) == ("he", 30) else good(c))[0]
    assert shallow.verdict == "holds"  # depth 30 is not part of the claim


def test_no_collapse() -> None:
    assert table1(lambda cell: 90.0)[1].verdict == "holds"
    lost = table1(lambda c: 11.35 if (c.depth, c.seed, c.dataset) == (100, 1, "mnist") else 90.0)
    assert lost[1].verdict == "does not hold"
    diverged = table1(lambda c: None if (c.depth, c.seed) == (100, 1) else 90.0)
    assert diverged[1].verdict == "does not hold"


def test_few_shots() -> None:
    records = [record(cell, good(cell)) for cell in Table3().cells(3)]
    assert Table3().claims(records)[0].verdict == "holds"
    lost = [
        replace(one, score=99.0) if (str(one.cell.scheme), one.cell.shots, one.cell.depth) == ("he", 2, 50) else one
        for one in records
    ]
    (claim,) = Table3().claims(lost)
    assert claim.verdict == "holds in part"
    assert "mnist, 2-shot, depth 50: he 99.00, stiefel 95.01" in claim.evidence


def test_shift() -> None:
    best = {-2.0: 60.0, 0.0: 80.0, 2.0: 90.0, 50.0: 50.0}

    def score(cell: Cell) -> float:
        value = best[cell.alpha or 0.0]
        return 100 - value if cell.dataset == "diabetes" else value  # an error: less is better

    assert Table5().claims([record(cell, score(cell)) for cell in Table5().cells(2)])[0].verdict == "holds"
    best[2.0] = 70.0
    assert Table5().claims([record(cell, score(cell)) for cell in Table5().cells(2)])[0].verdict == "holds in part"


def test_alignment() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(500)
    noise = rng.standard_normal(500)
    for strength, verdict in ((2.0, "holds"), (0.1, "does not hold")):
        y = strength * x + noise
        study = Alignment(np.arange(500) > 490, x, {"shared": y, "independent": y}, np.empty((500, 2)), "UMAP")
        assert Figure1().claims(study)[0].verdict == verdict


def test_without_records_none_of_the_claims_is_tested() -> None:
    claims = [claim for experiment in EXPERIMENTS for claim in experiment.claims(None)]
    assert len(claims) == len({claim.claim for claim in claims}) == 11  # that of table 5 under two protocols
    claims += [claim for each in EXPERIMENTS if isinstance(each, Trained) for claim in each.claims([])]
    assert {claim.verdict for claim in claims} == {"not tested"}
