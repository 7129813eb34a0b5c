"""The networks of the study, as users write them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(inputs: int, outputs: int, depth: int, width: int = 64) -> nn.Sequential:
    """`depth` linear layers and ReLU."""
    sizes = [inputs, *[width] * (depth - 1), outputs]
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class PlainCNN(nn.Module):
    """3 × 3 convolutions of 32 channels and ReLU, no shortcut, no normalization; two of them halve the image."""

    def __init__(self, depth: int, channels: int = 32) -> None:
        super().__init__()
        stage = (depth - 1) // 3
        strides = [2 if place == 0 and number else 1 for number in range(3) for place in range(stage)]
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1, stride=stride) for stride in strides)
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    """One recurrent layer reads an image row by row, or pixel by pixel; its last state decides."""

    def __init__(self, kind: str, inputs: int = 28, width: int = 128) -> None:
        super().__init__()
        kinds: dict[str, Callable[[], nn.RNNBase]] = {
            "rnn": lambda: nn.RNN(inputs, width, nonlinearity="relu", batch_first=True),
            "lstm": lambda: nn.LSTM(inputs, width, batch_first=True),
            "gru": lambda: nn.GRU(inputs, width, batch_first=True),
        }
        self.inputs, self.recurrent, self.head = inputs, kinds[kind](), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x.reshape(len(x), -1, self.inputs))[0][:, -1])


class ResidualBlock(nn.Module):
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
                ResidualBlock(
                    inputs if place == 0 else outputs, outputs, stride if place == 0 else 1, normalized=normalized
                )
                for inputs, outputs, stride in sizes
                for place in range(3)
            )
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(F.relu(self.norm(self.stem(x)))).mean((2, 3)))


class MixerBlock(nn.Module):
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
        self.blocks = nn.Sequential(*(MixerBlock((side // patch) ** 2, width) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patch(x).flatten(2).transpose(1, 2))).mean(1))


class Attention(nn.Module):
    """Self-attention with one projection for q, k and v."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))


class TransformerBlock(nn.Module):
    """Pre-norm attention and a feed-forward layer four times as wide."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """A token for each patch of the image, the mean of all tokens at the end."""

    def __init__(self, side: int = 28, patch: int = 4, width: int = 128, blocks: int = 8) -> None:
        super().__init__()
        self.patch = nn.Conv2d(1, width, patch, patch)
        self.position = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(width, 4, causal=False) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch(x).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(tokens)).mean(1))


class GPT(nn.Module):
    """A language model of bytes."""

    def __init__(self, width: int = 256, blocks: int = 8, tokens: int = 256) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(256, width), nn.Embedding(tokens, width)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(*(TransformerBlock(width, 8, causal=True) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embedding(x) + self.position.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(tokens)))
