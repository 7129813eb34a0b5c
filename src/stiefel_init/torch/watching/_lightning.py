"""`watch` as a callback of Lightning; imported only where Lightning is."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from ._watch import Watch, watch


class LightningWatch(Callback):
    """Watches the module that a `Trainer` fits; takes the arguments of `watch` but for the model."""

    def __init__(self, every: int = 50, **options: Any) -> None:
        self._every, self._options = every, options
        self._steps = 0
        self.watch: Watch | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin."""
        self.watch, self._steps = watch(pl_module, self._every, **self._options), trainer.global_step

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """A module's `training_step` need not call it as a whole."""
        if self.watch is not None:
            self.watch.observe(True)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Any) -> None:
        """What follows is not the forward pass."""
        if self.watch is not None:
            self.watch.observe(False)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A step of the optimizer may take several batches."""
        if self.watch is not None:
            self.watch.observe(False)
            if trainer.global_step > self._steps:
                self._steps = trainer.global_step
                self.watch.step(outputs.get("loss") if isinstance(outputs, dict) else outputs)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End."""
        if self.watch is not None:
            self.watch.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End."""
        if self.watch is not None:
            self.watch.close()
