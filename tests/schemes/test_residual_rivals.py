"""Rivals for residual networks and transformers: each has the property that defines it, however a model is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from conftest import FALSE_ALARM, assert_refused, assert_refused_unchanged
from scipy import stats
from torch import Tensor, nn

from stiefel_init import draw
from stiefel_init.lab import Cell
from stiefel_init.torch import initialize_

WIDTH, HEADS, BLOCKS = 32, 4, 3


class Conv1D(nn.Module):
    """GPT-2's linear layer, whose weight is inputs × outputs."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight, self.bias = nn.Parameter(torch.ones(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], self.nf)


class Attention(nn.Module):
    """The projections in one layer, in three, in one that is stored transposed, or of one head after the other."""

    def __init__(self, kind: str = "fused") -> None:
        super().__init__()
        self.kind, self.num_heads = kind, HEADS
        if kind == "separate":
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        names = {"transposed": ("c_attn", "c_proj"), "interleaved": ("query_key_value", "dense")}
        self.together, self.last = names.get(kind, ("qkv", "proj"))
        linear: Any = (lambda n, m: Conv1D(m, n)) if kind == "transposed" else nn.Linear
        if kind != "separate":
            setattr(self, self.together, linear(WIDTH, 3 * WIDTH))
        setattr(self, self.last, linear(WIDTH, WIDTH))

    def apart(self, joined: Tensor) -> list[Tensor]:
        """q, k and v of what one layer makes, or of its weight, along the first axis."""
        if self.kind == "interleaved":
            by_head = joined.unflatten(0, (HEADS, 3, -1))
            return [by_head[:, part].flatten(0, 1) for part in range(3)]
        return list(joined.chunk(3))

    def projections(self) -> list[Tensor]:
        """The weights of q, k and v."""
        if self.kind == "separate":
            return [layer.weight.detach() for layer in (self.q_proj, self.k_proj, self.v_proj)]
        weight = getattr(self, self.together).weight.detach()
        return self.apart(weight.T if self.kind == "transposed" else weight)

    def output(self) -> Tensor:
        """The weight that mixes the heads."""
        weight = getattr(self, self.last).weight.detach()
        return weight.T if self.kind == "transposed" else weight

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "separate":
            q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        else:
            q, k, v = (part.movedim(0, -1) for part in self.apart(getattr(self, self.together)(x).movedim(-1, 0)))
        return getattr(self, self.last)(nn.functional.scaled_dot_product_attention(q, k, v))


ATTENTIONS = ("fused", "separate", "transposed", "interleaved")


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.fc2(torch.relu(self.fc1(x)))


def transformer(attention: str = "fused", blocks: int = BLOCKS) -> Any:
    layers = nn.Embedding(50, WIDTH), *(Block(Attention(attention)) for _ in range(blocks)), nn.Linear(WIDTH, 5)
    return nn.Sequential(*layers).double()


def is_uniform(weights: Sequence[Tensor], bound: float) -> None:
    """Kolmogorov and Smirnov's test; false alarm 1e-6."""
    entries = torch.cat([weight.detach().flatten() for weight in weights])
    assert stats.kstest(entries.numpy() / bound, stats.uniform(-1, 2).cdf).pvalue > FALSE_ALARM


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_t_fixup_scales_values_outputs_and_feed_forward_layers(attention: str) -> None:
    model = transformer(attention)
    initialize_(model, "t-fixup", seed=0)
    blocks: list[Any] = [block for block in model if isinstance(block, Block)]
    q, k, v = (torch.cat(part) for part in zip(*(block.attention.projections() for block in blocks)))
    square, factor = math.sqrt(6 / (2 * WIDTH)), 0.67 * BLOCKS**-0.25
    is_uniform([q, k], square)
    is_uniform([v, *(block.attention.output() for block in blocks)], factor * square)
    is_uniform([w for b in blocks for w in (b.fc1.weight, b.fc2.weight)], factor * math.sqrt(6 / (5 * WIDTH)))
    is_uniform([model.get_parameter(f"{BLOCKS + 1}.weight")], math.sqrt(6 / (5 + WIDTH)))
    table = model.get_parameter("0.weight").detach().flatten() * math.sqrt(WIDTH) * (9 * BLOCKS) ** 0.25
    assert stats.kstest(table.numpy(), "norm").pvalue > FALSE_ALARM


