"""Which setting trains best: short trainings before long ones, and rates judged together with their doubles.

`find_start`, `stiefel-init train --lr auto` and scikit-learn's `learning_rate_init="auto"` choose by these rules; each
says only how it trains a setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

TIMES, ROUNDS, KEEP = 4, 3, 6
"""Each round is `TIMES` as long as the one before, and the last has the full length; one in `KEEP` goes on."""
DOUBLE = 2.5
"""Up to so many times a rate, another is its double: as in 1, 2, 5, 10."""
LRS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2)
Setting = TypeVar("Setting", bound=tuple[Any, ...])
"""What is tried; its last part is the rate."""


def best_first(reached: Mapping[float, float], *, ties_to_largest: bool = False) -> list[float]:
    """Rates by what they reached, for which more is better; of equal ones, the smallest first, or the largest.

    >>> best_first({1.0: 80.0, 0.5: 90.0, 2.0: 90.0}), best_first({0.5: 90.0, 2.0: 90.0}, ties_to_largest=True)
    ([0.5, 2.0, 1.0], [2.0, 0.5])
    """
    return sorted(reached, key=lambda rate: (-reached[rate], -rate if ties_to_largest else rate))


def beyond(tried: Collection[float], best: float) -> float | None:
    """The rate to try next if the best of those tried lies at an edge: half the smallest, or twice the largest.

    >>> beyond([1.0, 2.0, 4.0], 1.0), beyond([1.0, 2.0, 4.0], 2.0), beyond([1.0, 2.0, 4.0], 4.0)
    (0.5, None, 8.0)
    """
    return best / 2 if best == min(tried) else best * 2 if best == max(tried) else None


def judged(reached: Mapping[float, float]) -> dict[float, tuple[float, float]]:
    """Of each rate how good it is: the mean of what it and its double reached, and what it reached, more is better.

    What diverged counts as the worst that did not, so that no choice hangs on a cliff.

    >>> judged({1.0: 80.0, 2.0: 82.0, 4.0: -math.inf})
    {1.0: (81.0, 80.0), 2.0: (81.0, 82.0), 4.0: (-inf, -inf)}
    """
    worst = min(filter(math.isfinite, reached.values()), default=-math.inf)
    found = {}
    for rate, own in reached.items():
        double = min((other for other in reached if rate < other <= DOUBLE * rate), default=rate)
        found[rate] = (own + max(worst, reached[double])) / 2 if math.isfinite(own) else own, own
    return found


def shortlist(
    settings: Sequence[Setting], steps: int, train: Callable[[Setting, int], float],
    own: Callable[[Setting], bool] = bool,
) -> list[Setting]:  # fmt: skip
    """What is worth a full training, the best first: all are trained for a sixteenth of it, one in six for a
    quarter, and one that is one's `own` always among those.

    Args:
        settings: What to try.
        steps: Of a full training.
        train: A setting, for so many steps, to its loss.
        own: Which settings must not all be dropped.
    """
    for left in range(ROUNDS - 1, 0, -1):
        settings = _ordered({setting: -train(setting, steps // TIMES**left) for setting in settings})
        if left > 1:
            count, first = max(2, len(settings) // KEEP), next(filter(own, settings), settings[0])
            settings = settings[:count] if first in settings[:count] else [*settings[: count - 1], first]
    return list(settings)


def _ordered(reached: Mapping[Setting, float]) -> list[Setting]:
    rates: dict[Any, dict[float, float]] = {}
    for setting, value in reached.items():
        rates.setdefault(setting[:-1], {})[setting[-1]] = value
    found = {line: judged(values) for line, values in rates.items()}
    return sorted(reached, key=lambda setting: found[setting[:-1]][setting[-1]], reverse=True)


def downhill(setting: Setting, settings: Sequence[Setting], train: Callable[[Setting], float]) -> Setting:
    """The setting, or the same at a smaller rate, while the next smaller one has less loss in full trainings.

    Short trainings like large rates.

    >>> settings = [("a", 0.01), ("a", 0.05), ("a", 0.1), ("b", 0.07)]
    >>> downhill(("a", 0.1), settings, lambda setting: abs(setting[1] - 0.05))
    ('a', 0.05)
    """
    least = train(setting)
    while smaller := [each for each in settings if each[:-1] == setting[:-1] and each[-1] < setting[-1]]:
        following = max(smaller, key=lambda each: each[-1])
        loss = train(following)
        if least <= loss < math.inf:
            break
        setting, least = following, loss
    return setting


def planned(settings: int, steps: int) -> int:
    """How many steps the shortlist takes."""
    total = 0
    for left in range(ROUNDS - 1, 0, -1):
        total += settings * (steps // TIMES**left)
        settings = max(2, settings // KEEP)
    return total
