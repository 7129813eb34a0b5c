"""Networks that the laboratory watches while it trains them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from laboratory import SETS, small_network

from stiefel_init import StiefelError
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.network import predict
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.stack import Stack
from stiefel_init.lab.train.watched import Watching, named


@pytest.mark.parametrize("activation", ["relu", "prelu", "tat"])
def test_the_watched_module_is_the_network(activation: str) -> None:
    cells = [Cell("digits", "he", depth=3, width=16, activation=activation, seed=seed) for seed in (0, 1)]
    problem = Problems()(cells[0])
    stack = Stack(cells, [problem, problem], torch.device("cpu"))
    x = stack.data.inputs(stack.data.features[:32])
    model = stack.mirror(1)
    torch.testing.assert_close(model(x), predict(stack.parameters, stack.net, x.expand(2, -1, -1))[1])
    assert next(model.parameters()).data_ptr() == stack.parameters.weights[0][1].data_ptr()


PERCEPTRON = Cell("digits", "stiefel", depth=3, width=16, epochs=6, batch=None)  # an epoch is a step
WATCHED = [replace(PERCEPTRON, optimizer=name) for name in ("adam", "sgd", "stiefel-adam")]
WATCHED += [small_network(network=name, epochs=6, batch=None, augment="crop") for name in ("cnn", "resnet8")]


@pytest.mark.parametrize("cell", WATCHED, ids=range(5))
def test_watching_changes_nothing_and_tells_what_the_engine_did(tmp_path: Path, cell: Cell) -> None:
    cells = [cell, replace(cell, seed=1)]
    plain = run(cells, device="cpu", datasets=SETS)
    seen = run(cells, device="cpu", datasets=SETS, watching=Watching(tmp_path / "watch", every=2))
    assert [record.train_loss for record in seen] == [record.train_loss for record in plain]
    assert [record.test_score for record in seen] == [record.test_score for record in plain]
    files = sorted(path.name for path in (tmp_path / "watch").iterdir())
    assert files == [f"{named(cells[0])}.html", f"{named(cells[0])}.jsonl"]  # the first seed alone
    lines = [json.loads(line) for line in (tmp_path / "watch" / files[1]).read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 2, 4]
    assert [line["loss"] for line in lines] == pytest.approx(plain[0].train_loss[::2], rel=1e-4)
    assert all(layer["update"] > 0 and layer["gradient"] > 0 for line in lines for layer in line["layers"])
    assert not any(line["events"] for line in lines)
    page = (tmp_path / "watch" / files[0]).read_text()
    assert "The training is healthy" in page
    assert "http-equiv" not in page  # done: it does not reload


def test_what_breaks_is_told_with_the_name_of_the_network(tmp_path: Path) -> None:
    told: list[str] = []
    cell = Cell("digits", "he", depth=3, width=16, epochs=2, rate=30.0, optimizer="sgd")
    run([cell], device="cpu", watching=Watching(tmp_path / "watch", every=1, tell=told.append))
    assert told
    assert all(line.startswith(f"{named(cell)}: step ") for line in told)


def test_a_cluster_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(StiefelError, match=r'on="ray" trains on other machines, which cannot be watched'):
        run([Cell("digits")], on="ray", watching=Watching(tmp_path / "watch"))


@pytest.mark.parametrize(("epochs", "steps"), [(6, range(6)), (100, range(0, 100, 2))])
def test_a_short_training_is_sampled_more_often(tmp_path: Path, epochs: int, steps: range) -> None:
    cell = Cell("digits", "stiefel", depth=1, width=4, epochs=epochs, batch=None)  # an epoch is a step
    run([cell], device="cpu", watching=Watching(tmp_path))
    lines = (tmp_path / f"{named(cell)}.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(steps)
