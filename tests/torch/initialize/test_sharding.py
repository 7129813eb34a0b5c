"""Sharded models: on every rank each shard is the slice of what one process gets, and the ranks share the work.

Two processes, joined by gloo, run all cases once; four and one are slow.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import ALL_SCHEMES
from every_layer import initialize_
from models import Fused, PlainCNN
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from stiefel_init import StiefelError, check
from stiefel_init.recipe.layers import CONV_MODES, Conv
from stiefel_init.torch import TailoredReLU
from stiefel_init.torch import initialize_ as whole_model_
from stiefel_init.torch.initialize import draw as _draw
from stiefel_init.torch.initialize import sharded as _sharded

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo")

SEED = 7
ROUNDING = 1e-14
Results = list[dict[str, Any]]  # what the ranks found
PLACEMENTS = ("S(0)", "S(1)", "R")
OWN_ACTIVATION: dict[str, Callable[[], nn.Module]] = {"tanh-init": nn.Tanh, "tat": lambda: TailoredReLU(30)}
BY_POSITION = ("looks-linear", "gpt-2", "mup", "tat", "tanh-init", "fixup", "skip-init")
CALIBRATED = ("lsuv", "tat")


def small() -> nn.Module:
    """Layers of all kinds, of sizes that the ranks do not divide; float64, so that a difference is not rounding."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.ModuleDict(
            {
                "linear": nn.Linear(7, 5),
                "bilinear": nn.Bilinear(3, 2, 5),
                "grouped": nn.Conv2d(4, 6, 3, groups=2),
                "patches": nn.Conv1d(3, 5, 2, stride=2),
                "transposed": nn.ConvTranspose1d(4, 6, 3, groups=2),
                "upwards": nn.ConvTranspose1d(3, 5, 2, stride=2),
                "attention": nn.MultiheadAttention(6, 2),
                "recurrent": nn.LSTM(3, 5, proj_size=2),
                "norm": nn.LayerNorm(5),
                "embedding": nn.Embedding(5, 3),
            }
        )
    return model.double()


def chain() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 3)).double()


def distribute(model: nn.Module, mesh: Any, placements: list) -> nn.Module:
    """Every parameter as a DTensor, sharded along a dimension that it has."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            fitting = [p if isinstance(p, Replicate) or p.dim < parameter.ndim else Shard(0) for p in placements]
            module.register_parameter(
                name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, fitting, src_data_rank=None))
            )
    return model


def difference(model: nn.Module, whole: nn.Module) -> float:
    """The largest difference between a shard here and that slice of the whole."""
    from torch.distributed.tensor import distribute_tensor

    worst = 0.0
    expected = dict(whole.named_parameters())
    parameter: Any
    for name, parameter in model.named_parameters():
        mesh, placements = parameter.device_mesh, parameter.placements
        slice_ = distribute_tensor(expected[name].detach(), mesh, placements, src_data_rank=None).to_local()
        shard = parameter.detach().to_local()
        assert shard.shape == slice_.shape
        if shard.numel():
            worst = max(worst, float((shard - slice_).abs().max()))
    return worst


def seeded(mesh: Any, placements: list, scheme: str = "stiefel", conv: Conv = "delta") -> float:
    whole, model = small(), distribute(small(), mesh, placements)
    assert initialize_(model, scheme, seed=SEED, conv=conv) == initialize_(whole, scheme, seed=SEED, conv=conv)
    return difference(model, whole)


def by_recipe(mesh: Any, placement: Any) -> float:
    """By the default recipe: attention whose parts belong together, kernels and ends."""
    worst = 0.0
    for make in (Fused, PlainCNN):
        whole = make().double()
        model = distribute(make().double(), mesh, [placement])
        assert whole_model_(model, seed=SEED) == whole_model_(whole, seed=SEED)
        worst = max(worst, difference(model, whole))
    return worst


def parallel(rank: int) -> list[Tensor]:
    """A model under DDP without a seed, the ranks' generators apart."""
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(200 + rank)
    model = DistributedDataParallel(chain())
    whole_model_(model)
    return [parameter.detach() for parameter in model.parameters()]


def beside_frozen(mesh: Any, rank: int) -> Tensor:
    """A plain layer next to a sharded one that is frozen, without a seed."""
    from torch.distributed.tensor import Shard

    torch.manual_seed(300 + rank)
    model: Any = chain()
    distribute(model[0], mesh, [Shard(0)])
    model[0].requires_grad_(False)
    whole_model_(model)
    return model[2].weight.detach()


