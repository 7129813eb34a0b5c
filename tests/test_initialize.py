"""Whole models: what `initialize_` does to each layer, what it leaves alone, what it refuses, and that seeds hold."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_sample_images
from test_bad_input import one_sentence
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations, prune

from stiefel_init import StiefelError, check, sample
from stiefel_init.torch import SCHEMES, _draw, initialize_, stiefel_

DOCS = Path(__file__).parents[1] / "docs" / "initialize.md"


def values(model: nn.Module) -> dict[str, Tensor]:
    """A copy of everything the model holds."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Conv1D(nn.Module):
    """GPT-2's linear layer, with the names and the order of dimensions of the package transformers."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.ones(nf))


class Picture(nn.Module):
    """A vision transformer's parameters: layers, and its own tokens and scales."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.full((1, 1, 8), 0.3))
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.gamma = nn.Parameter(torch.full((8,), 1e-5))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat((self.cls_token.expand(len(x), -1, -1), tokens), 1)
        return self.head(self.gamma * self.block(tokens)[:, 0])


# --- each layer -----------------------------------------------------------------------------------------------------

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
def test_each_layer_holds_the_members_of_its_seed_and_name(layer: str) -> None:
    make, name, action, side, matrices = LAYERS[layer]
    model = nn.ModuleDict({"a": make().double()})
    plan = initialize_(model, seed=3)
    assert plan[f"a.{name}"][2:] == (action, side, "")
    drawn = matrices(model.get_parameter(f"a.{name}").detach())
    assert check(drawn).ok
    expected = sample(*drawn.shape[1:], batch=len(drawn), seed=3, name=f"a.{name}")
    np.testing.assert_allclose(drawn, expected, atol=1e-12)


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


@pytest.mark.parametrize("layer", LAYERS)
def test_around_the_centre_of_a_kernel_there_are_zeros_and_biases_are_zero(layer: str) -> None:
    make, name, *_, matrices = LAYERS[layer]
    module = make()
    initialize_(module)
    weight = module.get_parameter(name)
    assert weight.count_nonzero() == matrices(weight).count_nonzero()
    for other, parameter in module.named_parameters():
        if "bias" in other:
            assert (parameter == 0).all()


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
    for scheme in SCHEMES:
        assert [row.orthonormal for row in initialize_(model)][::2] == ["columns", "rows"]
        initialize_(model, scheme, seed=0)


# --- convolutions ---------------------------------------------------------------------------------------------------

CONVOLUTIONS = [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d]
CHANNELS = [(4, 8, 1), (4, 4, 1), (8, 4, 1), (4, 8, 2), (8, 4, 4), (6, 6, 6), (3, 9, 3)]  # in, out, groups


