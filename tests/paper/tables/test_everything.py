"""`reproduce all`: everything once, side by side; what is done is not done again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from paper import everything
from paper.everything import Everything
from paper.experiment import Measured, Options, Trained
from paper.results import Results

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record


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


class Drawn(Measured):
    """One without networks."""

    name = "drawn"
    runs = 0
    files = ("drawn",)

    def measure(self, options: Options, device: Any, advance: Any) -> tuple[Any, int]:
        Drawn.runs += 1
        return [{"x": 1}], 0

    def evidence(self, results: Results) -> Any:
        return results.table(self.name)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Everything:
    Drawn.runs = 0
    Small.told.clear()
    monkeypatch.setattr(Everything, "parts", lambda self: [Small("a", 1, 2), Small("b", 2, 3), Drawn()])
    return Everything()


def test_all_run_once(whole: Everything, tmp_path: Path) -> None:
    whole.run(Options(tmp_path, device="cpu"))
    assert Small.told == ["a 2", "b 2"]
    assert (Drawn.runs, len(Results(tmp_path).records)) == (1, 3), "one network is of both"


def test_what_is_done_is_not_done_again(
    whole: Everything, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.run(Options(tmp_path, device="cpu"))
    whole.run(Options(tmp_path, device="cpu"))
    assert Drawn.runs == 1
    assert "drawn is done already" in capsys.readouterr().out
    monkeypatch.setattr(everything, "source_hash", lambda: "other")
    whole.run(Options(tmp_path, device="cpu"))
    assert Drawn.runs == 2, "another source may give another result"


def test_a_run_that_is_cut_off_keeps_what_it_has(whole: Everything, tmp_path: Path, capsys: Any) -> None:
    def endless(*given: Any, **options: Any) -> None:
        for _ in range(1000):
            time.sleep(0.01)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(everything, "train", endless)
        whole.run(Options(tmp_path, device="cpu", minutes=0.001))
    assert "rerun to resume" in capsys.readouterr().out
    assert (Drawn.runs, Small.told) == (0, [])
    whole.run(Options(tmp_path, device="cpu"))
    assert (Drawn.runs, Small.told) == (1, ["a 2", "b 2"])
