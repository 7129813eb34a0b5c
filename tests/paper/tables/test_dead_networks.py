"""What the published numbers say by themselves: dead networks count steps, and accuracies are whole rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from paper.tables import dead
from paper.tables.published import published
from paper.tables.tabular import Table5Explained

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.runner import run

TABLE = Table5Explained()


def cell(scheme: str, depth: int) -> Cell:
    return TABLE.cell("diabetes", scheme, depth, alpha=2.0)


def test_a_dead_network_errs_as_predicted() -> None:
    for batch in (32, 8):  # dead from the start; ten epochs
        network = replace(cell("random", 100), epochs=10, rate=0.01, batch=batch)
        (record,) = run([network], device="cpu", datasets=TABLE.datasets([network], None))
        y, rows = dead._targets(42)
        start, end = (np.sqrt(np.mean((y - bias) ** 2)) for bias in (0.0, 0.01 * 10 * -(-rows // batch)))
        moved = (start - record.score) / (start - end)
        assert 0.96 < moved < 1.01  # the noise of small batches costs Adam up to 3 % of a step


def test_they_name_the_protocol() -> None:
    best, *others = dead.fits()
    assert (best.split, best.batch, best.epochs) == (42, 32, 100)
    assert best.error < 0.02
    assert best.close == 15
    assert all(fit.error > 0.02 for fit in others if fit.batch * 100 != 32 * fit.epochs)
    assert dead.closest(256).close == 0


def test_lees_networks_die_by_the_signs_of_lapack_alone() -> None:
    """The published error is 161.88 at every shift but the largest; without these signs the networks learn."""
    (number,) = [n for n in dead.dead_numbers() if (n.scheme, n.depth, n.alpha) == ("lee", 50, 2.0)]
    cells = [replace(cell("lee", 50), scheme=f"lee {form}") for form in ("lapack", "product", "direct")]
    assert cells[0] == cell("lee", 50)
    dying, *others = run(cells, device="cpu", datasets=TABLE.datasets(cells, None))
    assert abs(dying.score - number.value) < dead.CLOSE
    assert max(other.score for other in others) < 70


@pytest.mark.parametrize(("split", "batch"), [(7, 16), (3, 256), (42, 32)])
def test_a_planted_protocol_is_named(split: int, batch: int) -> None:
    made = tuple(replace(n, value=round(dead.predicted(n, split, batch, 100), 2)) for n in dead.dead_numbers())
    best = dead.fits(made)[0]
    assert best.split == split
    assert best.epochs * -(-353 // best.batch) == 100 * -(-353 // batch)
    assert best.close == len(made)


def test_accuracies_are_whole_rows() -> None:
    assert dead.whole_rows() == (192, 192)
    means = [replace(n, value=round(n.value + 0.3, 2)) for n in published("table5")]
    assert dead.whole_rows(means)[0] < 40