def unseeded(mesh: Any, rank: int) -> list[list[Tensor]]:
    """Twice, the values that this rank sees; its own generator is not the others'."""
    from torch.distributed.tensor import Replicate, Shard

    torch.manual_seed(100 + rank)
    seen = []
    for _ in range(2):
        model: Any = chain()
        distribute(model[0], mesh, [Shard(0)])
        distribute(model[2], mesh, [Replicate()])  # and model[4] is a plain layer that each rank has for itself
        initialize_(model)
        full = [model[0].weight.full_tensor(), model[2].weight.to_local(), model[4].weight]
        seen.append([weight.detach() for weight in full])
    return seen


def share_of_work(mesh: Any) -> tuple[int, int]:
    """How many matrices this rank drew, and how many of them it ever held at once."""
    from torch.distributed.tensor import Shard

    model = distribute(nn.Sequential(*(nn.Linear(8, 8) for _ in range(12))), mesh, [Shard(0)])
    held: list[weakref.ref[Any]] = []
    most = 0

    def watched(*arguments: Any) -> Tensor:
        nonlocal most
        patience = time.monotonic() + 2  # for gloo's thread, which may be slow to let go of what it has sent
        while any(one() is not None for one in held) and time.monotonic() < patience:
            time.sleep(0.001)
        drawn = _draw.members(*arguments)
        held.append(weakref.ref(drawn.untyped_storage()))
        most = max(most, sum(one() is not None for one in held))
        return drawn

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sharded, "members", watched)
        initialize_(model, seed=SEED)
    return len(held), most


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(9, 9)
        self.outer = nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(x)))


def model_for(scheme: str) -> nn.Sequential:
    """Layers of sizes that the ranks do not divide; float64, so that a difference is not rounding."""
    if scheme in ("fixup", "skip-init"):
        return nn.Sequential(nn.Linear(6, 9), Block(), Block(), nn.Linear(9, 3)).double()
    activation = OWN_ACTIVATION.get(scheme, nn.ReLU)
    layers = nn.Linear(6, 9), activation(), nn.Linear(9, 7), activation(), nn.Linear(7, 3)
    return nn.Sequential(*layers).double()


def batch() -> Tensor:
    return 3 * torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def as_dtensors(mesh: Any, scheme: str) -> float:
    """By a scheme with a distribution for each position."""
    from torch.distributed.tensor import Shard

    whole, model = model_for(scheme), distribute(model_for(scheme), mesh, [Shard(0)])
    assert whole_model_(model, scheme, seed=SEED) == whole_model_(whole, scheme, seed=SEED)
    return difference(model, whole)


def fsdp(mesh: Any, scheme: str, device: str, inputs: Tensor | None = None) -> float:
    """FSDP2, which shards by rows: the difference of the gathered weights from those of one process."""
    from torch.distributed.fsdp import fully_shard

    whole, model = model_for(scheme), model_for(scheme).to(device)
    whole_model_(whole, scheme, seed=SEED, inputs=inputs)
    for layer in model:
        if isinstance(layer, nn.Linear | Block):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if device != "meta":
        model(batch())  # its parameters are gathered now
    whole_model_(model, scheme, seed=SEED, inputs=inputs)
    assert torch.allclose(model(batch()), whole(batch()), atol=1e-12)
    return difference(model, whole)


