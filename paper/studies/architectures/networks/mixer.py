"""An MLP-mixer: layers over the tokens and layers over the channels, in turn."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """One pair of layers mixes the tokens of each channel, one the channels of each token."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens1, self.tokens2 = nn.Linear(tokens, 2 * width), nn.Linear(2 * width, tokens)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens2(F.gelu(self.tokens1(self.norm1(x).transpose(1, 2)))).transpose(1, 2)
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class Mixer(nn.Module):
    """A token for each patch of the image, the mean of all tokens at the end."""

    def __init__(self, side: int = 28, patch: int = 4, width: int = 128, blocks: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, width, patch, patch)
        self.blocks = nn.Sequential(*(Block((side // patch) ** 2, width) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patch(x).flatten(2).transpose(1, 2))).mean(1))
