"""What an entry of the zoo is: a network as its community writes it, what it learns, and how it is trained.

The half is decided by the hash of the name: rules are chosen on one, and reported on the other.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.torch import initialize_


class Metric(NamedTuple):
    """What is measured on the test part."""

    name: str
    unit: str
    sign: int
    """+1 where more is better."""
    margin: float
    """What is worse by less is not worse; fixed before the runs."""
    digits: int
    chance: float
    """The score of a network that has learnt nothing, and of one that diverged."""


Batch = tuple[Tensor, ...]
Half = Literal["choosing", "report"]
AUTHOR, HE, ORTHOGONAL, OURS = ARMS = ("author", "he", "orthogonal", "ours")
ACCURACY = Metric("accuracy", "%", +1, 1.0, 1, 0.0)
NATS = Metric("loss", "nats", -1, 0.02, 3, 20.0)
ERROR = Metric("log10 of the error", "", -1, 0.05, 2, 3.0)
DECIBELS = Metric("signal to noise", "dB", +1, 0.2, 2, -20.0)
RETURN = Metric("return", "", +1, 2.0, 1, -1e4)


def half(name: str) -> Half:
    """Whether rules may be chosen on a network, or are reported on it.

    >>> half("sine network"), half("VGG"), half("U-Net")
    ('report', 'report', 'choosing')
    """
    return "report" if hashlib.sha256(name.encode()).digest()[0] % 2 else "choosing"


def outputs(net: nn.Module, inputs: Any) -> Any:
    """What a network makes of its inputs: a tensor, several, or keywords; of a package's answer, the logits."""
    found = net(**inputs) if isinstance(inputs, dict) else net(*inputs) if isinstance(inputs, tuple) else net(inputs)
    return getattr(found, "logits", getattr(found, "prediction_outputs", found))


@dataclass(frozen=True)
class Task:
    """Data to learn from and to test on, a loss and a score."""

    data: Callable[[bool, Path | None], tuple[Batch, Batch]]
    """Of the small or the large scale; all tensors as long."""
    metric: Metric
    error: Callable[[Any, Batch], Tensor]
    """From outputs and a batch to the loss."""
    score: Callable[[Any, Batch], Tensor]
    """From outputs and the test part to the score."""
    inputs: Callable[[Batch], Any] = lambda batch: batch[0]
    loss: Callable[[nn.Module, Batch], Tensor] | None = None
    """From the network itself, where outputs are not enough: derivatives, noise, simulation."""
    test: Callable[[nn.Module, Batch], Tensor] | None = None
    """Likewise the score."""


def adam(decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999)) -> Callable[..., torch.optim.Optimizer]:
    """AdamW, which is Adam without decay."""
    return lambda parameters, lr, gpu: torch.optim.AdamW(
        parameters, lr=lr, weight_decay=decay, betas=betas, fused=gpu, capturable=gpu
    )


def sgd(decay: float = 5e-4, momentum: float = 0.9) -> Callable[..., torch.optim.Optimizer]:
    """Stochastic gradient descent with Nesterov's momentum."""
    return lambda parameters, lr, gpu: torch.optim.SGD(
        parameters, lr=lr, momentum=momentum, weight_decay=decay, nesterov=True, fused=gpu
    )


SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": torch.ones_like,
    "cosine": lambda t: (1 + (math.pi * t).cos()) / 2,
    "warm cosine": lambda t: (t / 0.05).clamp(0.01, 1) * (1 + (math.pi * t).cos()) / 2,
    "warm linear": lambda t: torch.minimum((t / 0.1).clamp(min=0.01), (1 - t) / 0.9),
    "exponential": lambda t: 0.1**t,
    "halved": lambda t: 0.5 ** (4 * t).floor(),
    "steps": lambda t: 0.1 ** ((t >= 0.5).double() + (t >= 0.75).double()),
}


