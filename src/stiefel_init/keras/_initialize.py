"""Whole models: `initialize_`."""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Iterable
from typing import Any

import keras
import numpy as np

from ..core import validate as _validate
from ..core.errors import StiefelError
from ..recipe._options import Recipe, chosen_scheme, matching
from ..recipe._start import refuse_torch_only, start_of
from ..recipe.initialize import Parameter, decide, values
from ..recipe.layers import Conv, Layer, Leave
from ..recipe.plan import Plan
from ..recipe.roles import Roles, of_flow, of_order
from ..recipe.trace import Flow
from ..schemes import Scheme, SchemeName, Stiefel
from ._flow import flow_of
from ._initializer import DTYPES
from ._layers import NORMS, parameters_of

Patterns = str | Iterable[str]


def initialize_(
    model: keras.Model,
    scheme: SchemeName | Scheme | None = None,
    *,
    recipe: Recipe | None = None,
    inputs: Any = None,
    stem: Patterns | None = None,
    head: Patterns | None = None,
    seed: int | None = None,
    conv: Conv | None = None,
    skip: Patterns = (),
    dry_run: bool = False,
) -> Plan:
    r"""Initialize all layers of a built model in place, as `stiefel_init.torch.initialize_` does in PyTorch.

    docs/initialize.md says what each layer starts as. Embeddings, normalizations and layers that are not trainable are
    left alone; an LSTM's `unit_forget_bias` is kept. Everything is checked first: when something is refused, the model
    is unchanged.

    Args:
        model: A Sequential, functional or subclassed model with weights.
        scheme: Use this scheme (a name of `stiefel_init.schemes.names()`, or a `Scheme`) for every layer instead.
        recipe: `"best"`, the default, or `"paper"`: every layer in the set, as scheme `"stiefel"` does.
        inputs: Example inputs, as for `model(inputs)`, to find the ends of a subclassed model: its `call` is read with
            symbols of their shapes. Sequential and functional models show their ends without.
        stem: Patterns, as in `fnmatch`, of the names of weights that read the input, if you know better; `()` for none.
        head: Likewise, of those that make the output.
        seed: `None` follows `keras.utils.set_random_seed`. With an int, matrix i of the kernel of the layer `name` is
            `stiefel_init.draw(…, seed=seed, name=f"{name}.weight")[i]`, as in PyTorch; names that Keras has numbered
            itself are counted from the model's first layer.
        conv: How schemes that draw matrices fill a kernel, as in PyTorch: `"delta"` or `"flatten"`.
        skip: Patterns of the names of parameters to leave alone.
        dry_run: Change nothing, only make the plan.

    Returns:
        What was done to each parameter, and why; it prints as a table.

    Raises:
        StiefelError: for a model, option, name or parameter that cannot be used; the model is unchanged.

    >>> layers = keras.layers.Dense(8, "relu", name="inner"), keras.layers.Dense(1, name="outer")
    >>> model = keras.Sequential([keras.Input((2,)), *layers])
    >>> print(initialize_(model, seed=0))
    parameter     shape   what is done         orthonormal  why
    inner.kernel  (2, 8)  stiefel 8×2 × 1.414  columns      stem: reads the input (in the graph of layers), lifted
    inner.bias    (8,)    offsets 0.707 8×1    —            set the units apart
    outer.kernel  (8, 1)  centred 1×8          rows         head: makes the output (in the graph of layers)
    outer.bias    (1,)    zeros                —
    """
    if not isinstance(model, keras.layers.Layer):
        raise StiefelError(f"model is a {type(model).__name__}; give a keras.Model.")
    chosen = chosen_scheme(scheme, recipe, conv, ends=(inputs, stem, head))
    refuse_torch_only(chosen)
    number = random.getrandbits(63) if seed is None else _validate.size("seed", seed)
    parameters = parameters_of(model)
    variables: dict[Hashable, Any] = {id(variable): variable for variable in model.weights}
    skipped = matching("skip", parameters, skip)
    start = start_of(chosen, conv or "delta", lambda: _roles(model, parameters, inputs, stem, head))
    rows, tasks = decide(parameters, skipped, chosen or Stiefel(), conv or "delta", start)
    kinds = {key: keras.backend.standardize_dtype(variable.dtype) for key, variable in variables.items()}
    for task in tasks:
        kind, name = kinds[task.parameter.key], task.parameter.name
        if kind not in DTYPES:
            raise StiefelError(f"{name} has dtype {kind}; use one of {', '.join(DTYPES)}, or pass skip={name!r}.")
    if not dry_run:
        for key, value in values(tasks, number, [key for key, kind in kinds.items() if kind == "float64"]).items():
            variables[key].assign(value)
    return Plan(tuple(rows))


