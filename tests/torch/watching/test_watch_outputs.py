"""Table, picture, page, JSON Lines, TensorBoard and Weights & Biases."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trained import network, train

from stiefel_init import StiefelError
from stiefel_init.torch import watch
from stiefel_init.torch.watching import sinks
from stiefel_init.torch.watching.page import SHOWN


def test_table_and_picture() -> None:
    seen, _ = train(network(), 30, at=15, change=lambda optimizer: None)
    table = seen.table
    assert list(table.columns[:3]) == ["step", "loss", "layer"]
    assert len(table) == 3 * 5
    assert np.isfinite(table[["mean", "std", "gradient", "update", "singular", "distance", "norm"]]).all(axis=None)
    figure = seen.plot()
    assert [axis.get_title() for axis in figure.axes[:4]] == [
        SHOWN[name] for name in ("post_std", "distinct", "gradient", "update")
    ]
    with pytest.raises(StiefelError, match="cannot be plotted; choose from"):
        seen.plot("colour")
    with pytest.raises(StiefelError, match="nothing to plot"):
        watch(network()).plot()


def test_the_page_needs_nothing_else_and_can_be_opened_while_training_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    running: list[str] = []
    model = network()
    seen, _ = train(model, 30, at=25, change=lambda optimizer: running.append(path.read_text()), to=path)
    done = path.read_text()
    assert 'http-equiv="refresh"' in running[0]
    assert "refresh" not in done
    for text in (running[0], done):
        assert not re.search(r"https?://|src=|@import", text)
        assert "light-dark(" in text
        data = json.loads(re.findall(r'<script type="application/json">(.*?)</script>', text)[0])
        assert data["layers"] == ["0", "2", "4", "6", "8"]
        assert len(data["columns"]["update"]["values"]) == 5
    assert data["steps"] == [0, 10, 20]
    assert "The training is healthy" in seen._repr_html_()


def test_lines_survive_a_kill_and_a_second_training(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    program = (
        "import os, torch\nfrom stiefel_init.torch import watch\nmodel = torch.nn.Linear(2, 2)\n"
        f"seen = watch(model, 1, to={str(path)!r})\n"
        "for _ in range(3):\n    model(torch.ones(4, 2)).sum().backward()\n    seen.step(1.0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2]
    with path.open("a") as file:
        file.write('{"step": 3, "lay')  # killed in the midst of a line
    train(network(), 20, to=[path])
    lines = path.read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines[-2:]] == [0, 10]
    assert len(json.loads(lines[-1])["layers"]) == 5


def test_a_full_disk_is_told_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sinks, "replace", full)
    seen, _ = train(network(), 30, to=tmp_path / "run.html")
    assert seen.samples == 3
    assert [r.message for r in caplog.records] == [
        "Page cannot be written any more (No space left on device); training goes on."
    ]


def test_tensorboard_gets_scalars_and_events(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="needs tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        seen, _ = train(network(), 30, rate=1.0, to=writer)
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [scalar.step for scalar in found.Scalars("watch/update/median")] == [0, 10, 20]
    assert found.Scalars("watch/loss")[0].value == pytest.approx(seen.history.losses[0], rel=1e-5)
    assert "watch/events/text_summary" in found.Tags()["tensors"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::pydantic.warnings.PydanticDeprecatedSince20")
def test_weights_and_biases_gets_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="watch")
    try:
        _, events = train(network(), 30, rate=1.0, to=run)
        values = dict(run.summary)
    finally:
        run.finish()
    assert events
    assert values["watch/step"] == 20
    assert values["watch/update/max"] > 0
    assert list(tmp_path.rglob("*.wandb"))
