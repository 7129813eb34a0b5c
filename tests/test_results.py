"""The published numbers, our records beside them, the claims, and the report: computed, complete and current."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from stiefel_init import StiefelError
from stiefel_init.lab import claims, experiments, report, results
from stiefel_init.lab.alignment import Study
from stiefel_init.lab.cells import SCHEMES, Cell
from stiefel_init.lab.cli import main
from stiefel_init.lab.compare import Comparison, compare
from stiefel_init.lab.paper import Published, published
from stiefel_init.lab.records import Record

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return results.load(ROOT / "results")


class TestPublished:
    def test_every_number_of_every_table_is_there(self) -> None:
        counts = {table: len(published(table)) for table in ("table1", "table2", "table3", "table5", "figure1")}
        # depths × data sets × schemes; activations × …; shots × depths × …; sets × α × depths × …
        assert counts == {
            "table1": 10 * 2 * 6, "table2": 5 * 2 * 2 * 6, "table3": 4 * 3 * 2 * 6, "table5": 6 * 4 * 2 * 6,
            "figure1": 1,
        }  # fmt: skip
        assert (
            len({tuple(one.to_dict()[k] for k in one.to_dict() if k not in ("value", "std")) for one in published()})
            == 673
        )

    def test_numbers_copied_by_hand_from_the_paper(self) -> None:
        def value(table: str, **of: Any) -> float:
            (one,) = [o for o in published(table) if all(getattr(o, k) == v for k, v in of.items())]
            return one.value

        assert value("table1", dataset="mnist", depth=100, scheme="stiefel") == 96.98
        assert value("table1", dataset="mnist", depth=50, scheme="orthogonal") == 11.35
        assert value("table3", dataset="mnist", depth=100, shots=1, scheme="stiefel") == 37.23
        assert value("figure1") == 0.8178

    def test_as_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as end:
            main(["paper", "--json"])
        assert end.value.code == 0
        rows = json.loads(capsys.readouterr().out)
        keys = {"table", "dataset", "scheme", "depth", "activation", "shots", "alpha", "value", "std"}
        assert len(rows) == 673
        assert all(set(row) == keys for row in rows)
        assert {row["scheme"] for row in rows if row["table"] != "figure1"} == set(SCHEMES)


class TestComparison:
    def one(self, value: float, scores: list[float], std: float | None = None) -> Comparison:
        shots = None if std is None else 1
        return Comparison(Published("t", "mnist", "he", 50, "relu", shots, None, value, std), np.array(scores))

    def test_the_interval_of_one_more_run_is_wider_than_that_of_the_mean(self) -> None:
        found = self.one(97.0, [96.0, 97.0, 98.0])
        # Student's 97.5 % point with 2 degrees of freedom is 4.3027.
        assert found.interval == pytest.approx((97 - 4.3027 / 3**0.5, 97 + 4.3027 / 3**0.5), abs=1e-4)
        assert found.single == pytest.approx((97 - 4.3027 * (4 / 3) ** 0.5, 97 + 4.3027 * (4 / 3) ** 0.5), abs=1e-4)

    def test_verdicts(self) -> None:
        assert self.one(97.2, [96.0, 97.0, 98.0]).verdict == "agrees"
        assert self.one(90.0, [97.0, 97.1, 97.2]).verdict == "differs by +7.10"
        assert self.one(90.0, [97.0, 11.35, 97.2]).verdict.endswith("1 of 3 seeds collapse")
        assert self.one(97.0, [96.0]).verdict == "one seed only (-1.00)"
        assert not self.one(97.0, [97.0]).agrees
        assert self.one(11.35, [11.35, 11.35]).verdict == "agrees; every seed collapses"

    def test_a_network_that_diverged_is_the_worst_there_is(self) -> None:
        rows = [record(cell, None) for cell in experiments.cells("table5", 2) if cell.dataset in ("wine", "diabetes")]
        found = {one.published.dataset: one.mean for one in compare("table5", rows)}
        assert found == {"wine": 0.0, "diabetes": np.inf}

    def test_means_of_fifty_are_held_to_standard_errors(self) -> None:
        scores = [40.0, 42.0] * 25  # standard deviation 1.0102
        near = self.one(41.5, scores, std=1.0)
        assert near.standard_errors == pytest.approx(0.5 / (1.0102**2 / 50 + 1 / 50) ** 0.5, rel=1e-3)
        assert near.agrees
        assert not self.one(42.0, scores, std=1.0).agrees

    def test_every_cell_of_the_paper_is_answered_by_as_many_seeds_as_were_asked_for(
        self, records: list[Record]
    ) -> None:
        for table, seeds in (("table1", 5), ("table3", 50), ("table5", 10)):
            found = compare(table, records)
            assert len(found) == len(published(table))
            assert min(len(one.scores) for one in found) >= seeds

    def test_our_runs_give_the_papers_numbers_for_its_own_initialization(self, records: list[Record]) -> None:
        one = [c for c in compare("table1", records) if c.published.scheme == "stiefel"]
        assert sum(abs(c.difference) <= 0.6 for c in one) >= 18
        three = [c for c in compare("table3", records) if c.published.scheme == "stiefel"]
        assert sum(c.standard_errors <= 3 for c in three) >= 20


def record(cell: Cell, score: float | None) -> Record:
    return {name: getattr(cell, name) for name in Cell.__slots__} | {"score": score, "diverged": None}


class TestClaims:
    def table1(self, score: Any) -> list[Record]:
        return [record(cell, score(cell)) for cell in experiments.cells("table1", 3)]

    def test_best_when_deep(self) -> None:
        def good(cell: Cell) -> float:
            return (95.0 if cell.scheme == "stiefel" else 90.0) + 0.01 * cell.seed

        assert claims.judge(self.table1(good))[0].verdict == claims.HOLDS

        def one_row_lost(cell: Cell) -> float:
            return 99.0 if (cell.scheme, cell.depth, cell.dataset) == ("lee", 70, "mnist") else good(cell)

        lost = claims.judge(self.table1(one_row_lost))[0]
        assert lost.verdict == claims.PARTLY
        assert "mnist, depth 70: lee 99.00, stiefel 95.01" in lost.evidence
        shallow = claims.judge(self.table1(lambda c: 99.0 if (c.scheme, c.depth) == ("he", 30) else good(c)))[0]
        assert shallow.verdict == claims.HOLDS  # depth 30 is not part of the claim

    def test_no_collapse(self) -> None:
        assert claims.judge(self.table1(lambda cell: 90.0))[1].verdict == claims.HOLDS
        lost = claims.judge(self.table1(lambda c: 11.35 if (c.depth, c.seed, c.dataset) == (100, 1, "mnist") else 90.0))
        assert lost[1].verdict == claims.FAILS
        diverged = claims.judge(self.table1(lambda c: None if (c.depth, c.seed) == (100, 1) else 90.0))
        assert diverged[1].verdict == claims.FAILS

    def test_shift(self) -> None:
        best = {-2.0: 60.0, 0.0: 80.0, 2.0: 90.0, 50.0: 50.0}

        def score(cell: Cell) -> float:
            value = best[cell.alpha or 0.0]
            return 100 - value if cell.dataset == "diabetes" else value  # an error: less is better

        rows = [record(cell, score(cell)) for cell in experiments.cells("table5", 2)]
        assert claims.judge(rows)[4].verdict == claims.HOLDS
        rows[0]["score"], rows[1]["score"] = 10.0, 10.0
        best[2.0] = 70.0
        assert claims.judge([record(c, score(c)) for c in experiments.cells("table5", 2)])[4].verdict == claims.PARTLY

    def test_alignment(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.standard_normal(500)
        noise = rng.standard_normal(500)
        for strength, verdict in ((2.0, claims.HOLDS), (0.1, claims.FAILS)):
            y = strength * x + noise
            study = Study(np.arange(500) > 490, x, np.empty((0, 0)), {"shared": y, "independent": y})
            assert claims.judge([], study)[5].verdict == verdict

    def test_without_records_nothing_is_claimed(self) -> None:
        assert {claim.verdict for claim in claims.judge([])} == {claims.OPEN}

    def test_welch_test_of_constant_samples(self) -> None:
        assert claims.greater_p(np.array([2.0, 2.0]), np.array([1.0, 1.0])) == 0
        assert claims.greater_p(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 1


def test_the_report_is_current(tmp_path: Path) -> None:
    written = report.write(tmp_path, ROOT / "results")
    written += report.write_members(ROOT / "docs" / "members.md", tmp_path, ROOT / "results")
    for path in written:
        committed = ROOT / "docs" / path.name
        if path.suffix == ".md":
            assert path.read_text() == committed.read_text(), "run `make docs`"
        else:
            fresh, old = (matplotlib.image.imread(p) for p in (path, committed))
            assert fresh.shape == old.shape, f"run `make docs`: {path.name}"
            assert np.abs(fresh - old).mean() < 1e-3, f"run `make docs`: {path.name}"


def test_the_pages_of_figures_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "summary.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_publishing_and_loading_are_inverse(tmp_path: Path) -> None:
    cells = [*experiments.cells("table5", 1)[:3], *experiments.cells("members", 1)[:3]]
    rows = [record(c, 50.0 + i) | {"seconds": 1.0, "environment": {"device": "x"}} for i, c in enumerate(cells)]
    results.publish(rows, tmp_path)
    found = results.load(tmp_path)
    names = (*results.COLUMNS, "score")
    key = lambda row: json.dumps([row[n] for n in names], default=str)  # noqa: E731
    assert sorted(json.dumps([_rounded(r[n]) for n in names]) for r in found) == sorted(
        json.dumps([_rounded(r[n]) for n in names]) for r in rows
    ), key


def _rounded(value: Any) -> Any:
    return float(f"{value:.7g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", ["table1", "figure1", "signal", "members-curves"])
@pytest.mark.parametrize("damage", ["cut", "header", "empty"])
def test_a_damaged_file_of_results_is_named(name: str, damage: str, tmp_path: Path) -> None:
    whole = (ROOT / "results" / f"{name}.csv").read_bytes()
    path = tmp_path / f"{name}.csv"
    header = whole[: whole.index(b"\n") + 1]
    path.write_bytes(whole[:3000] + b"garbage,\n" if damage == "cut" else header if damage == "header" else b"")
    reader = {"table1": lambda: results.load(tmp_path), "figure1": lambda: results.read_study(path)}
    line = f"line {whole[:3000].count(bytes([10])) + 1}" if damage == "cut" else "holds no lines"
    with pytest.raises(StiefelError, match=f"{name}.csv,? {line}"):
        reader.get(name, lambda: results.read_rows(path))()
