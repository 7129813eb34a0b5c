"""A plain ReLU network of a hundred layers trains on the set at rates at which free training fails."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from stiefel_init import check
from stiefel_init.torch import initialize_
from stiefel_init.torch.optim import StiefelAdam

DEPTH, WIDTH, STEPS = 100, 32, 60
RATE = 1e-3 / DEPTH**0.5


def accuracy(rate: float, *, on_set: bool) -> float:
    """Of the last steps, in percent."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    sizes = [64, *[WIDTH] * (DEPTH - 1)]
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10))
    initialize_(model, recipe="paper", seed=0)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    if on_set:
        optimizer = StiefelAdam(model, lr=rate)
        assert [len(group["params"]) for group in optimizer.param_groups] == [DEPTH, DEPTH]
    correct = []
    for _ in range(STEPS):
        chosen = torch.randint(len(x), (256,))
        optimizer.zero_grad()
        out = model(x[chosen])
        nn.functional.cross_entropy(out, y[chosen]).backward()
        optimizer.step()
        correct.append(float((out.argmax(1) == y[chosen]).float().mean()))
    if on_set:
        assert all(check(layer.weight, tol=1e-5) for layer in layers[::20])
    return 100 * sum(correct[-10:]) / 10


@pytest.mark.parametrize("multiple", [pytest.param(16, marks=pytest.mark.slow), 64])
def test_rates_that_break_free_training_train_on_the_set(multiple: int) -> None:
    assert accuracy(multiple * RATE, on_set=True) > 60
    assert accuracy(multiple * RATE, on_set=False) < 25
