"""The study of transfer: its runs, that it goes on where it was stopped, and what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper.experiment import Options
from paper.results import Results
from paper.studies import transfer
from paper.studies.transfer import LONG, SHORT, Run, Transfer, runs


def test_all_runs_are_different_and_reach_from_3_to_1000_layers_and_from_16_to_2048_units() -> None:
    wanted = runs()
    assert len(set(wanted)) == len(wanted)
    assert {run.depth for run in wanted if run.network == "mlp"} >= {3, 10, 100, 1000}
    assert {run.width for run in wanted if run.network == "mlp"} >= {16, 64, 2048}
    assert {run.seed for run in wanted if run.steps == LONG and run.depth == 1000} == set(range(10))


def test_a_run_is_kept_found_again_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = runs(quick=True)[:2]
    monkeypatch.setattr(transfer, "runs", lambda **options: few)
    options = Options(tmp_path, quick=True, device="cpu")
    Transfer().run(options)
    text = (tmp_path / "transfer-quick.csv").read_text()
    assert len(text.splitlines()) == 3
    assert Results(tmp_path).environments["transfer-quick"]["networks"] == 2
    monkeypatch.setattr(transfer, "train", None)  # would fail
    Transfer().run(options)
    assert (tmp_path / "transfer-quick.csv").read_text() == text


def test_the_page_says_how_far_the_best_multiple_moves_and_what_is_not_measured() -> None:
    found = {Run("mlp", 10, 64, "groups", 1.0, LONG, seed): {"score": 97.0 + seed, "loss": 0.1} for seed in range(2)}
    for way, best in (("groups", {10: 1.0, 100: 2.0}), ("one rate", {10: 4.0, 100: 0.25})):
        for depth, least in best.items():
            for times in (0.25, 1.0, 2.0, 4.0):
                loss = 0.1 if times == least else 0.2
                found[Run("mlp", depth, 64, way, times, SHORT)] = {"score": 90.0, "loss": loss}
    page = "\n".join(Transfer().section(found))
    assert "| 10 | 2 | 97.50 | 97.00 |" in page
    assert "`param_groups`: the best multiple is from 1 to 2 over 2 depths" in page
    assert "one rate for all layers: the best multiple is from ¼ to 4 over 2 depths" in page
    assert "of which 18 are on record; the others are not measured yet" in page