def convolution(kind: type[nn.Module], inputs: int, outputs: int, groups: int, kernel: int = 3) -> nn.Module:
    """With stride 1, and images that keep their size; circular padding where torch has it."""
    options = {} if "Transpose" in kind.__name__ else {"padding_mode": "circular"}
    return kind(inputs, outputs, kernel, padding=kernel // 2, groups=groups, dtype=torch.float64, **options)


def images(kind: type[nn.Module], channels: int) -> Tensor:
    return noise(2, channels, *[5, 4, 3][: int(kind.__name__[-2])])


@pytest.mark.parametrize("channels", CHANNELS, ids=str)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_delta_is_an_exact_isometry_that_keeps_the_image_of_ones(kind: type[nn.Module], channels: tuple) -> None:
    inputs, outputs, groups = channels
    layer = convolution(kind, inputs, outputs, groups)
    initialize_(layer, seed=0)
    x = images(kind, inputs)
    y = layer(x)
    assert y.shape[2:] == x.shape[2:]
    if inputs <= outputs:
        torch.testing.assert_close(y.flatten(1).norm(dim=1), x.flatten(1).norm(dim=1), rtol=1e-13, atol=0)
    else:  # on its row space, which its adjoint spans: there the layer undoes the adjoint, an isometry
        z = images(kind, outputs)
        _, adjoint = torch.autograd.functional.vjp(layer, x, z)
        torch.testing.assert_close(adjoint.flatten(1).norm(dim=1), z.flatten(1).norm(dim=1), rtol=1e-13, atol=0)
        torch.testing.assert_close(layer(adjoint), z, rtol=0, atol=1e-13)
    ones = layer(torch.ones_like(x))
    torch.testing.assert_close(ones, torch.full_like(ones, math.sqrt(inputs / outputs)), rtol=1e-13, atol=0)


@pytest.mark.parametrize("channels", CHANNELS, ids=str)
@pytest.mark.parametrize("kind", CONVOLUTIONS[:3])
def test_flatten_keeps_the_image_of_ones_and_expands_nothing(kind: type[nn.Module], channels: tuple) -> None:
    inputs, outputs, groups = channels
    layer = convolution(kind, inputs, outputs, groups)
    plan = initialize_(layer, conv="flatten", seed=0)
    places = layer.weight[0, 0].numel()
    assert f" / {math.sqrt(places):.4g}" in plan["weight"].action
    kernels = layer.weight.detach().reshape(groups, outputs // groups, -1)
    assert check(kernels * math.sqrt(places)).ok
    ones = layer(torch.ones_like(images(kind, inputs)))
    torch.testing.assert_close(ones, torch.full_like(ones, math.sqrt(inputs / outputs)), rtol=1e-13, atol=0)
    x = images(kind, inputs)
    assert (layer(x).flatten(1).norm(dim=1) <= x.flatten(1).norm(dim=1) * (1 + 1e-13)).all()


@pytest.mark.parametrize("channels", CHANNELS, ids=str)
@pytest.mark.parametrize("kind", CONVOLUTIONS[3:])
def test_flatten_of_a_transposed_convolution(kind: type[nn.Module], channels: tuple) -> None:
    """Without padding, every place of the image that all of the kernel reaches gets the mean of the ones."""
    inputs, outputs, groups = channels
    layer = kind(inputs, outputs, 2, groups=groups, dtype=torch.float64)
    initialize_(layer, conv="flatten", seed=0)
    ones = layer(torch.ones(1, inputs, *[3] * int(kind.__name__[-2]), dtype=torch.float64))
    inside = ones[(..., *[slice(1, -1)] * (ones.ndim - 2))]
    torch.testing.assert_close(inside, torch.full_like(inside, math.sqrt(inputs / outputs)), rtol=1e-13, atol=0)


def test_a_depthwise_delta_is_the_identity() -> None:
    layer = convolution(nn.Conv2d, 6, 6, 6)
    initialize_(layer)
    x = images(nn.Conv2d, 6)
    assert torch.equal(layer(x), x)


@pytest.mark.parametrize("kernel", [2, 4, (2, 3), (6, 4)])
def test_with_an_even_kernel_and_same_padding_delta_shifts_nothing(kernel: int | tuple[int, int]) -> None:
    layer = nn.Conv2d(3, 3, kernel, padding="same", padding_mode="circular", dtype=torch.float64)
    initialize_(layer, seed=0)
    matrix = torch.from_numpy(sample(3, 3, seed=0, name="weight"))
    x = noise(2, 3, 8, 8)
    torch.testing.assert_close(layer(x), torch.einsum("oi,bihw->bohw", matrix, x))


@pytest.mark.parametrize("conv", ["delta", "flatten"])
def test_a_convolution_that_steps_by_its_kernel_is_the_linear_layer_of_its_patches(conv: str) -> None:
    layer = nn.Conv2d(2, 32, 4, stride=4, dtype=torch.float64)
    initialize_(layer, conv=conv, seed=0)
    x = noise(3, 2, 8, 8)
    torch.testing.assert_close(layer(x).flatten(1).norm(dim=1), x.flatten(1).norm(dim=1))
    patches = nn.functional.unfold(x, 4, stride=4)
    matrix = torch.from_numpy(sample(32, 32, seed=0, name="weight"))
    torch.testing.assert_close(layer(x).flatten(2), matrix @ patches)
    upwards = nn.ConvTranspose2d(32, 2, 4, stride=4, dtype=torch.float64)
    initialize_(upwards, conv=conv, seed=0)
    z = noise(3, 32, 2, 2)
    torch.testing.assert_close(upwards(z).flatten(1).norm(dim=1), z.flatten(1).norm(dim=1))
    ones = upwards(torch.ones_like(z))
    torch.testing.assert_close(ones, torch.ones_like(ones))


def test_a_kernel_in_another_memory_format_holds_the_same() -> None:
    for conv in ("delta", "flatten"):
        plain, last = nn.Conv2d(4, 6, 3), nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)
        for layer in (plain, last):
            initialize_(layer, conv=conv, seed=0)
        assert torch.equal(plain.weight, last.weight)
        assert last.weight.is_contiguous(memory_format=torch.channels_last)


# --- what is done once, and what is left alone ----------------------------------------------------------------------


def test_a_vision_transformer_is_initialized_but_for_its_own_parameters() -> None:
    model = Picture()
    plan = initialize_(model, seed=0)
    assert [row.name for row in plan] == [name for name, _ in model.named_parameters()]
    alone = {row.name: row.reason for row in plan if row.action == "left alone"}
    assert alone == dict.fromkeys(["cls_token", "gamma"], "no rule for parameters of Picture")
    assert (model.cls_token == 0.3).all()
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_a_tied_weight_is_drawn_once_under_its_first_name() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.append(model[0])  # a module that is there twice
    plan = initialize_(model, seed=0)
    np.testing.assert_allclose(model[1].weight.detach(), sample(4, 4, seed=0, name="0.weight"), atol=1e-6)
    assert model[1].weight is model[0].weight
    assert [row.action for row in plan] == [
        "stiefel 4×4", "zeros", "tied to 0.weight", "zeros", "tied to 0.weight", "tied to 0.bias",
    ]  # fmt: skip


@pytest.mark.parametrize("embedding_first", [True, False])
def test_an_embedding_is_left_alone_also_when_it_is_the_weight_of_a_linear_layer(embedding_first: bool) -> None:
    embedding, head = nn.Embedding(9, 4), nn.Linear(4, 9, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(*((embedding, head) if embedding_first else (head, embedding)))
    before = values(model)
    plan = initialize_(model)
    assert [row[2:] for row in plan] == [("left alone", "—", "an embedding"), ("tied to 0.weight", "—", "")]
    assert same(before, values(model))


def test_frozen_parameters_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    before = values(model)
    plan = initialize_(model)
    assert [row.name for row in plan if row.reason == "frozen: requires_grad is False"] == ["0.weight", "0.bias"]
    after = values(model)
    assert [name for name in before if torch.equal(before[name], after[name])] == [
        "0.weight", "0.bias", "1.weight", "1.bias",
    ]  # fmt: skip


@pytest.mark.parametrize("skip", ["2.*", ["2.weight", "2.bias"], ("[!0].*",), iter(["2.*"])])
def test_skipped_parameters_are_left_alone(skip: object) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    before = values(model)
    plan = initialize_(model, skip=skip)
    assert [row.reason for row in plan] == ["", "", "skipped", "skipped"]
    after = values(model)
    assert [name for name in before if torch.equal(before[name], after[name])] == ["2.weight", "2.bias"]


def test_a_tied_weight_is_skipped_under_any_of_its_names() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    before = values(model)
    assert initialize_(model, skip="1.weight")["0.weight"].reason == "skipped"
    assert same(before, values(model))


def test_parameters_stay_leaves_that_want_gradients() -> None:
    model = Picture()
    before = dict(model.named_parameters())
    initialize_(model)
    for name, parameter in model.named_parameters():
        assert parameter is before[name]
        assert parameter.requires_grad
        assert parameter.is_leaf


# --- parametrizations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parametrize", [parametrizations.weight_norm, parametrizations.orthogonal, parametrizations.spectral_norm]
)
def test_a_parametrized_weight_gets_the_value_it_would_have_without(parametrize: Callable) -> None:
    model = nn.Sequential(parametrize(nn.Linear(6, 4)))
    state = torch.get_rng_state()
    plan = initialize_(model, seed=0, dry_run=True)
    assert torch.equal(state, torch.get_rng_state())
    assert initialize_(model, seed=0) == plan
    np.testing.assert_allclose(model[0].weight.detach(), sample(4, 6, seed=0, name="0.weight"), atol=1e-6)
    assert plan["0.weight"].action == "stiefel 4×6"
    parts = [row.action for row in plan if "original" in row.name]
    assert parts == ["part of 0.weight"] * len(parts) != []


def test_a_frozen_or_skipped_parametrization_is_left_alone() -> None:
    model = parametrizations.weight_norm(nn.Linear(6, 4))
    before = values(model)
    assert initialize_(model, skip="parametrizations.*")["weight"].reason == "skipped"
    model.parametrizations.requires_grad_(False)
    assert "frozen" in initialize_(model)["weight"].reason
    after = values(model)
    assert all(torch.equal(before[name], after[name]) for name in before if "original" in name)


# --- seeds ----------------------------------------------------------------------------------------------------------


def test_a_seed_gives_each_name_its_weights_whatever_else_is_in_the_model() -> None:
    def model(names: str) -> nn.ModuleDict:
        return nn.ModuleDict({name: nn.Linear(8, 8) for name in names})

    first, second, other = model("abc"), model("dcxa"), model("abc")
    initialize_(first, seed=5)
    initialize_(second, seed=5)
    initialize_(other, seed=6)
    for name in "ac":
        torch.testing.assert_close(first[name].weight, second[name].weight, rtol=0, atol=5e-6)
        assert not torch.allclose(first[name].weight, other[name].weight)
    assert not torch.allclose(first["a"].weight, first["b"].weight)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_seed_leaves_the_global_generator_alone_and_none_draws_from_it(scheme: str) -> None:
    model = Picture()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = torch.get_rng_state()
        initialize_(model, scheme, seed=0)
        assert torch.equal(state, torch.get_rng_state())
        initialize_(model, scheme)
        first = values(model)
        torch.set_rng_state(state)
        initialize_(model, scheme)
        assert same(first, values(model))
        initialize_(model, scheme)
        assert same(first, values(model)) == (scheme == "lee")


@pytest.mark.parametrize("seed", [None, 0])
def test_equal_layers_are_drawn_together_and_large_ones_apart(seed: int | None, monkeypatch) -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)), nn.Linear(8, 4))
    calls = []
    draw = _draw._draw
    monkeypatch.setattr(_draw, "_draw", lambda scheme, out, *rest: calls.append(len(out)) or draw(scheme, out, *rest))
    initialize_(model, seed=seed)
    assert calls == [20, 1]
    together = values(model)
    monkeypatch.setattr(_draw, "_TOGETHER", 8 * 8 * 5)
    initialize_(model, seed=seed)
    assert calls[2:] == [5, 5, 5, 5, 1]
    if seed is not None:
        for name, value in values(model).items():
            torch.testing.assert_close(value, together[name], rtol=0, atol=5e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_of_every_float_dtype_the_same_to_rounding(scheme: str, dtype: torch.dtype) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 9), nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose1d(6, 4, 3), nn.LSTM(3, 4))

    exact, rounded = model().double(), model().to(dtype)
    for conv in ("delta", "flatten"):
        initialize_(exact, scheme, conv=conv, seed=0)
        initialize_(rounded, scheme, conv=conv, seed=0)
        for a, b in zip(exact.parameters(), rounded.parameters()):
            assert b.dtype == dtype
            torch.testing.assert_close(b.double(), a, rtol=torch.finfo(dtype).eps, atol=5e-6 if a.dtype != dtype else 0)