def test_t_fixup_knows_a_decoder_by_its_attention_to_another_sequence() -> None:
    sizes = WIDTH, HEADS, 64
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(*sizes), 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes), 4)
    model: Any = nn.ModuleDict({"source": nn.Embedding(200, WIDTH), "encoder": encoder, "decoder": decoder})
    plan = initialize_(model, "t-fixup", seed=0)
    square, here, there = math.sqrt(6 / (2 * WIDTH)), 0.67 * 2**-0.25, (9 * 4) ** -0.25
    for stack, name, factor in (
        ("encoder", "self_attn", here), ("decoder", "self_attn", there), ("decoder", "multihead_attn", there)
    ):  # fmt: skip
        held = [w.detach().chunk(3) for n, w in model[stack].named_parameters() if n.endswith(name + ".in_proj_weight")]
        is_uniform([third for thirds in held for third in thirds[:2]], square)
        is_uniform([thirds[2] for thirds in held], factor * square)
    wide = [w for n, w in decoder.named_parameters() if n.endswith(("linear1.weight", "linear2.weight"))]
    is_uniform(wide, there * math.sqrt(6 / (64 + WIDTH)))
    table = model["source"].weight.detach().flatten() * math.sqrt(WIDTH) / there
    assert stats.kstest(table.numpy(), "norm").pvalue > FALSE_ALARM
    assert plan["decoder.layers.3.linear1.weight"].reason == "in one of 4 decoder blocks"


def test_an_embedding_that_is_frozen_or_skipped_stays() -> None:
    for scheme in ("t-fixup", "gpt-2"):
        model = transformer()
        model[0].requires_grad_(False)
        before = model.get_parameter("0.weight").clone()
        assert "frozen" in initialize_(model, scheme, inputs=torch.zeros(1, 3).long())["0.weight"].reason
        assert torch.equal(before, model.get_parameter("0.weight"))
        model[0].requires_grad_(True)
        initialize_(model, scheme, inputs=torch.zeros(1, 3).long(), skip="0.weight")
        assert torch.equal(before, model.get_parameter("0.weight"))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_mimetic_products_are_near_the_identity(attention: str) -> None:
    """W_qᵀW_k of each head is the best approximation of its rank, of 0.7 (I + Z); W_oW_v = 0.4 (Z - I)."""
    model = transformer(attention, 2)
    plan = initialize_(model, "mimetic", seed=3)
    for place in (1, 2):
        block: Any = model[place]
        q, k, v = (part.numpy() for part in block.attention.projections())
        out = block.attention.output().numpy()
        names = [row.name for row in plan if row.name.startswith(f"{place}.attention") and "mimetic" in row.action]
        z = draw("random 1", WIDTH, WIDTH, batch=HEADS, seed=3, name=names[0]) / math.sqrt(WIDTH)
        u, s, vt = np.linalg.svd(0.7 * (np.eye(WIDTH) + z))
        size = WIDTH // HEADS
        for head in range(HEADS):
            mine = slice(head * size, (head + 1) * size)
            best = (u[head, :, :size] * s[head, :size]) @ vt[head, :size]
            np.testing.assert_allclose(q[mine].T @ k[mine], best, atol=1e-9)
            np.testing.assert_allclose(np.linalg.norm(q[mine], axis=1), np.sqrt(s[head, :size]), atol=1e-9)
        noise = (out @ v / 0.4 + np.eye(WIDTH)) * math.sqrt(WIDTH)
        assert stats.kstest(noise.ravel(), "norm").pvalue > FALSE_ALARM
        np.testing.assert_allclose(np.linalg.norm(out, axis=0), np.linalg.norm(v, axis=1), rtol=1e-6)


def test_mimetic_weights_without_a_seed_are_paired_too() -> None:
    model = transformer("separate")
    initialize_(model, "mimetic")
    block: Any = model[1]
    product = block.attention.output() @ block.attention.projections()[2]
    assert abs(float(product.diagonal().mean()) + 0.4) < 0.1  # 0.4/32 · √32 is its error: 7 of those


class Residual(nn.Module):
    """x + gain · norm(outer(relu(inner(x)))), with what of it there is."""

    def __init__(self, gain: tuple[int, ...] | None = None, norm: bool = False, shortcut: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.shortcut = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) if shortcut else nn.Identity()
        self.gain = None if gain is None else nn.Parameter(torch.ones(gain))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.outer(torch.relu(self.inner(x))))
        return self.shortcut(x) + (y if self.gain is None else self.gain * y)


