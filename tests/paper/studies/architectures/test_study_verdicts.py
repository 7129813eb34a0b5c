"""The study of architectures: which runs are left, and what is said of those that are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from paper.studies.architectures import line, page
from paper.studies.architectures import runs as plan
from paper.studies.architectures.catalogue import Network, networks
from paper.studies.architectures.runs import Log, Runs
from paper.studies.architectures.study import Verdicts
from paper.studies.architectures.training import SETTLING, TUNING, Job

from stiefel_init import StiefelError

NETWORK = replace(networks(quick=False)["vit"], name="net", title="net", only=("ours", "he", "torch"), rates=(1, 2, 4))


def tuned(scores: dict[float, float], start: str = "ours") -> dict[Job, float]:
    return {Job("net", start, rate, TUNING): score for rate, score in scores.items()}


def test_rates_first_then_beyond_the_best_end_then_fresh_seeds() -> None:
    def left(scores: dict[float, float]) -> list[tuple[float, int]]:
        return [(job.rate, job.seed) for job in plan.left_of(NETWORK, "ours", tuned(scores), 2)]

    assert left({}) == [(1, TUNING), (2, TUNING), (4, TUNING)]
    assert left({1: 50, 2: 60}) == [(4, TUNING)]
    assert left({1: 50, 2: 60, 4: 55}) == [(2, 0), (2, 1)]
    assert left({1: 50, 2: 60, 4: 70}) == [(8, TUNING)]
    assert left({1: 70, 2: 60, 4: 50}) == [(0.5, TUNING)]
    assert left({1: 40, 2: 50, 4: 60, 8: 70, 16: 80, 32: 90}) == [(32, 0), (32, 1)]  # no more rates
    assert left({1: 10, 2: 10, 4: 10.5}) == []  # nothing learnt


def test_two_close_rates_are_settled_at_full_length() -> None:
    margin = NETWORK.metric.margin
    close = tuned({1: 50, 2: 60, 4: 60 - margin, 8: 40})
    apart = tuned({1: 50, 2: 60, 4: 59.9 - margin, 8: 40})

    def left(scores: dict[Job, float], network: Network = NETWORK) -> list[tuple[float, int]]:
        return [(job.rate, job.seed) for job in plan.left_of(network, "ours", scores, 1)]

    assert left(apart) == [(2, 0)]
    assert left(close) == [(2, SETTLING), (4, SETTLING)]
    assert plan.left_of(NETWORK, "ours", close, 1, thorough=False) == [Job("net", "ours", 2, 0)]
    half = close | {Job("net", "ours", 2, SETTLING): 70.0}
    assert left(half) == [(4, SETTLING)]
    assert plan.best_rate(NETWORK, "ours", half) == 2
    settled = half | {Job("net", "ours", 4, SETTLING): 70.2}
    assert left(settled) == [(4, 0)]
    long = replace(NETWORK, tune=NETWORK.steps)  # the first runs were as long, and count as much
    assert left(settled, long) == [(2, 0)]
    assert left(tuned({1: 50, 2: 60, 4: 60})) == [(2, SETTLING), (4, SETTLING)]


def runs_of(scores: dict[str, list[float]], network: Network = NETWORK) -> Runs:
    """Runs at rate 2, the best."""
    found: Runs = {}
    for start, each in scores.items():
        for rate, off in ((1, 5.0), (2, 0.0), (4, 5.0)):
            found[Job(network.name, start, rate, TUNING)] = (each[0] - network.metric.sign * off,)
        found |= {Job(network.name, start, 2, seed): (score,) for seed, score in enumerate(each)}
    return found


def test_better_worse_not_worse_and_undecided() -> None:
    ours = [90.0, 90.1, 90.2, 89.9, 90.0]
    words = {}
    for other, scores in {
        "far below": [80.0, 80.1, 80.2, 80.0, 79.9],
        "far above": [95.0, 95.1, 95.2, 95.0, 94.9],
        "the same": [90.1, 90.0, 90.1, 90.0, 90.1],
        "anywhere": [85.0, 95.0, 90.0, 87.0, 93.0],
    }.items():
        found = Verdicts({"net": NETWORK}, runs_of({"ours": ours, "he": scores, "torch": ours}))
        words[other] = found.words("net")["he"]
    assert words == {
        "far below": "better", "far above": "worse", "the same": "not worse", "anywhere": "undecided",
    }  # fmt: skip


def test_less_is_better_for_a_loss() -> None:
    network = replace(networks(quick=False)["gpt"], name="net", only=("ours", "he"), rates=(1, 2, 4))
    scores = {"ours": [1.0, 1.01, 0.99], "he": [1.5, 1.51, 1.49]}
    found = Verdicts({"net": network}, runs_of(scores, network))
    assert found.words("net") == {"he": "better"}
    assert "better than every other" in line(found)


def test_only_complete_networks_are_judged() -> None:
    scores = {"ours": [90.0, 90.1], "he": [80.0, 80.1], "torch": [70.0, 70.1]}
    runs = runs_of(scores)
    assert Verdicts({"net": NETWORK}, runs).networks
    for job in list(runs):
        partly = {other: curve for other, curve in runs.items() if other != job}
        found = Verdicts({"net": NETWORK}, partly)
        assert not found.networks, job
        assert [network.name for network in found.missing] == ["net"]
    assert "Not compared yet: net." in page.section(found)


def test_a_start_that_learnt_at_no_rate_is_beaten_without_a_test() -> None:
    runs = runs_of({"ours": [90.0, 90.1], "he": [80.0, 80.1]})
    runs |= {Job("net", "torch", rate, TUNING): (10.0,) for rate in (1, 2, 4)}
    found = Verdicts({"net": NETWORK}, runs)
    assert found.words("net")["torch"] == "better"
    assert ("net", "torch") not in found.comparisons
    assert any("learnt nothing" in cell for row in page.tables(found)[0].rows for cell in row)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "architectures.csv"
    log = Log(path)
    for seed in range(3):
        log.add(Job("net", "ours", 0.5, seed), [1.0, 2.0])
    assert Log(path).runs == log.runs
    text = path.read_text()
    path.write_text(text.replace("2.0000,1.0000 2.0000", "3.0000,1.0000 2.0000", 1))
    with pytest.raises(StiefelError, match="line 2, is damaged"):
        Log(path)