# --- the other schemes ----------------------------------------------------------------------------------------------


def test_without_a_seed_he_and_xavier_are_torchs_own() -> None:
    layers = [nn.Linear(6, 4), nn.Conv2d(6, 4, 3)]
    for scheme, own in (("he", lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu")),
                        ("xavier", nn.init.xavier_uniform_)):  # fmt: skip
        for layer in layers:
            with torch.random.fork_rng():
                torch.manual_seed(0)
                initialize_(layer, scheme)
                torch.manual_seed(0)
                assert torch.equal(layer.weight, own(torch.empty_like(layer.weight)))


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize(
    ("make", "fan_in", "fan_out"),
    [
        (lambda: nn.Linear(60, 40), 60, 40),
        (lambda: nn.Conv2d(20, 24, 3), 180, 216),
        (lambda: nn.Conv2d(20, 24, 3, groups=2), 90, 108),
        (lambda: nn.ConvTranspose2d(20, 24, 3), 180, 216),
        (lambda: nn.ConvTranspose2d(20, 24, 3, groups=2), 90, 108),
    ],
)
def test_he_xavier_random_draw_all_of_a_kernel_with_its_fans(make, fan_in: int, fan_out: int, seed) -> None:
    """Kolmogorov–Smirnov, rejecting the right law with probability at most 1e-6 each."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    laws = {
        "he": stats.norm(0, math.sqrt(2 / fan_in)),
        "xavier": stats.uniform(-bound, 2 * bound),
        "random": stats.norm(0, 0.1),
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for scheme, law in laws.items():
            layer = make().double()
            assert initialize_(layer, scheme, seed=seed)["weight"].orthonormal == "—"
            drawn = layer.weight.detach().flatten().numpy()
            assert stats.kstest(drawn, law.cdf).pvalue > 1e-6
            assert len(np.unique(drawn)) > 0.99 * drawn.size


@pytest.mark.parametrize("seed", [None, 0])
def test_orthogonal_and_lee_take_the_same_places_as_stiefel(seed: int | None) -> None:
    for layer in LAYERS:
        make, name, action, side, matrices = LAYERS[layer]
        module = make().double()
        plan = initialize_(module, "orthogonal", seed=seed)
        assert plan[name][2:4] == (action.replace("stiefel", "orthogonal"), side)
        drawn = matrices(module.get_parameter(name).detach())
        assert check(drawn).orthogonality_error < 1e-13
        if min(drawn.shape[1:]) > 1:
            assert not check(drawn)
        initialize_(module, "lee", seed=seed)
        drawn = matrices(module.get_parameter(name).detach())
        expected = SCHEMES["lee"](torch.empty(drawn.shape[1:], dtype=torch.float64))
        torch.testing.assert_close(drawn, expected.expand_as(drawn))


# --- the plan -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", [None, 0])
def test_a_dry_run_makes_the_same_plan_and_changes_nothing(scheme: str, seed: int | None) -> None:
    model = Picture()
    before, state = values(model), torch.get_rng_state()
    dry = initialize_(model, scheme, seed=seed, dry_run=True)
    assert same(before, values(model))
    assert torch.equal(state, torch.get_rng_state())
    assert initialize_(model, scheme, seed=seed) == dry


def test_a_plan_is_a_table() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Embedding(5, 2))
    plan = initialize_(model)
    assert str(plan).splitlines() == [
        "parameter  shape         what is done               orthonormal  why",
        "0.weight   (8, 3, 3, 3)  stiefel 8×3 at the centre  columns",
        "0.bias     (8,)          zeros                      —",
        "1.weight   (8,)          ones                       —",
        "1.bias     (8,)          zeros                      —",
        "2.weight   (5, 2)        left alone                 —            an embedding",
    ]
    assert repr(plan) == "Plan of 5 parameters; print it for the table"
    frame = pd.DataFrame(plan.to_dict())
    assert list(frame) == list(pd.DataFrame(list(plan))) == ["name", "shape", "action", "orthonormal", "reason"]
    assert list(frame.name) == [name for name, _ in model.named_parameters()]
    with pytest.raises(KeyError):
        plan["3.weight"]
    assert str(initialize_(nn.Sequential())).startswith("parameter")


# --- the meta device ------------------------------------------------------------------------------------------------


def everything() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        nn.PReLU(),
        nn.Embedding(9, 8, padding_idx=2),
        nn.TransformerEncoderLayer(8, 2, 16),
        nn.LSTM(8, 4),
        nn.Linear(4, 9),
        nn.Linear(8, 9, bias=False),
    )
    model[8].weight = model[4].weight
    return model


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("seed", [None, 4])
def test_a_model_on_meta_gets_memory_and_values_in_one_call(seed: int | None, device: str | None) -> None:
    with torch.device("meta"):
        model = everything()
    plan = initialize_(model, seed=seed, dry_run=True, device=device)
    assert all(tensor.is_meta for tensor in model.state_dict().values())
    assert initialize_(model, seed=seed, device=device) == plan
    assert model[8].weight is model[4].weight
    assert plan["4.weight"][2:] == ("N(0, 1)", "—", "an embedding")
    assert (model[4].weight[2] == 0).all()
    assert model[4].weight.std().item() == pytest.approx(1, abs=0.5)
    for parameter in model.parameters():
        assert parameter.device.type == "cpu"
        assert parameter.requires_grad
    real = everything()
    initialize_(real, seed=seed)
    expected, found = values(real), values(model)
    for name in expected.keys() - {"4.weight", "8.weight"} if seed is not None else ["1.running_var", "3.weight"]:
        assert torch.equal(found[name], expected[name]), name
    model[6](model[5](model[4](torch.zeros(3, 2, dtype=torch.int64))))[0].sum().backward()


def test_what_has_values_keeps_them_while_the_rest_leaves_meta() -> None:
    model = Picture().to("meta")
    model.register_buffer("mean", torch.full((3,), 0.5))
    model.cls_token = nn.Parameter(torch.ones(1, 1, 8))
    model.gamma = nn.Parameter(torch.ones(8))
    initialize_(model, seed=0)
    assert (model.cls_token == 1).all()
    assert (model.mean == 0.5).all()
    assert torch.isfinite(model(torch.rand(2, 3, 8, 8))).all()


# --- what is refused ------------------------------------------------------------------------------------------------


def with_weight(weight: Tensor, grad: bool = False) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = nn.Parameter(weight, requires_grad=grad)
    return model


def on_two_devices() -> nn.Module:
    if torch.cuda.is_available():
        return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, device="cuda"))
    with FakeTensorMode():  # which makes believe that there is a GPU
        weight = torch.empty(3, 3, device="cuda")
    return with_weight(weight)


def on_meta_with_buffer() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3, device="meta"))
    model[0].register_buffer("frequencies", torch.ones(3, device="meta"))
    return model


def first_then(make: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), make(nn.Linear(4, 4)))


def no_way_back() -> nn.Module:
    class Absolute(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.abs()

    return first_then(lambda layer: nn.utils.parametrize.register_parametrization(layer, "weight", Absolute()))


REFUSED: dict[str, tuple[Callable[[], object], dict, list[str]]] = {
    "no module": (lambda: [nn.Linear(2, 2)], {}, ["list", "torch.nn.Module"]),
    "scheme": (lambda: nn.Linear(2, 2), {"scheme": "glorot"}, ["scheme='glorot'", *map(repr, SCHEMES)]),
    "conv": (lambda: nn.Linear(2, 2), {"conv": "same"}, ["conv='same'", "'delta'", "'flatten'"]),
    "seed": (lambda: nn.Linear(2, 2), {"seed": 1.5}, ["seed=1.5", "int"]),
    "negative seed": (lambda: nn.Linear(2, 2), {"seed": -1}, ["seed=-1"]),
    "skip": (Picture, {"skip": ["head.*", "haed.*"]}, ["'haed.*'", "matches no parameter", "'cls_token'"]),
    "skip of a number": (Picture, {"skip": [3]}, ["skip", "3", "int"]),
    "skip of an empty model": (nn.Sequential, {"skip": "a"}, ["'a'", "none"]),
    "lazy": (lambda: nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3)), {}, ["1.weight", "forward pass"]),
    "lazy convolution": (lambda: nn.Sequential(nn.Linear(2, 2), nn.LazyConv2d(3, 3)), {}, ["1.weight"]),
    "integers": (lambda: with_weight(torch.ones(3, 3, dtype=torch.int8)), {}, ["1.weight", "int8", "skip='1.weight'"]),
    "complex": (lambda: with_weight(torch.ones(3, 3, dtype=torch.cfloat), True), {}, ["1.weight", "complex64"]),
    "sparse": (lambda: with_weight(torch.eye(3).to_sparse()), {}, ["1.weight", "sparse_coo"]),
    "expanded": (lambda: with_weight(torch.ones(3, 1).expand(3, 3), True), {}, ["1.weight", "share memory"]),
    "two devices": (on_two_devices, {}, ["cpu", "cuda:0", "model.to("]),
    "buffer on meta": (on_meta_with_buffer, {}, ["0.frequencies", "Linear", "real device"]),
    "token on meta": (lambda: Picture().to("meta"), {}, ["cls_token", "Picture", "real device"]),
    "skipped on meta": (lambda: nn.Linear(2, 2, device="meta"), {"skip": "bias"}, ["bias", "skipped"]),
    "device meta": (lambda: nn.Linear(2, 2, device="meta"), {"device": "meta"}, ["meta", "device='cpu'"]),
    "no such device": (lambda: nn.Linear(2, 2, device="meta"), {"device": "gpu"}, ["device='gpu'"]),
    "another device": (lambda: nn.Linear(2, 2), {"device": "meta"}, ["meta"]),
    "weight norm by hooks": (lambda: first_then(old_weight_norm), {}, ["1.weight_g", "hook", "skip='1.weight_*'"]),
    "pruned": (lambda: first_then(lambda layer: prune.identity(layer, "weight")), {}, ["1.weight_orig", "hook"]),
    "not orthogonal": (lambda: first_then(parametrizations.orthogonal), {"scheme": "he"}, ["1.weight", "_Orthogonal"]),
    "no right inverse": (no_way_back, {}, ["1.weight", "Absolute", "right_inverse", "skip='1.weight'"]),
    "parametrized on meta": (
        lambda: first_then(parametrizations.weight_norm).to("meta"), {}, ["1.weight", "_WeightNorm", "afterwards"],
    ),
    "quantized": (lambda: quantized(), {}, ["1 is a quantized layer", "before quantizing"]),
}  # fmt: skip


def old_weight_norm(layer: nn.Module) -> nn.Module:
    with pytest.warns(FutureWarning, match="deprecated"):
        return nn.utils.weight_norm(layer)


def quantized() -> nn.Module:
    from torch.ao.nn.quantized.dynamic import Linear

    return nn.Sequential(nn.Linear(4, 4), Linear(4, 4))


@pytest.mark.filterwarnings("ignore:.*deprecated", "ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence_and_nothing_is_changed(case: str) -> None:
    make, options, words = REFUSED[case]
    model = make()
    held = list(model.parameters()) if isinstance(model, nn.Module) else []
    plain = [p for p in held if type(p) is nn.Parameter and not p.is_meta]
    before = [parameter.detach().to_dense().clone() for parameter in plain]
    with pytest.raises(StiefelError) as error:
        initialize_(model, **options)
    sentence = one_sentence(error)
    assert all(word in sentence for word in words), sentence
    assert all(torch.equal(now.detach().to_dense(), then) for now, then in zip(plain, before))
    if isinstance(model, nn.Module):
        assert all(a is b for a, b in zip(held, model.parameters()))


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_what_would_be_refused_can_be_skipped() -> None:
    for case in ("lazy", "integers", "complex", "sparse", "expanded", "weight norm by hooks", "no right inverse"):
        plan = initialize_(REFUSED[case][0](), skip="1.*")
        assert [row.action for row in plan.rows[:2]] == [plan["0.weight"].action, "zeros"]


# --- stacked weights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "batch_dims"), [((4, 6), 0), ((5, 4, 6), 1), ((2, 3, 6, 4), 2), ((5, 4, 3, 2), 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_stacked_weights_are_independent_members(shape: tuple, batch_dims: int, dtype: torch.dtype) -> None:
    tensor = torch.empty(shape, dtype=dtype)
    for target in (tensor, tensor.transpose(0, -1).contiguous().transpose(0, -1)):
        assert stiefel_(target, 2.0, batch_dims=batch_dims) is target
        members = target.reshape(-1, shape[batch_dims], math.prod(shape[batch_dims + 1 :])) / 2
        assert check(members).ok
        assert len({tuple(member.flatten().tolist()) for member in members}) == len(members)


@pytest.mark.parametrize(("batch_dims", "words"), [(2, "at most 1"), (-1, "negative"), (0.5, "int")])
def test_stacked_weights_need_two_dimensions_each(batch_dims: object, words: str) -> None:
    tensor = torch.ones(2, 3, 4)
    with pytest.raises(StiefelError) as error:
        stiefel_(tensor, batch_dims=batch_dims)
    assert f"batch_dims={batch_dims}" in one_sentence(error)
    assert words in str(error.value)
    assert (tensor == 1).all()


# --- the page in the docs -------------------------------------------------------------------------------------------

BLOCKS = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_of_the_docs_runs(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun would run it with one process, which matters to the block that joins processes."""
    if "init_process_group" in block and not torch.distributed.is_gloo_available():
        pytest.skip("needs gloo")
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    exec(compile(block, str(DOCS), "exec"), {})


def test_the_plan_in_the_docs_is_what_the_first_block_prints(capsys: pytest.CaptureFixture[str]) -> None:
    exec(BLOCKS[0], {})
    assert capsys.readouterr().out == re.search(r"```text\n(.*?)```", DOCS.read_text(), re.DOTALL).group(1)


def photographs() -> Tensor:
    """The two photographs of scikit-learn, quartered in size and cut into 120 images of 3 × 16 × 16 pixels."""
    pixels = torch.from_numpy(np.stack(load_sample_images().images)[:, :384]).permute(0, 3, 1, 2) / 255
    small = nn.functional.avg_pool2d(pixels, 4)
    return small.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 16, 16)


