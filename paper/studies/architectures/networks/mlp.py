"""A plain network of linear layers and ReLU."""

from __future__ import annotations

from itertools import pairwise

from torch import nn


def mlp(inputs: int, outputs: int, depth: int, width: int = 64) -> nn.Sequential:
    """`depth` linear layers."""
    sizes = [inputs, *[width] * (depth - 1), outputs]
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers[:-1])
