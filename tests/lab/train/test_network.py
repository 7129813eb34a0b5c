"""What stacks start from: the very matrices of `sample`, and the laws of the other schemes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from plain_training import DEVICE, images
from torch import nn

from stiefel_init import draw, sample
from stiefel_init.lab.train import network
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.network import Architecture, Parameters
from stiefel_init.lab.train.stack import Stack
from stiefel_init.torch import initialize_


def start(cell: Cell, inputs: int = 40, outputs: int = 10) -> Parameters:
    return Stack([cell], [images(5 * outputs, inputs, outputs)], DEVICE).parameters


def test_a_stack_starts_from_the_very_matrices_of_sample() -> None:
    parameters = start(Cell("none", "stiefel", 2, 16, "prelu", seed=7))
    for layer, (m, n) in enumerate(((16, 40), (16, 16), (10, 16))):
        expected = sample(m, n, seed=7, name=f"{layer}.weight")
        assert np.abs(parameters.weights[layer][0].cpu().numpy() - expected).max() < 1e-6
        assert not parameters.biases[layer].any()
    assert parameters.slopes is not None
    assert parameters.slopes.tolist() == [[0.25, 0.25]]


@pytest.mark.parametrize("scheme", ["stiefel", "orthogonal", "lee lapack", "he", "xavier", "random", "torch"])
def test_a_seed_gives_the_weights_that_draw_and_initialize_give(scheme: str) -> None:
    parameters = start(Cell("none", scheme, 2, 16, seed=7))
    model = nn.Sequential(nn.Linear(40, 16), nn.Linear(16, 16), nn.Linear(16, 10))
    initialize_(model, scheme, seed=7)
    for layer, (m, n) in enumerate(((16, 40), (16, 16), (10, 16))):
        found = parameters.weights[layer][0].cpu()
        expected = draw(scheme, m, n, seed=7, name=f"{layer}.weight")
        assert np.abs(found.numpy() - expected).max() < 1e-6
        torch.testing.assert_close(found, model.get_parameter(f"{layer}.weight").detach(), atol=1e-6, rtol=0)


def test_the_other_schemes_have_their_laws() -> None:
    wide: dict[str, Any] = {
        "width": 128,
        "depth": 2,
    }  # 128 × 128 numbers: a standard deviation is off by 2 % once in 3,000 times
    start_of = {name: start(Cell("none", name, **wide)).weights for name in ("orthogonal", "xavier", "he")}
    weight = {name: weights[1][0].cpu() for name, weights in start_of.items()}
    assert float((weight["orthogonal"] @ weight["orthogonal"].mT - torch.eye(128)).abs().max()) < 1e-5
    assert float(weight["orthogonal"].sum(0).std()) > 0.5, "not aligned"
    bound = math.sqrt(6 / 256)
    assert 0.99 * bound < float(weight["xavier"].abs().max()) <= bound
    assert float(weight["xavier"].std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert float(weight["he"].std()) == pytest.approx(math.sqrt(2 / 128), rel=0.02)
    assert float(start_of["he"][0].std()) == pytest.approx(math.sqrt(2 / 40), rel=0.04), "the inputs decide"
    for scheme, std in (("random", 0.1), ("random 0.3", 0.3)):
        found = start(Cell("none", scheme, **wide)).weights[1][0]
        assert float(found.std()) == pytest.approx(std, rel=0.02)
    product = start(Cell("none", "lee", **wide)).weights
    assert float((product[1][0].cpu() - torch.eye(128)).abs().max()) < 1e-5, "on square layers Lee's is the identity"
    direct = start(Cell("none", "lee direct", **wide)).weights
    assert float((product[0] - direct[0]).abs().max()) > 0.01


def test_the_parameters_of_a_network_are_counted() -> None:
    assert Architecture((4, 3, 2), "prelu").parameters == 4 * 3 + 3 + 3 * 2 + 2 + 1


@pytest.mark.parametrize("entries", [1, 200, 1 << 24])
def test_every_layer_of_every_network_is_the_matrix_that_draw_gives(
    monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    """However many layers are drawn at once."""
    monkeypatch.setattr(network, "_ENTRIES", entries)
    cells = [Cell("none", scheme, 5, 6, seed=seed) for seed in (3, 1, 2) for scheme in ("permutation", "stiefel")]
    net = Architecture((4, *[6] * 5, 3), "relu")
    weights = network.initial(cells, net, torch.device("cpu")).weights
    for place, cell in enumerate(cells):
        for layer, weight in enumerate(weights):
            m, n = weight.shape[1:]
            expected = draw(cell.scheme, m, n, seed=cell.seed, name=f"{layer}.weight")
            torch.testing.assert_close(weight[place], torch.from_numpy(expected).float())
