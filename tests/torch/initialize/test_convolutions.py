"""Convolutions under `initialize_`: isometries that keep the image of ones; patches; kernels and memory formats."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from every_layer import initialize_
from torch import Tensor, nn

from stiefel_init import check, sample
from stiefel_init.recipe.layers import CONV_MODES, Conv


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


CONVOLUTIONS = [nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d]
CHANNELS = [(4, 8, 1), (8, 4, 1), (4, 8, 2), (6, 6, 6)]  # in, out, groups


def convolution(kind: Any, inputs: int, outputs: int, groups: int, kernel: int = 3) -> Any:
    """With stride 1, and images that keep their size; circular padding where torch has it."""
    options = {} if "Transpose" in kind.__name__ else {"padding_mode": "circular"}
    return kind(inputs, outputs, kernel, padding=kernel // 2, groups=groups, dtype=torch.float64, **options)


def images(kind: Any, channels: int) -> Tensor:
    return noise(2, channels, *[5, 4, 3][: int(kind.__name__[-2])])


@pytest.mark.parametrize("channels", CHANNELS, ids=str)
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_delta_is_an_exact_isometry_that_keeps_the_image_of_ones(kind: Any, channels: tuple[int, int, int]) -> None:
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
def test_flatten_keeps_the_image_of_ones_and_expands_nothing(kind: Any, channels: tuple[int, int, int]) -> None:
    inputs, outputs, groups = channels
    layer = convolution(kind, inputs, outputs, groups)
    plan = initialize_(layer, conv="flatten", seed=0)
    places = layer.weight[0, 0].numel()
    assert f" × {1 / math.sqrt(places):.3g}" in plan["weight"].action
    kernels = layer.weight.detach().reshape(groups, outputs // groups, -1)
    assert check(kernels * math.sqrt(places)).ok
    ones = layer(torch.ones_like(images(kind, inputs)))
    torch.testing.assert_close(ones, torch.full_like(ones, math.sqrt(inputs / outputs)), rtol=1e-13, atol=0)
    x = images(kind, inputs)
    assert (layer(x).flatten(1).norm(dim=1) <= x.flatten(1).norm(dim=1) * (1 + 1e-13)).all()


@pytest.mark.parametrize("channels", CHANNELS, ids=str)
@pytest.mark.parametrize("kind", CONVOLUTIONS[3:])
def test_flatten_of_a_transposed_convolution(kind: Any, channels: tuple[int, int, int]) -> None:
    """Without padding, every place of the image that all of the kernel reaches gets the mean of the ones."""
    inputs, outputs, groups = channels
    layer = kind(inputs, outputs, 2, groups=groups, dtype=torch.float64)
    initialize_(layer, conv="flatten", seed=0)
    ones = layer(torch.ones(1, inputs, *[3] * int(kind.__name__[-2]), dtype=torch.float64))
    inside = ones[(..., *[slice(1, -1)] * (ones.ndim - 2))]
    torch.testing.assert_close(inside, torch.full_like(inside, math.sqrt(inputs / outputs)), rtol=1e-13, atol=0)


@pytest.mark.parametrize("kernel", [2, 4, (2, 3), (6, 4)])
def test_with_an_even_kernel_and_same_padding_delta_shifts_nothing(kernel: int | tuple[int, int]) -> None:
    layer = nn.Conv2d(3, 3, kernel, padding="same", padding_mode="circular", dtype=torch.float64)
    initialize_(layer, seed=0)
    matrix = torch.from_numpy(sample(3, 3, seed=0, name="weight"))
    x = noise(2, 3, 8, 8)
    torch.testing.assert_close(layer(x), torch.einsum("oi,bihw->bohw", matrix, x))


@pytest.mark.parametrize("conv", CONV_MODES)
def test_a_convolution_that_steps_by_its_kernel_is_the_linear_layer_of_its_patches(conv: Conv) -> None:
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
    for conv in CONV_MODES:
        plain, last = nn.Conv2d(4, 6, 3), nn.Conv2d(4, 6, 3)
        last.weight.data = last.weight.data.to(memory_format=torch.channels_last)
        for layer in (plain, last):
            initialize_(layer, conv=conv, seed=0)
        assert torch.equal(plain.weight, last.weight)
        assert last.weight.is_contiguous(memory_format=torch.channels_last)
