"""One module in training, for networks that are no stacks of perceptrons: `Slot`.

Note [slots]
    On a GPU a step of such a network is hundreds of small kernels that leave much of it idle. A `Slot` holds a module,
    what its optimizer remembers, and a CUDA graph of one whole step, which finds its batch and its learning rate on the
    device. A run is then first weights and a number of replays; several slots run side by side, each on a stream of its
    own, and nothing waits for the CPU. On a CPU the same step runs as it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .optimizer import Plain

WARM_UP = 2
"""Steps that are taken before one is captured, and taken back."""


class Stepper(Protocol):
    """An optimizer, as a slot asks for it."""

    def step(self) -> None:
        """Apply the gradients, at the rates of the groups."""

    def state(self) -> list[Tensor]:
        """What it remembers, all zero at first."""


class OfTorch:
    """An optimizer of torch's kind; on a GPU it must be capturable."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.step()

    def state(self) -> list[Tensor]:
        kept = self.optimizer.state.values()
        return [value for each in kept for value in each.values() if isinstance(value, Tensor)]


def values_of(model: nn.Module) -> list[Tensor]:
    """What a module is: parameters and buffers, those included that no state dict has."""
    return [*model.parameters(), *model.buffers()]


class Slot:
    """Trains a module, whose memory it keeps; Note [slots]."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module], Tensor],
        groups: Sequence[dict[str, Any]],
        stepper: Callable[[list[dict[str, Any]]], Stepper] = Plain,
        *,
        clip: float | None = None,
        counters: Sequence[Tensor] = (),
    ) -> None:
        """`model` is on its device, with its first weights; `loss` keeps there itself which batch is next.

        `groups` are of parameters, each with the `lr` that a rate of 1 means for it; `stepper` makes the optimizer of
        groups whose `lr` is a tensor that changes. `clip` is the largest norm of the gradient. `counters` are what the
        loss changes on the device, such as the place of the next batch.
        """
        self.model, self.loss, self.clip, self.counters = model, loss, clip, list(counters)
        device = next(model.parameters()).device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.scales = torch.tensor([group["lr"] for group in groups], device=device)
        self.rates = torch.zeros_like(self.scales)
        settings = [{**group, "lr": rate} for group, rate in zip(groups, self.rates.unbind())]
        self.parameters: list[nn.Parameter] = [parameter for group in settings for parameter in group["params"]]
        self.stepper = stepper(settings)
        self.graph: Any = None
        if self.stream is not None:
            self._capture()

    def _capture(self) -> None:
        """Make the graph of a step; nothing else changes."""
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        changed = [*values_of(self.model), *self.counters]
        with torch.cuda.stream(self.stream):
            kept = [tensor.detach().clone() for tensor in changed]
            try:
                for _ in range(WARM_UP):
                    self._step()
                self.stream.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, stream=self.stream):
                    self._step()
            finally:
                with torch.no_grad():
                    for tensor, value in zip(changed, kept):
                        tensor.copy_(value)
                    for tensor in self.stepper.state():
                        tensor.zero_()

    def on_stream(self) -> Any:
        """Whose work is queued in its order."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def step(self, rate: float) -> None:
        with self.on_stream():
            torch.mul(self.scales, rate, out=self.rates)
            if self.graph is not None:
                self.graph.replay()
            else:
                self._step()

    def _step(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        self.loss(self.model).backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip, foreach=True)
        self.stepper.step()
