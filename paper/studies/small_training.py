"""How the small comparisons train: an ordinary loop over an ordinary module, as users write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

TUNING_SEED = 1000
"""Of the network that chooses a rate; those compared have other seeds."""


def fit(model: nn.Module, x: Tensor, y: Tensor, *, rate: float, seed: int, epochs: int, batch: int) -> nn.Module:
    """Train with Adam, in an order that the seed decides."""
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    shuffle = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=shuffle).split(batch):
            step(model, adam, x[rows], y[rows])
    return model


def step(model: nn.Module, adam: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    """As a user writes it."""
    adam.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    adam.step()


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """In per cent; 10, that of guessing, for a network that diverged."""
    outputs = model(x)
    return 100 * float((outputs.argmax(1) == y).double().mean()) if bool(outputs.isfinite().all()) else 10.0


def at_best_rate(
    train: Callable[[float, int, int], float], rates: Sequence[float], seeds: int, epochs: int, tuning_epochs: int
) -> tuple[dict[float, float], float, list[float]]:
    """The score of every rate, the best rate, and its scores by seed; `train` takes a rate, a seed and epochs."""
    tried = {rate: round(train(rate, TUNING_SEED, tuning_epochs), 2) for rate in rates}
    best = max(rates, key=lambda rate: tried[rate])
    return tried, best, [round(train(best, seed, epochs), 2) for seed in range(seeds)]
