"""What the runs say: each start at its best rate, and ours against every other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from scipy import stats

from . import plan
from .catalogue import Network
from .log import Runs
from .starts import OURS
from .training import TUNING

Word = Literal["better", "not worse", "undecided", "worse"]


class Outcome(NamedTuple):
    """What came of one start of a network."""

    rate: float
    at_an_end: bool
    """Whether that is the largest or smallest rate that was tried."""
    curves: list[tuple[float, ...]]
    """Of the fresh seeds; none for a start that learnt at no rate."""

    @property
    def scores(self) -> list[float]:
        """At the end of training."""
        return [curve[-1] for curve in self.curves]


class Comparison(NamedTuple):
    """Ours against another start; the difference is positive where ours is better."""

    difference: float
    low: float
    high: float
    p: float
    word: Word = "undecided"


class Verdicts:
    """The outcomes of all networks whose runs are complete, and the comparisons."""

    def __init__(self, networks: Mapping[str, Network], runs: Runs) -> None:
        self.outcomes = {name: found for name, network in networks.items() if (found := _outcomes(network, runs))}
        self.networks = {name: networks[name] for name in self.outcomes}
        self.missing = [network for name, network in networks.items() if name not in self.outcomes]
        self.alone = {network.name: _alone(network, runs) for network in self.missing}
        """Of networks that cannot be compared yet: the scores of ours with fresh seeds, if there are some."""
        tests = {}
        for name, network in self.networks.items():
            sign = network.metric.sign
            ours = [sign * score for score in self.outcomes[name][OURS].scores]
            for start, outcome in self.outcomes[name].items():
                if start != OURS and outcome.curves and ours:
                    tests[name, start] = welch(ours, [sign * score for score in outcome.scores])
        self.comparisons = {
            key: test._replace(word=_word(test, self.networks[key[0]].metric.margin))
            for key, test in holm(tests).items()
        }

    def words(self, name: str) -> dict[str, Word]:
        """How ours compares with each other start of a network; better than one from which nothing was learnt."""
        found: dict[str, Word] = {}
        for start, outcome in self.outcomes[name].items():
            if start != OURS:
                found[start] = self.comparisons[name, start].word if outcome.curves else "better"
        return found

    def next_best(self, name: str) -> tuple[str, float]:
        """The best of the other starts, and its mean."""
        sign = self.networks[name].metric.sign
        means = {s: statistics.mean(o.scores) for s, o in self.outcomes[name].items() if s != OURS and o.curves}
        return max(means.items(), key=lambda item: sign * item[1])


def _outcomes(network: Network, runs: Runs) -> dict[str, Outcome]:
    """Those of all starts; empty if some run is missing."""
    scores = {job: curve[-1] for job, curve in runs.items()}
    tuned = network.rates_of or network.name
    found = {}
    for start in plan.starts(network):
        rate = plan.best_rate(network, start, scores)
        if rate is None:
            return {}
        tried = [job.rate for job in runs if job[:2] == (tuned, start) and job.seed == TUNING]
        fresh = {job.seed: curve for job, curve in runs.items() if job[:3] == (network.name, start, rate)}
        curves = [fresh[seed] for seed in sorted(fresh) if seed < TUNING]
        found[start] = Outcome(rate, rate in (min(tried), max(tried)), curves)
    counts = {len(outcome.curves) for outcome in found.values() if outcome.curves}
    left = any(plan.left(network, start, scores, min(counts, default=0), thorough=False) for start in found)
    return found if found[OURS].curves and len(counts) == 1 and min(counts) > 1 and not left else {}


def _alone(network: Network, runs: Runs) -> list[float]:
    rate = plan.best_rate(network, OURS, {job: curve[-1] for job, curve in runs.items()})
    mine = {job.seed: curve[-1] for job, curve in runs.items() if job[:3] == (network.name, OURS, rate)}
    return [mine[seed] for seed in sorted(mine) if seed < TUNING]


def welch(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """The difference of means, its 95 % interval, and Welch's p-value."""
    parts = [statistics.variance(scores) / len(scores) for scores in (ours, theirs)]
    difference, error = statistics.mean(ours) - statistics.mean(theirs), math.sqrt(sum(parts))
    if not error:
        return Comparison(difference, difference, difference, float(not difference))
    freedom = sum(parts) ** 2 / sum(part**2 / (len(s) - 1) for part, s in zip(parts, (ours, theirs)))
    reach = stats.t.ppf(0.975, freedom) * error
    p = 2 * stats.t.sf(abs(difference) / error, freedom)
    return Comparison(difference, difference - reach, difference + reach, float(p))


def holm(tests: Mapping[Any, Comparison]) -> dict[Any, Comparison]:
    """The same with Holm's p-values."""
    adjusted, least = {}, 0.0
    for place, key in enumerate(sorted(tests, key=lambda key: tests[key].p)):
        least = max(least, min(1.0, (len(tests) - place) * tests[key].p))
        adjusted[key] = tests[key]._replace(p=least)
    return {key: adjusted[key] for key in tests}


def _word(test: Comparison, margin: float) -> Word:
    if test.p < 0.05:
        return "better" if test.difference > 0 else "worse"
    return "not worse" if test.low > -margin else "undecided"
