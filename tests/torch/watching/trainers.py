"""Trains a small network, each layer at its own rate, with somebody's trainer and its callback.

Run by test_watch_training.py.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import Watch, callbacks, param_groups

X, Y = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3


def assert_scheduled(optimizer: Any) -> None:
    """Each layer is at its own multiple of one rate, wherever the schedule has come to."""
    scales = [group["lr_scale"] for group in optimizer.param_groups]
    assert set(scales) == {10.0, 2.5}, scales
    (rate,) = {round(group["lr"] / group["lr_scale"], 12) for group in optimizer.param_groups}
    assert 0 < rate < 1e-3, rate


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 256), nn.Linear(256, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        scores = self.second(torch.relu(self.first(x)))
        return {"scores": scores} if labels is None else {"loss": F.cross_entropy(scores, labels), "scores": scores}


def with_lightning() -> Watch:
    """With a `training_step` that never calls the module as a whole, and two batches for each step."""
    import lightning.pytorch as lightning
    from lightning.pytorch import callbacks as callbacks_of_lightning
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 256), nn.Linear(256, 3)

        def training_step(self, batch: Any, number: int) -> Tensor:
            return F.cross_entropy(self.second(torch.relu(self.first(batch[0]))), batch[1])

        def configure_optimizers(self) -> Any:
            adam = torch.optim.AdamW(param_groups(self, 1e-3, weight_decay=0.1))
            return [adam], [torch.optim.lr_scheduler.CosineAnnealingLR(adam, 4)]

    callback, monitor = callbacks.LightningWatch(every=2), callbacks_of_lightning.LearningRateMonitor()
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[callback, monitor], logger=CSVLogger("."), gradient_clip_val=1.0,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        accumulate_grad_batches=2,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(X, Y), batch_size=8))
    assert_scheduled(trainer.optimizers[0])
    assert len(monitor.lrs) == 3, monitor.lrs
    return callback.watch


def with_transformers() -> Watch:
    from transformers import Trainer, TrainingArguments

    callback = callbacks.TransformersWatch(every=2)
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=16, num_train_epochs=2, report_to=[], save_strategy="no", disable_tqdm=True,
        use_cpu=True, max_grad_norm=1.0,
    )  # fmt: skip
    data = [{"x": x, "labels": y} for x, y in zip(X, Y)]
    model = Net()
    adam = torch.optim.AdamW(param_groups(model, 1e-3, weight_decay=0.1))
    halved = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: 1 - step / 16)
    Trainer(model, arguments, train_dataset=data, callbacks=[callback], optimizers=(adam, halved)).train()
    assert_scheduled(adam)
    return callback.watch


def with_keras() -> Watch:
    import keras

    import stiefel_init.keras

    layers = [keras.layers.Dense(16, "relu", name="first"), keras.layers.Dense(3, name="second")]
    model = keras.Sequential([keras.Input((8,)), *layers])
    adam = stiefel_init.keras.scale_rates(keras.optimizers.Adam(1e-3), model)
    model.compile(adam, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = callbacks.KerasWatch(every=2)
    model.fit(X.numpy(), Y.numpy(), batch_size=8, epochs=1, verbose=0, callbacks=[callback])
    return callback.watch


if __name__ == "__main__":
    name = sys.argv[1]
    seen = {"lightning": with_lightning, "transformers": with_transformers, "keras": with_keras}[name]()
    rows = seen.history.records()
    assert seen.steps == 8, seen.steps
    assert seen.samples == 4, seen.samples
    assert {row["layer"] for row in rows} == {"first", "second"}, rows
    columns = ["loss", "update", "weight_gradient", "norm"] + (["std", "gradient"] if name != "keras" else [])
    assert all(np.isfinite(row[column]) and row[column] > 0 for row in rows for column in columns), rows
    assert name == "keras" or {row["activation"] for row in rows} == {"relu", None}, rows
    assert not seen.running
    print("as expected")
