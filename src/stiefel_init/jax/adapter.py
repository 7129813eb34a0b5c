"""Whole models of Equinox and Flax: `initialize`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from ..core.errors import StiefelError
from ..recipe.initialize import Options, Patterns, RecipeName
from ..recipe.initialize import initialize as initialize_model
from ..recipe.layers import Conv
from ..schemes import Scheme, SchemeName
from .model import Apply, JaxAdapter


def initialize(
    model: Any,
    seed: int | jax.Array,
    scheme: SchemeName | Scheme | None = None,
    *,
    recipe: RecipeName | None = None,
    inputs: Any = None,
    apply: Apply | None = None,
    stem: Patterns | None = None,
    head: Patterns | None = None,
    conv: Conv | None = None,
    skip: Patterns = (),
    dry_run: bool = False,
) -> Any:
    r"""Initialize all layers of a model of Equinox or Flax, as `stiefel_init.torch.initialize_` does in PyTorch.

    docs/initialize.md says what each layer starts as. Everything is checked first: when something is refused, the model
    is unchanged. It runs outside `jit`, on the host.

    Args:
        model: An Equinox module; a Flax NNX module; or what `init` of a Flax Linen module returns, or its `"params"`.
        seed: An int, or a `jax.random.key`. With an int, matrix i of the weight of the layer `name` is
            `stiefel_init.draw(…, seed=seed, name=f"{name}.weight")[i]`, as in PyTorch: `kernel` counts as `weight`.
        scheme, recipe, stem, head, conv, skip: As in PyTorch.
        inputs: Example inputs: an array, a tuple of arguments or a dict of keywords. The model is traced with them, not
            run, to find its ends. Without them, a module is traced with an input that suits its first layer; failing
            that, its first layer is the stem, and its last one the head if its name says so.
        apply: How to call the model: `apply(model, *inputs)`. Linen needs it with `inputs`: `module.apply`.
        dry_run: Change nothing and return the plan.

    Returns:
        A new model. An NNX module is changed in place, as `nnx.update` does it, and returned. With `dry_run`, the plan:
        what would be done to each parameter, and why; it prints as a table.

    >>> import equinox as eqx, jax.numpy as jnp
    >>> model = eqx.nn.MLP(2, 1, width_size=8, depth=1, key=jax.random.key(0))
    >>> print(initialize(model, 0, inputs=jnp.ones(2), dry_run=True))
    4 of 4 parameters drawn.
    parameter        shape   what is done           orthonormal  why
    layers.0.weight  (8, 2)  orthogonal 8×2 × 1.15  columns      stem: reads the input (traced)
    layers.0.bias    (8,)    offsets 0.408 8×1      —            set the units apart
    layers.1.weight  (1, 8)  centred 1×8 × 0.577    rows         head: makes the output (traced)
    layers.1.bias    (1,)    offsets 0.204 1×1      —            set the units apart
    >>> model = initialize(model, 0, inputs=jnp.ones(2))
    """
    options = Options.of(scheme, recipe, conv, inputs=inputs, stem=stem, head=head, skip=skip, dry_run=dry_run)
    adapter = adapter_of(model, seed, apply, options)
    plan = initialize_model(adapter, options)
    return plan if dry_run else adapter.result


def adapter_of(model: Any, seed: Any, apply: Apply | None, options: Options) -> JaxAdapter:
    """The model as its library has it, which is imported only now."""
    homes = [f"{base.__module__}." for base in type(model).__mro__]

    def is_of(library: str) -> bool:
        return any(home.startswith(f"{library}.") for home in homes)

    kind: type[JaxAdapter]
    if is_of("equinox"):
        from .equinox import EquinoxAdapter as kind
    elif is_of("flax.nnx") and hasattr(model, "eval"):
        from .flax import NnxAdapter as kind
    elif isinstance(model, Mapping):
        from .flax import LinenAdapter as kind
    elif is_of("flax.linen"):
        raise StiefelError(
            f"model is a Linen {type(model).__name__}, which holds no parameters; give what its init returns, and "
            "apply=module.apply."
        )
    else:
        raise StiefelError(
            f"model is a {type(model).__name__}; give an Equinox module, a Flax NNX module, or the variables of a "
            "Linen module."
        )
    return kind(model, seed, apply, options)
