"""Which runs are left: rates with seeds of their own, then fresh seeds at the best.

Two rates whose runs are closer than the margin are run once more, at full length and with another seed. A start from
which nothing was learnt at any rate is not run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean

from .catalogue import Network
from .starts import starts_of
from .training import SETTLING, TUNING, Job

MORE = 3
"""Rates at most that are tried beyond the first ones, while the best lies at an end."""


def starts(network: Network) -> list[str]:
    """Its starts."""
    return list(network.starts or starts_of(network.kind))


def best_rate(network: Network, start: str, scores: Mapping[Job, float]) -> float | None:
    """The rate that was best with the seeds for it; None without runs."""
    best = _close(network, start, scores)[:1]
    long = {rate: _at_length(network, start, rate, scores) for rate in _close(network, start, scores)}
    if all(Job(network.rates_of or network.name, start, rate, SETTLING) in scores for rate in long):
        best = sorted(long, key=lambda rate: (-network.metric.sign * mean(long[rate]), rate))[:1]
    return best[0] if best else None


def _close(network: Network, start: str, scores: Mapping[Job, float]) -> list[float]:
    """The best rate of the first seed, and the next best where it is closer than the margin."""
    name, sign = network.rates_of or network.name, network.metric.sign
    tried = {job.rate: sign * score for job, score in scores.items() if job[:2] == (name, start) and job.seed == TUNING}
    ranked = sorted(tried, key=lambda rate: (-tried[rate], rate))[:2]
    return [rate for rate in ranked if tried[rate] >= tried[ranked[0]] - network.metric.margin]


def _at_length(network: Network, start: str, rate: float, scores: Mapping[Job, float]) -> list[float]:
    """What a rate reached in the runs for it that were as long as the others."""
    seeds = [TUNING, SETTLING] if network.tuning_steps == network.steps else [SETTLING]
    jobs = [Job(network.rates_of or network.name, start, rate, seed) for seed in seeds]
    return [scores[job] for job in jobs if job in scores]


def left(network: Network, start: str, scores: Mapping[Job, float], seeds: int, *, thorough: bool = True) -> list[Job]:
    """The runs of a start that can be begun now.

    Args:
        network: The network.
        start: The start.
        scores: What has been run.
        seeds: How many fresh seeds.
        thorough: Whether to try rates beyond the first ones, and to settle which of two close ones is better.
    """
    best = best_rate(network, start, scores)
    if not network.rates_of:
        tried = [job.rate for job in scores if job[:2] == (network.name, start) and job.seed == TUNING]
        if fresh := [rate for rate in network.rates if rate not in tried]:
            return [Job(network.name, start, rate, TUNING) for rate in fresh]
        first, *second = _close(network, start, scores)
        if not network.metric.learnt(scores[Job(network.name, start, first, TUNING)]):
            return []  # fresh seeds would be wasted on it
        if thorough and len(tried) < len(network.rates) + MORE and first in (min(tried), max(tried)):
            return [Job(network.name, start, first / 2 if first == min(tried) else first * 2, TUNING)]
        settling = [Job(network.name, start, rate, SETTLING) for rate in (first, *second)] if second else []
        if thorough and (unknown := [job for job in settling if job not in scores]):
            return unknown
    if best is None:
        return []
    wanted = [Job(network.name, start, best, seed) for seed in range(seeds)]
    return [job for job in wanted if job not in scores]


def expected(network: Network, seeds: int, *, thorough: bool = True) -> float:
    """About how many full runs a network takes; a thorough study tries one rate more, on average."""
    rates = 0 if network.rates_of else len(network.rates) + thorough
    return len(starts(network)) * (seeds + rates * network.tuning_steps / network.steps)
