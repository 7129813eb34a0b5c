"""Where people train: torch.compile, mixed precision, accumulated gradients, other people's trainers, real networks."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paper.networks import GPT, PlainCNN, mlp
from paper.zoo.pictures import resnet
from torch import nn
from torch.nn import functional as F
from trained import batch, network

from stiefel_init.torch import watch


def test_a_compiled_model_runs_as_written_in_sampled_steps() -> None:
    """Its graph is neither compiled again nor given up: it runs in the steps between."""
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            graphs.append(step)
            return graph(*args)

        compiled.append(graph)
        return run

    compiled: list[Any] = []
    torch._dynamo.reset()
    model = network()
    fast: Any = torch.compile(model, backend=backend)
    with watch(fast, 3) as seen:
        for step in range(7):
            loss = F.cross_entropy(fast(batch(step)[0]), batch(step)[1])
            loss.backward()
            seen.step(loss)
    assert seen.samples == 3
    assert {row["layer"] for row in seen.history.records()} == {"0", "2", "4", "6", "8"}
    assert all(row["std"] > 0 for row in seen.history.records())
    assert sorted(set(graphs)) == [1, 2, 4, 5]
    assert len(compiled) == 1


def test_mixed_precision_gradients_are_those_the_optimizer_uses() -> None:
    found = []
    for scale in (1.0, 1024.0):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        with watch(model, 1) as seen:
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(batch()[0]), batch()[1])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            seen.step(loss)
        found.append([row["weight_gradient"] for row in seen.history.records()])
    assert np.isfinite(found).all()
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_accumulated_gradients_count_as_one_step() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with watch(model, 1) as seen:
        for step in range(3):
            for part in range(4):
                x, y = batch(4 * step + part, 32)
                (F.cross_entropy(model(x), y) / 4).backward()
            whole = [m.weight.grad.norm().item() for m in model if isinstance(m, nn.Linear)]  # type: ignore[union-attr]
            optimizer.step()
            optimizer.zero_grad()
            seen.step()
    assert not seen.events
    assert [row["samples"] for row in seen.history.records()] == [32.0] * 15
    assert [row["weight_gradient"] for row in seen.history.records()][-5:] == pytest.approx(whole, rel=1e-5)


IMAGES = torch.randn(32, 1, 28, 28, generator=torch.Generator().manual_seed(0))
NETWORKS: dict[str, Any] = {
    "mlp": lambda: (mlp(784, 10, 5), IMAGES.flatten(1)),
    "cnn": lambda: (PlainCNN(7, 8), IMAGES),
    "resnet": lambda: (resnet(False, nn.BatchNorm2d), IMAGES[:8]),
    "gpt": lambda: (GPT(32, 2, 16), torch.arange(64).view(4, 16)),
    "gru": lambda: (nn.GRU(28, 16), IMAGES[:, 0]),
    "attention": lambda: (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), IMAGES[:, 0, :, :16]),
    "lstm": lambda: (nn.LSTM(28, 8), IMAGES[:, 0]),
    "checkpointed": lambda: (Checkpointed(), IMAGES.flatten(1)),
    "embedding": lambda: (nn.Sequential(nn.Embedding(80, 4), nn.Linear(4, 3)), torch.arange(80).view(16, 5)),
    "shared": lambda: (nn.Sequential(*[nn.Linear(28, 28)] * 3), IMAGES),
    "weight norm": lambda: (nn.utils.parametrizations.weight_norm(nn.Linear(28, 4)), IMAGES),
}


class Checkpointed(nn.Module):
    """Its hidden layers run again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Sequential(nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 16)), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        return self.head(checkpoint(self.inner, x, use_reentrant=False))


@pytest.mark.parametrize("name", NETWORKS)
def test_models_people_use_are_seen_and_unchanged(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = NETWORKS[name]()
    check(model, inputs)


def check(model: nn.Module, inputs: torch.Tensor) -> None:
    """One step with and without a watch gives the same outputs and weights; all figures are finite."""
    results = []
    for watched in (False, True):
        twin = copy.deepcopy(model)
        optimizer = torch.optim.SGD(twin.parameters(), 0.01)
        seen = watch(twin, 1) if watched else None
        torch.manual_seed(1)
        output = twin(inputs)
        output = output[0] if isinstance(output, tuple) else output
        output.square().mean().backward()
        optimizer.step()
        if seen is not None:
            seen.step()
            seen.close()
            rows = seen.history.records()
            assert seen.samples == 1
            assert rows
            ran = [row for row in rows if row["units"] > 0]
            assert ran
            assert all(np.isfinite([row["mean"], row["std"], row["post_std"]]).all() for row in ran)
            assert all(np.isfinite([row["norm"], row["update"]]).all() for row in rows if row["kind"] != "Embedding")
        results.append([output.detach(), *(p.detach() for p in twin.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results))


@pytest.mark.slow
def test_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    run(tmp_path, "lightning")


def test_hugging_face_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    run(tmp_path, "transformers")


@pytest.mark.slow
def test_keras_on_its_torch_backend(tmp_path: Path) -> None:
    pytest.importorskip("keras")
    run(tmp_path, "keras")


def run(folder: Path, name: str) -> None:
    """In a process of its own: trainers set things for the whole process."""
    here = Path(__file__).parent / "trainers.py"
    environment = {**os.environ, "KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        [sys.executable, str(here), name], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip().endswith("as expected")
