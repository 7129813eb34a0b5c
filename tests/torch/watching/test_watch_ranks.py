"""Two processes under DistributedDataParallel and FSDP2: whole weights are seen, and one rank tells."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn
from trained import network

from stiefel_init.torch import watch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo"),
]

RANKS = 2


def trained(rank: int, model: Any, watched: bool, folder: str) -> dict[str, Any]:
    lines: list[Any] = []
    logging.getLogger("stiefel_init.watch").setLevel(logging.CRITICAL)
    seen = watch(model, 2, report=lines.append, to=f"{folder}/{type(model).__name__}.jsonl") if watched else None
    optimizer = torch.optim.Adam(model.parameters(), 0.5)
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(rank))
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if seen is not None:
            seen.step(loss)
    weights = [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]
    if seen is None:
        return {"weights": weights}
    seen.close()
    return {"weights": weights, "rows": seen.history.records(), "lines": len(lines), "events": len(seen.events)}


def process(rank: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/join", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    found: dict[str, list[Any]] = {"ddp": [], "fsdp": []}
    for watched in (False, True):
        sharded: Any = network(2)
        for layer in sharded:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        found["fsdp"].append(trained(rank, sharded, watched, folder))
        parallel = nn.parallel.DistributedDataParallel(network(2))
        found["ddp"].append(trained(rank, parallel, watched, folder))
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    os._exit(0)  # threads of gloo that still run would end the process otherwise


def test_ranks_see_their_batch_and_the_first_one_tells(tmp_path: Path) -> None:
    spawn(process, (str(tmp_path),), nprocs=RANKS)
    ranks = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]
    norms = []
    for kind in ("ddp", "fsdp"):
        for rank, found in enumerate(ranks):
            plain, watched = found[kind]
            assert all(torch.equal(a, b) for a, b in zip(plain["weights"], watched["weights"]))
            rows = watched["rows"]
            assert [row["layer"] for row in rows] == ["0", "2", "4"] * 2
            assert all(row["update"] > 0 and row["weight_gradient"] > 0 and row["std"] > 0 for row in rows)
            assert watched["events"] > 0  # the rate is far too high
            assert watched["lines"] == (watched["events"] if rank == 0 else 0)
        norms.append([row["norm"] for row in ranks[0][kind][1]["rows"] if row["step"] == 0])
    assert len((tmp_path / "DistributedDataParallel.jsonl").read_text().splitlines()) == 2
    # Shards are whole while a layer runs, which is before the step; replicas are measured after it.
    assert norms[1] == pytest.approx([3**-0.5, 3**-0.5, norms[1][2]], rel=1e-4)
    assert norms[0] != pytest.approx(norms[1], rel=1e-2)
