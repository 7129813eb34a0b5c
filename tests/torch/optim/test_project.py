"""`project`, `project_` and `aligned`: the nearest member, how far it is, and any optimizer on the set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from plain_set import basis, polar
from torch import nn
from torch.nn.utils import parametrize

from stiefel_init import check, sample
from stiefel_init.torch import initialize_
from stiefel_init.torch.optim import aligned, project, project_

SHAPES = [(0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (6, 11), (11, 6), (9, 9)]


def normals(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_nearest_member_and_its_distance(shape: tuple[int, int]) -> None:
    m, n = shape
    a = normals(m, n)
    member, distance = project(a)
    assert check(member)
    if a.numel():
        left, right = basis(m), basis(n)
        inner = polar(left.T @ a.numpy() @ right) if min(m, n) > 1 else np.zeros((m - 1, n - 1))
        np.testing.assert_allclose(member.numpy(), (m * n) ** -0.5 + left @ inner @ right.T, atol=1e-12)
        np.testing.assert_allclose(distance, np.linalg.norm(a.numpy() - member.numpy()), atol=1e-12)
    again, none = project(member)
    torch.testing.assert_close(again, member, atol=1e-12, rtol=0)
    assert float(none) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_stacks_kernels_and_dtypes(dtype: torch.dtype) -> None:
    stack = normals(2, 4, 3, dtype=dtype)
    members, distances = project(stack, batch_dims=1)
    assert members.dtype == dtype
    assert check(members)
    assert distances.shape == (2,)
    kernel = normals(4, 3, 2, 2, dtype=dtype).contiguous(memory_format=torch.channels_last)
    before = kernel.clone()
    distance = project_(kernel)
    assert check(kernel.reshape(4, 12))
    torch.testing.assert_close(distance, (kernel.double() - before.double()).norm(), atol=0.1, rtol=0)


@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 2), (3, 5), (5, 3), (4, 4)], ids=str)
def test_the_gradient_of_the_parametrization_is_that_of_the_nearest_member(shape: tuple[int, int]) -> None:
    m, n = shape
    layer: Any = aligned(nn.Linear(n, m, bias=False).double())
    free = layer.parametrizations.weight.original
    with torch.no_grad():
        free.copy_(normals(m, n))
    aim, direction, h = normals(m, n, seed=1), normals(m, n, seed=2), 1e-6
    (layer.weight * aim).sum().backward()
    forth, back = (project(free + sign * h * direction).weight for sign in (1, -1))
    expected = float(((forth - back) / (2 * h) * aim).sum())
    assert float((free.grad * direction).sum()) == pytest.approx(expected, rel=1e-6, abs=1e-8)


def test_any_optimizer_trains_it_on_the_set_and_a_weight_can_be_assigned() -> None:
    torch.manual_seed(0)
    layer: Any = aligned(nn.Linear(6, 4))
    target = torch.from_numpy(sample(4, 6, seed=3, dtype=np.float32))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (layer.weight - target).square().sum()
        loss.backward()
        optimizer.step()
        assert check(layer.weight, tol=1e-5)
    assert loss.item() < 0.05
    layer.weight = target
    torch.testing.assert_close(layer.weight.detach(), target, atol=1e-6, rtol=0)
    initialize_(layer, "stiefel", seed=1)
    assert check(layer.weight, tol=1e-5)
    parametrize.remove_parametrizations(layer, "weight")
    assert check(layer.weight, tol=1e-5)


def test_layers_are_read_as_initialize_reads_them() -> None:
    attention: Any = aligned(nn.MultiheadAttention(4, 2), "in_proj_weight")
    assert check(attention.in_proj_weight.reshape(3, 4, 4))
    kernel: Any = aligned(nn.Conv2d(4, 8, 2, groups=2))
    assert check(kernel.weight.reshape(2, 4, 8))
    stack = nn.Module()
    stack.stacked = nn.Parameter(normals(2, 3, 3))
    assert check(aligned(stack, "stacked", batch_dims=1).stacked)
    assert aligned(nn.Linear(3, 2, dtype=torch.bfloat16)).weight.dtype == torch.bfloat16
