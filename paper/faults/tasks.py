"""Small tasks, networks and the loop that the programs of the catalogue are put together from.

Everything is drawn from torch's global generator, which the registry seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from sklearn import datasets
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Hook, Loss, Program

Score = Callable[[Tensor, Tensor], float]


@dataclass(frozen=True)
class Task:
    """Training and held-out data with the loss and the score that suit them."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    loss: Loss
    score: Score

    def mapped(self, x: Callable[[Tensor], Tensor] | None = None, y: Callable[[Tensor], Tensor] | None = None) -> Task:
        """The task with its inputs, or its targets, changed in training and held-out data alike."""
        keep: Callable[[Tensor], Tensor] = torch.Tensor.clone
        x, y = x or keep, y or keep
        return replace(self, x=x(self.x), y=y(self.y), test_x=x(self.test_x), test_y=y(self.test_y))


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Accuracy above the largest class, as a share of what was possible; targets below zero do not count."""
    guess = outputs.argmax(-1) if outputs.shape[-1] > 1 else (outputs > 0).long()
    guess, targets = guess.flatten(), targets.long().flatten()
    counted = targets >= 0
    guess, targets = guess[counted], targets[counted]
    most = (targets == targets.mode().values).float().mean()
    return float(((guess == targets).float().mean() - most) / (1 - most))


def balanced(outputs: Tensor, targets: Tensor) -> float:
    """Mean recall of the classes above that of a constant guess."""
    guess, targets = outputs.argmax(-1) if outputs.shape[-1] > 1 else (outputs > 0).long().flatten(), targets.flatten()
    recall = torch.stack([(guess[targets == label] == label).float().mean() for label in targets.unique()])
    return float((recall.mean() - 1 / len(recall)) / (1 - 1 / len(recall)))


def explained(outputs: Tensor, targets: Tensor) -> float:
    """Share of the targets' variance that the outputs explain."""
    return float(1 - (outputs.reshape(targets.shape) - targets).square().mean() / targets.var(correction=0))


def each_label(outputs: Tensor, targets: Tensor) -> float:
    """The smallest accuracy above the largest class over columns of yes and no."""
    return min(accuracy(o[:, None], t) for o, t in zip(outputs.T, targets.T, strict=True))


def split(x: Tensor, y: Tensor, loss: Loss, score: Score, held_out: int = 400) -> Task:
    order = torch.randperm(len(x))
    test, train = order[:held_out], order[held_out:]
    return Task(x[train], y[train], x[test], y[test], loss, score)


@cache
def _pixels() -> tuple[Tensor, Tensor]:
    data = datasets.load_digits()
    return torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)


def digits(images: bool = False) -> Task:
    """Handwritten digits, 8 by 8: ten classes."""
    x, y = _pixels()
    x = (x - x.mean()) / x.std()
    return split(x.view(-1, 1, 8, 8) if images else x, y, F.cross_entropy, accuracy)


def raw_digits() -> Task:
    """The same digits as bytes between 0 and 255."""
    x, y = _pixels()
    return split((x * 255 / 16).round(), y, F.cross_entropy, accuracy)


def traits() -> Task:
    """Five yes-or-no questions about a digit: several answers are yes at once."""
    task = digits()
    table = torch.tensor([[d % 2, d > 4, d in (2, 3, 5, 7), d in (0, 6, 8, 9), d % 3 == 0] for d in range(10)])
    task = task.mapped(y=lambda y: table[y].float())
    return replace(task, loss=F.binary_cross_entropy_with_logits, score=each_label)


@cache
def _cells() -> tuple[Tensor, Tensor]:
    data = datasets.load_breast_cancer()
    return torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target)


def cancer(scaled: bool = True) -> Task:
    """Breast cancer: thirty measurements of very different size, two classes, targets (N, 1)."""
    x, y = _cells()
    x = (x - x.mean(0)) / x.std(0) if scaled else x
    return split(x, y[:, None].float(), F.binary_cross_entropy_with_logits, accuracy, 150)


def houses(rows: int = 2000) -> Task:
    """A smooth function of eight features with a product in it, targets (N, 1)."""
    x = torch.randn(rows, 8)
    y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3] + 0.5 * x[:, 4].abs() + 0.1 * torch.randn(rows)
    return split(x, ((y - y.mean()) / y.std())[:, None], F.mse_loss, explained)


