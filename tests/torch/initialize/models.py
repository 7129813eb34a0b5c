"""Models as users write them."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init import check


def mlp(inputs: int, depth: int, outputs: int, width: int = 16) -> nn.Sequential:
    """`depth` hidden layers with ReLU."""
    sizes = [inputs, *[width] * depth]
    hidden = [part for n, m in pairwise(sizes) for part in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(sizes[-1], outputs))


def unit(weight: Tensor) -> Tensor:
    """A weight of the author's size, as large as a semi-orthogonal matrix."""
    return weight.detach() * min(weight.shape) ** 0.5 / weight.detach().norm()


def assert_filter(q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> None:
    """Attention starts as a filter: q and v are members apart from each other, k and the output are made of them."""
    assert check(unit(q).numpy())
    assert check(unit(v).numpy())
    assert not torch.allclose(q, v, atol=0.01)
    torch.testing.assert_close(k, 0.7 * q)
    torch.testing.assert_close(out, -0.25 * unit(v).T)


class PlainCNN(nn.Module):
    """Functional activations and a loop over layers."""

    def __init__(self, hidden: int = 4, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(hidden))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        for layer in self.layers:
            x = F.relu_(layer(x))
        return self.head(x.mean((2, 3)).view(x.size(0), -1))


class Residual(nn.Module):
    """Blocks with a shortcut and batch normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(2))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        y = self.norms[1](self.second(F.relu(self.norms[0](self.first(x)))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(F.relu(x + y), 1), 1))


class Attention(nn.Module):
    """A pre-norm block with separate projections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))
        self.fc1, self.fc2 = nn.Linear(width, 32), nn.Linear(32, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        scores = self.q_proj(y) @ self.k_proj(y).transpose(1, 2) / 4
        x = x + self.out_proj(scores.softmax(-1) @ self.v_proj(y))
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Transformer(nn.Module):
    """An embedding, two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.blocks = nn.Sequential(Attention(), Attention())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 20, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embedding(x))))


class Fused(nn.Module):
    """Self-attention with one projection for q, k and v."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem, self.norm = nn.Linear(4, width), nn.LayerNorm(width)
        self.qkv, self.proj, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        batch, tokens, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        return self.head((x + self.proj(mixed)).mean(1))


class TwoEnds(nn.Module):
    """Two inputs and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.middle = nn.Linear(4, 16), nn.Linear(2, 16), nn.Linear(32, 16)
        self.value, self.classes = nn.Linear(16, 1), nn.Linear(16, 5)

    def forward(self, x: Tensor, y: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        both = torch.cat([self.a(x).relu(), self.b(y).relu()], 1) * scale
        z = F.relu(self.middle(both))
        return {"value": self.value(z), "classes": torch.softmax(self.classes(z), 1)}


class Recurrent(nn.Module):
    """An LSTM and its head."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


class Unreadable(nn.Module):
    """Looks at values, which torch.fx cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.hidden, self.last = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = -x
        return self.last(F.relu(self.hidden(F.relu(self.inner(x)))))
