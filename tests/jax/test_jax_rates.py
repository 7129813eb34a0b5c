"""The multipliers for optax are those of `param_groups` in PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import optax
import pytest
import torch
from flax import nnx
from paper.networks import mlp

from stiefel_init import StiefelError
from stiefel_init.jax import lr_scales
from stiefel_init.torch import param_groups

DEPTH, WIDTH = 4, 32


def expected(optimizer: Any = "adam") -> list[float]:
    """Of the weights, in their order."""
    model = mlp(12, 3, DEPTH + 1, WIDTH)
    scales = {
        id(parameter): group["lr_scale"]
        for group in param_groups(model, 1.0, optimizer=optimizer)
        for parameter in group["params"]
    }
    return [scales[id(layer.weight)] for layer in model if isinstance(layer, torch.nn.Linear)]


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon"])
def test_equinox(optimizer: Any) -> None:
    model = eqx.nn.MLP(12, 3, width_size=WIDTH, depth=DEPTH, key=jax.random.key(0))
    scales = lr_scales(model, eqx.filter(model, eqx.is_inexact_array), optimizer=optimizer)
    assert [layer.weight for layer in scales.layers] == expected(optimizer)


def test_flax() -> None:
    hidden = [part for _ in range(DEPTH) for part in (linen.Dense(WIDTH), linen.relu)]
    model, x = linen.Sequential([*hidden, linen.Dense(3)]), jnp.ones((1, 12))
    variables = model.init(jax.random.key(0), x)
    scales = lr_scales(variables, inputs=x, apply=model.apply)
    assert [scales["params"][f"layers_{2 * at}"]["kernel"] for at in range(DEPTH + 1)] == expected()


def test_nnx() -> None:
    sizes = [12, *[WIDTH] * DEPTH, 3]
    layers = [nnx.Linear(n, m, rngs=nnx.Rngs(0)) for n, m in pairwise(sizes)]
    model = nnx.Sequential(*(part for layer in layers[:-1] for part in (layer, nnx.relu)), layers[-1])
    scales = jax.tree.leaves(lr_scales(model, nnx.state(model, nnx.Param)))
    assert sorted(scales)[-2:] == sorted([expected()[0]] * 2)
    assert len(scales) == 2 * len(layers)


def test_a_step_of_optax_with_clipping_a_schedule_and_decay_moves_each_layer_by_its_multiple() -> None:
    model = eqx.nn.MLP(12, 3, width_size=WIDTH, depth=DEPTH, key=jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    scales = lr_scales(model, params)
    scaled = optax.stateless(lambda updates, _: jax.tree.map(lambda u, s: u * s, updates, scales))
    schedule = optax.cosine_decay_schedule(1e-3, 10)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=1e-6), scaled)
    state, x = optimizer.init(params), jax.random.normal(jax.random.key(1), (32, 12))

    def loss(params: Any) -> Any:
        return jnp.square(jax.vmap(eqx.combine(params, static))(x)).mean()

    updates, state = jax.jit(optimizer.update)(jax.grad(loss)(params), state, params)
    steps = [float(jnp.abs(layer.weight).max()) for layer in updates.layers]
    assert steps == pytest.approx([1e-3 * scale for scale in expected()], rel=1e-2)


def test_arrays_of_another_model_are_refused() -> None:
    model = eqx.nn.MLP(12, 3, width_size=8, depth=2, key=jax.random.key(0))
    with pytest.raises(StiefelError, match="params holds no array of the model"):
        lr_scales(model, {"kernel": jnp.ones((3, 3))})
