"""Records simulated from a known law, so that a protocol can be planted and must be found again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from paper.protocols.dead import test_rows as rows_of_test
from paper.protocols.hypotheses import Protocol, numbers
from paper.tables.published import Published

from stiefel_init.lab.data import CATALOG
from stiefel_init.lab.train import problem
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

EPOCHS = tuple(range(5, 101, 5))


def law(cell: Cell, base: str) -> tuple[float, float, float]:
    """A cell's own mean, spread and probability of a collapse: arbitrary, but the same for all its seeds."""
    digest = hashlib.blake2b(cell.setting.key.encode(), digest_size=8).digest()
    rng = np.random.default_rng(int.from_bytes(digest, "little"))
    if base == "diabetes":
        return rng.uniform(55, 75), rng.uniform(0.5, 3), rng.choice([0.0, 0.5, 1.0])
    return rng.uniform(80, 97), rng.uniform(0.5, 3), rng.choice([0.0, 0.5, 1.0])


def run(cell: Cell, base: str, rng: np.random.Generator) -> list[float]:
    """The test scores of one run after each fifth epoch."""
    mean, spread, collapses = law(cell, base)
    floor = CATALOG[base].floor
    if rng.random() < collapses:
        return [float(floor) if floor is not None else 162.0] * len(EPOCHS)
    last = mean + spread * rng.standard_normal()
    worse = 1 if base == "diabetes" else -1
    rows = rows_of_test(base)
    wander = [last + worse * 6 * (epoch <= 50) + spread * rng.standard_normal() for epoch in EPOCHS[:-1]]
    return [x if base == "diabetes" else round(min(x, 100) * rows / 100) * 100 / rows for x in (*wander, last)]


def record(cell: Cell, base: str, rng: np.random.Generator) -> Record:
    """The record of one run."""
    curve = run(cell, base, rng)
    metric = problem.RMSE if base == "diabetes" else problem.ACCURACY
    made = {"device": "none", "engine": "by hand"}
    return Record(cell, metric, curve[-1], tested=EPOCHS, test_score=tuple(curve), environment=made)


def records(protocols: Iterable[Protocol], wanted: Iterable[Published], seeds: int = 4) -> dict[Cell, Record]:
    """Our own runs under every protocol."""
    rng = np.random.default_rng(1)
    found: dict[Cell, Record] = {}
    for protocol in protocols:
        for number in wanted:
            for seed in range(seeds):
                cell = protocol.cell(number, seed)
                found.setdefault(cell, record(cell, number.dataset, rng))
    return found


def publish(protocol: Protocol, wanted: Iterable[Published], seed: int = 7) -> Mapping[Published, float]:
    """One more run of each number under a protocol: what its authors would have published."""
    rng = np.random.default_rng(seed)
    values = {}
    for number in wanted:
        curve = run(protocol.cell(number), number.dataset, rng)
        upto = [score for epoch, score in zip(EPOCHS, curve) if epoch <= protocol.epochs]
        pick = min if number.dataset == "diabetes" else max
        values[number] = round(pick(upto) if protocol.best else upto[-1], 2)
    return values


def small(depth: int = 50) -> list[Published]:
    """The published numbers of the small sets at one depth."""
    return [number for number in numbers() if number.dataset != "adult" and number.depth == depth]
