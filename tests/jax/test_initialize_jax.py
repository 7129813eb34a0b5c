"""`stiefel_init.jax.initialize`: every matrix is what the plan says, the ends are found, and the model stays usable."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from networks import KEY, Everything, Picture, Plain, Vision
from plan_law import ends, holds, kernels

from stiefel_init import draw
from stiefel_init.jax import Plan, initialize
from stiefel_init.schemes import Centred

FIXED = {"zeros": 0.0, "ones": 1.0}


def at(model: Any, name: str) -> np.ndarray:
    """A parameter by its name in the plan."""
    for word in name.split("."):
        keyed = isinstance(model, dict) or word.isdigit()
        model = model[int(word) if word.isdigit() else word] if keyed else getattr(model, word)
    return np.asarray(model[...] if isinstance(model, nnx.Variable) else model)


def drawn(plan: Plan) -> Iterator[Any]:
    for row in plan:
        if row.action not in FIXED and not row.action.startswith(("left alone", "tied")):
            yield row


def test_every_matrix_of_an_equinox_module_is_what_the_plan_says() -> None:
    model = Vision()
    plan = initialize(model, 3, dry_run=True)
    new = initialize(model, 3)
    assert isinstance(new, Vision)
    for row in drawn(plan):
        value = at(new, row.name)
        assert holds(row, value.reshape(1, len(value), -1)), row
    for row in plan:
        if row.action in FIXED:
            np.testing.assert_array_equal(at(new, row.name), FIXED[row.action])
    assert ends(plan, "stem") == {"stem.weight"}
    assert ends(plan, "head") == {"head.weight"}
    assert all("0.5 patches" in plan[f"body.{i}.weight"].action for i in range(4))


def test_every_matrix_of_an_nnx_module_is_what_the_plan_says() -> None:
    model = Picture(nnx.Rngs(0))
    mean = np.asarray(model.norm.mean[...])
    plan = initialize(model, 3, dry_run=True)
    assert initialize(model, 3) is model
    for row in drawn(plan):
        assert holds(row, kernels(row, at(model, row.name))), row
    assert (ends(plan, "stem"), ends(plan, "head")) == ({"stem.kernel"}, {"head.kernel"})
    assert plan["attention.key.kernel"].reason == "starts as 0.7 attention.query.kernel"
    np.testing.assert_array_equal(model.norm.mean[...], mean)
    assert np.isfinite(model(jnp.ones((2, 8, 8, 1)))).all()


def test_every_matrix_of_linens_parameters_is_what_the_plan_says() -> None:
    module, x = Plain(), jnp.ones((2, 8, 8, 1))
    variables = module.init(KEY, x)
    options: dict[str, Any] = {"inputs": {"x": x, "train": False}, "apply": module.apply}
    plan = initialize(variables, 3, dry_run=True, **options)
    new = initialize(variables, 3, **options)
    for row in drawn(plan):
        assert holds(row, kernels(row, at(new["params"], row.name))), row
    assert (ends(plan, "stem"), ends(plan, "head")) == ({"Conv_0.kernel"}, {"Dense_0.kernel"})
    assert plan["ConvTranspose_0.kernel"].action == "orthogonal 2.83 8×128"  # √2 · √(2 · 2)
    cell = "OptimizedLSTMCell_0"
    assert [plan[f"{cell}.{gate}.kernel"].action for gate in ("ii", "hi")] == ["orthogonal 6×8", "orthogonal 6×6"]
    assert str(jax.tree.structure(new)) == str(jax.tree.structure(variables))
    np.testing.assert_array_equal(new["batch_stats"]["BatchNorm_0"]["var"], 1)
    alone = initialize(variables["params"], 3, inputs=x, apply=lambda p, x: module.apply({**variables, "params": p}, x))
    np.testing.assert_array_equal(alone["Dense_0"]["kernel"], new["params"]["Dense_0"]["kernel"])


def test_every_kind_of_layer_in_equinox() -> None:
    model = Everything()
    plan = initialize(model, 0, recipe="paper", dry_run=True)
    new = initialize(model, 0, recipe="paper")
    sizes = {
        "layers.0.weight": (1, 4, 6),
        "layers.1.weight": (1, 4, 1),
        "layers.3.weight": (1, 6, 16),
        "layers.5.weight_ih": (4, 5, 3),
        "layers.5.weight_hh": (4, 5, 5),
        "layers.6.weight_ih": (3, 5, 3),
        "layers.11.weight": (2, 4, 3),
    }
    for name, shape in sizes.items():
        assert holds(plan[name], at(new, name).reshape(shape)), plan[name]
        np.testing.assert_allclose(
            at(new, name).reshape(shape), draw("stiefel", *shape[1:], batch=shape[0], seed=0, name=name), atol=5e-6
        )
    assert plan["layers.2.weight"].action == "stiefel 2 of 3×2 at the centre"
    assert holds(plan["layers.2.weight"], at(new, "layers.2.weight")[:, :, 1].reshape(2, 3, 2))
    up = at(new, "layers.4.weight")  # (6, 4/2, 3, 3): 3 outputs and 2 inputs in each of two groups
    assert holds(plan["layers.4.weight"], up[:, :, 1, 1].reshape(2, 3, 2))
    assert np.count_nonzero(up) <= 12
    left = {row.name: row.reason for row in plan if row.action == "left alone"}
    assert left["layers.8.weight"] == "an embedding"
    assert left["layers.9.negative_slope"] == "the slope of PReLU"
    assert left["own"] == "no rule for parameters of Everything"
    assert "WeightNorm" in left["layers.10.layer.weight"]
    for name in left:
        np.testing.assert_array_equal(at(new, name), at(model, name))


def test_attention_to_another_sequence_is_drawn_apart() -> None:
    class Reader(eqx.Module):
        a: eqx.nn.Linear
        b: eqx.nn.Linear
        attention: eqx.nn.MultiheadAttention

        def __call__(self, x: jax.Array, y: jax.Array) -> jax.Array:
            x, y = jax.vmap(self.a)(x), jax.vmap(self.b)(y)
            return self.attention(x, y, y)

    model = Reader(eqx.nn.Linear(4, 8, key=KEY), eqx.nn.Linear(4, 8, key=KEY), eqx.nn.MultiheadAttention(2, 8, key=KEY))
    plan = initialize(model, 0, inputs=(jnp.ones((3, 4)), jnp.ones((5, 4))), dry_run=True)
    assert plan["attention.key_proj.weight"].action == "stiefel 8×8"
    assert ends(plan, "stem") == {"a.weight", "b.weight"}


def test_a_key_is_a_seed() -> None:
    model = eqx.nn.MLP(2, 1, 8, 1, key=KEY)
    first, again, other = (initialize(model, key) for key in (KEY, KEY, jax.random.key(1)))
    assert eqx.tree_equal(first, again)
    assert abs(first.layers[0].weight - other.layers[0].weight).max() > 0.01
    assert eqx.tree_equal(initialize(model, jax.random.PRNGKey(0)), first)


def test_a_shared_layer_stays_shared_and_is_drawn_once() -> None:
    class Shared(eqx.Module):
        stem: eqx.nn.Linear
        layers: list[eqx.nn.Linear]
        head: eqx.nn.Linear

        def __call__(self, x: jax.Array) -> jax.Array:
            x = jax.nn.relu(self.stem(x))
            for layer in self.layers:
                x = jax.nn.relu(layer(x))
            return self.head(x)

    stem, inner, head = (eqx.nn.Linear(n, m, key=KEY) for n, m in ((2, 8), (8, 8), (8, 3)))
    model = Shared(stem, [inner, inner], head)
    plan = initialize(model, 0, inputs=jnp.ones(2), dry_run=True)
    assert plan["layers.1.weight"].action == "tied to layers.0.weight"
    new = initialize(model, 0, inputs=jnp.ones(2))
    assert new.layers[0].weight is new.layers[1].weight


def test_what_is_skipped_is_left_alone() -> None:
    model = eqx.nn.MLP(2, 3, 8, 2, key=KEY)
    new = initialize(model, 0, skip=["layers.0.*", "layers.1.*"])
    for i in (0, 1):
        np.testing.assert_array_equal(new.layers[i].weight, model.layers[i].weight)
        np.testing.assert_array_equal(new.layers[i].bias, model.layers[i].bias)
    head = np.asarray(new.layers[2].weight)
    expected = draw(Centred(), 3, 8, seed=0, name="layers.2.weight")
    np.testing.assert_allclose(head * np.sqrt(3) / np.linalg.norm(head), expected, atol=1e-6)
    plan = initialize(model, 0, skip="layers.0.*", dry_run=True)
    assert plan["layers.0.weight"].reason == "skipped"


def test_named_ends_and_schemes_for_all_layers() -> None:
    model = eqx.nn.MLP(2, 3, 8, 2, key=KEY)
    plan = initialize(model, 0, stem=(), head="layers.1.weight", dry_run=True)
    assert (ends(plan, "stem"), ends(plan, "head")) == (set(), {"layers.1.weight"})
    plan = initialize(model, 0, "he", dry_run=True)
    assert all(row.action.startswith("he") for row in plan if row.name.endswith("weight"))
    flat = initialize(Vision(), 0, "stiefel", conv="flatten", dry_run=True)
    assert flat["body.0.weight"].action == "stiefel 8×72 × 0.333"


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float64])
def test_dtypes_are_kept(dtype: Any) -> None:
    with jax.enable_x64(True):
        model = eqx.nn.MLP(2, 3, 8, 2, dtype=dtype, key=KEY)
        new = initialize(model, 0)
        weight = new.layers[1].weight
        assert weight.dtype == dtype
    tolerance = float(jnp.finfo(dtype).eps) * 8
    W = np.asarray(weight).astype(np.float64)
    W *= np.sqrt(8) / np.linalg.norm(W)
    np.testing.assert_allclose(W @ W.T, np.eye(8), atol=tolerance)


def test_without_inputs_and_a_way_to_call_it_the_order_of_layers_tells() -> None:
    params = {f"Dense_{i}": {"kernel": jnp.ones((4, 4)), "bias": jnp.ones(4)} for i in range(12)}
    plan = initialize(jax.tree.map(lambda x: x, params), 0, dry_run=True)
    assert [row.name for row in plan if row.name.endswith("kernel")] == [f"Dense_{i}.kernel" for i in range(12)]
    assert ends(plan, "stem") == {"Dense_0.kernel"}
    assert "give inputs=" in plan["Dense_0.kernel"].reason
    assert plan["Dense_5.kernel"].action.startswith("rotation")


def test_importing_it_brings_neither_equinox_nor_flax() -> None:
    code = "import sys, stiefel_init.jax; print(sorted({'equinox', 'flax', 'keras', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
