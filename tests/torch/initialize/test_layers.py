"""What `initialize_` does to each kind of layer: where its matrices are, its biases, its normalization."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import ALL_SCHEMES
from every_layer import initialize_
from torch import Tensor, nn

from stiefel_init import check, draw, schemes


class Conv1D(nn.Module):
    """GPT-2's linear layer, with the names and the order of dimensions of the package transformers."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.ones(nf))


# A layer, the parameter, what the plan says of it, and where its matrices are: written out, by their meaning.
LAYERS: dict[str, tuple[Callable[[], nn.Module], str, str, str, Callable[[Tensor], Tensor]]] = {
    "linear": (lambda: nn.Linear(5, 3), "weight", "stiefel 3×5", "rows", lambda w: w[None]),
    "bilinear": (lambda: nn.Bilinear(3, 2, 4), "weight", "stiefel 4×6", "rows", lambda w: w.reshape(1, 4, 6)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), "weight", "stiefel 6×4 at the centre", "columns",
               lambda w: w[None, :, :, 1]),
    "conv2d": (lambda: nn.Conv2d(6, 4, (3, 5)), "weight", "stiefel 4×6 at the centre", "rows",
               lambda w: w[None, :, :, 1, 2]),
    "conv3d": (lambda: nn.Conv3d(2, 2, 3), "weight", "stiefel 2×2 at the centre", "both",
               lambda w: w[None, :, :, 1, 1, 1]),
    "strided": (lambda: nn.Conv2d(3, 8, 7, stride=2), "weight", "stiefel 8×3 at the centre", "columns",
                lambda w: w[None, :, :, 3, 3]),
    "pointwise": (lambda: nn.Conv2d(3, 8, 1, stride=2), "weight", "stiefel 8×3", "columns",
                  lambda w: w[None, :, :, 0, 0]),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), "weight", "stiefel 2 of 3×2 at the centre", "columns",
                lambda w: torch.stack((w[:3, :, 1, 1], w[3:, :, 1, 1]))),
    "depthwise": (lambda: nn.Conv2d(3, 3, 3, groups=3), "weight", "stiefel 3 of 1×1 at the centre", "both",
                  lambda w: w[:, :, 1, 1, None]),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), "weight", "stiefel 2 of 3×2 at the centre",
                   "columns", lambda w: torch.stack((w[:2, :, 1, 1].T, w[2:, :, 1, 1].T))),
    "patches": (lambda: nn.Conv2d(2, 5, 2, stride=2), "weight", "stiefel 5×8", "rows", lambda w: w.reshape(1, 5, 8)),
    "unpatching": (lambda: nn.ConvTranspose1d(3, 5, 2, stride=2), "weight", "stiefel 10×3", "columns",
                   lambda w: w.permute(1, 2, 0).reshape(1, 10, 3)),
    "q, k, v": (lambda: nn.MultiheadAttention(4, 2), "in_proj_weight", "stiefel 3 of 4×4", "both",
                lambda w: torch.stack((w[:4], w[4:8], w[8:]))),
    "k alone": (lambda: nn.MultiheadAttention(4, 2, kdim=7, vdim=5), "k_proj_weight", "stiefel 4×7", "rows",
                lambda w: w[None]),
    "attention out": (lambda: nn.MultiheadAttention(4, 2), "out_proj.weight", "stiefel 4×4", "both", lambda w: w[None]),
    "rnn": (lambda: nn.RNN(5, 3), "weight_ih_l0", "stiefel 3×5", "rows", lambda w: w[None]),
    "gru": (lambda: nn.GRU(5, 3, 2), "weight_hh_l1", "stiefel 3 of 3×3", "both",
            lambda w: torch.stack((w[:3], w[3:6], w[6:]))),
    "lstm": (lambda: nn.LSTM(5, 3, bidirectional=True), "weight_ih_l0_reverse", "stiefel 4 of 3×5", "rows",
             lambda w: torch.stack((w[:3], w[3:6], w[6:9], w[9:]))),
    "lstm projection": (lambda: nn.LSTM(5, 3, proj_size=2), "weight_hr_l0", "stiefel 2×3", "rows", lambda w: w[None]),
    "gru cell": (lambda: nn.GRUCell(5, 3), "weight_ih", "stiefel 3 of 3×5", "rows",
                 lambda w: torch.stack((w[:3], w[3:6], w[6:]))),
    "gpt-2": (lambda: Conv1D(6, 4), "weight", "stiefel 6×4", "columns", lambda w: w.T[None]),
}  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_without_a_seed_holds_independent_members(layer: str) -> None:
    make, name, *_, matrices = LAYERS[layer]
    drawn = []
    for _ in range(2):
        module = make().double()
        initialize_(module)
        drawn.append(matrices(module.get_parameter(name).detach()))
        assert check(drawn[-1]).ok
    m, n = drawn[0].shape[1:]
    if min(m, n) > 1 and max(m, n) > 2:  # else the set has one member, or two
        distinct = {tuple(matrix.flatten().tolist()) for matrix in torch.cat(drawn)}
        assert len(distinct) == 2 * len(drawn[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.BatchNorm2d(3),
        lambda: nn.SyncBatchNorm(3),
        lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
        lambda: nn.LayerNorm((2, 3)),
        lambda: nn.GroupNorm(2, 4),
        lambda: nn.RMSNorm(3),
    ],
)
def test_normalization_layers_become_the_identity_and_keep_their_statistics(make: Callable[[], nn.Module]) -> None:
    module = make()
    for tensor in module.state_dict().values():
        tensor.fill_(7)
    initialize_(module)
    for name, tensor in module.state_dict().items():
        assert (tensor == {"weight": 1, "bias": 0}.get(name, 7)).all()