def feature_maps(scheme: str, conv: str, factor: float) -> list[float]:
    """After 1, 5 and 20 layers: mean, norm and contrast of the feature maps over those of the images; seeds 0 to 2."""
    x = photographs()
    rows = []
    for seed in range(3):
        layers = [nn.Conv2d(32 if depth else 3, 32, 3, padding=1) for depth in range(20)]
        initialize_(nn.Sequential(*layers), scheme, conv=conv, seed=seed)
        h, row = x, []
        for depth, layer in enumerate(layers, 1):
            h = torch.relu(factor * layer(h)).detach()
            if depth in (1, 5, 20):
                contrast = [(y - y.mean((2, 3), keepdim=True)).norm() for y in (h, x)]
                row += [h.mean() / x.mean() * math.sqrt(32 / 3), h.norm() / x.norm(), contrast[0] / contrast[1]]
        rows.append([float(value) for value in row])
    return list(np.mean(rows, 0))


def test_the_numbers_of_the_docs_are_what_comes_out() -> None:
    cases = {
        "`delta`": ("stiefel", "delta", 1),
        "`flatten`": ("stiefel", "flatten", 1),
        "flatten, not scaled": ("stiefel", "flatten", 3),
        "`he`": ("he", "delta", 1),
        "`orthogonal`, `delta`": ("orthogonal", "delta", 1),
    }
    table = re.findall(r"^\| ([^|]+?) +\|((?: [\d.e+]+ / [\d.e+]+ / [\d.e+]+ +\|){3})$", DOCS.read_text(), re.MULTILINE)
    assert [label for label, _ in table] == list(cases)
    for label, numbers in table:
        written = [number for cell in numbers.strip("| ").split("|") for number in cell.split("/")]
        computed = [f"{value:.2g}" for value in feature_maps(*cases[label])]
        assert [float(number) for number in written] == [float(number) for number in computed], (label, computed)
