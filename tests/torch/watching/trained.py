"""A small training for the tests of `watch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import initialize_
from stiefel_init.torch.watching import Event, Watch, watch


def network(depth: int = 4) -> nn.Sequential:
    layers = [module for _ in range(depth) for module in (nn.Linear(16, 16), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(16, 4))
    initialize_(model, seed=0)
    return model


def batch(step: int = 0, size: int = 64) -> tuple[Tensor, Tensor]:
    """Four classes that a network tells apart after some steps."""
    generator = torch.Generator().manual_seed(step)
    y = torch.randint(4, (size,), generator=generator)
    return F.one_hot(y, 16) * 3 + torch.randn(size, 16, generator=generator), y


def train(
    model: nn.Module,
    steps: int = 40,
    every: int = 10,
    *,
    at: int = -1,
    change: Callable[[torch.optim.Optimizer], Any] | None = None,
    prepare: Callable[[int, Tensor], Tensor] = lambda step, x: x,
    rate: float = 3e-3,
    **options: Any,
) -> tuple[Watch, list[Event]]:
    """Train and watch; `change` is made before step `at`."""
    events: list[Event] = []
    optimizer = torch.optim.Adam(model.parameters(), rate)
    with watch(model, every, report=events.append, **options) as seen:
        for step in range(steps):
            if step == at and change is not None:
                change(optimizer)
            x, y = batch(step)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(prepare(step, x)), y)
            loss.backward()
            optimizer.step()
            seen.step(loss)
    return seen, events
