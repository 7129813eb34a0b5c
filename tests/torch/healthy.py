"""Plain and unusual programs that train well: nothing may be reported of them.

Each is made anew by `make()`; `step` is one step of its loop, by default the one that everybody writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Batch = tuple[Any, Any]


@dataclass
class Program:
    """A script: `batch(n)` is its n-th batch, `step(x, y)` returns the loss of one step of its loop."""

    model: nn.Module
    batch: Callable[[int], Batch]
    loss: Callable[[Any, Any], Tensor]
    optimizer: Any = None
    step: Callable[[Any, Any], Tensor] | None = None
    steps: int = 90

    def __post_init__(self) -> None:
        self.optimizer = self.optimizer or torch.optim.Adam(self.model.parameters(), 1e-2)

    def run(self) -> Iterator[Tensor]:
        for number in range(self.steps):
            x, y = self.batch(number)
            yield (self.step or self.plain)(x, y)

    def called(self, x: Any) -> Any:
        """What the model makes of a tensor, several, or keywords."""
        return self.model(**x) if isinstance(x, dict) else self.model(*x) if isinstance(x, tuple) else self.model(x)

    def plain(self, x: Any, y: Any) -> Tensor:
        self.optimizer.zero_grad()
        value = self.loss(self.called(x), y)
        value.backward()
        self.optimizer.step()
        return value


def classes(number: int, size: int = 64, kinds: int = 4) -> tuple[Tensor, Tensor]:
    """Gaussian clouds."""
    generator = torch.Generator().manual_seed(number)
    y = torch.randint(kinds, (size,), generator=generator)
    return F.one_hot(y, 8) * 2.5 + torch.randn(size, 8, generator=generator), y


def numbers(number: int, size: int = 64) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(number))
    return x, (x[:, :1] + 0.5 * x[:, 1:2].abs() - x[:, 2:3])


def pictures(number: int, size: int = 32) -> tuple[Tensor, Tensor]:
    """Noise with a bright quarter, 8 by 8."""
    generator = torch.Generator().manual_seed(number)
    y = torch.randint(4, (size,), generator=generator)
    x = 0.5 * torch.randn(size, 1, 8, 8, generator=generator)
    for at, label in enumerate(y.tolist()):
        x[at, 0, 4 * (label // 2) :, 4 * (label % 2) :][:4, :4] += 1.0
    return x, y


def text(number: int, size: int = 32, length: int = 9) -> tuple[Tensor, Tensor]:
    """Tokens that count on, modulo 7, now and then by two; the targets are the next ones."""
    generator = torch.Generator().manual_seed(number)
    steps = 1 + (torch.rand(size, length, generator=generator) < 0.1).long()
    tokens = (torch.randint(7, (size, 1), generator=generator) + steps.cumsum(1)) % 7 + 1
    return tokens[:, :-1], tokens[:, 1:]


def padded(number: int, size: int = 64) -> tuple[Tensor, Tensor]:
    """Rows of tokens that end with zeros; the class is the most frequent half of the alphabet."""
    generator = torch.Generator().manual_seed(number)
    y = torch.randint(2, (size,), generator=generator)
    x = 1 + 3 * y[:, None] + torch.randint(4, (size, 10), generator=generator)
    lengths = torch.randint(3, 11, (size, 1), generator=generator)
    return torch.where(torch.arange(10) < lengths, x, 0), y


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU, end: nn.Module | None = None) -> Any:
    widths = widths or (8, 32, 4)
    parts: list[nn.Module] = []
    for width, after in pairwise(widths):
        parts += [nn.Linear(width, after), act()]
    return nn.Sequential(*parts[:-1], *([] if end is None else [end]))


class Net(nn.Module):
    """Named parts and a rule `forward(net, x)`."""

    def __init__(self, rule: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.rule = rule

    def forward(self, *x: Any) -> Any:
        return self.rule(self, *x)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


def tokens_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


PROGRAMS: dict[str, Callable[[], Program]] = {}


def healthy(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__.replace("_", " ")] = make
    return make
