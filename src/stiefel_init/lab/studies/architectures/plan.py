"""Which runs are left: rates with a seed of their own, then fresh seeds at the best.

A start from which nothing was learnt at any rate is not run again.
"""

from __future__ import annotations

from collections.abc import Mapping

from .catalogue import Network
from .starts import starts_of
from .training import TUNING, Job

MORE = 3
"""Rates at most that are tried beyond the first ones, while the best lies at an end."""


def starts(network: Network) -> list[str]:
    """Its starts."""
    return list(network.starts or starts_of(network.kind))


def best_rate(network: Network, start: str, scores: Mapping[Job, float]) -> float | None:
    """The rate that was best with the seed for it; None without runs."""
    name = network.rates_of or network.name
    tried = {job.rate: score for job, score in scores.items() if job[:2] == (name, start) and job.seed == TUNING}
    return max(tried, key=lambda rate: (network.metric.sign * tried[rate], -rate)) if tried else None


def left(network: Network, start: str, scores: Mapping[Job, float], seeds: int, more: int = MORE) -> list[Job]:
    """The runs of a start that can be begun now.

    Args:
        network: The network.
        start: The start.
        scores: What has been run.
        seeds: How many fresh seeds.
        more: How many rates to try beyond the first ones.
    """
    best = best_rate(network, start, scores)
    if not network.rates_of:
        tried = [job.rate for job in scores if job[:2] == (network.name, start) and job.seed == TUNING]
        if fresh := [rate for rate in network.rates if rate not in tried]:
            return [Job(network.name, start, rate, TUNING) for rate in fresh]
        assert best is not None
        if not network.metric.learnt(scores[Job(network.name, start, best, TUNING)]):
            return []  # fresh seeds would be wasted on it
        if len(tried) < len(network.rates) + more and best in (min(tried), max(tried)):
            return [Job(network.name, start, best / 2 if best == min(tried) else best * 2, TUNING)]
    if best is None:
        return []
    wanted = [Job(network.name, start, best, seed) for seed in range(seeds)]
    return [job for job in wanted if job not in scores]


def expected(network: Network, seeds: int) -> float:
    """About how many full runs a network takes."""
    tuning = 0 if network.rates_of else (len(network.rates) + 1) * network.tuning_steps / network.steps
    return len(starts(network)) * (seeds + tuning)