class OneVector(nn.Module):
    """ReZero with the gains of all branches in one parameter, or their sigmoids."""

    def __init__(self, gate: Callable[[Tensor], Tensor] = lambda gain: gain) -> None:
        super().__init__()
        self.inner, self.outer = (nn.ModuleList(nn.Linear(8, 8) for _ in range(3)) for _ in range(2))
        self.gains, self.gate = nn.Parameter(torch.ones(3)), gate

    def forward(self, x: Tensor) -> Tensor:
        for place, (inner, outer) in enumerate(zip(self.inner, self.outer)):
            x = x + outer(torch.relu(inner(x))) * self.gate(self.gains[place])
        return x


def residual(*blocks: nn.Module) -> Any:
    return nn.Sequential(nn.Linear(8, 8), *blocks, nn.Linear(8, 3))


@pytest.mark.parametrize("traced", [True, False])
@pytest.mark.parametrize(
    ("build", "zero", "branches"),
    [
        (lambda: [Residual(), Residual()], ("outer.weight",), 2),
        (lambda: [Residual(norm=True), Residual(norm=True)], ("norm.weight",), 2),
        (lambda: [Residual(norm=True, shortcut=True)], ("1.norm.weight",), 1),
        (lambda: [Residual(()), Residual(())], ("gain",), 2),
        (lambda: [Residual((8,), norm=True)], ("gain",), 1),
        (lambda: [Residual((1,)), Residual()], ("1.gain", "2.outer.weight"), 1),
        (lambda: [OneVector()], ("gains",), 3),
        (lambda: [OneVector(torch.sigmoid)], tuple(f"outer.{place}.weight" for place in range(3)), 3),
    ],
)
def test_skip_init_networks_are_their_skip_connections(
    build: Callable[[], list[nn.Module]], zero: tuple[str, ...], branches: int, traced: bool
) -> None:
    blocks, x = build(), torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    model = residual(*blocks)
    plan = initialize_(model, "skip-init", seed=0, inputs=x if traced else None)
    weights = {name: p for name, p in model.named_parameters() if not name.endswith("bias")}
    silenced = {name for name, p in weights.items() if not p.any()}
    assert silenced == {name for name in weights if name.endswith(zero)}
    assert any(f"{branches} residual branches" in plan[name].reason for name in silenced)
    y = model[0](x)
    for block in blocks:
        y = block.shortcut(y) if isinstance(block, Residual) else y
    torch.testing.assert_close(model(x), model[-1](y))
    model(x).square().mean().backward()
    assert all((grad := weights[name].grad) is not None and grad.any() for name in silenced)  # they leave zero


def test_skip_init_silences_both_branches_of_a_transformer_block() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    x = torch.randn(2, 5, 8)
    initialize_(layer, "skip-init", inputs=x)
    torch.testing.assert_close(layer(x), x)


def test_a_gain_that_is_frozen_or_skipped_stays() -> None:
    model = residual(Residual(()), Residual(()))
    model[1].gain.requires_grad_(False)
    initialize_(model, "skip-init", skip="2.gain")
    assert all(model[place].gain.detach() == 1 for place in (1, 2))


@pytest.mark.parametrize(
    ("scheme", "build", "words"),
    [
        ("t-fixup", lambda: nn.Sequential(nn.Linear(4, 4)), ["is for transformers", "self-attention"]),
        ("mimetic", lambda: nn.Sequential(nn.Linear(4, 4)), ["is for transformers", "self-attention"]),
        ("skip-init", lambda: nn.Sequential(nn.Linear(4, 4)), ["residual"]),
        ("mimetic 0", lambda: nn.MultiheadAttention(4, 2), ["qk=0", "0.7"]),
        ("t-fixup", lambda: nn.MultiheadAttention(4, 2), ["blocks", "in_proj_weight", "feed-forward"]),
        ("mimetic", lambda: nn.Sequential(nn.Linear(4, 4), nn.ModuleDict(
            {name: nn.Linear(4, 4) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
        )), ["heads", "1.q_proj.weight", "num_heads"]),
    ],
)  # fmt: skip
def test_they_are_refused_where_they_do_not_belong(
    scheme: str, build: Callable[[], nn.Module], words: list[str]
) -> None:
    assert_refused_unchanged(build(), scheme, words)


MADE_FOR = {"t-fixup": "transformers", "mimetic": "transformers", "skip-init": "residual networks"}


@pytest.mark.parametrize(("scheme", "kind"), MADE_FOR.items())
def test_plain_networks_of_the_laboratory_are_refused(scheme: str, kind: str) -> None:
    assert_refused(lambda: Cell("digits", scheme), [f"scheme='{scheme}' is for {kind}", "plain"])
