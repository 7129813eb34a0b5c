"""`watch` as a callback of the Hugging Face `Trainer`; imported only where transformers is."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from ._watch import Watch, watch


class TransformersWatch(TrainerCallback):
    """Watches the model that a `Trainer` trains; takes the arguments of `watch` but for the model.

    The loss is the `loss` among the model's outputs.
    """

    def __init__(self, every: int = 50, **options: Any) -> None:
        self._every, self._options = every, options
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin."""
        self.watch = watch(kwargs["model"], self._every, **self._options)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step of the optimizer, after all of its batches."""
        if self.watch is not None:
            self.watch.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """End."""
        if self.watch is not None:
            self.watch.close()
