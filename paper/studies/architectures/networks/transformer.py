"""Two transformers made of the same blocks: one sees images, one writes bytes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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


class Block(nn.Module):
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
        self.blocks = nn.Sequential(*(Block(width, 4, causal=False) for _ in range(blocks)))
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
        self.blocks = nn.Sequential(*(Block(width, 8, causal=True) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embedding(x) + self.position.weight[: x.shape[1]]
        return self.head(self.norm(self.blocks(tokens)))
