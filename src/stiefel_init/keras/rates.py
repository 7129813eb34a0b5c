"""Each variable of a Keras model at its own learning rate: `scale_rates`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from ..core.errors import StiefelError
from ..recipe.initialize import Options, Patterns
from ..recipe.rates import Step, shares
from .adapter import KerasAdapter


def scale_rates(
    optimizer: keras.optimizers.Optimizer,
    model: keras.Model,
    *,
    inputs: Any = None,
    stem: Patterns | None = None,
    head: Patterns | None = None,
) -> keras.optimizers.Optimizer:
    """Let an optimizer take each layer of a model at its own multiple of its rate, as `param_groups` in PyTorch.

    Keras has one rate for all variables. So what a step changes, decay included, is multiplied afterwards; clipping,
    accumulation and schedules are as before. A model that is saved and loaded has a plain optimizer again.

    Args:
        optimizer: One of Keras' own; it is changed, and returned. Its rate is the one number.
        model: A built model, as for `initialize_`.
        inputs, stem, head: As for `initialize_`.

    Raises:
        StiefelError: for what is no optimizer or model, or an optimizer that averages what it makes.

    >>> layers = [keras.layers.Dense(64, "relu") for _ in range(5)]
    >>> model = keras.Sequential([keras.Input((784,)), *layers, keras.layers.Dense(10)])
    >>> model.compile(scale_rates(keras.optimizers.Adam(1e-3), model), "mse")
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise StiefelError(f"optimizer is a {type(optimizer).__name__}; give one such as keras.optimizers.Adam(1e-3).")
    if getattr(optimizer, "use_ema", False):
        raise StiefelError("optimizer has use_ema=True, an average of steps that are not scaled yet; make it without.")
    if not isinstance(model, keras.layers.Layer):
        raise StiefelError(f"model is a {type(model).__name__}; give a keras.Model.")
    step: Step = "sgd" if isinstance(optimizer, keras.optimizers.SGD) else "adam"
    options = Options(inputs=inputs, stem=stem, head=head)
    adapter = KerasAdapter(model, 0, options)
    found = {key: share.multiplier for key, share in shares(adapter, options, step).items()}
    scaled = [(each, found[id(each)]) for each in model.trainable_variables if found.get(id(each), 1.0) != 1.0]
    optimizer.apply = _scaling(optimizer.apply, scaled)
    return optimizer


def _scaling(apply: Callable[..., Any], scaled: list[tuple[Any, float]]) -> Callable[..., Any]:
    """`apply`, and then the changes of some variables multiplied."""

    def scaling(grads: Any, trainable_variables: Any = None) -> None:
        before = [keras.ops.copy(variable.value) for variable, _ in scaled]
        apply(grads, trainable_variables)
        for (variable, scale), old in zip(scaled, before):
            value = old + scale * (variable.value - old)
            variable.assign(value if variable.constraint is None else variable.constraint(value))

    return scaling
