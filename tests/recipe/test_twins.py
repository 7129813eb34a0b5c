"""One seed, one initialization: a network has the same weights in PyTorch, Equinox, Flax and Keras, by the recipe."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from flax import nnx
from torch import nn

from stiefel_init.jax import initialize
from stiefel_init.keras import initialize_ as initialize_keras_
from stiefel_init.torch import initialize_ as initialize_torch_

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
KEY = jax.random.key(0)
Weights = dict[str, np.ndarray]  # in PyTorch's layout


class Network(NamedTuple):
    """So many hidden layers of 8 units or channels with an activation, the second of two groups, and a head."""

    conv: bool
    hidden: int
    activation: str

    @property
    def layers(self) -> list[tuple[str, int, int]]:
        """Names, inputs and groups."""
        return [(f"layer{i}", 8 if i else 1, 2 if self.conv and i == 1 else 1) for i in range(self.hidden)]


NETWORKS = [Network(False, 10, "relu"), Network(True, 3, "relu"), Network(True, 5, "silu")]
IMAGE = jnp.ones((1, 8, 8, 1))


def by_torch(net: Network, within: str) -> Weights:
    """The model, as a part of that name in another."""
    parts: dict[str, nn.Module] = {}
    for name, n, groups in net.layers:
        parts[name] = nn.Conv2d(n, 8, 3, padding=1, groups=groups) if net.conv else nn.Linear(n, 8)
        parts[f"after {name}"] = nn.ReLU() if net.activation == "relu" else nn.SiLU()
    if net.conv:
        parts |= {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
    model = nn.Sequential(OrderedDict(parts | {"head": nn.Linear(8, 10)}))
    model = nn.Sequential(OrderedDict({within: model})) if within else model
    initialize_torch_(model, seed=5)
    return {name: value.detach().numpy() for name, value in model.named_parameters()}


class InEquinox(eqx.Module):
    parts: dict[str, Any]
    net: Network = eqx.field(static=True)

    def __init__(self, net: Network) -> None:
        self.net = net
        self.parts = {
            name: eqx.nn.Conv2d(n, 8, 3, padding=1, groups=groups, key=KEY)
            if net.conv
            else eqx.nn.Linear(n, 8, key=KEY)
            for name, n, groups in net.layers
        } | {"head": eqx.nn.Linear(8, 10, key=KEY)}

    def __call__(self, x: jax.Array) -> jax.Array:
        for name, *_ in self.net.layers:
            x = getattr(jax.nn, self.net.activation)(self.parts[name](x))
        return self.parts["head"](x.mean((1, 2)) if self.net.conv else x)


def by_equinox(net: Network) -> Weights:
    wrapped = initialize(InEquinox(net), 5, inputs=IMAGE[0].transpose(2, 0, 1) if net.conv else jnp.ones(1))
    return {
        f"parts.{name}.{leaf}": np.asarray(getattr(layer, leaf)).squeeze()
        for name, layer in wrapped.parts.items()
        for leaf in ("weight", "bias")
    }


class InLinen(linen.Module):
    net: Network

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for name, _, groups in self.net.layers:
            layer = linen.Conv(8, (3, 3), feature_group_count=groups, name=name) if self.net.conv else None
            x = getattr(jax.nn, self.net.activation)((layer or linen.Dense(8, name=name))(x))
        return linen.Dense(10, name="head")(x.mean((1, 2)) if self.net.conv else x)


def by_linen(net: Network) -> Weights:
    module, x = InLinen(net), IMAGE if net.conv else jnp.ones((1, 1))
    params = initialize(module.init(KEY, x), 5, inputs=x, apply=module.apply)["params"]
    return from_channels_last({name: (layer["kernel"], layer["bias"]) for name, layer in params.items()})


class InNNX(nnx.Module):
    def __init__(self, net: Network) -> None:
        self.net, rngs = net, nnx.Rngs(0)
        for name, n, groups in net.layers:
            conv = nnx.Conv(n, 8, (3, 3), feature_group_count=groups, rngs=rngs) if net.conv else None
            setattr(self, name, conv or nnx.Linear(n, 8, rngs=rngs))
        self.head = nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        for name, *_ in self.net.layers:
            x = getattr(jax.nn, self.net.activation)(getattr(self, name)(x))
        return self.head(x.mean((1, 2)) if self.net.conv else x)


def by_nnx(net: Network) -> Weights:
    model = InNNX(net)
    assert initialize(model, 5) is model
    layers = {name: getattr(model, name) for name in (*(name for name, *_ in net.layers), "head")}
    return from_channels_last({name: (layer.kernel[...], layer.bias[...]) for name, layer in layers.items()})


def by_keras(net: Network) -> Weights:
    parts: list[Any] = [keras.Input((8, 8, 1) if net.conv else (1,))]
    for name, _, groups in net.layers:
        options = {"activation": net.activation, "name": name}
        conv = keras.layers.Conv2D(8, 3, padding="same", groups=groups, **options) if net.conv else None
        parts.append(conv or keras.layers.Dense(8, **options))
    parts += [keras.layers.GlobalAveragePooling2D()] if net.conv else []
    model = keras.Sequential([*parts, keras.layers.Dense(10, name="head")])
    initialize_keras_(model, seed=5)
    return from_channels_last({layer.name: layer.get_weights() for layer in model.layers if layer.weights})


def from_channels_last(layers: dict[str, Any]) -> Weights:
    weights = {}
    for name, (kernel, bias) in layers.items():
        kernel = np.asarray(kernel)
        weights[f"{name}.weight"] = kernel.T if kernel.ndim == 2 else kernel.transpose(3, 2, 0, 1)
        weights[f"{name}.bias"] = np.asarray(bias)
    return weights


@pytest.mark.parametrize("twin", [by_equinox, by_linen, by_nnx, by_keras])
@pytest.mark.parametrize("net", NETWORKS, ids=str)
def test_a_network_has_the_same_weights_in_every_framework(net: Network, twin: Any) -> None:
    expected, weights = by_torch(net, "parts" if twin is by_equinox else ""), twin(net)
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name].reshape(value.shape), value, rtol=0, atol=5e-6, err_msg=name)