def rare(share: float = 0.08, rows: int = 4000) -> Task:
    """Two overlapping classes, one of them rare."""
    y = (torch.rand(rows) < share).long()
    x = torch.randn(rows, 10) + 0.45 * y[:, None] * torch.randn(10).sign()
    return split(x, y, F.cross_entropy, balanced, 1000)


def recall(length: int, symbols: int = 4, rows: int = 2000) -> Task:
    """Sequences of symbols; the class is the first one."""
    x = torch.randint(symbols, (rows, length))
    return split(x, x[:, 0], F.cross_entropy, accuracy)


def waves(length: int = 16, rows: int = 1500) -> Task:
    """Noisy sines (N, T, 1) of three frequencies and any phase; the class is the frequency."""
    y = torch.randint(3, (rows,))
    time = torch.linspace(0, 2 * torch.pi, length)
    x = torch.sin((1 + y[:, None]) * time + 2 * torch.pi * torch.rand(rows, 1)) + 0.1 * torch.randn(rows, length)
    return split(x[:, :, None], y, F.cross_entropy, accuracy)


def tokens_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy over every position; -100 marks positions that do not count."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def sentences(symbols: int = 12, length: int = 12, rows: int = 1500) -> Task:
    """Sequences in which a symbol nearly decides the next; the targets are the inputs moved by one."""
    rule = torch.randperm(symbols)
    text = torch.empty(rows, length + 1, dtype=torch.long)
    text[:, 0] = torch.randint(symbols, (rows,))
    for place in range(length):
        noise = torch.rand(rows) < 0.15
        text[:, place + 1] = torch.where(noise, torch.randint(symbols, (rows,)), rule[text[:, place]])
    return split(text[:, :-1], text[:, 1:], tokens_loss, accuracy)


def mlp(*widths: int, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these widths with an activation between each two."""
    layers: list[nn.Module] = []
    for width, after in pairwise(widths):
        layers += [nn.Linear(width, after), act()]
    return nn.Sequential(*layers[:-1])


def linears(model: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """Its linear and convolutional layers, first to last."""
    return [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]


class Net(nn.Module):
    """A module of named parts and a rule `forward(net, x)`; deep copies use their own parts."""

    def __init__(self, rule: Callable[[Any, Tensor], Tensor], **parts: nn.Module):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.rule = rule

    def forward(self, x: Tensor) -> Tensor:
        return self.rule(self, x)


def adam(model: nn.Module, lr: float = 3e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr)


def sgd(model: nn.Module, lr: float = 0.1, momentum: float = 0.0, decay: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr, momentum=momentum, weight_decay=decay)


def shuffled(rows: int, size: int) -> Iterator[Tensor]:
    """Batches of a new order in each epoch, without end."""
    while True:
        yield from torch.randperm(rows).split(size)[: max(rows // size, 1)]


def program(
    task: Task,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    loss: Loss | None = None,
    step: Callable[[Tensor, Tensor], Tensor] | None = None,
    steps: int = 300,
    size: int = 64,
    batches: Callable[[int, int], Iterator[Tensor]] = shuffled,
    start: Callable[[], object] | None = None,
    predict: Callable[[Tensor], Tensor] | None = None,
) -> Program:
    """The user's script: `step` is one step of the loop, `start` sets the mode before it, `predict` is how the user
    gets predictions for held-out inputs once trained."""
    optimizer = optimizer or adam(model)
    criterion = loss or task.loss
    take_step = step or plain_step(model, criterion, optimizer)
    seed = torch.initial_seed()

    def default_predict(x: Tensor) -> Tensor:
        model.eval()
        return model(x)

    def train(hook: Hook | None) -> float:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 1)
            (start or model.train)()
            for number, rows in zip(range(steps), batches(len(task.x), size)):
                value = float(take_step(task.x[rows], task.y[rows]).detach())
                if hook is not None:
                    hook(number, value)
            with torch.no_grad():
                outputs = (predict or default_predict)(task.test_x)
        return max(task.score(outputs, task.test_y), 0.0) if bool(outputs.isfinite().all()) else 0.0

    return Program(model, task.x[:size], task.y[:size], criterion, optimizer, train)


def plain_step(model: nn.Module, loss: Loss, optimizer: torch.optim.Optimizer) -> Callable[[Tensor, Tensor], Tensor]:
    """The step as everybody writes it."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    return step
