"""`watch` as a callback of Keras on its PyTorch backend; imported only where Keras is."""

from __future__ import annotations

from typing import Any

import keras
from torch import nn

from ...core.errors import StiefelError
from ._watch import Watch, watch


class KerasWatch(keras.callbacks.Callback):  # type: ignore[misc]
    """Watches the model that `fit` trains; takes the arguments of `watch` but for the model.

    Keras calls its layers without PyTorch's hooks: weights, gradients, updates and the loss are watched, not the
    signal.
    """

    def __init__(self, every: int = 50, **options: Any) -> None:
        super().__init__()
        if keras.backend.backend() != "torch":
            raise StiefelError(f"Keras runs on {keras.backend.backend()}; set KERAS_BACKEND=torch to watch a training.")
        self._every, self._options = every, options
        self.watch: Watch | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin."""
        self.watch = watch(_holder(self.model), self._every, **self._options)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """End a step."""
        if self.watch is not None:
            self.watch.step((logs or {}).get("loss"))

    def on_train_end(self, logs: Any = None) -> None:
        """End."""
        if self.watch is not None:
            self.watch.close()


def _holder(model: Any) -> nn.Module:
    """The weights of each layer of a Keras model, which is one flat list of parameters to PyTorch."""
    holder = nn.Module()
    for layer in model._flatten_layers(include_self=False):
        own = [variable for variable in layer._trainable_variables if isinstance(variable.value, nn.Parameter)]
        if own:
            inner = nn.Module()
            for variable in own:
                inner.register_parameter(variable.name, variable.value)
            holder.add_module(layer.name.replace(".", "_"), inner)
    return holder
