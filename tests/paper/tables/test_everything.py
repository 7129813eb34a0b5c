"""`reproduce all`: everything once, side by side; what is done is not done again; and where the time went."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from paper import everything
from paper.everything import REST, Everything
from paper.experiment import Experiment, Options, Trained
from paper.results import Results, publish

from stiefel_init import StiefelError
from stiefel_init.lab.train import record as record_files
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.runner import pick_device


class Small(Trained):
    """Networks of one layer; two experiments share one of them."""

    page = None
    seeds = 1
    told: ClassVar[list[str]] = []

    def __init__(self, name: str, *depths: int) -> None:
        self.name, self.depths = name, depths  # type: ignore[misc]

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        return [Cell("digits", depth=depth, width=4, epochs=1) for depth in self.depths]

    def show(self, records: list[Record], options: Options) -> None:
        self.told.append(f"{self.name} {len(records)}")


class Drawn(Experiment):
    """One without networks."""

    name = "drawn"
    runs = 0
    files = ("drawn",)

    def run(self, options: Options) -> None:
        Drawn.runs += 1
        self.write_rows([{"x": 1}], options, device=pick_device("cpu"), seconds=0.1, networks=0)

    def evidence(self, results: Results) -> Any:
        return results.table(self.name)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Everything:
    Drawn.runs = 0
    Small.told.clear()
    monkeypatch.setattr(Everything, "parts", lambda self: [Small("a", 1, 2), Small("b", 2, 3), Drawn()])
    return Everything()


def seconds(out: Path) -> dict[str, float]:
    return {row["experiment"]: row["seconds"] for row in Results(out).table("all")}


def test_all_run_once_and_their_time_is_told(whole: Everything, tmp_path: Path, capsys: Any) -> None:
    whole.run(Options(tmp_path, device="cpu"))
    assert Small.told == ["a 2", "b 2"]
    assert (Drawn.runs, len(Results(tmp_path).records)) == (1, 3), "one network is of both"
    assert list(seconds(tmp_path)) == ["a", "b", "drawn", REST]
    assert "seconds by experiment" in capsys.readouterr().out
    assert "drawn" in "\n".join(whole.section(whole.evidence(Results(tmp_path)) or []))


def test_what_is_done_is_not_done_again(
    whole: Everything, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.run(Options(tmp_path, device="cpu"))
    before = seconds(tmp_path)
    whole.run(Options(tmp_path, device="cpu"))
    assert Drawn.runs == 1
    assert "drawn is done already" in capsys.readouterr().out
    assert {name: seconds(tmp_path)[name] for name in ("a", "b", "drawn")} == {
        name: before[name] for name in ("a", "b", "drawn")
    }
    assert seconds(tmp_path)[REST] >= before[REST]
    monkeypatch.setattr(everything, "source_hash", lambda: "other")
    whole.run(Options(tmp_path, device="cpu"))
    assert Drawn.runs == 2, "another source may give another result"


def test_it_goes_on_from_published_tables(whole: Everything, tmp_path: Path) -> None:
    whole.run(Options(tmp_path / "run", device="cpu"))
    run, out = Results(tmp_path / "run"), tmp_path / "published"
    out.mkdir()
    publish(run, {"a": Small("a", 1, 2).select(run.records)}, (), out)
    whole.run(Options(out, device="cpu"))
    assert [cell.depth for cell in record_files.read(out, pytest.fail)] == [3], "the others are published"


def test_a_run_that_is_cut_off_keeps_what_it_has(whole: Everything, tmp_path: Path, capsys: Any) -> None:
    def endless(*given: Any, **options: Any) -> None:
        for _ in range(1000):
            time.sleep(0.01)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(everything, "run", endless)
        whole.run(Options(tmp_path, device="cpu", minutes=0.001))
    assert "rerun to resume" in capsys.readouterr().out
    assert (Drawn.runs, Small.told) == (0, [])
    whole.run(Options(tmp_path, device="cpu"))
    assert (Drawn.runs, Small.told) == (1, ["a 2", "b 2"])


def test_damaged_times_are_named(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("experiment,seconds\ntable1,soon\n")
    with pytest.raises(StiefelError, match=r"all\.csv is damaged"):
        Everything().evidence(Results(tmp_path))
