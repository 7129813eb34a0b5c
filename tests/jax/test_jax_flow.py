"""The flow of a model in JAX is read from its jaxpr: ends, activations, normalizations, sums and loops."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from stiefel_init import draw
from stiefel_init.core.activations import RECTIFIERS, SATURATING
from stiefel_init.jax import Plan, initialize
from stiefel_init.jax.adapter import adapter_of
from stiefel_init.recipe.initialize import Options
from stiefel_init.recipe.trace import Flow

KEY = jax.random.key(0)


class Two(eqx.Module):
    """Two layers and what is between them."""

    first: eqx.nn.Linear
    second: eqx.nn.Linear
    between: Any

    def __init__(self, between: Any) -> None:
        self.first, self.second, self.between = eqx.nn.Linear(4, 8, key=KEY), eqx.nn.Linear(8, 8, key=KEY), between

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(self.between(self.first(x)))


def flow(model: eqx.Module, *inputs: Any) -> Flow:
    adapter = adapter_of(model, 0, None, Options(inputs=inputs))
    return adapter.flow({each.key: each.stream for each in adapter.parameters}, (), inputs)[0] or Flow()


@pytest.mark.parametrize(
    ("between", "kinds"),
    [
        (jax.nn.relu, RECTIFIERS),
        (lambda x: jnp.maximum(x, 0), RECTIFIERS),
        (lambda x: jnp.where(x > 0, x, 0.1 * x), RECTIFIERS),
        (jax.nn.leaky_relu, RECTIFIERS),
        (jax.nn.gelu, RECTIFIERS),
        (lambda x: jax.nn.gelu(x, approximate=False), RECTIFIERS),
        (jax.nn.silu, RECTIFIERS),
        (jax.nn.softplus, RECTIFIERS),
        (jax.nn.elu, RECTIFIERS),
        (jax.nn.selu, RECTIFIERS),
        (jax.jit(jax.checkpoint(jax.nn.relu)), RECTIFIERS),
        (jnp.tanh, SATURATING),
        (jax.nn.sigmoid, SATURATING),
        (jax.nn.softmax, SATURATING),
        (jnp.sin, SATURATING),
        (lambda x: 2 * x.reshape(2, 4).ravel(), {None}),
    ],
)
def test_the_activation_between_two_layers_is_seen(between: Any, kinds: Any) -> None:
    seen = flow(Two(between), jnp.ones(4))
    assert seen.next.get("first.weight") in kinds
    assert seen.reads["second.weight"].origins == {"first.weight"}
    assert not seen.reads["second.weight"].merged
    assert not seen.normalized


@pytest.mark.parametrize(
    "norm", [eqx.nn.LayerNorm(8), eqx.nn.RMSNorm(8), eqx.nn.GroupNorm(2, 8), lambda x: x / jnp.linalg.norm(x)]
)
def test_a_normalization_is_seen(norm: Any) -> None:
    seen = flow(Two(norm), jnp.ones(4))
    assert seen.reads["second.weight"].normalized
    assert set(seen.normalized) == {"first.weight"}
    assert "first.weight" not in seen.next


def test_flax_normalizations_are_seen_with_running_and_with_own_statistics() -> None:
    for norm in (nnx.LayerNorm, nnx.RMSNorm, nnx.BatchNorm):
        rngs = nnx.Rngs(0)
        model = nnx.Sequential(nnx.Linear(4, 8, rngs=rngs), norm(8, rngs=rngs), nnx.relu, nnx.Linear(8, 3, rngs=rngs))
        plan = initialize(model, 0, inputs=jnp.ones((2, 4)), dry_run=True)
        assert plan["layers.0.kernel"].action == "orthogonal 8×4 × 1.41", norm  # LeCun's size, which is Flax's


def test_a_batch_normalization_of_equinox_keeps_its_state_apart() -> None:
    class Network(eqx.Module):
        first: eqx.nn.Linear
        norm: eqx.nn.BatchNorm
        last: eqx.nn.Linear

        def __init__(self) -> None:
            self.first, self.last = eqx.nn.Linear(4, 8, key=KEY), eqx.nn.Linear(8, 3, key=KEY)
            self.norm = eqx.nn.BatchNorm(8, "batch", mode="batch")

        def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
            x, state = self.norm(self.first(x), state)
            return self.last(jax.nn.relu(x)), state

    def run(model: Network, x: jax.Array, state: eqx.nn.State) -> Any:
        return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)

    model, state = eqx.nn.make_with_state(Network)()
    plan = initialize(model, 0, inputs=(jnp.ones((5, 4)), state), apply=run, dry_run=True)
    assert plan["first.weight"].action == "orthogonal 8×4 × 0.816"  # the size of Equinox
    assert plan["last.weight"].reason == "head: makes the output (traced)"


def test_residual_connections_begin_a_new_row() -> None:
    class Residual(eqx.Module):
        stem: eqx.nn.Linear
        blocks: list[eqx.nn.Linear]
        head: eqx.nn.Linear

        def __call__(self, x: jax.Array) -> jax.Array:
            x = self.stem(x)
            for block in self.blocks:
                x = x + block(jax.nn.relu(x))
            return self.head(x)

    blocks = [eqx.nn.Linear(8, 8, key=KEY) for _ in range(3)]
    plan = initialize(Residual(eqx.nn.Linear(9, 8, key=KEY), blocks, eqx.nn.Linear(8, 2, key=KEY)), 0, dry_run=True)
    assert {plan[f"blocks.{i}.weight"].action for i in range(3)} == {
        "orthogonal 8×8 × 0.333"
    }  # its own size, and three branches
    assert plan["head.weight"].action == "centred 2×8 × 0.577"


def ends(plan: Plan) -> tuple[set[str], set[str]]:
    return tuple({row.name for row in plan if row.reason.startswith(end)} for end in ("stem", "head"))  # type: ignore[return-value]


def test_ends_are_seen_through_loops_branches_and_gradients() -> None:
    class Recurrent(eqx.Module):
        inner: eqx.nn.Linear
        cell: eqx.nn.GRUCell
        outer: eqx.nn.Linear

        def __init__(self) -> None:
            self.inner, self.cell = eqx.nn.Linear(3, 5, key=KEY), eqx.nn.GRUCell(5, 8, key=KEY)
            self.outer = eqx.nn.Linear(8, 2, key=KEY)

        def __call__(self, x: jax.Array) -> jax.Array:
            def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
                return self.cell(eqx.filter_checkpoint(self.inner)(x), h), None

            h, _ = jax.lax.scan(step, jnp.zeros(8), x)
            h = jax.lax.cond(x.sum() > 0, lambda h: h, lambda h: -h, h)
            h = jax.lax.fori_loop(0, 3, lambda _, h: h + 1, h)
            return self.outer(h)

    plan = initialize(Recurrent(), 0, inputs=jnp.ones((4, 3)), dry_run=True)
    assert ends(plan) == ({"inner.weight"}, {"outer.weight"})
    assert plan["cell.weight_hh"].action == "orthogonal 3 of 8×8"


def test_two_inputs_and_two_heads() -> None:
    class TwoEnds(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
            both = jnp.concatenate(
                [linen.relu(linen.Dense(16, name="a")(x)), linen.relu(linen.Dense(16, name="b")(y))], 1
            )
            z = linen.relu(linen.Dense(16, name="middle")(both))
            return {
                "value": linen.Dense(1, name="value")(z),
                "classes": jax.nn.softmax(linen.Dense(5, name="classes")(z)),
            }

    module, given = TwoEnds(), (jnp.ones((3, 4)), jnp.ones((3, 2)))
    plan = initialize(module.init(KEY, *given), 0, inputs=given, apply=module.apply, dry_run=True)
    assert ends(plan) == ({"a.kernel", "b.kernel"}, {"value.kernel", "classes.kernel"})


def test_a_tied_table_a_shared_module_and_a_head_that_is_declared_first() -> None:
    class Tied(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.table = nnx.Embed(20, 8, rngs=rngs)
            self.again = self.once = nnx.Linear(8, 8, rngs=rngs)

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.table.attend(nnx.relu(self.again(nnx.relu(self.once(self.table(x))))))

    plan = initialize(Tied(nnx.Rngs(0)), 0, dry_run=True)
    assert ends(plan) == (set(), set())
    assert [row.action for row in plan] == ["left alone", "stiefel 8×8", "zeros"]

    class Backwards(eqx.Module):
        head: eqx.nn.Linear
        stem: eqx.nn.Linear

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.head(jax.nn.relu(self.stem(x)))

    plan = initialize(Backwards(eqx.nn.Linear(8, 2, key=KEY), eqx.nn.Linear(3, 8, key=KEY)), 0, dry_run=True)
    assert ends(plan) == ({"stem.weight"}, {"head.weight"})


def test_layers_stacked_for_a_scan_are_drawn_one_by_one() -> None:
    class Stack(linen.Module):
        @linen.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            class Step(linen.Module):
                @linen.compact
                def __call__(self, x: jax.Array, _: None) -> tuple[jax.Array, None]:
                    return linen.relu(linen.Dense(8, name="inner")(x)), None

            x = linen.relu(linen.Dense(8, name="stem")(x))
            steps = linen.scan(Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            x, _ = steps(name="steps")(x, None)
            return linen.Dense(2, name="head")(x)

    module, x = Stack(), jnp.ones((1, 3))
    variables = module.init(KEY, x)
    plan = initialize(variables, 0, inputs=x, apply=module.apply, dry_run=True)
    assert ends(plan) == ({"stem.kernel"}, {"head.kernel"})
    assert plan["steps.inner.kernel"].action == "stiefel 3 of 8×8"
    kernels = initialize(variables, 0, inputs=x, apply=module.apply)["params"]["steps"]["inner"]["kernel"]
    expected = draw("stiefel", 8, 8, batch=3, seed=0, name="steps.inner.weight")
    np.testing.assert_allclose(np.asarray(kernels).mT, expected, atol=5e-6)
