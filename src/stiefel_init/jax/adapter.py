"""Whole models of Equinox and Flax: `initialize`, and the adapter that shows them to `recipe.initialize`."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core import validate as _validate
from ..core.errors import StiefelError
from ..recipe.initialize import ArrayAdapter, Options, Patterns, RecipeName
from ..recipe.initialize import initialize as initialize_model
from ..recipe.layers import ArrayRef, Conv, Layer, Leave
from ..recipe.trace import Flow, arguments
from ..schemes import Scheme, SchemeName
from .model import Apply, Model
from .trace import flow_of

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


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
    trainable: Any = None,
    dry_run: bool = False,
) -> Any:
    r"""Initialize all layers of a model of Equinox or Flax, as `stiefel_init.torch.initialize_` does in PyTorch.

    docs/initialize.md says what each layer starts as. Everything is checked first: when something is refused, the model
    is unchanged. It runs outside `jit`, on the host.

    Args:
        model: An Equinox module; a Flax NNX module; or what `init` of a Flax Linen module returns, or its `"params"`.
        seed: An int, or a `jax.random.key`. With an int, matrix i of the weight of the layer `name` is
            `stiefel_init.draw(…, seed=seed, name=f"{name}.weight")[i]`, as in PyTorch: `kernel` counts as `weight`.
        scheme: Use this scheme (a name of `stiefel_init.schemes.names()`, or a `Scheme`) for every layer instead.
        recipe: `"best"`, the default, or `"paper"`: every layer in the set, as scheme `"stiefel"` does.
        inputs: Example inputs: an array, a tuple of arguments or a dict of keywords. The model is traced with them, not
            run, to find its ends. Without them, a module is traced with an input that suits its first layer; failing
            that, its first layer is the stem, and its last one the head if its name says so.
        apply: How to call the model: `apply(model, *inputs)`. Linen needs it with `inputs`: `module.apply`.
        stem: Patterns, as in `fnmatch`, of the names of weights that read the input, if you know better; `()` for none.
        head: Likewise, of those that make the output.
        conv: How schemes that draw matrices fill a kernel, as in PyTorch: `"delta"` or `"flatten"`.
        skip: Patterns of the names of parameters to leave alone.
        trainable: Leave all else alone: a tree of bools as for `equinox.partition` or `optax.masked`, or a function of
            a leaf; for NNX, one of its filters.
        dry_run: Change nothing and return the plan.

    Returns:
        A new model. An NNX module is changed in place, as `nnx.update` does it, and returned. With `dry_run`, the plan:
        what would be done to each parameter, and why; it prints as a table.

    >>> import equinox as eqx
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
    options = Options.of(scheme, recipe, conv=conv, inputs=inputs, stem=stem, head=head, skip=skip, dry_run=dry_run)
    adapter = JaxAdapter(model, seed, apply, trainable, options)
    plan = initialize_model(adapter, options)
    return plan if dry_run else adapter.result


class JaxAdapter(ArrayAdapter):
    """A model of Equinox or Flax, as the library that it is of shows it."""

    def __init__(self, model: Any, seed: Any, apply: Apply | None, trainable: Any, options: Options) -> None:
        super().__init__(options)
        self.seed = _number(seed)
        given = None if options.inputs is None else _arguments(options.inputs)
        try:
            self.model = _read(model, apply, given)
        except StiefelError:
            raise
        except Exception as error:  # whatever the user's model raises
            raise _does_not_run(options.inputs, error) from None
        _refuse_without_values(self.model)
        self.parameters = _frozen(self.model, trainable)
        self.normalized = self.model.normalized
        self.result: Any = model

    def ordered(self) -> Iterable[ArrayRef]:
        kinds = ("linear", "convolution")  # frozen or not
        return (each for each in self.model.parameters if isinstance(each.what, Layer) and each.what.kind in kinds)

    def flow(self, streams: Mapping[Hashable, str], tables: Collection[str], inputs: Any) -> tuple[Flow | None, str]:
        model = self.model
        layers = {streams[each.key] for each in model.parameters if isinstance(each.what, Layer)}
        names = {key: streams.get(key, str(key)) for key in model.leaves}

        def traced(arguments: Inputs) -> Flow:
            return flow_of(
                lambda held, at: model.call(held, *at), model.leaves, arguments, names, {*layers, *tables},
                model.is_state,
            )  # fmt: skip

        if inputs is not None:
            try:
                flow = traced(_arguments(inputs))
            except Exception as error:  # whatever the user's model raises
                raise _does_not_run(inputs, error) from None
            if layers and not flow.reads:
                raise StiefelError(
                    f"no layer of the model works on inputs={_shapes(inputs)}, so it has no ends; give other inputs, "
                    "or name them with stem= and head=."
                )
            return flow, "traced"
        for example in model.examples:
            try:
                return traced(((example,), {})), f"traced with an input of shape {example.shape}"
            except Exception:  # a guess that does not fit
                continue
        return None, ""

    def dtype(self, key: Hashable) -> str:
        return str(self.model.leaves[key].dtype.name)

    def value(self, key: Hashable) -> np.ndarray:
        return np.asarray(self.model.leaves[key])

    def put(self, values: Mapping[Hashable, np.ndarray]) -> None:
        leaves = self.model.leaves
        self.result = self.model.rebuilt({key: _like(leaves[key], value) for key, value in values.items()})


