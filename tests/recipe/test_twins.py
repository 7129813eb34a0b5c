"""One seed, one start: a network has the same weights in PyTorch, Equinox, Flax and Keras, by the default recipe."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from flax import nnx
from torch import nn

from stiefel_init.jax import initialize
from stiefel_init.keras import initialize_ as initialize_keras_
from stiefel_init.torch import initialize_ as initialize_torch_

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
SIZES = (3, 16, 16, 16, 2)
LAYERS = ("stem", "first", "second", "head")
KEY = jax.random.key(0)
Weights = dict[str, np.ndarray]  # in PyTorch's layout


def torch_network() -> Weights:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, (n, m) in zip(LAYERS, pairwise(SIZES)):
                setattr(self, name, nn.Linear(n, m))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for name in LAYERS[:-1]:
                x = torch.relu(getattr(self, name)(x))
            return self.get_submodule("head")(x)

    model = Network()
    initialize_torch_(model, seed=5)
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def equinox_network() -> Weights:
    class Network(eqx.Module):
        stem: eqx.nn.Linear
        first: eqx.nn.Linear
        second: eqx.nn.Linear
        head: eqx.nn.Linear

        def __init__(self) -> None:
            self.stem, self.first, self.second, self.head = (eqx.nn.Linear(n, m, key=KEY) for n, m in pairwise(SIZES))

        def __call__(self, x: jax.Array) -> jax.Array:
            for name in LAYERS[:-1]:
                x = jax.nn.relu(getattr(self, name)(x))
            return self.head(x)

    model = initialize(Network(), 5, inputs=jnp.ones(3))
    return {
        f"{name}.{leaf}": np.asarray(getattr(getattr(model, name), leaf))
        for name in LAYERS
        for leaf in ("weight", "bias")
    }


def nnx_network() -> Weights:
    class Network(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            for name, (n, m) in zip(LAYERS, pairwise(SIZES)):
                setattr(self, name, nnx.Linear(n, m, rngs=rngs))

        def __call__(self, x: jax.Array) -> jax.Array:
            for name in LAYERS[:-1]:
                x = nnx.relu(getattr(self, name)(x))
            return getattr(self, LAYERS[-1])(x)

    model = Network(nnx.Rngs(0))
    assert initialize(model, 5) is model
    kernels = {f"{name}.weight": np.asarray(getattr(model, name).kernel[...]).T for name in LAYERS}
    return kernels | {f"{name}.bias": np.asarray(getattr(model, name).bias[...]) for name in LAYERS}


def linen_network() -> Weights:
    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            for name, size in zip(LAYERS[:-1], SIZES[1:]):
                x = linen.relu(linen.Dense(size, name=name)(x))
            return linen.Dense(SIZES[-1], name="head")(x)

    module, x = Network(), jnp.ones((1, 3))
    params = initialize(module.init(KEY, x), 5, inputs=x, apply=module.apply)["params"]
    kernels = {f"{name}.weight": np.asarray(params[name]["kernel"]).T for name in LAYERS}
    return kernels | {f"{name}.bias": np.asarray(params[name]["bias"]) for name in LAYERS}


def keras_network() -> Weights:
    hidden = [keras.layers.Dense(size, "relu", name=name) for name, size in zip(LAYERS[:-1], SIZES[1:])]
    model = keras.Sequential([keras.Input((3,)), *hidden, keras.layers.Dense(SIZES[-1], name="head")])
    initialize_keras_(model, seed=5)
    found: Weights = {}
    for layer in model.layers:
        kernel, bias = layer.get_weights()
        found |= {f"{layer.name}.weight": kernel.T, f"{layer.name}.bias": bias}
    return found


def torch_cnn() -> Weights:
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.first = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2)
            self.second, self.head = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in (self.stem, self.first, self.second):
                x = torch.relu(layer(x))
            return self.head(x.mean((2, 3)))

    model = Network()
    initialize_torch_(model, seed=5)
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


def equinox_cnn() -> Weights:
    class Network(eqx.Module):
        stem: eqx.nn.Conv2d
        first: eqx.nn.Conv2d
        second: eqx.nn.Conv2d
        head: eqx.nn.Linear

        def __init__(self) -> None:
            self.stem, self.second = (eqx.nn.Conv2d(n, 8, 3, padding=1, key=KEY) for n in (1, 8))
            self.first, self.head = eqx.nn.Conv2d(8, 8, 3, padding=1, groups=2, key=KEY), eqx.nn.Linear(8, 10, key=KEY)

        def __call__(self, x: jax.Array) -> jax.Array:
            for layer in (self.stem, self.first, self.second):
                x = jax.nn.relu(layer(x))
            return self.head(x.mean((1, 2)))

    model = initialize(Network(), 5)
    names = ("weight", "bias")
    return {
        f"{name}.{leaf}": np.asarray(getattr(getattr(model, name), leaf)).squeeze() for name in LAYERS for leaf in names
    }


def linen_cnn() -> Weights:
    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            for name, groups in (("stem", 1), ("first", 2), ("second", 1)):
                x = linen.relu(linen.Conv(8, (3, 3), feature_group_count=groups, name=name)(x))
            return linen.Dense(10, name="head")(x.mean((1, 2)))

    module, x = Network(), jnp.ones((1, 8, 8, 1))
    params = initialize(module.init(KEY, x), 5, inputs=x, apply=module.apply)["params"]
    return _from_hwio({name: (params[name]["kernel"], params[name]["bias"]) for name in LAYERS})


def keras_cnn() -> Weights:
    convolutions = [
        keras.layers.Conv2D(8, 3, padding="same", groups=groups, activation="relu", name=name)
        for name, groups in (("stem", 1), ("first", 2), ("second", 1))
    ]
    pooled = keras.layers.GlobalAveragePooling2D()
    model = keras.Sequential([keras.Input((8, 8, 1)), *convolutions, pooled, keras.layers.Dense(10, name="head")])
    initialize_keras_(model, seed=5)
    return _from_hwio({layer.name: layer.get_weights() for layer in model.layers if layer.name in LAYERS})


def _from_hwio(layers: dict[str, Any]) -> Weights:
    found = {}
    for name, (kernel, bias) in layers.items():
        kernel = np.asarray(kernel)
        found[f"{name}.weight"] = kernel.T if kernel.ndim == 2 else kernel.transpose(3, 2, 0, 1)
        found[f"{name}.bias"] = np.asarray(bias)
    return found


@pytest.mark.parametrize("twin", [equinox_network, nnx_network, linen_network, keras_network])
def test_a_perceptron_has_the_same_weights_in_every_framework(twin: Any) -> None:
    _same(torch_network(), twin())


@pytest.mark.parametrize("twin", [equinox_cnn, linen_cnn, keras_cnn])
def test_a_convolutional_network_has_the_same_weights_in_every_framework(twin: Any) -> None:
    _same(torch_cnn(), twin())


def _same(expected: Weights, found: Weights) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].reshape(value.shape), value, rtol=0, atol=5e-6, err_msg=name)