def test_a_layer_of_no_width_is_no_trouble() -> None:
    with pytest.warns(UserWarning, match="zero-element"):
        model = nn.Sequential(nn.Linear(0, 3), nn.Linear(3, 0))
    for scheme in ALL_SCHEMES:
        assert [row.orthonormal for row in initialize_(model)][::2] == ["columns", "rows"]
        initialize_(model, scheme, seed=0)


@pytest.mark.parametrize("scheme", [scheme for scheme in ALL_SCHEMES if not schemes.get(scheme).entrywise])
def test_every_scheme_of_matrices_puts_those_of_the_seed_and_name_where_the_layer_has_them(scheme: str) -> None:
    for layer, (make, name, action, side, matrices) in LAYERS.items():
        model = nn.ModuleDict({"a": make().double()})
        plan = initialize_(model, scheme, seed=3)
        weight = model.get_parameter(f"a.{name}").detach()
        drawn = matrices(weight)
        m, n = drawn.shape[1:]
        told = action.replace("stiefel", str(schemes.get(scheme).resolve(m, n)))
        assert plan[f"a.{name}"][2:] == (told, side, ""), layer
        expected = draw(scheme, m, n, batch=len(drawn), seed=3, name=f"a.{name}")
        np.testing.assert_allclose(drawn, expected, atol=1e-12, err_msg=layer)
        assert weight.count_nonzero() == drawn.count_nonzero(), layer  # zeros around a kernel's centre
        assert not any(bias.any() for other, bias in model.named_parameters() if "bias" in other), layer


@pytest.mark.parametrize("scheme", [scheme for scheme in ALL_SCHEMES if schemes.get(scheme).entrywise])
def test_schemes_that_draw_entry_by_entry_fill_all_of_each_layer(scheme: str) -> None:
    for layer, (make, name, *_) in LAYERS.items():
        module = make()
        row = initialize_(module, scheme, seed=3)[name]
        assert row.action.startswith(f"{scheme} "), layer
        assert row.orthonormal == "—", layer
        assert (module.get_parameter(name) != 0).all(), layer


def test_the_plan_names_the_scheme_asked_for_also_when_it_is_the_law_of_embeddings() -> None:
    assert initialize_(nn.Linear(5, 3), "random 1")["weight"].action == "random 1 3×5"
