"""Networks in Equinox and Flax as users write them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
from flax import nnx

KEY = jax.random.key(0)


class Vision(eqx.Module):
    """Convolutions, a normalization, attention and a head."""

    stem: eqx.nn.Conv2d
    body: list[eqx.nn.Conv2d]
    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    drop: eqx.nn.Dropout
    head: eqx.nn.Linear

    def __init__(self) -> None:
        self.stem = eqx.nn.Conv2d(1, 8, 3, padding=1, key=KEY)
        self.body = [eqx.nn.Conv2d(8, 8, 3, padding=1, key=KEY) for _ in range(4)]
        self.norm, self.attention = eqx.nn.LayerNorm(8), eqx.nn.MultiheadAttention(2, 8, key=KEY)
        self.drop, self.head = eqx.nn.Dropout(0.5), eqx.nn.Linear(8, 10, key=KEY)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = jax.nn.gelu(self.stem(x))
        for layer in self.body:
            x = jax.nn.relu(layer(x))
        tokens = x.reshape(8, -1).T
        read = jax.vmap(self.norm)(tokens)
        return self.head(self.drop((tokens + self.attention(read, read, read)).mean(0)))


class Everything(eqx.Module):
    """Every kind of layer that holds parameters, one after the other; not for calling."""

    layers: tuple[Any, ...]
    own: jax.Array

    def __init__(self) -> None:
        self.layers = (
            eqx.nn.Linear(6, 4, key=KEY),
            eqx.nn.Linear("scalar", 4, key=KEY),
            eqx.nn.Conv1d(4, 6, 3, groups=2, key=KEY),
            eqx.nn.Conv2d(4, 6, 2, stride=2, key=KEY),
            eqx.nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, key=KEY),
            eqx.nn.LSTMCell(3, 5, key=KEY),
            eqx.nn.GRUCell(3, 5, key=KEY),
            eqx.nn.LayerNorm(4),
            eqx.nn.Embedding(5, 4, key=KEY),
            eqx.nn.PReLU(),
            eqx.nn.WeightNorm(eqx.nn.Linear(3, 3, key=KEY)),
            eqx.filter_vmap(lambda key: eqx.nn.Linear(3, 4, key=key))(jax.random.split(KEY, 2)),
        )
        self.own = jnp.ones((2, 2))


class Picture(nnx.Module):
    """The same as `Vision` with batch normalization, in NNX."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem, self.norm = nnx.Conv(1, 8, (3, 3), rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
        self.body = nnx.List([nnx.Conv(8, 8, (3, 3), rngs=rngs) for _ in range(4)])
        self.attention = nnx.MultiHeadAttention(2, 8, rngs=rngs, decode=False)
        self.drop, self.head = nnx.Dropout(0.5, rngs=rngs), nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.norm(self.stem(x)))
        for layer in self.body:
            x = nnx.relu(layer(x))
        tokens = x.reshape(len(x), -1, 8)
        return self.head(self.drop((tokens + self.attention(tokens)).mean(1)))


class Plain(linen.Module):
    """Unnamed layers in Linen; batch normalization, attention, a transposed convolution, an LSTM."""

    @linen.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        x = linen.relu(linen.Conv(8, (3, 3), strides=2)(x))
        x = linen.relu(linen.ConvTranspose(8, (4, 4), strides=(2, 2))(x))
        x = linen.BatchNorm(use_running_average=not train)(x)
        tokens = x.reshape(len(x), -1, 8)
        tokens = tokens + linen.MultiHeadDotProductAttention(2)(linen.LayerNorm()(tokens))
        states: Any = linen.RNN(linen.OptimizedLSTMCell(6))(tokens)
        return linen.Dense(10)(linen.Dropout(0.5, deterministic=not train)(states[:, -1]))
