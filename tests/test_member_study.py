"""The study of members: which networks it trains, and that its statistics say what the numbers say."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from stiefel_init.lab import experiments, members, pictures
from stiefel_init.lab.cells import Cell
from stiefel_init.lab.records import Record, read
from stiefel_init.lab.reproduce import reproduce


def record(cell: Cell, score: float) -> Record:
    return asdict(cell) | {
        "score": score,
        "diverged": None,
        "tested": [1, cell.epochs],
        "test_score": [score / 2, score],
    }


def study(truth, noise: float = 0.3, seed: int = 0) -> list[Record]:
    """Records of the whole study, of which the score of a cell is truth(cell) and noise."""
    rng = np.random.default_rng(seed)
    tuned = [record(cell, truth(cell) + noise * rng.normal()) for cell in experiments.member_rates()]
    cells = experiments.cells("members") + experiments.members_at(members.best_rates(tuned))
    return tuned + [record(cell, truth(cell) + noise * rng.normal()) for cell in dict.fromkeys(cells)]


def permutation_wins(cell: Cell) -> float:
    """Permutations are better the deeper; everything is best at twice the rate, but He at a quarter."""
    bonus = 2.0 * np.log10(cell.depth / 10) if cell.variant == "permutation" else 0.0
    wanted = 0.25 if cell.scheme == "he" else 2.0
    times = cell.rate * 1e3 * np.sqrt(cell.depth)
    level = 96.0 if cell.dataset == "mnist" else 86.0
    return level + bonus - 3.0 * abs(np.log2(times / wanted))


def test_the_tuning_seed_is_none_of_those_compared() -> None:
    assert {cell.seed for cell in experiments.member_rates()} == {experiments.TUNING_SEED}
    assert experiments.TUNING_SEED not in {cell.seed for cell in experiments.cells("members")}


def test_every_member_is_compared_at_every_depth_with_equal_epochs() -> None:
    records = members.compared([record(cell, 90.0) for cell in experiments.cells("members", 5)])
    usual = [r for r in records if members.times(r) == 1]
    for dataset in experiments.IMAGES:
        for depth in experiments.MEMBER_DEPTHS:
            here = [r for r in usual if (r["dataset"], r["depth"]) == (dataset, depth)]
            assert {(r["scheme"], r["variant"]) for r in here} == set(experiments.MEMBERS)
            assert len(here) == 5 * len(experiments.MEMBERS)
            assert len({r["epochs"] for r in here}) == 1


def test_best_rates_are_those_of_the_tuning_networks() -> None:
    records = study(permutation_wins)
    best = members.best_rates(records)
    assert {times for (_, scheme, _, _), times in best.items() if scheme == "he"} == {0.25}
    assert {times for (_, scheme, _, _), times in best.items() if scheme != "he"} == {2.0}
    assert all(members.times(r) == (0.25 if r["scheme"] == "he" else 2.0) for r in members.at_best(records))
    seeds = {r["seed"] for r in members.at_best(records)}
    assert seeds == set(range(experiments.SEEDS["members"]))


def test_the_claims_follow_the_numbers() -> None:
    verdicts = {row[0]: row[1] for row in members.claims(study(permutation_wins))[2]}
    assert all(verdicts[name] == "holds" for name in verdicts if "is better" in name or "not worse" in name)
    assert verdicts["a thousand layers, permutation: mnist at 96 % within 40 epochs"] == "holds"
    assert verdicts["a thousand layers, rotation 0.1: mnist at 96 % within 40 epochs"] == "fails"
    assert verdicts["10,000 layers reach 90 % on MNIST"] == "holds"

    def permutation_loses(cell: Cell) -> float:
        return 80.0 if cell.variant in ("permutation", "identity", "rotation 0.03") else 89.0

    verdicts = {row[0]: row[1] for row in members.claims(study(permutation_loses))[2]}
    assert set(verdicts.values()) == {"fails", "not shown", "holds"}
    assert [name for name, verdict in verdicts.items() if verdict == "holds"] == [
        "a thousand layers, rotation 0.1: fashion-mnist at 86 % within 40 epochs"
    ]


def test_the_claims_rest_on_fresh_seeds_alone() -> None:
    """The recommended member against the uniform one: equal on seeds that had no part in the choice, better before."""

    def lucky(cell: Cell) -> float:
        return 95.0 + 3.0 * (cell.variant == "permutation" and cell.experiment != "members-fresh")

    verdicts = {row[0]: row[1] for row in members.claims(study(lucky))[2]}
    assert {verdict for name, verdict in verdicts.items() if "not worse" in name} == {"holds"}
    assert {verdict for name, verdict in verdicts.items() if "is better" in name} == {"not shown"}


@pytest.mark.parametrize("best", [False, True])
def test_duels_set_each_member_against_the_uniform_one(best: bool) -> None:
    rows = members.duels(study(permutation_wins), best=best)[2]
    found = {(row[0], row[1]): (float(row[2]), float(row[3]), float(row[4])) for row in rows}
    for dataset in experiments.IMAGES:
        difference, better, worse = found[f"{dataset}, depth 300", "permutation"]
        assert difference == pytest.approx(2 * np.log10(30), abs=0.8)
        assert better < 0.01 < 0.99 < worse
        difference, better, _ = found[f"{dataset}, depth 300", "rotation 0.1"]
        assert abs(difference) < 0.8
        assert better > 0.001


def test_a_network_that_two_studies_share_counts_once() -> None:
    cell = experiments._member("wine", experiments.MEMBERS[0], 100, width=8, alpha=2.0, epochs=100)
    twins = [record(replace(cell, experiment=name, seed=seed), 90.0 + 2 * seed)
             for name in ("members", "members-quick") for seed in range(2)]  # fmt: skip
    title, _, rows = members.tables(twins)[-1]
    assert title.startswith("tabular")
    assert rows == [["uniform", f"91.0 ± {np.std([90, 92], ddof=1):.1f}"]]


def test_the_curves_are_drawn_and_those_of_the_longest_training() -> None:
    rows = members.curves(study(permutation_wins))
    assert {row["depth"] for row in rows} == {100, 300, 1000, 3000, 10000}
    learning = pictures.member_learning(rows)
    assert [axis.get_title() for axis in learning.axes[1::3]] == ["mnist, 300 layers", "fashion-mnist, 300 layers"]
    assert all(len(axis.lines) == len(experiments.MEMBERS) for axis in learning.axes)
    figure = pictures.member_curves(rows)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [
        "mnist, 1,000 layers", "fashion-mnist, 1,000 layers", "mnist, 3,000 layers", "mnist, 10,000 layers"
    ]  # fmt: skip
    assert len(figure.axes[0].lines) == 2  # the two members that had forty epochs, not all those with fifteen
    assert len(figure.axes[3].lines) == 6  # three members at two rates
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {"rotation 0.1", "permutation", "identity", "rotation 0.03", "4 × the rate"}


def test_the_study_finds_rates_first_and_then_compares_at_them(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = experiments.MEMBERS[:2]

    def cell(kind: tuple[str, str | None], times: float, **options) -> Cell:
        return experiments._member("digits", kind, 10, times, **options)

    rates = (0.01, 4.0), (0.01, 1.0)  # of which the first learns next to nothing; the second member's best is the usual
    tuning = [
        cell(kind, times, seed=experiments.TUNING_SEED, epochs=2, experiment="members-rates")
        for kind, tried in zip(kinds, rates)
        for times in tried
    ]
    usual = [cell(kind, 1.0, seed=seed) for kind in kinds for seed in range(2)]
    monkeypatch.setattr(experiments, "member_rates", lambda: tuning)
    monkeypatch.setattr(experiments, "cells", lambda name, seeds, quick: list(usual))
    shown, counted = {}, []
    everything = members.everything
    monkeypatch.setattr(members, "everything", lambda records: counted.append(len(records)) or everything(records))
    reproduce(
        "members", seeds=2, quick=False, device="cpu", out=tmp_path, data=None, stack=None, dry_run=False,
        show=lambda header, rows, title: shown.update({title: rows}),
    )  # fmt: skip
    records = read(tmp_path, print)
    at_best = [r for r in records if r["experiment"] == "members" and members.times(r) == 4]
    assert sorted((members.kind(r), r["seed"]) for r in at_best) == [("uniform", 0), ("uniform", 1)]
    assert len(records) == len(tuning) + len(usual) + len(at_best) == counted[0]
    assert [row[0] for row in shown["members: digits, each at its best rate of five; by depth"]] == [
        "uniform",
        "permutation",
    ]
