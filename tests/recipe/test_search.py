"""The search that `find_start`, `train --lr auto` and scikit-learn's perceptrons share."""

from __future__ import annotations

import math

import pytest

from stiefel_init.recipe.search import LRS, judged, planned, shortlist

Setting = tuple[str, float]
RATES = [1e-3, 2e-3, 5e-3, 1e-2]


def test_a_rate_on_a_cliff_loses_to_one_that_is_nearly_as_good_and_safe() -> None:
    found = judged({1.0: 80.0, 2.0: 90.0, 4.0: 91.0, 8.0: -math.inf})
    assert max(found, key=found.__getitem__) == 2.0
    assert found[4.0] == ((91.0 + 80.0) / 2, 91.0), "the diverged one counts as the worst that did not"
    assert judged({1.0: 80.0, 3.0: -math.inf})[1.0] == (80.0, 80.0), "three times a rate is not its double"
    assert judged({1.0: -math.inf, 2.0: -math.inf})[1.0] == (-math.inf, -math.inf)


def test_short_trainings_come_first_and_the_best_come_out() -> None:
    lengths: list[int] = []

    def train(setting: Setting, steps: int) -> float:
        lengths.append(steps)
        return abs(math.log(setting[1] / 2e-3)) + (setting[0] != "b") + 1 / steps

    settings = [(start, rate) for start in "abcd" for rate in RATES]
    left = shortlist(settings, 64, train)
    assert left[0][0] == "b"
    assert lengths == [4] * 16 + [16] * 2
    assert sum(lengths) == planned(16, 64)
    assert 12 < planned(5 * len(LRS), 1600) / 1600 + 2 * 4 < 13, "what find_start says of its cost"


@pytest.mark.parametrize("count", [2, 4, 16])
def test_ones_own_is_always_among_those_left(count: int) -> None:
    others = [(start, rate) for start in ("other", "own") for rate in RATES * 2][:count]

    def own(setting: Setting) -> bool:
        return setting[0] == "own"

    left = shortlist([*others, ("own", 1.0)], 64, lambda setting, steps: float(own(setting)), own)
    assert "own" in {start for start, _ in left}


def test_where_nothing_trains_something_is_left() -> None:
    assert shortlist([("a", rate) for rate in RATES], 16, lambda setting, steps: math.inf)
