"""The ranking: a planted protocol is found again, whatever it is, and a wrong likelihood would not find it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import planted
import pytest
from paper.protocols.hypotheses import EXPLAINING, STATED, Protocol
from paper.protocols.ranking import Noise, Readings, merged, ranking, rows

TRAININGS = [STATED, *(replace(EXPLAINING, batch=batch) for batch in (256, 32, 16))]
RATES = [replace(EXPLAINING, rates=rule) for rule in ("all scaled", "all fixed")]


@pytest.fixture(scope="module")
def readings() -> Readings:
    return Readings(planted.records([*TRAININGS, *RATES], planted.small()))


def publish(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The numbers of table 5 as one more run of each under that protocol."""
    values = planted.publish(protocol, planted.small())
    made = {number: replace(number, value=value) for number, value in values.items()}
    monkeypatch.setattr("paper.protocols.ranking.numbers", lambda: tuple(made.values()))
    return list(made.values())


@pytest.mark.parametrize(
    "truth",
    [
        *TRAININGS, *RATES, replace(EXPLAINING, best=True), replace(EXPLAINING, epochs=50),
        replace(EXPLAINING, batch=16, epochs=50, best=True),
    ],
    ids=str,
)  # fmt: skip
def test_a_planted_protocol_is_found(truth: Protocol, readings: Readings, monkeypatch: pytest.MonkeyPatch) -> None:
    made = publish(truth, monkeypatch)
    found = ranking(readings, readings.protocols(), made)  # type: ignore[arg-type]
    assert found[0].protocol == truth
    others = [one for one in found if one.protocol.batch != truth.batch]
    assert found[0].total() - others[0].total() > 20
    assert found[0].explained() > 0.85 * len(made)
    assert found[0].agree() >= max(one.agree() for one in others)


def test_a_likelihood_that_ignores_the_scores_does_not_find_it(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = publish(EXPLAINING, monkeypatch)
    monkeypatch.setattr(Noise, "density", lambda self, number, scores, runs=1: 1 / self.span)
    found = ranking(readings, readings.protocols(), made)  # type: ignore[arg-type]
    assert np.ptp([one.total() for one in found]) < 1e-9


def test_protocols_are_given_equally_many_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (planted.records([protocol], planted.small(), seeds) for protocol, seeds in zip(TRAININGS, (2, 9)))
    found = ranking(Readings({**few, **many}), TRAININGS[:2], planted.small())
    cut = planted.records([TRAININGS[1]], planted.small(), 9)
    two = Readings({**few, **{cell: one for cell, one in cut.items() if cell.seed < 2}})
    alone = ranking(two, TRAININGS[:2], planted.small())
    assert [one.total() for one in found] == [one.total() for one in alone]


def test_what_is_published_of_a_record_reads_the_same() -> None:
    whole = planted.records(TRAININGS, planted.small())
    bare = {cell: replace(one, tested=(), test_score=()) for cell, one in whole.items()}
    full, kept, alone = Readings(whole), Readings(bare, rows(whole.values())), Readings(bare)
    for training in TRAININGS:
        for read in training.readings():
            for number in planted.small()[::7]:
                np.testing.assert_allclose(kept.scores(read, number), full.scores(read, number), atol=1e-4)
                assert len(alone.scores(read, number)) == (4 if read == training else 0)


def test_readings_of_a_later_run_are_added_and_take_the_place_of_older_ones() -> None:
    first, second = (rows(planted.records([each], planted.small()[:3]).values()) for each in TRAININGS[:2])
    changed = [{**second[0], "best": 99.0}]
    together = merged([*first, *second], changed)
    assert len(together) == len(first) + len(second)
    assert [row for row in together if row["best"] == 99.0] == changed
    assert merged(first, []) == first
