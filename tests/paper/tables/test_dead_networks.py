"""Dead networks of table 5 answer one bias, which Adam moves by the rate a step: their errors count the steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from paper.tables.published import published
from paper.tables.tabular import SPLIT, Table5Explained

from stiefel_init.lab.data import load, split
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.runner import run

TABLE = Table5Explained()


def cell(scheme: str, depth: int) -> Cell:
    return TABLE.cell("diabetes", scheme, depth, alpha=2.0)


def test_a_dead_network_errs_as_predicted() -> None:
    parts = split(load("diabetes"), SPLIT)
    for batch in (32, 8):  # dead from the start; ten epochs
        network = replace(cell("random", 100), epochs=10, rate=0.01, batch=batch)
        (record,) = run([network], device="cpu", datasets=TABLE.datasets([network], None))
        steps = 10 * -(-len(parts.y_train) // batch)
        start, end = (np.sqrt(np.mean((parts.y_test - bias) ** 2)) for bias in (0.0, 0.01 * steps))
        moved = (start - record.score) / (start - end)
        assert 0.96 < moved < 1.01  # the noise of small batches costs Adam up to 3 % of a step


def test_lees_networks_die_by_the_signs_of_lapack_alone() -> None:
    """The published error is 161.88 at every shift but the largest; without these signs the networks learn."""
    wanted = ("diabetes", "lee", 50, 2.0)
    (number,) = [n for n in published("table5") if (n.dataset, n.scheme, n.depth, n.alpha) == wanted]
    cells = [replace(cell("lee", 50), scheme=f"lee {form}") for form in ("lapack", "product", "direct")]
    assert cells[0] == cell("lee", 50)
    dying, *others = run(cells, device="cpu", datasets=TABLE.datasets(cells, None))
    assert abs(dying.score - number.value) < 0.05
    assert max(other.score for other in others) < 70
