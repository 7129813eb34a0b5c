"""What the networks learn: images, a language, and functions of a few or of many inputs."""

from __future__ import annotations

import math
import sysconfig
from abc import ABC, abstractmethod
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.lab.data import load


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

    def learnt(self, score: float) -> bool:
        """Whether a score is clearly better than chance."""
        return self.sign * (score - self.chance) > 0.1 * (self.chance or 1)


ACCURACY = Metric("accuracy", "%", +1, 0.5, 1, 10.0)
QUARTERS = ACCURACY._replace(chance=25.0)
R2 = Metric("R²", "", +1, 0.01, 3, 0.0)
NATS = Metric("loss", "nats", -1, 0.02, 3, math.log(256))


class Problem(ABC):
    """Batches to learn from, a loss, and a score."""

    metric: Metric
    size: int
    """How many places to begin a row of a batch at."""

    @abstractmethod
    def batch(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor: ...

    @abstractmethod
    def score(self, model: nn.Module) -> Tensor:
        """On the test part, as a tensor: nothing waits for it."""


class Examples(Problem):
    """Rows with a label or a number each."""

    def __init__(self, x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor) -> None:
        self.x, self.y, self.test_x, self.test_y = x, y, test_x, test_y
        self.size, self.regression = len(x), y.is_floating_point()
        self.metric = R2 if self.regression else ACCURACY

    def batch(self, places: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[places], self.y[places]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(outputs[:, 0], targets) if self.regression else F.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Tensor:
        parts = zip(self.test_x.split(2000), self.test_y.split(2000))
        if self.regression:
            wrong = sum(((model(x)[:, 0].float() - y) ** 2).sum() for x, y in parts)
            return 1 - wrong / ((self.test_y - self.test_y.mean()) ** 2).sum()
        right = sum((model(x).argmax(1) == y).sum() for x, y in parts)
        return torch.as_tensor(100 * right / len(self.test_y))


class Text(Problem):
    """The bytes of Python's own library, which is on every machine; one file in ten is held out."""

    metric = NATS

    def __init__(self, device: torch.device, tokens: int = 256) -> None:
        train, test = (torch.tensor(list(part), dtype=torch.uint8).to(device) for part in _library())
        self.train, self.test = train, test
        self.window = torch.arange(tokens + 1, device=device)
        self.size = len(train) - tokens - 1
        generator = torch.Generator().manual_seed(0)
        self.held_out = torch.randint(len(test) - tokens - 1, (256,), generator=generator).to(device)

    def batch(self, places: Tensor) -> tuple[Tensor, Tensor]:
        return self._rows(self.train, places)

    def _rows(self, source: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        rows = source[places[:, None] + self.window].long()
        return rows[:, :-1], rows[:, 1:]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def score(self, model: nn.Module) -> Tensor:
        parts = [self._rows(self.test, places) for places in self.held_out.split(64)]
        losses = [self.loss(model(x).float(), y) for x, y in parts]
        return torch.stack(losses).mean()


@lru_cache
def _library(most: int = 24_000_000) -> tuple[bytes, bytes]:
    """A part to learn from and one to test on."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    apart = {"site-packages", "dist-packages", "__pycache__"}
    files = sorted(file for file in folder.rglob("*.py") if not apart & set(file.parts))
    texts = [file.read_bytes() for file in files]
    test = b"\n".join(texts[5::10])
    return b"\n".join(text for place, text in enumerate(texts) if place % 10 != 5)[:most], test[:most]


def images(name: str, device: torch.device, directory: Path | None, *, half: bool) -> Examples:
    """A data set of images, at half the size if asked."""
    dataset = load(name, directory=directory)
    order = np.arange(len(dataset.x)) if dataset.train_rows else np.random.default_rng(0).permutation(len(dataset.x))
    cut = dataset.train_rows or len(order) * 3 // 4
    side = math.isqrt(dataset.x.shape[1])
    pictures = torch.from_numpy(dataset.x[order]).to(device).view(-1, 1, side, side).float() / dataset.scale
    if half:
        pictures = F.avg_pool2d(pictures, 2)
    labels = torch.from_numpy(dataset.y[order]).to(device)
    return Examples(pictures[:cut], labels[:cut], pictures[cut:], labels[cut:])


def function(inputs: int, device: torch.device, *, regression: bool, rows: int = 20_000) -> Examples:
    """sin 2a + b of the first two of `inputs` numbers, of one sin 2a; its quarters as classes."""
    generator = torch.Generator().manual_seed(inputs)
    x = torch.randn(rows + 4000, inputs, generator=generator)
    y = torch.sin(2 * x[:, 0]) + (x[:, 1] if inputs > 1 else 0)
    if not regression:
        y = torch.bucketize(y, y.quantile(torch.tensor([0.25, 0.5, 0.75])))
    x, y = x.to(device), y.to(device)
    return Examples(x[:rows], y[:rows], x[rows:], y[rows:])
