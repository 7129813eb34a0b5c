"""What stacks start from: the very matrices of `draw`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from plain_training import DEVICE, images
from torch import nn

from stiefel_init import draw
from stiefel_init.lab.train import network
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.network import Architecture
from stiefel_init.lab.train.stack import Stack
from stiefel_init.torch import initialize_


@pytest.mark.parametrize("scheme", ["stiefel", "orthogonal", "lee lapack", "lee direct", "he", "random 0.3", "torch"])
def test_a_seed_gives_the_weights_that_draw_and_initialize_give(scheme: str) -> None:
    parameters = Stack([Cell("none", scheme, 2, 16, "prelu", seed=7)], [images(50, 40, 10)], DEVICE).parameters
    model = nn.Sequential(nn.Linear(40, 16), nn.Linear(16, 16), nn.Linear(16, 10))
    initialize_(model, scheme, seed=7)
    for layer, (m, n) in enumerate(((16, 40), (16, 16), (10, 16))):
        found = parameters.weights[layer][0].cpu()
        expected = draw(scheme, m, n, seed=7, name=f"{layer}.weight")
        assert np.abs(found.numpy() - expected).max() < 1e-6
        torch.testing.assert_close(found, model.get_parameter(f"{layer}.weight").detach(), atol=1e-6, rtol=0)
        assert bool(parameters.biases[layer].any()) == (scheme == "torch")
    assert parameters.slopes is not None
    assert parameters.slopes.tolist() == [[0.25, 0.25]]


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
