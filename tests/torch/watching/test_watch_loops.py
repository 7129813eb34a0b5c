"""Faults of the loop itself: what is stepped, drawn, set back, scheduled, and what makes numbers infinite."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from trained import batch, network

from stiefel_init.torch import watch

Loop = Callable[[nn.Module, torch.optim.Optimizer, int], Tensor]


def loss_of(model: nn.Module, number: int, size: int = 64) -> Tensor:
    x, y = batch(number, size)
    return F.cross_entropy(model(x), y)


def plain(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
    return stepped(optimizer, loss_of(model, number))


def stepped(optimizer: torch.optim.Optimizer, loss: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def anew(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
    return stepped(optimizer, torch.tensor(loss_of(model, number).item(), requires_grad=True))


def along(sign: float) -> Loop:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
        loss = loss_of(model, number)
        for parameter, gradient in zip(model.parameters(), torch.autograd.grad(loss, [*model.parameters()])):
            parameter.data.add_(gradient, alpha=sign * 0.05)
        return loss

    return step


def one_of(count: int) -> Loop:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
        loss = loss_of(model, number)
        return stepped(optimizer, loss) if number % count == count - 1 else loss

    return step


def added(divided: bool) -> Loop:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
        loss = loss_of(model, number)
        (loss / 16 if divided else loss).backward()
        if number % 16 == 15:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return step


def set_back(every: int) -> Loop:
    kept: dict[str, Any] = {}

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
        if not kept:
            kept.update(copy.deepcopy(model.state_dict()))
        if number % every == every - 1:
            model.load_state_dict(kept)
        return plain(model, optimizer, number)

    return step


def clipped(most: float) -> Loop:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, number)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), most)
        optimizer.step()
        return loss

    return step


def drawn(rows: Callable[[int], Any]) -> Loop:
    x, y = batch(0, 256)
    x = x + 4 * F.one_hot(y, 16)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
        at = rows(number)
        return stepped(optimizer, F.cross_entropy(model(x[at]), y[at]))

    return step


def by_class(number: int) -> Tensor:
    return batch(0, 256)[1].argsort()[16 * (number // 4 % 16) :][:16]


def rooted(guard: float) -> Loop:
    """A distance to itself, whose root has no slope."""

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> Tensor:
        x, y = batch(number)
        out = model(x)
        other = out.detach() if number > 20 else 0.9 * out.detach()
        far = ((out - other).square().sum(1) + guard).sqrt() if guard else (out - other).square().sum(1).sqrt()
        return stepped(optimizer, F.cross_entropy(out, y) + 1e-3 * far.mean())

    return step


LOOPS: list[tuple[str, Loop, Loop, float]] = [
    # kind, the loop with the fault, the repaired one, and SGD's rate
    ("loss is made anew", anew, plain, 0.1),
    ("steps go uphill", along(1.0), along(-1.0), 0.1),
    ("batches are not used", one_of(20), plain, 0.1),
    ("accumulated gradients are not divided", added(False), added(True), 1.5),
    ("weights are set back", set_back(30), plain, 0.1),
    ("gradient is clipped away", clipped(0.0), clipped(1.0), 0.1),
    ("examples repeat", drawn(lambda n: torch.randint(4, (64,))), drawn(lambda n: torch.randint(256, (64,))), 0.1),
    ("every batch is the same", drawn(lambda n: slice(8)), drawn(lambda n: torch.randperm(256)[:8]), 0.1),
    ("batches differ", drawn(by_class), drawn(lambda n: torch.randperm(256)[:16]), 0.05),
    ("slope is infinite", rooted(0.0), rooted(1e-6), 0.1),
]


@pytest.mark.parametrize(("kind", "loop", "repaired", "rate"), LOOPS, ids=[row[0] for row in LOOPS])
def test_a_fault_of_the_loop_is_named_and_its_twin_is_silent(
    kind: str, loop: Loop, repaired: Loop, rate: float
) -> None:
    for step in (loop, repaired):
        torch.manual_seed(0)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), rate)
        with watch(model, 5, report=lambda event: None) as seen:
            for number in range(160):
                seen.step(step(model, optimizer, number).detach())
        kinds = {event.kind for event in seen.events}
        assert kind in kinds if step is loop else not kinds, kinds


class Penalized(torch.optim.SGD):
    """An optimizer of one's own, whose step calls that of its base."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad += 0.001 * parameter.detach()
        return super().step(closure)


def test_a_step_within_a_step_is_one() -> None:
    model = network()
    torch.optim.SGD(model.parameters(), 0.1)  # from here on, torch calls hooks for the step of the base, too
    optimizer = Penalized(model.parameters(), 0.1)
    with watch(model, optimizer, every=3, report=lambda event: None) as seen:
        for number in range(30):
            plain(model, optimizer, number)
        assert (seen.steps, len(seen.events), len(seen.open)) == (30, 0, 0)


@pytest.mark.parametrize(
    ("factor", "kind"),
    [
        (lambda n: 0.0, "learning rate has vanished"),
        (lambda n: 0.05 * 0.999**n, "schedule holds the rate down"),
        (lambda n: min(1.0, n / 40), ""),
        (lambda n: 0.99**n, ""),
    ],
    ids=["zero", "multiplied twice", "warm-up", "decay"],
)
def test_schedules(factor: Callable[[int], float], kind: str) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    with watch(model, 5, report=lambda event: None) as seen:
        for number in range(150):
            seen.step(plain(model, optimizer, number))
            schedule.step()
    assert {event.kind for event in seen.events} == ({kind} if kind else set())


def test_weights_that_are_the_first_ones_in_the_end() -> None:
    model = network()
    first = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watch(model, 5, report=lambda event: None) as seen:
        for number in range(60):
            seen.step(plain(model, optimizer, number))
        assert seen.healthy
        model.load_state_dict(first)
        assert [event.kind for event in seen.open] == ["weights are set back"]
