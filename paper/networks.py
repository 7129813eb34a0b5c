"""Networks as users write them, for the studies and for tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    """Named parts, and what is done with them: `rule(net, *inputs)`."""

    def __init__(self, rule: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.rule = rule
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.rule(self, *inputs)


def chain(sizes: Sequence[int], activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of these sizes with an activation between them."""
    layers = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), activation())]
    return nn.Sequential(*layers[:-1])


def mlp(inputs: int, outputs: int, depth: int, width: int = 64) -> nn.Sequential:
    """`depth` linear layers and ReLU."""
    return chain([inputs, *[width] * (depth - 1), outputs])


def sized(make: Callable[..., nn.Module], *sizes: Any, **words: Any) -> Callable[[bool], nn.Module]:
    """A network of either scale: of a pair of sizes the first is the small one's."""

    def pick(size: Any, big: bool) -> Any:
        return size[big] if isinstance(size, tuple) else size

    return lambda big: make(*(pick(s, big) for s in sizes), **{name: pick(s, big) for name, s in words.items()})


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


class Attention(nn.Module):
    """Self-attention with one projection for q, k and v."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.heads, self.causal, self.drop = heads, causal, nn.Dropout(dropout)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias), nn.Linear(width, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropped = self.drop.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropped, is_causal=self.causal)
        return self.drop(self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width)))


class TransformerBlock(nn.Module):
    """Pre-norm attention and a feed-forward layer four times as wide."""

    def __init__(self, width: int, heads: int, *, causal: bool, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=bias), nn.LayerNorm(width, bias=bias)
        self.attention = Attention(width, heads, causal=causal, dropout=dropout, bias=bias)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width, bias), nn.Linear(4 * width, width, bias)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.drop(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class GPT(nn.Module):
    """A language model, by default of bytes; its head may be its table."""

    def __init__(
        self, width: int = 256, blocks: int = 8, tokens: int = 256, heads: int = 8, words: int = 256, *,
        dropout: float = 0.0, bias: bool = True, tied: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding, self.position = nn.Embedding(words, width), nn.Embedding(tokens, width)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, heads, causal=True, dropout=dropout, bias=bias) for _ in range(blocks))
        )
        self.drop, self.norm = nn.Dropout(dropout), nn.LayerNorm(width, bias=bias)
        self.head = nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.drop(self.embedding(x) + self.position.weight[: x.shape[1]])
        return self.head(self.norm(self.blocks(tokens)))


def nanogpt(width: int, blocks: int, tokens: int, heads: int, words: int, **more: Any) -> GPT:
    """With its table for a head, and as its author starts it: weights of 0.02, those at the ends of branches less."""
    model = GPT(width, blocks, tokens, heads, words, tied=True, **more)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            ends = name.endswith(("proj.weight", "fc2.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * blocks if ends else 1))
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model
