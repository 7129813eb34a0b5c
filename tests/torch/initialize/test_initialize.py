"""Whole models: what `initialize_` does once, what it leaves alone, parametrizations, seeds, and every scheme."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ALL_SCHEMES, Picture, same, values
from every_layer import initialize_
from scipy import stats
from torch import nn
from torch.nn.utils import parametrizations

from stiefel_init import sample
from stiefel_init.recipe.layers import CONV_MODES
from stiefel_init.torch.initialize import draw as _draw

# What is done once, and what is left alone.


def test_a_vision_transformer_is_initialized_but_for_its_own_parameters() -> None:
    model = Picture()
    plan = initialize_(model, seed=0)
    assert [row.name for row in plan] == [name for name, _ in model.named_parameters()]
    alone = {row.name: row.reason for row in plan if row.action == "left alone"}
    assert alone == dict.fromkeys(["cls_token", "gamma"], "no rule for parameters of Picture")
    assert (model.cls_token == 0.3).all()
    model(torch.rand(2, 3, 8, 8)).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)


def test_a_tied_weight_is_drawn_once_under_its_first_name() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model.append(model[0])  # a module that is there twice
    plan = initialize_(model, seed=0)
    np.testing.assert_allclose(model[1].weight.detach(), sample(4, 4, seed=0, name="0.weight"), atol=1e-6)
    assert model[1].weight is model[0].weight
    assert [row.action for row in plan] == [
        "stiefel 4×4", "zeros", "tied to 0.weight", "zeros", "tied to 0.weight", "tied to 0.bias",
    ]  # fmt: skip


def test_weights_are_tied_if_they_are_the_same_entries_of_one_storage() -> None:
    store = torch.zeros(6, 6)
    model = nn.Sequential(*(nn.Linear(6, 6, bias=False) for _ in range(5)))
    views = store, store[:3], store.T, store, store[:3]
    for layer, view in zip(model, views):
        layer.weight = nn.Parameter(view)  # parameters of their own
    plan = initialize_(model, seed=0)
    assert [row.action for row in plan] == [
        "stiefel 6×6", "stiefel 3×6", "stiefel 6×6", "tied to 0.weight", "tied to 1.weight",
    ]  # fmt: skip


def test_weights_without_entries_or_memory_are_not_tied() -> None:
    empty = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    for layer in empty:
        layer.weight = nn.Parameter(torch.empty(4, 0))
    meta = nn.Sequential(*(nn.Linear(4, 4, device="meta") for _ in range(2)))
    for model in (empty, meta):
        assert not any("tied" in row.action for row in initialize_(model, seed=0))


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
def test_skipped_parameters_are_left_alone(skip: Any) -> None:
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


# Parametrizations.


@pytest.mark.parametrize(
    "parametrize", [parametrizations.weight_norm, parametrizations.orthogonal, parametrizations.spectral_norm]
)
def test_a_parametrized_weight_gets_the_value_it_would_have_without(parametrize: Callable) -> None:
    model: Any = nn.Sequential(parametrize(nn.Linear(6, 4)))
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


# Seeds.


def test_a_seed_gives_each_name_its_weights_whatever_else_is_in_the_model() -> None:
    def model(names: str) -> Any:
        return nn.ModuleDict({name: nn.Linear(8, 8) for name in names})

    first, second, other = model("abc"), model("dcxa"), model("abc")
    initialize_(first, seed=5)
    initialize_(second, seed=5)
    initialize_(other, seed=6)
    for name in "ac":
        torch.testing.assert_close(first[name].weight, second[name].weight, rtol=0, atol=5e-6)
        assert not torch.allclose(first[name].weight, other[name].weight)
    assert not torch.allclose(first["a"].weight, first["b"].weight)


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
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
        assert same(first, values(model)) == scheme.startswith(("lee", "idinit", "zero", "sinusoidal"))


@pytest.mark.parametrize("seed", [None, 0])
def test_equal_layers_are_drawn_together_and_large_ones_apart(
    seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)), nn.Linear(8, 4))
    calls: list[int] = []
    members = _draw.members

    def watched(draw: Any, count: int, *rest: Any) -> torch.Tensor:
        calls.append(count)
        return members(draw, count, *rest)

    monkeypatch.setattr(_draw, "members", watched)
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
@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_of_every_float_dtype_the_same_to_rounding(scheme: str, dtype: torch.dtype) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 9), nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose1d(6, 4, 3), nn.LSTM(3, 4))

    exact, rounded = model().double(), model().to(dtype)
    for conv in CONV_MODES[: 1 if scheme == "delta-orthogonal" else None]:  # which has no other
        initialize_(exact, scheme, conv=conv, seed=0)
        initialize_(rounded, scheme, conv=conv, seed=0)
        for a, b in zip(exact.parameters(), rounded.parameters()):
            assert b.dtype == dtype
            torch.testing.assert_close(b.double(), a, rtol=torch.finfo(dtype).eps, atol=5e-6 if a.dtype != dtype else 0)


# The other schemes.


def test_without_a_seed_he_and_xavier_are_torchs_own() -> None:
    layers: list[Any] = [nn.Linear(6, 4), nn.Conv2d(6, 4, 3)]
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
def test_he_xavier_random_draw_all_of_a_kernel_with_its_fans(
    make: Callable[[], Any], fan_in: int, fan_out: int, seed: int | None
) -> None:
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
