"""Two processes under FSDP2 and DistributedDataParallel end with the weights of one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from stiefel_init.torch import initialize_
from stiefel_init.torch.optim import StiefelAdam, StiefelSGD

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo")

RANKS = 2
KINDS: tuple[Any, ...] = (StiefelAdam, StiefelSGD)


def network() -> nn.Sequential:
    """Of a size that the ranks do not divide."""
    model = nn.Sequential(nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 3)).double()
    initialize_(model, member="permutation", seed=0)
    return model


def differences(rank: int, kind: Any) -> dict[str, float]:
    """Between the weights of each wrapper, trained on this rank's half of the data, and those of one process."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    sharded: Any = network()
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    models = {"one": network(), "fsdp": sharded, "ddp": nn.parallel.DistributedDataParallel(network())}
    x = torch.randn(8, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for name, model in models.items():
        optimizer = kind(model, lr=0.01)
        assert [len(group["params"]) for group in optimizer.param_groups] == [3, 3]
        for _ in range(3):
            optimizer.zero_grad()
            model(x if name == "one" else x[4 * rank : 4 * rank + 4]).square().mean().backward()
            optimizer.step()
    expected = list(models["one"].parameters())
    whole: dict[str, list[Any]] = {
        "fsdp": [parameter.full_tensor() for parameter in sharded.parameters()],
        "ddp": list(models["ddp"].parameters()),
    }
    return {
        name: max(float((p - q).detach().abs().max()) for p, q in zip(expected, own)) for name, own in whole.items()
    }


def process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/join", rank=rank, world_size=RANKS)
    found = {kind.__name__: differences(rank, kind) for kind in KINDS}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    os._exit(0)  # threads of gloo that still run would end the process otherwise


@pytest.mark.slow
def test_shards_and_replicas_are_those_of_one_process(tmp_path: Path) -> None:
    spawn(process, (str(tmp_path),), nprocs=RANKS)
    for rank in range(RANKS):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert set(found) == {kind.__name__ for kind in KINDS}
        assert all(value < 1e-13 for row in found.values() for value in row.values()), found