def _like(leaf: jax.Array, value: np.ndarray) -> jax.Array:
    """The value with the dtype of a leaf, and where that is."""
    array = jnp.asarray(value, leaf.dtype)
    return jax.device_put(array, leaf.sharding) if leaf.committed else array


def _number(seed: Any) -> int:
    """The seed; of a key, 64 of its bits."""
    if isinstance(seed, jax.core.Tracer):
        raise StiefelError("seed is traced; call initialize outside jit and vmap.")
    if isinstance(seed, jax.Array) and (jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) or seed.shape == (2,)):
        high, low = (int(word) for word in jax.random.bits(seed, (2,), "uint32"))
        return high << 32 | low
    if seed is None:
        raise StiefelError("seed=None; give an int or a jax.random.key.")
    return _validate.size("seed", seed)


def _read(model: Any, apply: Apply | None, given: Inputs | None) -> Model:
    """The model as its library has it, which is imported only now."""
    homes = [f"{base.__module__}." for base in type(model).__mro__]

    def is_of(library: str) -> bool:
        return any(home.startswith(f"{library}.") for home in homes)

    if is_of("equinox"):
        from .equinox import read as read_equinox

        return read_equinox(model, apply)
    if is_of("flax.nnx") and hasattr(model, "eval"):
        from .flax import read_nnx

        return read_nnx(model, apply)
    if isinstance(model, Mapping):
        from .flax import read_linen

        if given is not None and apply is None:
            raise StiefelError("inputs are given but not how to call the model; pass apply=module.apply too.")
        return read_linen(model, apply, given)
    if is_of("flax.linen"):
        raise StiefelError(
            f"model is a Linen {type(model).__name__}, which holds no parameters; give what its init returns, and "
            "apply=module.apply."
        )
    raise StiefelError(
        f"model is a {type(model).__name__}; give an Equinox module, a Flax NNX module, or the variables of a Linen "
        "module."
    )


def _arguments(inputs: Any) -> Inputs:
    """Example inputs as positional and named arguments, all of them finite."""
    given = arguments(inputs)
    for leaf in jax.tree.leaves(given):
        numbers = isinstance(leaf, jax.Array | np.ndarray | float) and not isinstance(leaf, jax.core.Tracer)
        if numbers and jnp.issubdtype(jnp.result_type(leaf), jnp.floating) and not bool(jnp.isfinite(leaf).all()):
            raise StiefelError(f"inputs={_shapes(inputs)} have entries that are not finite; give examples without.")
    return given


def _shapes(inputs: Any) -> str:
    leaves = jax.tree.leaves(inputs)
    return (
        ", ".join(str(tuple(leaf.shape)) if hasattr(leaf, "shape") else type(leaf).__name__ for leaf in leaves) or "()"
    )


def _does_not_run(inputs: Any, error: Exception) -> StiefelError:
    return StiefelError(
        f"the model does not run on inputs={_shapes(inputs)} ({type(error).__name__}: {_why(error)}); give what it is "
        "called with (most Equinox modules take one example): an array, a tuple of arguments or a dict of keywords."
    )


def _why(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].rstrip(".:")


def _refuse_without_values(read: Model) -> None:
    names = {parameter.key: parameter.name for parameter in read.parameters}
    for key, leaf in read.leaves.items():
        if isinstance(leaf, jax.core.Tracer | jax.ShapeDtypeStruct):
            kind = "traced" if isinstance(leaf, jax.core.Tracer) else "a shape without values"
            name = names.get(key, key)
            raise StiefelError(f"{name} is {kind}; call initialize on a real model, outside jit and vmap.")


def _frozen(read: Model, trainable: Any) -> list[ArrayRef]:
    """The parameters, with those that are not trainable left alone."""
    if trainable is None:
        return read.parameters
    try:
        kept = read.trainable(trainable)
    except Exception as error:  # whatever a filter raises, or a tree that does not fit
        said = f"trainable does not fit the model ({_why(error)}); give a tree of bools of its structure."
        raise StiefelError(said) from None
    return [
        parameter if parameter.key in kept else replace(parameter, what=Leave("frozen: not trainable"))
        for parameter in read.parameters
    ]