@dataclass(frozen=True)
class Entry:
    """A network of the zoo. Pairs are for the small scale, of a CPU, and for the large one, its community's."""

    name: str
    kind: str
    net: Callable[[bool], nn.Module]
    task: Task
    steps: tuple[int, int]
    batch: tuple[int, int]
    rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    optimizer: Callable[..., torch.optim.Optimizer] = field(default_factory=adam)
    schedule: str = "cosine"
    clip: float | None = None
    gain: float = math.sqrt(2)
    """Of the orthogonal initialization before the last layer: √2 for rectifiers."""
    package: str = ""
    """The package whose class it is, unmodified."""
    lagged: bool = False
    """Whether the loss asks a second network, which follows the first one slowly."""

    @property
    def absent(self) -> str:
        """Why it cannot be built here; empty if it can."""
        found = not self.package or find_spec(self.package)
        return "" if found else f"{self.name}: skipped, for {self.package} is not installed."


_WEIGHTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d, nn.RNNBase, nn.MultiheadAttention)


def _matrices(net: nn.Module) -> list[tuple[nn.Parameter, bool]]:
    """Weights in the order of the modules, and whether they are stored with the outputs last."""
    found: dict[nn.Parameter, bool] = {}
    tables = {module.weight for module in net.modules() if isinstance(module, nn.Embedding)}
    for module in net.modules():
        turned = type(module).__name__ == "Conv1D"  # GPT-2's, of transformers
        if isinstance(module, _WEIGHTS) or turned:
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.ndim > 1 and "bias" not in name and parameter not in tables and parameter.requires_grad:
                    found[parameter] = turned
    return list(found.items())


@torch.no_grad()
def begin_(net: nn.Module, arm: str, gain: float, inputs: Any) -> None:
    """Initialize a network in one of the four ways; the author's is how it was made."""
    if arm == OURS:
        initialize_(net, inputs=inputs)
    if arm not in (HE, ORTHOGONAL):
        return
    weights = _matrices(net)
    for number, (weight, turned) in enumerate(weights):
        held = weight.mT if turned else weight
        if arm == HE:
            nn.init.kaiming_normal_(held)
        else:
            drawn = nn.init.orthogonal_(torch.empty(held.shape), gain if number + 1 < len(weights) else 1.0)
            held.copy_(drawn)
    for module in net.modules():
        if isinstance(module, _WEIGHTS) and isinstance(bias := getattr(module, "bias", None), Tensor):
            bias.zero_()


class Learner(nn.Module):
    """A network with its loss, as the loop trains it: batches to losses."""

    def __init__(self, entry: Entry, big: bool) -> None:
        super().__init__()
        self.task, self.net = entry.task, entry.net(big)
        self.slow = entry.net(big).requires_grad_(False) if entry.lagged else None

    def forward(self, batch: Batch) -> Tensor:
        if self.slow is not None and self.training:
            self.follow(0.02)
        if self.task.loss is not None:
            return self.task.loss(self if self.slow is not None else self.net, batch)
        return self.task.error(outputs(self.net, self.task.inputs(batch)), batch)

    def score(self, batch: Batch) -> Tensor:
        """On the test part."""
        if self.task.test is not None:
            return self.task.test(self.net, batch)
        return self.task.score(outputs(self.net, self.task.inputs(batch)), batch)

    @torch.no_grad()
    def follow(self, part: float) -> None:
        """The second network moves towards the first by a part of the way."""
        if self.slow is not None:
            for slow, fast in zip(self.slow.parameters(), self.net.parameters()):
                slow.lerp_(fast, part)


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Of the last tensor of the batch, each place of a sequence for itself; places with -100 do not count."""
    return F.cross_entropy(logits.flatten(0, -2), batch[-1].flatten(), ignore_index=-100)


def accuracy(logits: Tensor, batch: Batch) -> Tensor:
    """In per cent."""
    return 100 * (logits.argmax(-1) == batch[-1]).float().mean()


def squared(found: Tensor, batch: Batch) -> Tensor:
    """The mean squared distance from the last tensor of the batch."""
    return F.mse_loss(found.view_as(batch[-1]), batch[-1])


def log_error(found: Tensor, batch: Batch) -> Tensor:
    """log10 of the root of the mean squared distance, in deviations of the target."""
    return (squared(found, batch).sqrt() / batch[-1].std()).log10()


def decibels(found: Tensor, batch: Batch) -> Tensor:
    """Of an image with values up to 1."""
    return -10 * squared(found, batch).log10()
