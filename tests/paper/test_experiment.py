"""Experiments: names that can be files, a registry of them, and which networks each is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import one_sentence
from laboratory import file_names, trained
from paper import experiment
from paper.experiment import Experiment, Options, Trained, register, registered
from paper.registry import chosen, experiments
from paper.results import Results, publish
from paper.tables.images import Table3

from stiefel_init import StiefelError
from stiefel_init.lab.train import record as keep
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone afterwards."""
    monkeypatch.setattr(experiment, "_REGISTRY", dict(experiment._REGISTRY))


def named(name: Any) -> Experiment:
    """An experiment of that name."""

    class Own(Trained):
        title = "Mine"
        seeds = 2

        def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
            return [Cell("wine", depth=2, width=4, seed=seed, epochs=1) for seed in range(seeds)]

    Own.name = name
    return Own()


# Names.


@pytest.mark.parametrize("name", ["", "../x", "two words", "1st", "a\n", None])
def test_names_that_no_experiment_can_have(name: Any) -> None:
    before = registered()
    with pytest.raises(StiefelError) as error:
        register(named(name))
    assert f"name={name!r} cannot name an experiment" in one_sentence(error)
    assert registered() == before


def test_a_name_that_another_experiment_has_is_taken() -> None:
    before = registered()
    for name in (*before, "table3-quick", "members-quick", "zoo-cpu"):  # and those of files
        with pytest.raises(StiefelError) as error:
            register(named(name))
        assert f"name={name!r} is" in one_sentence(error)
    theirs = type("Table3", (Table3,), {"__module__": "my_experiments"})
    with pytest.raises(StiefelError, match="name='table3' is taken"):
        register(theirs())
    assert registered() == before


# The registry.


def test_experiments_come_in_the_order_of_the_report_and_a_users_own_last() -> None:
    ours = [
        "table1", "table2", "table3", "figure3", "table5", "table5-batches-of-32", "figure1",
        "figure2", "signal", "algorithms", "all", "members", "baselines",
        "on-the-set", "transfer", "zoo", "find-start", "cifar", "shakespeare", "plasticity",
    ]  # fmt: skip
    assert list(experiments()) == ours
    register(named("mine"))
    register(named("mine"))  # as when its file is loaded twice
    assert list(experiments()) == [*ours, "mine"]
    assert [one.name for one in chosen("mine")] == ["mine"]
    with pytest.raises(StiefelError) as error:
        chosen("table4")
    assert all(repr(name) in one_sentence(error) for name in ("table4", "table5", "mine", "all"))
    assert {*ours} - {one.name for one in chosen("all")} == {
        "all", "members", "baselines", "on-the-set", "transfer", "zoo", "find-start", "cifar", "shakespeare",
        "plasticity",
    }  # fmt: skip


# Networks.


@pytest.mark.parametrize(
    ("name", "full", "quick"),
    [
        ("table1", 1200, 36), ("table2", 600, 30), ("table3", 7200, 72), ("figure3", 6000, 48), ("table5", 2880, 120),
        ("members", 4242, 175), ("table5-batches-of-32", 2880, 48),
    ],
)  # fmt: skip
def test_how_many_networks_an_experiment_has(name: str, full: int, quick: int) -> None:
    (one,) = (one for one in trained() if one.name == name)
    for options, count in ((Options(Path()), full), (Options(Path(), quick=True), quick)):
        cells = one.cells(one.count(options), quick=options.quick)
        assert len(cells) == len(set(cells)) == count
    assert "table" not in name or set(one.cells(2)) < set(one.cells(3)), "more seeds are the same networks and others"


def test_a_run_goes_on_from_published_tables(tmp_path: Path) -> None:
    mine = register(named("mine"))
    for _ in range(2):
        mine.run(Options(tmp_path / "run", device="cpu"))
        assert len(file_names(tmp_path / "run")) == 1, "nothing is trained twice"
    run, out = Results(tmp_path / "run"), tmp_path / "published"
    out.mkdir()
    publish(run, {"mine": mine.evidence(run)}, (), out)
    mine.run(Options(out, seeds=3, device="cpu"))
    trained = keep.read(out, pytest.fail)
    assert [cell.seed for cell in trained] == [2], "the others are published"
    assert [one.score for one in mine.evidence(Results(out))][:2] == [one.score for one in mine.evidence(run)]
    again = Results(out)
    publish(again, {"mine": mine.evidence(again)}, (), out)
    entry = Results(out).environments["mine"]
    assert (entry["networks"], [each["networks"] for each in entry["environments"]]) == (3, [2, 1])


class Follows(Trained):
    """A second round that follows from the first: the better of two rates, with more seeds."""

    name = "follows"
    title = "Follows"
    seeds = 2

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        tried = [Cell("wine", depth=2, width=4, seed=99, epochs=1, rate=rate) for rate in (1e-3, 1e-2)]
        known = [records[cell] for cell in tried if records and cell in records]
        if len(known) < 2:
            return tried
        best = max(known, key=lambda one: one.score).cell
        return tried + [replace(best, seed=seed) for seed in range(seeds)]


def test_networks_that_follow_from_the_records_of_others_are_trained_after_them(tmp_path: Path) -> None:
    Follows().run(Options(tmp_path, device="cpu"))
    found = Results(tmp_path).records
    assert len(found) == 4
    tried = {cell.rate: one.score for cell, one in found.items() if cell.seed == 99}
    best = max(tried, key=lambda rate: tried[rate])
    assert {(cell.seed, cell.rate) for cell in found} == {(99, 1e-3), (99, 1e-2), (0, best), (1, best)}
    assert [one.cell for one in Follows().select(found)] == Follows().cells(2, records=found)
