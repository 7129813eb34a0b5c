"""The default recipe as a scheme: what the laboratory trains is what `initialize_` draws."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_refused
from torch import Tensor, nn

from stiefel_init import draw
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.network import Architecture, initial
from stiefel_init.schemes import Centred, Position, Recipe, Rotation, Stiefel, get
from stiefel_init.sklearn import StiefelMLPRegressor
from stiefel_init.torch import initialize_


class Plain(nn.ModuleList):
    """A plain network whose parameters are named as the laboratory names them."""

    def __init__(self, *widths: int, activate: Any = torch.relu) -> None:
        self.activate = activate
        super().__init__(nn.Linear(n, m) for n, m in pairwise(widths))

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self
        for layer in hidden:
            x = self.activate(layer(x))
        return last(x)


@pytest.mark.parametrize(
    "widths",
    [(784, *[64] * 7, 10), (64, *[64] * 9, 10), (9, *[32] * 6, 1), (1, *[16] * 9, 3), (20, *[30, 40] * 3, 5)],
    ids=str,
)
def test_the_laboratory_starts_where_initialize_does(widths: tuple[int, ...]) -> None:
    model = Plain(*widths)
    initialize_(model, seed=3)
    cell = Cell("digits", "recipe", depth=len(widths) - 2, width=widths[1:-1], seed=3)
    ours = initial([cell], Architecture(widths, "relu"), torch.device("cpu"))
    for layer, (weight, bias) in enumerate(zip(ours.weights, ours.biases)):
        theirs: Any = model[layer]
        assert torch.allclose(weight[0], theirs.weight, atol=1e-6), layer
        # The two take the biases' numbers from two streams, but they are as wide.
        assert torch.allclose(bias[0].std(correction=0), theirs.bias.std(correction=0), atol=1e-6), layer
    assert bool(ours.biases[0].any()) == (widths[1] > widths[0])


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_the_laboratory_raises_the_level_as_initialize_does(name: str) -> None:
    model = Plain(20, *[16] * 9, 3, activate=getattr(torch.nn.functional, name))
    initialize_(model, seed=3)
    cell = Cell("digits", "recipe", depth=9, width=16, activation=name, seed=3)
    ours = initial([cell], Architecture((20, *[16] * 9, 3), name), torch.device("cpu"))
    theirs: Any = model[0]
    assert theirs.bias.detach().min() > 0.4
    assert torch.equal(ours.biases[0][0], theirs.bias.detach())


def test_by_name_it_is_the_default_of_whole_models() -> None:
    for make in (lambda: Plain(12, 8, 8, 3), lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))):
        default, named = make(), make()
        initialize_(default, seed=0)
        plan = initialize_(named, "recipe", seed=0)
        assert all(torch.equal(a, b) for a, b in zip(default.parameters(), named.parameters()))
        assert "head" in str(plan)


def test_each_layer_has_the_scheme_of_its_place() -> None:
    recipe = get("recipe")
    assert recipe == Recipe()
    assert recipe.at(Position(first=True, units=8, inputs=8)) == Stiefel()
    assert recipe.at(Position(row=9, units=8, inputs=8)) == Rotation.in_a_row(9)
    assert recipe.at(Position(row=9, units=8, inputs=4)) == Stiefel()
    assert recipe.at(Position(first=True, last=True, units=8, inputs=4)) == Centred()


def test_one_matrix_cannot_be_drawn() -> None:
    assert_refused(lambda: draw("recipe", 4, 4), ["a layer's place in the model; use stiefel_init.torch.initialize_"])
    assert_refused(lambda: initialize_(Plain(4, 4, 2), "recipe", recipe="paper"), ["leave out recipe='paper'"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_scheme_is_told_sizes_row_and_activation_everywhere() -> None:
    told: dict[str, list[Position]] = {"torch": [], "sklearn": []}

    @dataclass(frozen=True)
    class Curious(Stiefel):
        name = "curious"
        positional = True
        to: str = "torch"

        def at(self, position: Position) -> Stiefel:
            if position.units and position not in told[self.to]:
                told[self.to].append(position)
            return Stiefel()

    initialize_(Plain(7, 5, 5, 5, 2), Curious(), seed=0)
    X, y = np.arange(28.0).reshape(4, 7), np.array([0.0, 1.0, 2.0, 3.0])
    StiefelMLPRegressor(hidden_layer_sizes=(5, 5, 5), scheme=Curious("sklearn"), max_iter=1, random_state=0).fit(
        X, y[:, None] * [1, 1]
    )
    for places in told.values():
        assert [(each.role, each.units, each.inputs, each.row) for each in places] == [
            ("first", 5, 7, 2), ("hidden", 5, 5, 2), ("last", 2, 5, places[-1].row),
        ]  # fmt: skip
        assert [each.activation for each in places[:2]] == ["relu", "relu"]
