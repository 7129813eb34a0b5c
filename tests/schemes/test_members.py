"""Members by name: in the set, in every framework the same, and what a non-negative one does to a network."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_refused
from torch import nn

import stiefel_init
from stiefel_init.core import stream as _stream
from stiefel_init.core.sample import MEMBERS, Member, member_scheme
from stiefel_init.theory import propagate
from stiefel_init.torch import initialize_, sample, stiefel_
from stiefel_init.torch.sampling.source import fill_

SHAPES = [(0, 4), (4, 0), (1, 1), (1, 5), (5, 1), (4, 4), (3, 12), (12, 3), (3, 5), (7, 4), (64, 64)]
NON_NEGATIVE: tuple[Member, ...] = ("permutation", "identity")


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_members_are_members_and_those_of_their_seed(shape: tuple[int, int], member: Member) -> None:
    for seed in (None, 3, np.random.default_rng(0)):
        assert stiefel_init.check(stiefel_init.sample(*shape, batch=(2, 3), member=member, spread=0.7, seed=seed)).ok
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        assert stiefel_init.check(sample(*shape, batch=2, member=member, dtype=dtype)).ok
        turned = torch.empty(*shape[::-1], dtype=dtype).mT
        assert stiefel_init.check(stiefel_(turned, member=member)).ok
    ours = stiefel_init.sample(*shape, batch=3, member=member, spread=0.3, seed=5, name="w")
    theirs = torch.empty(3, *shape, dtype=torch.float64)
    fill_(theirs, member_scheme(member, 0.3), keys=_stream.fold(_stream.key(5, "w"), np.arange(3)))
    np.testing.assert_allclose(theirs.numpy(), ours, rtol=0, atol=1e-12)


def test_only_where_one_side_divides_the_other_is_a_member_non_negative() -> None:
    """docs/members.md: p | q is necessary. Where it fails the uniform member is drawn, which has negative entries."""
    for m, n in itertools.product(range(2, 8), repeat=2):
        w = stiefel_init.sample(m, n, member="permutation", seed=0)
        assert (w.min() >= 0) == (max(m, n) % min(m, n) == 0)


DEPTH = 30


def hidden_layers(member: Member) -> list[np.ndarray]:
    return [stiefel_init.sample(16, 16, member=member, seed=0, name=str(i)) for i in range(DEPTH)]


@pytest.mark.parametrize("member", [*NON_NEGATIVE, "uniform"])
def test_only_non_negative_layers_are_isometries_of_what_relu_lets_through(member: Member) -> None:
    x = first = np.maximum(np.random.default_rng(0).standard_normal((2, 16)), 0)
    for w in hidden_layers(member):
        x = np.maximum(x @ w.T, 0)
    if member == "uniform":
        assert np.abs(x @ x.T - first @ first.T).max() > 0.1
        return
    np.testing.assert_allclose(x @ x.T, first @ first.T, rtol=1e-12)  # lengths and the angle between inputs
    np.testing.assert_allclose(np.sort(x), np.sort(first), rtol=1e-12)  # mean, spread, share of active units


@pytest.mark.parametrize(("outputs", "part"), [(3, True), (4, False)])
def test_copies_of_an_expanding_layer_part_if_the_last_layer_tells_them_apart(outputs: int, part: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, outputs)).double()
    initialize_(model, member="identity")  # 8 → 4 has equal groups, 8 → 3 is uniform
    nn.functional.cross_entropy(model(torch.rand(16, 4, dtype=torch.float64)), torch.arange(16) % outputs).backward()
    gradient = model.get_parameter("0.weight").grad
    assert gradient is not None
    apart = (gradient[0::2] - gradient[1::2]).abs().max() > 1e-6
    assert bool(apart) == part


def test_a_whole_model_has_the_members_of_its_plan() -> None:
    model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    plan = initialize_(model, member="permutation", seed=1)
    actions = [row.action for row in plan if "weight" in row.name]
    assert actions == ["stiefel 8×10", "permutation 8×8", "permutation 4×8"]
    for i in (0, 2, 4):
        weight = model.get_parameter(f"{i}.weight").detach()
        m, n = weight.shape
        expected = stiefel_init.sample(m, n, batch=1, member="permutation", seed=1, name=f"{i}.weight", dtype="f4")
        torch.testing.assert_close(weight, torch.from_numpy(expected[0]), rtol=0, atol=5e-6)
    layer = nn.Linear(8, 8)
    initialize_(layer, member="rotation", spread=0.01)
    assert 0 < (layer.weight - torch.eye(8)).abs().max() < 0.05
    assert stiefel_init.check(layer.weight).ok
    kernel = nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular")
    initialize_(kernel, member="permutation")
    x = torch.rand(2, 8, 5, 5)
    y = kernel(x)
    torch.testing.assert_close(y.relu(), y)
    torch.testing.assert_close(y.norm(), x.norm())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"member": "best"}, "member='best'"),
        ({"member": "rotation", "spread": -1}, "spread=-1"),
        ({"member": "rotation", "spread": math.nan}, "spread=nan"),
        ({"member": "rotation", "spread": "wide"}, "spread='wide'"),
        ({"member": "permutation", "method": "algorithm1"}, "method='algorithm1'"),
    ],
)
def test_what_names_no_member_is_refused(options: dict[str, Any], words: str) -> None:
    tensor = torch.full((3, 3), 7.0)
    for call, given in ((stiefel_init.sample, (3, 3)), (sample, (3, 3)), (stiefel_, (tensor,))):
        assert_refused(partial(call, *given, **options), [words])
    assert (tensor == 7).all()
    other_scheme = partial(initialize_, nn.Linear(3, 3), "he", member="identity")
    assert_refused(other_scheme, ["member='identity' belongs to scheme='stiefel'"])


@pytest.mark.parametrize("member", NON_NEGATIVE)
@pytest.mark.parametrize("widths", [(64,) * 8, (64, 64, 32, 32, 64, 64, 128), (10, 64, 64)])
def test_the_theory_of_members(widths: tuple[int, ...], member: Member) -> None:
    """`theory.propagate` against 200 networks; 64 inputs each leave a relative error of about 1 %."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(200):
        x = rng.normal(0.3, 1.0, (64, widths[0]))
        weights = [stiefel_init.sample(m, n, member=member, seed=rng) for n, m in itertools.pairwise(widths)]
        rows, masks = [], []
        for w in weights:
            y = x @ w.T
            x = np.maximum(y, 0)
            masks.append(y > 0)
            rows.append([masks[-1].mean(), x.mean(), x.var()])
        g = rng.standard_normal(x.shape)
        for row, w, mask in zip(rows[::-1], weights[::-1], masks[::-1]):
            back = (g * mask) @ w
            row.append((back**2).sum() / (g**2).sum())
            g = back
        found.append(rows)
    active, mean, variance, gradient = np.mean(found, 0).T
    p = propagate(widths, mean=0.3, std=1.0, member=member)
    pairs = [(active, p.active), (mean, p.post_mean), (np.sqrt(variance), p.post_std)]
    for measured, predicted in [*pairs, (np.sqrt(gradient), p.gradient_factor)]:
        np.testing.assert_allclose(measured, predicted, rtol=0.03)
