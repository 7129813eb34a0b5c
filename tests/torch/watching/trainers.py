"""Trains a small network with somebody's trainer and its callback; run by test_watch_training.py."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import Watch, callbacks

X, Y = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        scores = self.second(torch.relu(self.first(x)))
        return {"scores": scores} if labels is None else {"loss": F.cross_entropy(scores, labels), "scores": scores}


def with_lightning() -> Watch:
    """With a `training_step` that never calls the module as a whole, and two batches for each step."""
    import lightning.pytorch as lightning
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)

        def training_step(self, batch: Any, number: int) -> Tensor:
            return F.cross_entropy(self.second(torch.relu(self.first(batch[0]))), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-2)

    callback = callbacks.LightningWatch(every=2)
    trainer = lightning.Trainer(
        max_epochs=2, callbacks=[callback], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", accumulate_grad_batches=2,
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(X, Y), batch_size=8))
    return callback.watch


def with_transformers() -> Watch:
    from transformers import Trainer, TrainingArguments

    callback = callbacks.TransformersWatch(every=2)
    arguments = TrainingArguments(
        "out", per_device_train_batch_size=16, num_train_epochs=2, report_to=[], save_strategy="no", disable_tqdm=True,
        use_cpu=True, learning_rate=1e-2,
    )  # fmt: skip
    data = [{"x": x, "labels": y} for x, y in zip(X, Y)]
    Trainer(Net(), arguments, train_dataset=data, callbacks=[callback]).train()
    return callback.watch


def with_keras() -> Watch:
    import keras

    layers = [keras.layers.Dense(16, "relu", name="first"), keras.layers.Dense(3, name="second")]
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
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
