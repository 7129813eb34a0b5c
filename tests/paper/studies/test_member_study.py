"""The study of members: which networks it trains, and that its statistics say what the numbers say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from laboratory import record
from paper.studies.members import CANDIDATES, DEPTHS, MEMBERS, TUNING_SEED, Members, Networks, kind
from paper.tables.protocol import IMAGES
from planting import planted

from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell
from stiefel_init.schemes import He, Permutation

Truth = Callable[[Cell], float]


def study(truth: Truth, noise: float = 0.3, seed: int = 0) -> Networks:
    """Records of the whole study, of which the score of a cell is truth(cell) and noise."""
    rng = np.random.default_rng(seed)
    found = planted(
        lambda known: Members().cells(Members.seeds, records=known),
        lambda cell: record(cell, truth(cell) + noise * rng.normal(), tested=(1, cell.epochs)),
    )
    return Networks(Members.seeds, False, found)


def table(found: Networks, title: str) -> Table:
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
def won() -> Networks:
    """The study, had permutations been the best."""
    return study(permutation_wins)


def test_every_member_is_compared_at_every_depth_with_equal_epochs_and_other_seeds_than_chose_its_rate() -> None:
    tuning = Networks(5, False).rates()
    assert {cell.seed for cell in tuning} == {TUNING_SEED}
    assert TUNING_SEED not in {cell.seed for cell in set(Members().cells(5)) - set(tuning)}
    usual = Networks(5, False).usual()
    assert {cell.lr_multiplier for cell in usual} == {1.0}
    assert set(usual) <= set(Members().cells(5))
    for dataset in IMAGES:
        for depth in DEPTHS:
            here = [cell for cell in usual if (cell.dataset, cell.depth) == (dataset, depth)]
            assert {cell.scheme for cell in here} == set(MEMBERS)
            assert len(here) == 5 * len(MEMBERS)
            assert len({cell.epochs for cell in here}) == 1


def test_best_rates_are_those_of_the_tuning_networks(won: Networks) -> None:
    best = won.best()
    assert {cell.lr_multiplier for cell in best if cell.scheme == He()} == {0.25}
    assert {cell.lr_multiplier for cell in best if cell.scheme != He()} == {2.0}
    assert {cell.seed for cell in best} == set(range(Members.seeds))
    assert {(cell.dataset, cell.scheme, cell.depth) for cell in best} == {
        (cell.dataset, cell.scheme, cell.depth) for cell in Networks(1, False).usual()
    }
    assert [record.cell for record in won.at_best()] == best


def test_the_claims_follow_the_numbers(won: Networks) -> None:
    verdicts = {row[0]: row[1] for row in table(won, "claims").rows}
    assert all(verdicts[name] == "holds" for name in verdicts if "is better" in name or "not worse" in name)
    assert verdicts["10,000 layers reach 90 % on MNIST"] == "holds"

    def permutation_loses(cell: Cell) -> float:
        return 80.0 if kind(cell) in ("permutation", "identity", "rotation 0.03") else 89.0

    verdicts = {row[0]: row[1] for row in table(study(permutation_loses), "claims").rows}
    assert set(verdicts.values()) == {"fails", "not shown"}


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


def test_each_is_set_against_the_uniform_one_at_one_rate(won: Networks) -> None:
    (against,) = [one for one in Members().tables(won) if one.title.startswith("points above the uniform member")]
    assert list(against.header[1:]) == [str(scheme) for scheme in CANDIDATES]
    assert "4 of 88 by chance" in against.title
    rows = {row[0]: row[1:] for row in against.rows}
    for dataset in IMAGES:
        permutation, *_, rotation = rows[f"{dataset}, 300 layers"]
        assert permutation.startswith("**+")
        assert float(permutation.strip("*")) == pytest.approx(2 * np.log10(30), abs=0.8)
        assert abs(float(rotation.strip("*† "))) < 0.8
        assert {f"{dataset}, 100 layers, selu", f"{dataset}, 8 per class, 100 layers"} <= rows.keys()
    lost = study(lambda cell: 80.0 if kind(cell) == "permutation" else 89.0)
    assert [row[1][-1] for row in Members().tables(lost)[-1].rows] == ["†"] * len(rows)


def test_scores_and_rates_that_work_are_shown_from_a_hundred_layers_on(won: Networks) -> None:
    _, scores, *_ = Members().tables(won)
    assert [row[0] for row in scores.rows] == [*(kind(Cell("", scheme)) for scheme in MEMBERS), "lee at 0.001"]
    assert "mnist, 1,000 layers" in scores.header
    assert "mnist, 10 layers" not in scores.header
    assert all("±" in cell for row in scores.rows for cell in row[1:])
    bad = study(lambda cell: 20.0 if kind(cell) == "he" or cell.lr_multiplier > 1 else 90.0, noise=0.0)
    working = next(one for one in Members().tables(bad) if one.title.startswith("highest rate"))
    assert {row[0]: row[1] for row in working.rows} == {
        kind(Cell("", scheme)): "none" if scheme == He() else "1" for scheme in MEMBERS
    }
