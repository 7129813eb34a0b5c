"""Sharded models: on every rank each shard is the slice of what one process gets, and the ranks share the work.

Four processes, joined by gloo, run all cases once; as 4 ranks, then two of them as 2, then one as 1.
"""

from __future__ import annotations

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
from stiefel_init.torch import initialize_ as whole_model_
from stiefel_init.torch.initialize import draw as _draw
from stiefel_init.torch.initialize import sharded as _sharded

pytestmark = pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo")

WORLDS = (4, 2, 1)
SEED = 7
ROUNDING = 1e-14
BATCH = 3
Results = dict[int, list[dict[str, Any]]]  # for each world size, what its ranks found


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


def fsdp(mesh: Any, prepare: Callable[[nn.Sequential], Any]) -> float:
    """FSDP2, which shards by rows: the difference of the gathered weights from those of one process."""
    from torch.distributed.fsdp import fully_shard

    whole = chain()
    initialize_(whole, seed=SEED)
    model = prepare(chain())
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if model[0].weight.device.type != "meta":
        model(torch.ones(BATCH, 6, dtype=torch.float64))  # its parameters are gathered now
    initialize_(model, seed=SEED)
    x = torch.randn(BATCH, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model(x), whole(x), atol=1e-12)
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
    yield "fsdp", partial(fsdp, line, lambda model: model)
    yield "fsdp meta", partial(fsdp, line, lambda model: model.to("meta"))
    if world == 2:
        yield "refusals", partial(refusals, world)
    if world == 4:
        square = init_device_mesh("cpu", (2, 2))
        for first in (Shard(0), Shard(1), Replicate()):
            for second in (Shard(0), Shard(1), Replicate()):
                yield f"{first} {second}", partial(seeded, square, [first, second])


def run(rank: int, folder: str) -> None:
    """One process: all cases of all worlds it is in, and what came of them in a file."""
    torch.set_num_threads(1)
    for world in WORLDS:
        if rank < world:
            dist.init_process_group("gloo", f"file://{folder}/{world}", rank=rank, world_size=world)
            results = {name: case() for name, case in cases(world, rank)}
            dist.destroy_process_group()
            torch.save(results, f"{folder}/{world}-{rank}.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """For each world size, the results of its ranks."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    spawn(run, (str(folder),), nprocs=max(WORLDS))
    return {world: [torch.load(folder / f"{world}-{rank}.pt") for rank in range(world)] for world in WORLDS}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("conv", CONV_MODES)
@pytest.mark.parametrize("placement", ["S(0)", "S(1)", "R"])
def test_every_shard_is_the_slice_of_the_unsharded_result(
    results: Results, world: int, placement: str, conv: str
) -> None:
    assert max(rank[f"{placement} {conv}"] for rank in results[world]) <= ROUNDING


@pytest.mark.parametrize("second", ["S(0)", "S(1)", "R"])
@pytest.mark.parametrize("first", ["S(0)", "S(1)", "R"])
def test_on_a_mesh_of_two_dimensions_too(results: Results, first: str, second: str) -> None:
    assert max(rank[f"{first} {second}"] for rank in results[4]) <= ROUNDING


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_of_every_scheme(results: Results, scheme: str, world: int) -> None:
    assert max(rank[scheme] for rank in results[world]) <= ROUNDING


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("placement", ["S(0)", "S(1)"])
def test_of_the_default_recipe(results: Results, placement: str, world: int) -> None:
    assert max(rank[f"recipe {placement}"] for rank in results[world]) <= ROUNDING


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_start_equal_under_ddp_and_beside_a_frozen_shard(results: Results, world: int) -> None:
    first, *others = results[world]
    for rank in others:
        assert all(map(torch.equal, rank["parallel"], first["parallel"]))
        assert torch.equal(rank["beside frozen"], first["beside frozen"])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", ["fsdp", "fsdp meta"])
def test_under_fsdp_gathered_or_on_meta(results: Results, kind: str, world: int) -> None:
    assert max(rank[kind] for rank in results[world]) <= ROUNDING


@pytest.mark.parametrize("world", WORLDS)
def test_without_a_seed_the_ranks_agree_and_draw_anew_each_time(results: Results, world: int) -> None:
    for rank in results[world]:
        for first, second, expected in zip(*rank["unseeded"], results[world][0]["unseeded"][0]):
            assert torch.equal(first, expected)
            assert not torch.equal(first, second)
            assert check(first).ok


@pytest.mark.parametrize("world", WORLDS)
def test_the_work_is_spread_and_no_rank_holds_two_matrices(results: Results, world: int) -> None:
    assert [rank["work"] for rank in results[world]] == [(12 // world, 1)] * world


def test_refusals(results: Results) -> None:
    for rank in results[2]:
        assert rank["refusals"] == [
            "0.weight has placement P(sum), which is neither Shard nor Replicate; initialize it before it is placed "
            "so, or pass skip='0.weight'.",
            "model is sharded over 2 meshes, which share no generator; give a seed.",
        ]
