"""`watch` for trainers: `LightningWatch`, `TransformersWatch` and `KerasWatch`.

Each takes the arguments of `watch` but for the model, and has the `Watch` as `.watch` once training has begun. A
trainer's package is imported when its callback is asked for.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ..core.errors import StiefelError
from .watching import Watch, watch

__all__ = ["KerasWatch", "LightningWatch", "TransformersWatch"]  # noqa: F822 - by __getattr__


class _Watching:
    """What the callbacks have in common."""

    def __init__(self, every: int = 50, **options: Any) -> None:
        super().__init__()
        self._every, self._options = every, options
        self.watch: Watch | None = None

    def _begin(self, model: nn.Module) -> None:
        self.watch = watch(model, self._every, **self._options)

    def _step(self, loss: Any = None) -> None:
        if self.watch is not None:
            self.watch.step(loss)

    def _end(self, *args: Any, **kwargs: Any) -> None:
        """The training ended."""
        if self.watch is not None:
            self.watch.close()


def _lightning() -> type:
    from lightning.pytorch import Callback, LightningModule, Trainer

    class LightningWatch(_Watching, Callback):
        """Watches the module that a `Trainer` fits; takes the arguments of `watch` but for the model."""

        on_train_end = on_exception = _Watching._end

        def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
            """Begin."""
            self._begin(pl_module)
            self._steps = trainer.global_step

        def on_train_batch_start(self, *args: Any) -> None:
            """A module's `training_step` need not call it as a whole."""
            self._observe(True)

        def on_before_backward(self, *args: Any) -> None:
            """What follows is not the forward pass."""
            self._observe(False)

        def _observe(self, on: bool) -> None:
            if self.watch is not None:
                self.watch.observe(on)

        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *args: Any) -> None:
            """A step of the optimizer may take several batches."""
            self._observe(False)
            if trainer.global_step > self._steps:
                self._steps = trainer.global_step
                self._step(outputs.get("loss") if isinstance(outputs, dict) else outputs)

    return LightningWatch


def _transformers() -> type:
    from transformers import TrainerCallback

    class TransformersWatch(_Watching, TrainerCallback):
        """Watches the model that a `Trainer` trains; takes the arguments of `watch` but for the model.

        The loss is the `loss` among the model's outputs.
        """

        on_train_end = _Watching._end

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Begin."""
            self._begin(kwargs["model"])

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """A step of the optimizer, after all of its batches."""
            self._step()

    return TransformersWatch


def _keras() -> type:
    import keras

    class KerasWatch(_Watching, keras.callbacks.Callback):
        """Watches the model that `fit` trains; takes the arguments of `watch` but for the model.

        Keras calls its layers without PyTorch's hooks: weights, gradients, updates and the loss are watched, not the
        signal.
        """

        on_train_end = _Watching._end

        def __init__(self, every: int = 50, **options: Any) -> None:
            super().__init__(every, **options)
            backend = keras.backend.backend()
            if backend != "torch":
                raise StiefelError(f"Keras runs on {backend}; set KERAS_BACKEND=torch to watch a training.")

        def on_train_begin(self, logs: Any = None) -> None:
            """Begin."""
            self._begin(_holder(self.model))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            """End a step."""
            self._step((logs or {}).get("loss"))

    return KerasWatch


def _holder(model: Any) -> nn.Module:
    """The weights of each layer of a Keras model, which is one flat list of parameters to PyTorch."""
    holder = nn.Module()
    for layer in model._flatten_layers(include_self=False):
        held = [variable for variable in layer._trainable_variables if isinstance(variable.value, nn.Parameter)]
        if held:
            inner = nn.Module()
            for variable in held:
                inner.register_parameter(variable.name, variable.value)
            holder.add_module(layer.name.replace(".", "_"), inner)
    return holder


_MAKERS = {"LightningWatch": _lightning, "TransformersWatch": _transformers, "KerasWatch": _keras}


def __getattr__(name: str) -> Any:
    if name not in _MAKERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _MAKERS[name]()
    made.__qualname__ = name  # so that it can be pickled, by this name
    globals()[name] = made
    return made