def _roles(model: Any, parameters: list[Parameter], inputs: Any, stem: Patterns | None, head: Patterns | None) -> Roles:
    """The parts that the model's weights play, by the names of their random numbers."""
    stream_of: dict[Hashable, str] = {parameter.key: parameter.stream for parameter in reversed(parameters)}
    stems, heads = (
        None if patterns is None else [stream_of[key] for key in matching(option, parameters, patterns)]
        for option, patterns in (("stem", stem), ("head", head))
    )
    tables = {p.stream for p in parameters if isinstance(p.what, Leave) and p.what.reason == "an embedding"}
    weights: Any = {p.key: stream_of[p.key] for p in parameters if len(p.shape) > 1 and not p.name.endswith("bias")}
    how, flow = _flow(model, weights, inputs)
    if flow is not None:
        return of_flow(flow, stems, heads, how, tables)
    order = {
        p.stream: None for p in parameters if isinstance(p.what, Layer) and p.what.kind in ("linear", "convolution")
    }
    normalized = any(isinstance(layer, NORMS) for layer in model._flatten_layers())
    return of_order(order, stems, heads, normalized=normalized)


def _flow(model: Any, weights: dict[int, str], inputs: Any) -> tuple[str, Flow | None]:
    """The flow of the model, and how it was found; None where only the order of layers is known."""
    if inputs is None:
        try:
            return "in the graph of layers", flow_of(model, weights) or flow_of(model, weights, _built_for(model))
        except Exception:  # whatever a user's call does that a symbol cannot
            return "", None
    _refuse_not_finite(inputs)
    try:
        symbols = keras.tree.map_structure(lambda x: keras.Input(batch_shape=np.shape(x), dtype=_dtype(x)), inputs)
        model.compute_output_spec(symbols)
        return "traced", flow_of(model, weights, symbols)
    except Exception:  # the user's call may look at values, which symbols have none of
        try:
            model(inputs)
        except Exception as error:
            said = f"{type(error).__name__}: {_why(error)}"
            raise StiefelError(
                f"the model does not run on inputs={_shapes(inputs)} ({said}); give what it is called with: an array, "
                "or a list or dict of arrays."
            ) from None
        return "", None


def _why(error: Exception) -> str:
    """The first line of an error that says something; Keras puts one of its own before the user's, in bold."""
    lines = re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()
    said = (line for line in lines if line.strip() and not line.startswith("Exception encountered"))
    return next(said, "").strip().rstrip(".:")


def _built_for(model: Any) -> Any:
    """A symbol of the input that a subclassed model was built for."""
    config = model.get_build_config() or {}
    shape = config["input_shape"]
    return keras.Input(batch_shape=shape)


def _dtype(x: Any) -> str:
    return keras.backend.standardize_dtype(getattr(x, "dtype", "float32"))


def _shapes(inputs: Any) -> str:
    return ", ".join(str(tuple(np.shape(leaf))) for leaf in keras.tree.flatten(inputs))


def _refuse_not_finite(inputs: Any) -> None:
    for leaf in keras.tree.flatten(inputs):
        array = keras.ops.convert_to_numpy(leaf) if keras.ops.is_tensor(leaf) else np.asarray(leaf)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise StiefelError(f"inputs={_shapes(inputs)} have entries that are not finite; give examples without.")
