"""The gradients of both engines are those of float64 autograd, whatever the activation, the loss and the shape.

The batched matmuls (`graph`), and the fused kernels (`fused`), which Triton's interpreter runs where there is no GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from plain_training import (
    ENGINES,
    LOSSES,
    MODULES,
    SHAPES,
    TaskMaker,
    batch_of,
    engine_of,
    flat,
    images,
    of_stack,
    plain,
    scramble_,
    table,
    worst,
)
from torch import nn

from stiefel_init.lab.train.cell import SMOOTH, Cell, PrecisionName
from stiefel_init.lab.train.fused import FusedEngine
from stiefel_init.lab.train.task import Task
from stiefel_init.lab.train.training import EngineName
from stiefel_init.theory import ACTIVATIONS, register_activation
from stiefel_init.theory import moments as _moments

EVERY = (*ACTIVATIONS, "tanh", *SMOOTH)


def gradient_error(cell: Cell, tasks: Sequence[Task], engine: EngineName, signal: float = 1.0) -> float:
    """Of a step of plain gradient descent on all rows, against float64 autograd, over all networks of a stack.

    With another signal than 1 the first layer's weights are multiplied by it, and there are no biases.
    """
    rate = 64.0 / signal  # a large step, so that the difference of two float32 numbers shows the gradient's digits
    cell = replace(cell, optimizer="sgd", rate=rate, batch=None)
    trainer = engine_of(engine, [replace(cell, seed=seed) for seed in range(len(tasks))], tasks)
    stack = trainer.stack
    scramble_(stack)
    if signal != 1:
        stack.parameters.weights[0].mul_(signal)
        for bias in stack.parameters.biases:
            bias.zero_()
    references = [plain(stack, index) for index in range(len(tasks))]
    before = stack.parameters.flat.double().clone()
    losses, correct = trainer.epoch()
    moved = (before - stack.parameters.flat.double()) / rate
    errors = []
    for index, (network, task) in enumerate(zip(references, tasks)):
        x, y = batch_of(stack, task, index, 0, task.size)
        out = network(x)
        loss = LOSSES[task.loss](out, y)
        loss.backward()
        errors.append(worst(of_stack(stack, index, moved), flat(network, gradients=True)))
        assert float(losses[index]) / task.size == pytest.approx(loss.item(), rel=1e-5)
        if task.loss == "cross_entropy":
            assert int(correct[index]) == int((out.argmax(-1) == y).sum())
    return max(errors)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", [images, table])
@pytest.mark.parametrize("activation", EVERY)
def test_gradients_of_every_activation_and_loss(activation: str, task: TaskMaker, engine: EngineName) -> None:
    tasks = [task(17, seed=seed) for seed in range(2)]  # each network learns from its own data
    assert gradient_error(Cell("none", depth=3, width=6, activation=activation), tasks, engine) < 2e-5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", [images, table])
def test_gradients_of_the_activation_tailored_to_the_depth(task: TaskMaker, engine: EngineName) -> None:
    """30 layers, where its slope is 0.3."""
    assert gradient_error(Cell("none", "tat", depth=30, width=6, activation="tat"), [task(17)], engine) < 2e-5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", [images, table])
def test_gradients_of_tanh(task: TaskMaker, engine: EngineName) -> None:
    assert gradient_error(Cell("none", "tanh-init", depth=3, width=6, activation="tanh"), [task(17)], engine) < 2e-5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("task", [images, table])
@pytest.mark.parametrize(("depth", "width", "rows"), SHAPES)
def test_gradients_of_every_shape(depth: int, width: int, rows: int, task: TaskMaker, engine: EngineName) -> None:
    assert gradient_error(Cell("none", depth=depth, width=width, activation="prelu"), [task(rows)], engine) < 2e-5


def test_gradients_of_layers_of_different_widths() -> None:
    assert gradient_error(Cell("none", depth=3, width=(5, 9, 3), activation="elu"), [images(17)], "graph") < 2e-5


def test_gradients_of_a_deep_network() -> None:
    assert gradient_error(Cell("none", depth=100, width=16), [images(33)], "graph") < 2e-4
    assert gradient_error(Cell("none", depth=20, width=16), [images(33)], "fused") < 2e-5
    assert gradient_error(Cell("none", depth=100, width=16), [images(33)], "fused") < 5e-5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation", EVERY)
def test_gradients_of_a_faint_signal(activation: str, engine: EngineName) -> None:
    assert gradient_error(Cell("none", depth=3, width=6, activation=activation), [table(17)], engine, 1e-6) < 2e-5


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in Triton's interpreter
@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("activation", EVERY)
def test_what_is_not_a_number_shows_in_the_loss(activation: str, engine: EngineName, precision: PrecisionName) -> None:
    cells = [Cell("none", depth=3, width=6, activation=activation, seed=seed, precision=precision) for seed in range(2)]
    trainer = engine_of(engine, cells, [images(17)] * 2)
    trainer.stack.parameters.weights[1][0] = math.nan
    losses, _ = trainer.epoch()
    assert losses.isnan().tolist() == [True, False]


def test_gradients_of_an_activation_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_moments, "_REGISTRY", dict(_moments._REGISTRY))
    register_activation("bent", lambda y, xp: xp.tanh(y), lambda y, xp: 1 - xp.tanh(y) ** 2)
    monkeypatch.setitem(MODULES, "bent", nn.Tanh)
    own: Any = "bent"
    cell = Cell("none", depth=3, width=6, activation=own)
    assert gradient_error(cell, [images(17), images(17, seed=1)], "graph") < 2e-5
    assert gradient_error(replace(cell, depth=2, width=(5, 9)), [table(17)], "graph") < 2e-5
    assert "activation='bent'" in str(FusedEngine.refuses(cell, images(17)))
