"""The study of transfer: its runs, its rates, that it goes on where it was stopped, and what its page says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from paper.experiment import Options
from paper.networks import mlp
from paper.results import Results
from paper.studies.transfer import GROUPS, LONG, MUP, NUMBER, ONE, PAPER, SHORT, Run, Transfer, cell_of, groups_of, runs
from torch import nn

from stiefel_init.core.errors import StiefelError
from stiefel_init.torch import initialize_


def test_all_runs_are_different_and_reach_from_3_to_10000_layers_and_from_32_to_2048_units() -> None:
    wanted = runs()
    assert len(set(wanted)) == len(wanted)
    assert {run.depth for run in wanted if run.network == "mlp"} >= {3, 10, 100, 1000, 10_000}
    assert {run.width for run in wanted if run.network == "mlp"} >= {32, 64, 2048}
    assert {run.seed for run in wanted if run.epochs == LONG and run.depth == 1000} == set(range(10))


def by_parameter(groups: Iterable[dict[str, Any]], model: nn.Module) -> dict[str, float]:
    """The rate of each parameter, by its name."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[each]: group["lr"] for group in groups for each in group["params"]}


@pytest.mark.parametrize("way", [GROUPS, ONE, PAPER])
@pytest.mark.parametrize("depth", [3, 40])
def test_a_cell_has_the_rates_of_the_module(way: str, depth: int) -> None:
    """Cells have one rate inside and one for their first and last layer: those of the groups of a module like it."""
    run, model = Run("mlp", depth, 64, way, 2.0, SHORT), mlp(784, 10, depth + 1)
    initialize_(model, seed=0)
    rates, cell = by_parameter(groups_of(run, model, torch.rand(2, 784)), model), cell_of(run)
    assert len(cell.hidden) == depth
    ends = [rate for name, rate in rates.items() if name.split(".")[0] in ("0", str(2 * depth))]
    inner = [rate for name, rate in rates.items() if name.split(".")[0] not in ("0", str(2 * depth))]
    assert len(ends) == 4
    assert ends == pytest.approx([cell.rate * cell.ends] * 4, rel=1e-3)
    assert inner == pytest.approx([cell.rate] * len(inner), rel=1e-3)


def test_mup_slows_down_what_reads_a_hidden_layer() -> None:
    model = mlp(784, 10, 4, 256)
    rates = by_parameter(groups_of(Run("mlp", 3, 256, MUP, 1.0, SHORT), model, torch.rand(2, 784)), model)
    slow = {name for name, rate in rates.items() if rate == pytest.approx(NUMBER / 4)}
    assert slow == {"2.weight", "4.weight", "6.weight"}
    assert {rates[name] for name in rates.keys() - slow} == {NUMBER}


def test_runs_are_kept_found_again_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell and a slot."""
    few = [run for run in runs(quick=True) if run.times == 1.0 and run.depth == 10]
    assert [run.many for run in few] == [True, False]
    monkeypatch.setattr("paper.studies.transfer.runs", lambda **options: few)
    options = Options(tmp_path, quick=True, device="cpu")
    Transfer().run(options)
    text = (tmp_path / "transfer-quick.csv").read_text()
    assert len(text.splitlines()) == 3
    assert Results(tmp_path).environments["transfer-quick"]["networks"] == 2
    monkeypatch.setattr(Transfer, "train", None)  # would fail
    Transfer().run(options)
    assert (tmp_path / "transfer-quick.csv").read_text() == text


def test_a_damaged_table_and_an_unknown_network_are_named(tmp_path: Path) -> None:
    path = tmp_path / "transfer-quick.csv"
    path.write_text("network,depth\nmlp,abc\n")
    with pytest.raises(StiefelError, match="the table of transfer, line 2, is damaged"):
        Transfer().run(Options(tmp_path, quick=True, device="cpu"))
    assert path.read_text() == "network,depth\nmlp,abc\n"
    with pytest.raises(StiefelError, match=r"network='mpl' is not known.*did you mean 'mlp'"):
        Transfer(["mpl"])


def test_the_page_says_how_far_the_best_multiple_moves_what_it_costs_and_what_is_not_measured() -> None:
    found = {Run("mlp", 10, 64, GROUPS, 1.0, LONG, seed): {"score": 97.0 + seed, "loss": 0.1} for seed in range(2)}
    times = [2.0**power for power in range(-4, 5)]
    for way, best in ((GROUPS, {3: 1.0, 10: 1.0, 100: 2.0}), (ONE, {3: 4.0, 10: 4.0, 100: 0.25})):
        for depth, least in best.items():
            for each in times:
                off = abs(times.index(each) - times.index(least))
                found[Run("mlp", depth, 64, way, each, SHORT)] = {"score": 95.0 - off, "loss": 0.1 * (1 + off)}
    page = " ".join("\n".join(Transfer().section(found)).split())
    assert "| 10 | 2 | 97.50 | 97.00 |" in page
    assert "`param_groups`: the best multiple within a factor of 2, a cost of at most 1.0 points" in page
    assert "one rate for all layers: the best multiple within a factor of 16, a cost of at most 2.0 points" in page
    assert "of which 56 are on record; the others are not measured yet" in page
