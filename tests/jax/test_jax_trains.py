"""Networks in JAX that train from `initialize`, where the set alone or the library's default does worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from sklearn.datasets import load_digits

from stiefel_init.jax import initialize

OPTION = "jax_disable_most_optimizations"
KEY = jax.random.key(0)
X = jnp.linspace(-3, 3, 100)[:, None]
Y = jnp.sin(2 * X)


@pytest.fixture(autouse=True)
def optimized() -> Iterator[None]:
    """These programs run for longer than they are compiled."""
    before = jax.config.values[OPTION]
    jax.config.update(OPTION, False)
    yield
    jax.config.update(OPTION, before)


def fitted(call: Callable[[Any, jax.Array], jax.Array], starts: list[Any], rate: float, steps: int) -> list[float]:
    """R² of y = sin 2x after so many steps of Adam, from each start; they share one compiled loop."""
    adam = optax.adam(rate)

    def loss(parameters: Any) -> jax.Array:
        return jnp.mean((call(parameters, X) - Y) ** 2)

    def step(state: Any, _: None) -> tuple[Any, jax.Array]:
        parameters, inner = state
        value, slope = jax.value_and_grad(loss)(parameters)
        change, inner = adam.update(slope, inner)
        return (optax.apply_updates(parameters, change), inner), value

    run = jax.jit(lambda start: jax.lax.scan(step, (start, adam.init(start)), None, length=steps)[1])
    return [1 - float(run(start)[-20:].mean() / Y.var()) for start in starts]


@pytest.mark.parametrize("depth", [3, 10, 50])
def test_one_feature_is_learned_at_every_depth_in_equinox(depth: int) -> None:
    """The paper's recipe, with all units equal, explains nothing."""
    model = eqx.nn.MLP(1, 1, 64, depth, key=KEY)
    _, static = eqx.partition(model, eqx.is_array)
    starts = [eqx.filter(initialize(model, 0, recipe=recipe), eqx.is_array) for recipe in ("best", "paper")]
    best, paper = fitted(lambda p, x: jax.vmap(eqx.combine(p, static))(x), starts, 6e-3 / math.sqrt(depth), 1000)
    assert best >= 0.99
    assert paper < 0.5


class Deep(linen.Module):
    depth: int

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(self.depth):
            x = linen.relu(linen.Dense(64)(x))
        return linen.Dense(1)(x)


@pytest.mark.parametrize("depth", [3, 10, 50])
def test_one_feature_is_learned_at_every_depth_in_flax(depth: int) -> None:
    module = Deep(depth)
    variables = module.init(KEY, X)
    starts = [initialize(variables, 0, inputs=X, apply=module.apply), initialize(variables, 0, recipe="paper")]
    best, paper = fitted(lambda p, x: jnp.asarray(module.apply(p, x)), starts, 6e-3 / math.sqrt(depth), 1000)
    assert best >= 0.99
    assert paper < 0.5


class Digits(nnx.Module):
    """Twelve convolutions without normalization."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.body = nnx.List([nnx.Conv(16, 16, (3, 3), rngs=rngs) for _ in range(10)])
        self.head = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = nnx.relu(self.stem(x))
        for layer in self.body:
            x = nnx.relu(layer(x))
        return self.head(x.mean((1, 2)))


def test_a_small_convolutional_network_learns_digits_better_than_from_flax_own_start() -> None:
    digits = load_digits()
    x, y = jnp.asarray(digits.images / 16, jnp.float32)[..., None], jnp.asarray(digits.target)
    order = jax.random.permutation(jax.random.key(1), len(x))
    train, test = order[:1280].reshape(20, 64), order[1280:]
    adam = optax.adam(1e-3)

    def accuracy(model: Digits) -> float:
        definition, start = nnx.split(model)

        def loss(parameters: Any, batch: jax.Array) -> jax.Array:
            scores = nnx.merge(definition, parameters)(x[batch])
            return optax.softmax_cross_entropy_with_integer_labels(scores, y[batch]).mean()

        def step(state: Any, batch: jax.Array) -> tuple[Any, None]:
            parameters, inner = state
            change, inner = adam.update(jax.grad(loss)(parameters, batch), inner)
            return (optax.apply_updates(parameters, change), inner), None

        # No scan: inside one, XLA's convolutions on a CPU take ten times as long.
        state, stepped = (start, adam.init(start)), jax.jit(step)
        for batch in jnp.concatenate([train] * 5):
            state, _ = stepped(state, batch)
        return float((nnx.merge(definition, state[0])(x[test]).argmax(-1) == y[test]).mean())

    default = accuracy(Digits(nnx.Rngs(0)))
    ours = accuracy(initialize(Digits(nnx.Rngs(0)), 0))
    assert ours >= default
    assert ours > 0.8
