"""A residual network, with and without batch normalization."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, normalized: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not normalized)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=not normalized)
        self.norm1, self.norm2 = (nn.BatchNorm2d(outputs) if normalized else nn.Identity() for _ in range(2))
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.short(x) + self.norm2(self.conv2(y)))


class ResNet20(nn.Module):
    """Three stages of three blocks, 16, 32 and 64 channels."""

    def __init__(self, *, normalized: bool) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1, bias=not normalized)
        self.norm = nn.BatchNorm2d(16) if normalized else nn.Identity()
        sizes = [(16, 16, 1), (16, 32, 2), (32, 64, 2)]
        self.blocks = nn.Sequential(
            *(
                Block(inputs if place == 0 else outputs, outputs, stride if place == 0 else 1, normalized=normalized)
                for inputs, outputs, stride in sizes
                for place in range(3)
            )
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))