def refusals(world: int) -> list[str]:
    """What is said of placements and meshes that cannot be; the models stay as they are."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard

    line, column = init_device_mesh("cpu", (world,)), init_device_mesh("cpu", (1, world))
    partial_sums: Any = chain()
    partial_sums[0].weight = nn.Parameter(DTensor.from_local(partial_sums[0].weight.detach(), line, [Partial()]))
    two_meshes = chain()
    distribute(two_meshes[0], line, [Shard(0)])
    distribute(two_meshes[2], column, [Shard(0), Shard(0)])
    said = []
    for model in (partial_sums, two_meshes):
        before = [_sharded.local(p) if _sharded.is_sharded(p) else p.detach() for p in model.parameters()]
        kept = [tensor.clone() for tensor in before]
        with pytest.raises(StiefelError) as error:
            initialize_(model)
        said.append(str(error.value))
        assert all(map(torch.equal, before, kept))
    return said


def cases(world: int, rank: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard

    line = init_device_mesh("cpu", (world,))
    for placement in (Shard(0), Shard(1), Replicate()):
        for conv in CONV_MODES:
            yield f"{placement} {conv}", partial(seeded, line, [placement], conv=conv)
    for scheme in ALL_SCHEMES:
        yield scheme, partial(seeded, line, [Shard(0)], scheme)
    for placement in (Shard(0), Shard(1)):
        yield f"recipe {placement}", partial(by_recipe, line, placement)
    yield "parallel", partial(parallel, rank)
    yield "beside frozen", partial(beside_frozen, line, rank)
    yield "unseeded", partial(unseeded, line, rank)
    yield "work", partial(share_of_work, line)
    for device in ("cpu", "meta"):
        yield f"fsdp {device} stiefel", partial(fsdp, line, "stiefel", device)
    if world == 2:
        for scheme in BY_POSITION:
            yield f"dtensor {scheme}", partial(as_dtensors, line, scheme)
            for device in ("cpu", "meta"):
                yield f"fsdp {device} {scheme}", partial(fsdp, line, scheme, device)
        for scheme in CALIBRATED:
            for device in ("cpu", "meta"):
                yield f"fsdp {device} {scheme} on a batch", partial(fsdp, line, scheme, device, batch())
        yield "refusals", partial(refusals, world)
    if world == 4:
        square = init_device_mesh("cpu", (2, 2))
        for first in (Shard(0), Shard(1), Replicate()):
            for second in (Shard(0), Shard(1), Replicate()):
                yield f"{first} {second}", partial(seeded, square, [first, second])


def run(rank: int, world: int, folder: str) -> None:
    """One process: all cases, and what came of them in a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=world)
    results = {name: case() for name, case in cases(world, rank)}
    torch.save(results, f"{folder}/{rank}.pt")
    dist.barrier()
    os._exit(0)  # threads of gloo that still run would end the process otherwise


@pytest.fixture(scope="module", params=[2, *(pytest.param(world, marks=pytest.mark.slow) for world in (4, 1))])
def world(request: pytest.FixtureRequest) -> int:
    """The number of ranks."""
    return int(request.param)


@pytest.fixture(scope="module")
def results(world: int, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What each rank found."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    spawn(run, (world, str(folder)), nprocs=world)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


def test_every_shard_is_the_slice_of_the_unsharded_result(results: Results, world: int) -> None:
    """Of every placement, scheme and wrapper; numbers are differences from one process."""
    worst = {
        case: max(rank[case] for rank in results) for case, value in results[0].items() if isinstance(value, float)
    }
    kinds = [f"{placement} {conv}" for placement in PLACEMENTS for conv in CONV_MODES]
    kinds += [*ALL_SCHEMES, "recipe S(0)", "recipe S(1)", "fsdp cpu stiefel", "fsdp meta stiefel"]
    kinds += [f"dtensor {scheme}" for scheme in BY_POSITION if world == 2]
    kinds += [f"{first} {second}" for first in PLACEMENTS for second in PLACEMENTS if world == 4]
    assert worst.keys() >= set(kinds)
    for case, value in worst.items():
        more = 10 if "batch" in case else 1  # sums over a batch are rounded once more
        assert value <= more * ROUNDING, case


def test_ranks_start_equal_under_ddp_and_beside_a_frozen_shard(results: Results) -> None:
    first, *others = results
    for rank in others:
        assert all(map(torch.equal, rank["parallel"], first["parallel"]))
        assert torch.equal(rank["beside frozen"], first["beside frozen"])


def test_without_a_seed_the_ranks_agree_and_draw_anew_each_time(results: Results) -> None:
    for rank in results:
        for first, second, expected in zip(*rank["unseeded"], results[0]["unseeded"][0]):
            assert torch.equal(first, expected)
            assert not torch.equal(first, second)
            assert check(first).ok


def test_the_work_is_spread_and_no_rank_holds_two_matrices(results: Results, world: int) -> None:
    assert [rank["work"] for rank in results] == [(12 // world, 1)] * world


def test_refusals(results: Results) -> None:
    for rank in (rank for rank in results if "refusals" in rank):
        assert rank["refusals"] == [
            "0.weight has placement P(sum), which is neither Shard nor Replicate; initialize it before it is placed "
            "so, or pass skip='0.weight'.",
            "model is sharded over 2 meshes, which share no generator; give a seed.",
        ]
