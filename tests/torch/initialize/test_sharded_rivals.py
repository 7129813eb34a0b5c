"""Rivals on sharded models: one seed, the same weights under DTensor, FSDP2 and from the meta device.

Two processes, joined by gloo, run all cases once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_sharding import ROUNDING, SEED, difference, distribute
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from stiefel_init.torch import TailoredReLU, initialize_

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo")

WORLD = 2
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh-init": nn.Tanh, "tat": lambda: TailoredReLU(30)}
DRAWN = (
    "looks-linear", "gpt-2", "mup", "tat", "tanh-init", "torch", "truncated-normal", "zero", "idinit", "sinusoidal",
    "fixup", "skip-init", "t-fixup", "mimetic",
)  # fmt: skip
CALIBRATED = ("lsuv", "tat")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(9, 9)
        self.outer = nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(x)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 3
        self.qkv, self.proj = nn.Linear(9, 27), nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].unflatten(-1, (3, 3, 3)).unbind(-3)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).flatten(1))


class Tokens(nn.Module):
    """A block of a transformer, for sequences of one token."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.fc1, self.fc2 = Attention(), nn.Linear(9, 11), nn.Linear(11, 9)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.fc2(torch.relu(self.fc1(x)))


def model_for(scheme: str) -> nn.Sequential:
    """Layers of sizes that the ranks do not divide; float64, so that a difference is not rounding."""
    if scheme in ("fixup", "skip-init"):
        return nn.Sequential(nn.Linear(6, 9), Block(), Block(), nn.Linear(9, 3)).double()
    if scheme in ("t-fixup", "mimetic"):
        return nn.Sequential(nn.Linear(6, 9), Tokens(), Tokens(), nn.Linear(9, 3)).double()
    activation = ACTIVATIONS.get(scheme, nn.ReLU)
    layers = nn.Linear(6, 9), activation(), nn.Linear(9, 7), activation(), nn.Linear(7, 3)
    return nn.Sequential(*layers).double()


def batch() -> Tensor:
    return 3 * torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def as_dtensors(mesh: Any, scheme: str) -> float:
    from torch.distributed.tensor import Shard

    whole, model = model_for(scheme), distribute(model_for(scheme), mesh, [Shard(0)])
    assert initialize_(model, scheme, seed=SEED) == initialize_(whole, scheme, seed=SEED)
    return difference(model, whole)


def under_fsdp(mesh: Any, scheme: str, device: str, inputs: Tensor | None) -> float:
    from torch.distributed.fsdp import fully_shard

    whole, model = model_for(scheme), model_for(scheme).to(device)
    initialize_(whole, scheme, seed=SEED, inputs=inputs)
    for layer in model:
        if isinstance(layer, nn.Linear | Block | Tokens):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    initialize_(model, scheme, seed=SEED, inputs=inputs)
    assert torch.allclose(model(batch()), whole(batch()), atol=1e-12)
    return difference(model, whole)


def run(rank: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (WORLD,))
    results = {f"dtensor {scheme}": as_dtensors(mesh, scheme) for scheme in DRAWN}
    for device in ("cpu", "meta"):
        results |= {f"{device} {scheme}": under_fsdp(mesh, scheme, device, None) for scheme in DRAWN}
        results |= {f"{device} {name} on a batch": under_fsdp(mesh, name, device, batch()) for name in CALIBRATED}
    dist.destroy_process_group()
    torch.save(results, f"{folder}/{rank}.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """What each rank found: the largest difference from one process."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    spawn(run, (str(folder),), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.parametrize("where", ["dtensor", "cpu", "meta"])
@pytest.mark.parametrize("scheme", DRAWN)
def test_every_shard_is_the_slice_of_the_whole(results: list[dict[str, float]], scheme: str, where: str) -> None:
    # The vectors of a singular value turn by rounding over its distance from the next one, by the machine's LAPACK.
    allowed = 1e4 * ROUNDING if scheme == "mimetic" else ROUNDING
    assert max(rank[f"{where} {scheme}"] for rank in results) <= allowed


@pytest.mark.parametrize("case", ["cpu lsuv", "cpu tat", "meta lsuv", "meta tat"])
def test_of_schemes_that_measure_a_batch_too(results: list[dict[str, float]], case: str) -> None:
    """Sums over the batch are rounded once more."""
    assert max(rank[f"{case} on a batch"] for rank in results) <= 10 * ROUNDING
