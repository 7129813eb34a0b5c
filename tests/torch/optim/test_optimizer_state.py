"""The optimizers as torch's own are used: models, groups, saving, scaling, clipping, compilation, shards."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from stiefel_init import check
from stiefel_init.torch import initialize_, sample
from stiefel_init.torch.optim import StiefelAdam, StiefelMuon, StiefelSGD

KINDS: dict[str, Callable[..., Any]] = {
    "adam": StiefelAdam,
    "sgd": lambda params, lr=0.01: StiefelSGD(params, lr=lr, momentum=0.9),
    "muon": StiefelMuon,
}


def network(seed: int = 0, dtype: torch.dtype = torch.float64) -> Any:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).to(dtype)
    initialize_(model, member="permutation", seed=seed)
    return model


def train(model: nn.Module, optimizer: Any, steps: int = 3, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(16, 6, generator=generator).to(dtype)
        model(x).float().square().mean().backward()
        optimizer.step()


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_same(first: list[Tensor], second: list[Tensor], close: float = 0.0) -> None:
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=close, rtol=0)


def test_of_a_model_it_keeps_the_members() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2)
            self.patches = nn.Conv2d(3, 8, 2, stride=2)
            self.kernel = nn.Conv2d(4, 4, 3)
            self.stack = nn.Parameter(sample(4, 6, batch=(3, 2)))
            self.scale = nn.Parameter(torch.ones(4))
            self.norm = nn.LayerNorm(1)
            self.table = nn.Embedding(4, 4)
            self.frozen = nn.Linear(4, 4)

    model = Own()
    initialize_(model, "stiefel", seed=0, skip=["stack", "scale"])
    nn.init.eye_(model.table.weight)
    model.frozen.requires_grad_(False)
    optimizer = StiefelAdam(model)
    name_of = {id(parameter): name for name, parameter in model.named_parameters()}
    on, off = optimizer.param_groups
    found = {name_of[id(p)]: batch for p, batch in zip(on["params"], on["matrices"])}
    attention = {"attention.in_proj_weight": (3, 4, 4), "attention.out_proj.weight": (1, 4, 4)}
    assert found == {"stack": (6, 4, 6), "patches.weight": (1, 8, 12), **attention}
    assert len(on["params"]) + len(off["params"]) == len(name_of)


def test_groups_say_what_is_on_the_set_and_strays_are_projected_with_a_warning() -> None:
    torch.manual_seed(0)
    inside, outside, stack, free = map(
        nn.Parameter, (torch.eye(3), torch.randn(3, 4), torch.randn(2, 3, 3), torch.eye(3))
    )
    groups = [
        {"params": [inside, outside], "on_set": True, "lr": 0.5},
        {"params": [stack], "on_set": True, "batch_dims": 1},
        {"params": [free], "on_set": False},
    ]
    with pytest.warns(UserWarning, match=r"3 of 4 matrices .* nearest members, up to [\d.]+ away"):
        optimizer = StiefelAdam(groups, lr=0.1)
    assert torch.equal(inside.detach(), torch.eye(3))
    for parameter in (inside, outside, stack, free):
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    assert all(check(parameter, tol=1e-5) for parameter in (inside, outside, stack))
    assert not check(free, tol=1e-2)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.1, 0.1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_saved_state_goes_on_as_if_nothing_had_happened(kind: str, dtype: torch.dtype) -> None:
    model = network(dtype=dtype)
    optimizer = KINDS[kind](model)
    train(model, optimizer)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    twin, other = copy.deepcopy((model, optimizer))
    train(model, optimizer, seed=1)

    file.seek(0)
    saved = torch.load(file)
    loaded = network(seed=5, dtype=dtype)
    loaded_optimizer = KINDS[kind](loaded)
    train(loaded, loaded_optimizer, seed=7)  # has a state of its own, which is replaced
    loaded.load_state_dict(saved["model"])
    loaded_optimizer.load_state_dict(saved["optimizer"])
    train(loaded, loaded_optimizer, seed=1)
    assert_same(weights(loaded), weights(model))
    train(twin, other, seed=1)
    assert_same(weights(twin), weights(model))
    assert pickle.loads(pickle.dumps(optimizer)).state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_a_group_added_later_starts_where_it_is() -> None:
    model = network()
    optimizer = StiefelAdam(model[0])
    train(model, optimizer)
    optimizer.add_param_group({"params": list(model[2].parameters()), "lr": 0.1})
    assert [group["on_set"] for group in optimizer.param_groups] == [True, False, True, False]
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-3, 0.1, 0.1]
    train(model, optimizer)
    assert optimizer.state[model[0].weight]["step"] == 6
    assert optimizer.state[model[2].weight]["step"] == 3
    assert all(check(layer.weight, tol=1e-8) for layer in (model[0], model[2]))


def test_gradients_are_accumulated_scaled_and_clipped_as_usual() -> None:
    """Half batches summed are whole ones; a scaler's factor does not matter; an overflow skips the step."""
    # In float64: of a gradient that is zero but for rounding, Adam would take the sign.
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain, scaled = network(), network()
    first, second = StiefelAdam(plain, lr=0.01), StiefelAdam(scaled, lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for _ in range(3):
        first.zero_grad()
        plain(x).sum().backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        first.step()
        second.zero_grad()
        for half in x.split(4):
            scaler.scale(scaled(half).sum()).backward()
        scaler.unscale_(second)
        nn.utils.clip_grad_norm_(scaled.parameters(), 0.5)
        scaler.step(second)
        scaler.update()
    assert_same(weights(scaled), weights(plain), close=1e-5)
    before = weights(scaled)
    scaled[0].weight.grad = torch.full((6, 6), torch.inf, dtype=torch.float64)
    scaler.scale(scaled(x).sum())
    scaler.step(second)
    assert_same(weights(scaled), before)


def test_it_trains_under_autocast() -> None:
    model = network(dtype=torch.float32)
    optimizer = StiefelMuon(model)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            model(torch.ones(4, 6)).square().sum().backward()
            optimizer.step()
    assert check(model[0].weight, tol=1e-5)


def test_a_closure_is_called_once_and_its_loss_returned() -> None:
    model, twin = network(), network()
    optimizer, other = StiefelSGD(model, lr=0.1), StiefelSGD(twin, lr=0.1)
    x = torch.ones(2, 6).double()

    def closure(model: nn.Module = model) -> Tensor:
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    loss, expected = optimizer.step(closure), closure(twin)
    other.step()
    assert loss.item() == expected.item()
    assert_same(weights(model), weights(twin))


def test_the_rate_may_be_a_tensor_and_scheduled() -> None:
    trained = []
    for rate in (torch.tensor(0.01), 0.01):
        model = network()
        optimizer = StiefelAdam(model, lr=rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        for _ in range(3):
            train(model, optimizer, steps=1)
            schedule.step()
        trained.append(weights(model))
    assert_same(trained[0], trained[1], close=1e-7)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch.compile's own
def test_compiled_models_and_compiled_steps_do_the_same() -> None:
    plain, compiled = network(), network()
    wrapped: Any = torch.compile(compiled, backend="eager")
    first, second = StiefelAdam(plain, lr=0.01), StiefelAdam(wrapped, lr=0.01)
    assert [len(group["params"]) for group in second.param_groups] == [3, 3]
    train(plain, first, 2)
    train(wrapped, second, 2)
    step = torch.compile(second.step, backend="eager")
    for _ in range(3):
        for model, call in ((plain, first.step), (compiled, step)):
            for parameter in model.parameters():
                parameter.grad = torch.cos(parameter.detach() * 7)
            call()
    assert_same(weights(compiled), weights(plain), close=1e-12)
    torch._dynamo.reset()


@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="needs gloo")
@pytest.mark.parametrize("kind", KINDS)
def test_shards_are_slices_of_what_one_process_gets(kind: str, tmp_path: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/join", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        plain, sharded = network(), network()
        for module in sharded:
            for name, parameter in list(module.named_parameters()):
                placement = Shard(0) if name == "weight" else Replicate()
                module.register_parameter(name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [placement])))
        first, second = KINDS[kind](plain, lr=0.05), KINDS[kind](sharded, lr=0.05)
        assert [len(group["params"]) for group in second.param_groups] == [3, 3]
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            for p, parameter in zip(plain.parameters(), sharded.parameters()):
                p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)
                parameter.grad = distribute_tensor(p.grad, mesh, parameter.placements)
            first.step()
            second.step()
        for p, parameter in zip(plain.parameters(), sharded.parameters()):
            torch.testing.assert_close(parameter.detach().full_tensor(), p.detach(), atol=0, rtol=0)
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_captured_in_a_graph(kind: str) -> None:
    plain, model = network(dtype=torch.float32).cuda(), network(dtype=torch.float32).cuda()
    first, second = KINDS[kind](plain), KINDS[kind](model)
    grads = [torch.randn_like(parameter) for parameter in plain.parameters()]
    for net in (plain, model):
        for parameter, grad in zip(net.parameters(), grads):
            parameter.grad = grad.clone()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        second.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        second.step()
    for _ in range(3):
        graph.replay()
    for _ in range(4):
        first.step()
    assert_same(weights(model), weights(plain), close=1e-6)
