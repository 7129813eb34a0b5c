"""Whole models: `initialize_`, and the adapter that shows them to `recipe.initialize`."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Hashable, Mapping
from typing import Any

import keras
import numpy as np

from ..core import validate as _validate
from ..core.errors import StiefelError
from ..recipe.initialize import ArrayAdapter, Options, Patterns, RecipeName, initialize
from ..recipe.layers import Conv
from ..recipe.plan import Plan
from ..recipe.trace import Flow, Norm, does_not_run, norm_of, not_finite, shapes_of
from ..schemes import Scheme, SchemeName
from .layers import NORMS, parameters_of
from .trace import flow_of


def initialize_(
    model: keras.Model,
    scheme: SchemeName | Scheme | None = None,
    *,
    recipe: RecipeName | None = None,
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
        scheme, recipe, stem, head, conv, skip: As in PyTorch.
        inputs: Example inputs, as for `model(inputs)`, to find the ends of a subclassed model: its `call` is read with
            symbols of their shapes. Sequential and functional models show their ends without.
        seed: `None` follows `keras.utils.set_random_seed`. With an int, matrix i of the kernel of the layer `name` is
            `stiefel_init.draw(…, seed=seed, name=f"{name}.weight")[i]`, as in PyTorch; names that Keras has numbered
            itself are counted from the model's first layer.
        dry_run: Change nothing, only make the plan.

    Returns:
        What was done to each parameter, and why; it prints as a table.

    >>> layers = keras.layers.Dense(64, "relu", name="inner"), keras.layers.Dense(1, name="outer")
    >>> model = keras.Sequential([keras.Input((2,)), *layers])
    >>> print(initialize_(model, seed=0))
    3 of 4 parameters drawn, 1 zeros or ones.
    parameter     shape    what is done         orthonormal  why
    inner.kernel  (2, 64)  orthogonal 64×2 × 4  columns
        stem: reads the input (in the graph of layers), lifted
    inner.bias    (64,)    offsets 0.707 64×1   —            set the units apart
    outer.kernel  (64, 1)  centred 1×64 × 1.4   rows
        head: makes the output (in the graph of layers)
    outer.bias    (1,)     zeros                —
    """
    if not isinstance(model, keras.layers.Layer):
        raise StiefelError(f"model is a {type(model).__name__}; give a keras.Model.")
    options = Options.of(scheme, recipe, conv, inputs=inputs, stem=stem, head=head, skip=skip, dry_run=dry_run)
    return initialize(KerasAdapter(model, seed, options), options)


class KerasAdapter(ArrayAdapter):
    """A built model of Keras."""

    default = "glorot"

    def __init__(self, model: Any, seed: int | None, options: Options) -> None:
        super().__init__(options)
        self.seed = random.getrandbits(63) if seed is None else _validate.size("seed", seed)
        self.model = model
        self.parameters = parameters_of(model)
        self.variables: dict[Hashable, Any] = {id(variable): variable for variable in model.weights}

    @property
    def normalized(self) -> Norm:  # type: ignore[override]
        return norm_of({type(layer).__name__ for layer in self.model._flatten_layers() if isinstance(layer, NORMS)})

    def flow(self, streams: Mapping[Hashable, str], tables: Collection[str], inputs: Any) -> tuple[Flow | None, str]:
        model = self.model
        weights: Any = {
            each.key: streams[each.key]
            for each in self.parameters
            if len(each.shape) > 1 and not each.name.endswith("bias")
        }
        if inputs is None:
            try:
                flow = flow_of(model, weights)
                if flow is None:  # a subclassed model, of whose input a symbol is made
                    flow = flow_of(model, weights, keras.Input(batch_shape=model.get_build_config()["input_shape"]))
                return flow, "in the graph of layers"
            except Exception:  # whatever a user's call does that a symbol cannot
                return None, ""
        inputs = dict(inputs) if isinstance(inputs, Mapping) else inputs
        leaves = keras.tree.flatten(inputs)
        arrays = [keras.ops.convert_to_numpy(x) if keras.ops.is_tensor(x) else np.asarray(x) for x in leaves]
        shapes = shapes_of(arrays)
        if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays):
            raise not_finite(shapes)
        try:
            symbols = keras.tree.map_structure(_symbol, inputs)
            model.compute_output_spec(symbols)
            return flow_of(model, weights, symbols), "traced"
        except Exception:  # the user's call may look at values, which symbols have none of
            try:
                model(inputs)
            except Exception as error:
                give = "what it is called with: an array, or a list or dict of arrays"
                raise does_not_run(shapes, f"{type(error).__name__}: {_why(error)}", give) from None
            return None, ""

    def dtype(self, key: Hashable) -> str:
        return str(keras.backend.standardize_dtype(self.variables[key].dtype))

    def value(self, key: Hashable) -> np.ndarray:
        value = self.variables[key].value
        if keras.backend.backend() == "torch":  # whose arrays NumPy 2 warns of
            return value.detach().cpu().double().numpy()
        return np.asarray(keras.ops.convert_to_numpy(value))

    def put(self, values: Mapping[Hashable, np.ndarray]) -> None:
        for key, value in values.items():
            self.variables[key].assign(value)


def _symbol(x: Any) -> Any:
    kind = keras.backend.standardize_dtype(getattr(x, "dtype", "float32"))
    return keras.Input(batch_shape=np.shape(x), dtype=kind)


def _why(error: Exception) -> str:
    """The first line of an error that says something; Keras puts one of its own before the user's, in bold."""
    lines = re.sub(r"\x1b\[\d*m", "", str(error)).splitlines()
    said = (line for line in lines if line.strip() and not line.startswith("Exception encountered"))
    return next(said, "").strip().rstrip(".:")
