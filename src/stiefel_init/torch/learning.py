"""Whether a model can learn one batch: `can_learn`, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .diagnosis.copies import STEPS, trained_on
from .diagnosis.diagnose import Optimizers, default_loss, diagnose, several


def can_learn(
    model: nn.Module, inputs: Any, targets: Any, loss: Callable[[Any, Any], Tensor] | None = None, *,
    optimizer: Optimizers | None = None, steps: int = 10 * STEPS, to: float = 0.5,
) -> None:  # fmt: skip
    """Assert that a copy of `model`, which stays as it is, learns one batch: for tests of your own models.

    Args:
        model: Any module.
        inputs: One batch, as for `diagnose`.
        targets: Its targets.
        loss: As for `diagnose`.
        optimizer: Yours, of which a copy takes the steps; Adam at 0.001 by default.
        steps: How many.
        to: The share of the first loss that may be left.

    Raises:
        AssertionError: with what `diagnose` says, if it does not.

    >>> model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    >>> can_learn(model, torch.randn(16, 4), torch.randn(16, 1))
    """
    losses: list[float] = []
    with torch.random.fork_rng():
        for value, _ in trained_on(model, inputs, targets, loss or default_loss, several(optimizer), steps):
            losses.append(value)
            if value <= to * losses[0]:
                return
    said = diagnose(model, inputs, targets, loss=loss, optimizer=optimizer).verdict
    change = f"the loss went from {losses[0]:.3g} to {losses[-1]:.3g} in {len(losses) - 1} steps on one batch"
    raise AssertionError(" ".join([f"{change}.", *said]))
