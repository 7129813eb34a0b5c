"""q, k and v in one weight, in the layouts of the package transformers: each is a matrix of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from models import assert_filter, unit
from torch import Tensor, nn

from stiefel_init import check, sample
from stiefel_init.torch import initialize_
from stiefel_init.torch.initialize import apply
from stiefel_init.torch.initialize.draw import Batch
from stiefel_init.torch.initialize.sharded import _runs, _write_rows

WIDTH, HEADS = 16, 4


class Conv1D(nn.Module):
    """A linear layer with the weight of shape (inputs, outputs), as GPT-2 has it."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.zeros(nf))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT / 4, -1) @ v


class GPT2(nn.Module):
    """`c_attn` beside one another."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.c_attn, self.c_proj = nn.LayerNorm(WIDTH), Conv1D(3 * WIDTH, WIDTH), Conv1D(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.c_proj(attend(*self.c_attn(self.norm(x)).split(WIDTH, -1)))

    def projections(self) -> list[Tensor]:
        return [*self.c_attn.weight.detach().T.chunk(3), self.c_proj.weight.detach().T]


class NanoGPT(GPT2):
    """The same with plain linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn: Any = nn.Linear(WIDTH, 3 * WIDTH)
        self.c_proj: Any = nn.Linear(WIDTH, WIDTH)

    def projections(self) -> list[Tensor]:
        return [*self.c_attn.weight.detach().chunk(3), self.c_proj.weight.detach()]


class Bloom(nn.Module):
    """`query_key_value`, where each head has its rows of q, k and v together."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.norm, self.query_key_value = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.dense = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        fused = self.query_key_value(self.norm(x)).view(*x.shape[:-1], HEADS, 3, -1)
        return x + self.dense(attend(*(fused[..., part, :].flatten(-2) for part in range(3))))

    def projections(self) -> list[Tensor]:
        """As the forward sees them: what q, k and v are of the unit vectors."""
        fused = self.query_key_value.weight.detach().view(HEADS, 3, WIDTH // HEADS, WIDTH)
        return [*(fused[:, part].reshape(WIDTH, WIDTH) for part in range(3)), self.dense.weight.detach()]


class NeoX(Bloom):
    """GPT-NeoX keeps the number of heads in its config."""

    def __init__(self) -> None:
        super().__init__()
        del self.num_heads
        self.config = SimpleNamespace(num_attention_heads=HEADS)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("make", [GPT2, NanoGPT, Bloom, NeoX])
def test_fused_projections_are_a_filter(make: Any, seed: int | None) -> None:
    attention = make()
    model = nn.Sequential(attention, nn.Linear(WIDTH, 2))
    plan = initialize_(model, seed=seed)
    assert_filter(*attention.projections())
    fused = next(row for row in plan if row.reason == "k starts as 0.7 q")
    assert fused.action.startswith("stiefel 3 of 16×16")
    assert torch.isfinite(model(torch.randn(2, 5, WIDTH))).all()


@pytest.mark.parametrize("make", [GPT2, Bloom])
def test_with_a_seed_q_and_v_are_the_matrices_of_that_name(make: Any) -> None:
    model = make()
    initialize_(model, seed=7)
    name = "c_attn.weight" if make is GPT2 else "query_key_value.weight"
    expected = sample(WIDTH, WIDTH, batch=3, seed=7, name=name)
    q, _, v, _ = model.projections()
    torch.testing.assert_close(unit(q).double(), torch.from_numpy(expected[0]), atol=5e-6, rtol=0)
    torch.testing.assert_close(unit(v).double(), torch.from_numpy(expected[2]), atol=5e-6, rtol=0)


def test_without_a_number_of_heads_it_is_one_matrix() -> None:
    model = Bloom()
    del model.num_heads
    plan = initialize_(model, seed=0)
    assert plan["query_key_value.weight"].action.startswith("stiefel 48×16")
    assert check(unit(model.query_key_value.weight).numpy())


@pytest.mark.parametrize("make", [GPT2, Bloom])
@pytest.mark.parametrize("box", [((0, 16), (0, 48)), ((5, 11), (0, 48)), ((0, 16), (7, 30))])
def test_a_shard_is_a_slice_of_the_whole(make: Any, box: Any) -> None:
    """The rows of each block go where the whole weight has them, whatever part of it a rank holds."""
    model = make()
    initialize_(model, seed=0)
    layer = model.c_attn if make is GPT2 else model.query_key_value
    whole = layer.weight.detach().clone()
    if make is Bloom:
        box = tuple(reversed(box))
    held: list[Batch] = []

    def collect(batches: Any, seed: Any) -> None:
        held.extend(batch for batch in batches if batch.weight is layer.weight)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apply, "fill", collect)
        initialize_(model, seed=0)
    assert len(held) == 3
    part = torch.full([stop - start for start, stop in box], torch.nan)
    for batch in held:
        block = batch.matrices.places(whole)[0].reshape(batch.matrices.block_shape(tuple(whole.shape)))
        for first in range(0, len(block), 5):
            for start, rows in _runs(batch.matrices, first, block[first : first + 5]):
                _write_rows(batch.matrices, part, box, start, rows)
    torch.testing.assert_close(part, whole[tuple(slice(*edge) for edge in box)])
