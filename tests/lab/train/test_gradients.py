"""The gradients of both engines are those of float64 autograd, whatever the activation, the loss and the shape.

The batched matmuls (`graph`), and the fused kernels (`fused`), which Triton's interpreter runs where there is no GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from plain_training import ENGINES, SHAPES, ProblemMaker, descents, engine_of, images, scramble_, table, worst
from torch import nn

from stiefel_init.lab.train.cell import SMOOTH, Cell
from stiefel_init.lab.train.family import PrecisionName
from stiefel_init.lab.train.fused import FusedEngine
from stiefel_init.lab.train.network import MODULES
from stiefel_init.lab.train.problem import Problem
from stiefel_init.lab.train.training import EngineName
from stiefel_init.theory import ACTIVATIONS, register_activation
from stiefel_init.theory import moments as _moments

EVERY = (*ACTIVATIONS, "tanh", *SMOOTH)


def gradient_error(cell: Cell, problems: Sequence[Problem], engine: EngineName, signal: float = 1.0) -> float:
    """Of a step of plain gradient descent on all rows, against float64 autograd, over all networks of a stack.

    With another signal than 1 the first layer's weights are multiplied by it, and there are no biases.
    """
    rate = 64.0 / signal  # a large step, so that the difference of two float32 numbers shows the gradient's digits
    cell = replace(cell, optimizer="sgd", rate=rate, batch=None)
    trainer = engine_of(engine, [replace(cell, seed=seed) for seed in range(len(problems))], problems)
    parameters = trainer.stack.parameters
    scramble_(trainer.stack)
    if signal != 1:
        parameters.weights[0].mul_(signal)
        for bias in parameters.biases:
            bias.zero_()
    errors = []
    for step in descents(trainer, problems):
        errors.append(worst(*step.gradient))
        assert step.loss[0] == pytest.approx(step.loss[1], rel=1e-5)
        assert step.correct[0] == step.correct[1]
    return max(errors)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("problem", "signal"), [(images, 1.0), (table, 1.0), (table, 1e-6)])
@pytest.mark.parametrize("activation", EVERY)
def test_gradients_of_every_activation_and_loss_and_of_a_faint_signal(
    activation: str, problem: ProblemMaker, signal: float, engine: EngineName
) -> None:
    problems = [problem(17, seed=seed) for seed in range(2)]  # each network learns from its own data
    assert gradient_error(Cell("none", depth=3, width=6, activation=activation), problems, engine, signal) < 2e-5


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("problem", [images, table])
@pytest.mark.parametrize(("depth", "width", "rows"), SHAPES)
def test_gradients_of_every_shape(depth: int, width: int, rows: int, problem: ProblemMaker, engine: EngineName) -> None:
    assert gradient_error(Cell("none", depth=depth, width=width, activation="prelu"), [problem(rows)], engine) < 2e-5


@pytest.mark.parametrize(
    ("engine", "cell", "limit"),
    [
        ("graph", Cell("none", depth=3, width=(5, 9, 3), activation="elu"), 2e-5),
        *((engine, Cell("none", "tat", depth=30, width=6, activation="tat"), 2e-5) for engine in ENGINES),  # slope 0.3
        ("graph", Cell("none", depth=100, width=16), 2e-4),
        ("fused", Cell("none", depth=20, width=16), 2e-5),
        ("fused", Cell("none", depth=100, width=16), 5e-5),
    ],
)
def test_gradients_of_different_widths_and_of_deep_networks(engine: EngineName, cell: Cell, limit: float) -> None:
    assert gradient_error(cell, [images(33)], engine) < limit


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
    cell = Cell("none", depth=3, width=6, activation="bent")
    assert gradient_error(cell, [images(17), images(17, seed=1)], "graph") < 2e-5
    assert gradient_error(replace(cell, depth=2, width=(5, 9)), [table(17)], "graph") < 2e-5
    assert "activation='bent'" in str(FusedEngine.refuses(cell, images(17)))
