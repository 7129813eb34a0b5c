"""The study of members: which networks it trains, and that its statistics say what the numbers say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laboratory import record
from paper.experiment import Options
from paper.studies import members as study_of
from paper.studies.members import (
    DEPTHS,
    KINDS,
    MEMBERS,
    OF_THE_SET,
    RECOMMENDED,
    TUNING_SEED,
    UNIFORM,
    MemberRecords,
    Members,
    Networks,
    curves,
    kind,
)
from paper.tables.protocol import IMAGES

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record, read
from stiefel_init.schemes import He, Permutation, get

Truth = Callable[[Cell], float]


def study(truth: Truth, noise: float = 0.3, seed: int = 0) -> MemberRecords:
    """Records of the whole study, of which the score of a cell is truth(cell) and noise."""
    rng = np.random.default_rng(seed)
    found: dict[Cell, Record] = {}
    while left := [cell for cell in Members().cells(Members.seeds, records=found) if cell not in found]:
        for cell in left:
            score = truth(cell) + noise * rng.normal()
            found[cell] = record(cell, score, tested=(1, cell.epochs), test_score=(score / 2, score))
    return MemberRecords(found, Members.seeds)


def table(found: MemberRecords, title: str) -> Table:
    """The table of that title."""
    (one,) = [one for one in Members().tables(found) if one.title == title]
    return one


def permutation_wins(cell: Cell) -> float:
    """Permutations are better the deeper; everything is best at twice the rate, but He at a quarter."""
    bonus = 2.0 * np.log10(cell.depth / 10) if cell.scheme == Permutation() else 0.0
    wanted = 0.25 if cell.scheme == He() else 2.0
    level = 96.0 if cell.dataset == "mnist" else 86.0
    return level + bonus - 3.0 * abs(np.log2(cell.lr_multiplier / wanted))


@pytest.fixture(scope="module")
def won() -> MemberRecords:
    """The study, had permutations been the best."""
    return study(permutation_wins)


def test_the_tuning_seed_is_none_of_those_compared() -> None:
    tuning = Networks(Members.seeds, False).rates()
    assert {cell.seed for cell in tuning} == {TUNING_SEED}
    compared = set(Members().cells(Members.seeds)) - set(tuning)
    assert TUNING_SEED not in {cell.seed for cell in compared}


def test_every_member_is_compared_at_every_depth_with_equal_epochs() -> None:
    usual = Networks(5, False).usual()
    assert {cell.lr_multiplier for cell in usual} == {1.0}
    assert set(usual) <= set(Members().cells(5))
    for dataset in IMAGES:
        for depth in DEPTHS:
            here = [cell for cell in usual if (cell.dataset, cell.depth) == (dataset, depth)]
            assert {cell.scheme for cell in here} == set(MEMBERS)
            assert len(here) == 5 * len(MEMBERS)
            assert len({cell.epochs for cell in here}) == 1


def test_members_are_told_apart_by_name() -> None:
    assert len(set(KINDS)) == len(MEMBERS) == 10
    assert (
        tuple(map(get, ("stiefel", "permutation", "identity", "rotation 0.03", "rotation 0.1", "rotation 1")))
        == OF_THE_SET
    )
    assert MEMBERS[:2] == (UNIFORM, RECOMMENDED)


def test_best_rates_are_those_of_the_tuning_networks(won: MemberRecords) -> None:
    best = won.networks.best(won.records)
    assert {cell.lr_multiplier for cell in best if cell.scheme == He()} == {0.25}
    assert {cell.lr_multiplier for cell in best if cell.scheme != He()} == {2.0}
    assert {cell.seed for cell in best} == set(range(Members.seeds))
    assert {(cell.dataset, cell.scheme, cell.depth) for cell in best} == {
        (cell.dataset, cell.scheme, cell.depth) for cell in Networks(1, False).usual()
    }
    assert [record.cell for record in won.at_best()] == best


def test_the_claims_follow_the_numbers(won: MemberRecords) -> None:
    verdicts = {row[0]: row[1] for row in table(won, "claims").rows}
    assert all(verdicts[name] == "holds" for name in verdicts if "is better" in name or "not worse" in name)
    assert verdicts["a thousand layers, permutation: mnist at 96 % within 40 epochs"] == "holds"
    assert verdicts["a thousand layers, rotation 0.1: mnist at 96 % within 40 epochs"] == "fails"
    assert verdicts["10,000 layers reach 90 % on MNIST"] == "holds"

    def permutation_loses(cell: Cell) -> float:
        return 80.0 if kind(cell) in ("permutation", "identity", "rotation 0.03") else 89.0

    verdicts = {row[0]: row[1] for row in table(study(permutation_loses), "claims").rows}
    assert set(verdicts.values()) == {"fails", "not shown", "holds"}
    assert [name for name, verdict in verdicts.items() if verdict == "holds"] == [
        "a thousand layers, rotation 0.1: fashion-mnist at 86 % within 40 epochs"
    ]


def test_the_claims_rest_on_fresh_seeds_alone() -> None:
    """The recommended member against the uniform one: equal on seeds that had no part in the choice, better before."""
    fresh = set(Networks(Members.seeds, False).fresh())
    chosen_with = set(Members().cells(Members.seeds)) - fresh
    assert not {cell.seed for cell in fresh} & {cell.seed for cell in chosen_with if cell.shots is None}

    def lucky(cell: Cell) -> float:
        return 95.0 + 3.0 * (cell.scheme == Permutation() and cell not in fresh)

    verdicts = {row[0]: row[1] for row in table(study(lucky), "claims").rows}
    assert {verdict for name, verdict in verdicts.items() if "not worse" in name} == {"holds"}
    assert {verdict for name, verdict in verdicts.items() if "is better" in name} == {"not shown"}


@pytest.mark.parametrize("rate", ["at 0.001/√depth", "each at its best rate"])
def test_duels_set_each_member_against_the_uniform_one(rate: str, won: MemberRecords) -> None:
    rows = table(won, f"against the uniform member, {rate}").rows
    found = {(row[0], row[1]): (float(row[2]), float(row[3]), float(row[4])) for row in rows}
    for dataset in IMAGES:
        difference, better, worse = found[f"{dataset}, depth 300", "permutation"]
        assert difference == pytest.approx(2 * np.log10(30), abs=0.8)
        assert better < 0.01 < 0.99 < worse
        difference, better, _ = found[f"{dataset}, depth 300", "rotation 0.1"]
        assert abs(difference) < 0.8
        assert better > 0.001


def test_a_network_that_two_studies_share_counts_once() -> None:
    shared = [
        study_of.cell("wine", UNIFORM, 100, seed=seed, width=8, alpha=2.0, epochs=100) for seed in range(2)
    ]  # fmt: skip
    for quick in (False, True):
        assert set(shared) <= set(Networks(2, quick).tabular())
    found = MemberRecords({cell: record(cell, 90.0 + 2 * cell.seed) for cell in shared}, 2)
    last = Members().tables(found)[-1]
    assert last.title.startswith("tabular")
    assert last.rows == [["uniform", f"91.0 ± {np.std([90, 92], ddof=1):.1f}"]]


def test_the_close_view_shows_the_best_however_far_another_spreads() -> None:
    scores = {"permutation": (96.0, 97.0), "rotation 1": (11.0, 97.0, 98.0)}
    records = [
        record(study_of.cell("mnist", get(name), depth, seed=seed), score)
        for name, each in scores.items()
        for seed, score in enumerate(each)
        for depth in (100, 300)
    ]
    whole, close = study_of.over_depth(records).axes
    low, high = close.get_ylim()
    assert low < 96.5 < high <= 98
    bands = np.concatenate([np.asarray(p.vertices)[:, 1] for each in whole.collections for p in each.get_paths()])
    assert 0 <= bands.min() < bands.max() <= 100


def test_the_curves_are_drawn_and_those_of_the_longest_training(won: MemberRecords) -> None:
    rows = curves(won)
    assert {row["depth"] for row in rows} == {100, 300, 1000, 3000, 10000}
    learning = study_of.learning(rows)
    assert [axis.get_title() for axis in learning.axes[1::3]] == ["mnist, 300 layers", "fashion-mnist, 300 layers"]
    assert all(len(axis.lines) == len(MEMBERS) for axis in learning.axes)
    figure = study_of.deep(rows)
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [
        "mnist, 1,000 layers", "fashion-mnist, 1,000 layers", "mnist, 3,000 layers", "mnist, 10,000 layers"
    ]  # fmt: skip
    assert len(figure.axes[0].lines) == 2  # the two members that had forty epochs, not all those with fifteen
    assert len(figure.axes[3].lines) == 6  # three members at two rates
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {"rotation 0.1", "permutation", "identity", "rotation 0.03", "4 × the rate"}


def test_the_study_finds_rates_first_and_then_compares_at_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = MEMBERS[:2]

    def cell(scheme: Any, times: float, **options: Any) -> Cell:
        return study_of.cell("digits", scheme, 10, times, **options)

    rates = (0.01, 4.0), (0.01, 1.0)  # of which the first learns next to nothing; the second member's best is the usual
    tuning = [
        cell(scheme, times, seed=TUNING_SEED, epochs=2) for scheme, tried in zip(members, rates) for times in tried
    ]
    usual = [cell(scheme, 1.0, seed=seed) for scheme in members for seed in range(2)]
    for name in ("fixed", "few", "activations", "tabular", "long", "fresh", "thousand", "deepest"):
        monkeypatch.setattr(Networks, name, lambda self: [])
    monkeypatch.setattr(Networks, "rates", lambda self: tuning)
    monkeypatch.setattr(Networks, "usual", lambda self: usual)
    shown: dict[str, Any] = {}
    monkeypatch.setattr(Table, "show", lambda self: shown.update({self.title: self.rows}))
    Members().run(Options(tmp_path, seeds=2, device="cpu"))
    found = list(read(tmp_path, pytest.fail))
    at_best = [one for one in found if one.seed != TUNING_SEED and one.lr_multiplier == 4]
    assert sorted((kind(one), one.seed) for one in at_best) == [("uniform", 0), ("uniform", 1)]
    assert len(found) == len(tuning) + len(usual) + len(at_best) == 10
    rows = shown["digits, each at its best rate of five; by depth"]
    assert [row[0] for row in rows] == ["uniform", "permutation"]
    assert all("±" in row[1] for row in rows), "of both seeds"
