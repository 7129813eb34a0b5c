"""What `stiefel_init.jax.initialize` refuses: in one sentence, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_refused
from flax import nnx

from stiefel_init import StiefelError
from stiefel_init.jax import initialize

KEY = jax.random.key(0)


def mlp() -> Any:
    return eqx.nn.MLP(2, 3, 8, 1, key=KEY)


class Raises(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        raise RuntimeError("not today")


class Complex(eqx.Module):
    layer: eqx.nn.Linear

    def __init__(self) -> None:
        self.layer = eqx.nn.Linear(2, 2, dtype=jnp.complex64, key=KEY)


def variables() -> Any:
    return linen.Dense(3).init(KEY, jnp.ones((1, 2)))


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], list[str]]] = {
    "no model": (lambda: 3, {}, ["int", "Equinox", "NNX", "Linen"]),
    "a list": (lambda: [mlp()], {}, ["list"]),
    "a Linen module": (lambda: linen.Dense(3), {}, ["Linen Dense", "init", "apply=module.apply"]),
    "inputs without apply": (variables, {"inputs": jnp.ones((1, 2))}, ["apply=module.apply"]),
    "inputs of the wrong size": (mlp, {"inputs": jnp.ones(5)}, ["inputs=(5,)", "one example"]),
    "too many inputs": (
        lambda: nnx.Linear(2, 3, rngs=nnx.Rngs(0)),
        {"inputs": (jnp.ones(2),) * 2},
        ["inputs=(2,), (2,)"],
    ),
    "linen's wrong inputs": (
        variables,
        {"inputs": jnp.ones((1, 5)), "apply": linen.Dense(3).apply},
        ["inputs=(1, 5)", "does not run"],
    ),
    "a forward that raises": (
        lambda: Raises(eqx.nn.Linear(2, 2, key=KEY)),
        {"inputs": jnp.ones(2)},
        ["RuntimeError: not today", "inputs=(2,)"],
    ),
    "inputs that are not finite": (mlp, {"inputs": jnp.array([1.0, jnp.nan])}, ["inputs=(2,)", "not finite"]),
    "no layer reads the inputs": (mlp, {"inputs": jnp.ones(2), "apply": lambda m, x: 2 * x}, ["no layer", "stem="]),
    "an unknown end": (mlp, {"head": "nope"}, ["head pattern 'nope'", "'layers.0.weight'"]),
    "an unknown scheme": (mlp, {"scheme": "glorot"}, ["scheme='glorot'"]),
    "a negative seed": (mlp, {"seed": -1}, ["seed=-1"]),
    "no seed": (mlp, {"seed": None}, ["seed=None", "jax.random.key"]),
    "complex weights": (Complex, {}, ["layer.weight", "complex64", "skip='layer.weight'"]),
    "shapes alone": (lambda: eqx.filter_eval_shape(mlp), {}, ["layers.0.weight", "without values"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence_and_nothing_is_changed(case: str) -> None:
    make, options, words = REFUSED[case]
    model = make()
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(model) if isinstance(leaf, jax.Array)]
    assert_refused(lambda: initialize(model, **{"seed": 0, **options}), words)
    after = [leaf for leaf in jax.tree.leaves(model) if isinstance(leaf, jax.Array)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after))


def test_not_under_jit() -> None:
    with pytest.raises(StiefelError, match="outside jit"):
        eqx.filter_jit(lambda model: initialize(model, 0))(mlp())
    with pytest.raises(StiefelError, match="outside jit"):
        jax.jit(lambda key: initialize({"kernel": jnp.ones((2, 2))}, key))(KEY)
