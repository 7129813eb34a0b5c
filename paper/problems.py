"""What the networks learn: images, and a language."""

from __future__ import annotations

import math
import sysconfig
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.lab.data import load


def held_out(count: int, *tensors: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """All rows but the first so many to learn from, and these to test on."""
    return tuple(each[count:] for each in tensors), tuple(each[:count] for each in tensors)


class Examples:
    """Rows with a label each; the score is the accuracy in per cent."""

    chance = 10.0, math.log(10)
    """Score and loss of a network that has learnt nothing."""

    def __init__(self, x: Tensor, y: Tensor, test_x: Tensor, test_y: Tensor) -> None:
        self.x, self.y, self.test_x, self.test_y = x, y, test_x, test_y
        self.size = len(x)

    def batch(self, places: Tensor) -> tuple[Tensor, Tensor]:
        return self.x[places], self.y[places]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)

    def tested(self, model: nn.Module) -> tuple[float, float]:
        """Score and loss on the test part."""
        outputs = torch.cat([model(x) for x in self.test_x.split(2000)])
        right = (outputs.argmax(1) == self.test_y).double().mean()
        return 100 * float(right), float(F.cross_entropy(outputs, self.test_y))


class Text:
    """The bytes of Python's library, which every machine has; one file in ten is held out. The score is the loss."""

    chance = math.log(256), math.log(256)

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

    def tested(self, model: nn.Module) -> tuple[float, float]:
        parts = [self._rows(self.test, places) for places in self.held_out.split(64)]
        loss = float(torch.stack([self.loss(model(x).float(), y) for x, y in parts]).mean())
        return loss, loss


@lru_cache
def _library(most: int = 24_000_000) -> tuple[bytes, bytes]:
    """A part to learn from and one to test on."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    apart = {"site-packages", "dist-packages", "__pycache__"}
    files = sorted(file for file in folder.rglob("*.py") if not apart & set(file.parts))
    texts = [file.read_bytes() for file in files]
    test = b"\n".join(texts[5::10])
    return b"\n".join(text for place, text in enumerate(texts) if place % 10 != 5)[:most], test[:most]


def images(name: str, device: torch.device, directory: Path | None, *, half: bool = False) -> Examples:
    """A data set of images, at half the size if asked."""
    dataset = load(name, directory=directory)
    order = np.arange(len(dataset.x)) if dataset.train_rows else np.random.default_rng(0).permutation(len(dataset.x))
    cut = dataset.train_rows or len(order) * 3 // 4
    side = math.isqrt(dataset.x.shape[1])
    shape = dataset.image or (1, side, side)
    pictures = torch.from_numpy(dataset.x[order]).to(device).view(-1, *shape).float() / dataset.scale
    if half:
        pictures = F.avg_pool2d(pictures, 2)
    labels = torch.from_numpy(dataset.y[order]).to(device)
    return Examples(pictures[:cut], labels[:cut], pictures[cut:], labels[cut:])


Problem = Examples | Text
"""Batches of rows at `size` places, a loss of outputs and targets, and how well a model does on the test part."""
