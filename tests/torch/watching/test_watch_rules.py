"""Each fault is named, where it is, and what recovers is told; a sound training is left in peace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from trained import batch, network, train

from stiefel_init import StiefelError
from stiefel_init.torch import watch


def kinds(events: Any) -> list[tuple[str, str]]:
    return [(event.kind, event.layer) for event in events if not event.recovered]


def fill(value: float, name: str = "bias") -> Callable[[Any], Any]:
    return lambda model: getattr(model[4], name).data.fill_(value)


def one_infinite(model: Any) -> None:
    model[4].weight.data[0, 0] = torch.inf


def shared(model: Any) -> None:
    model[4].weight = model[2].weight


CHANGES: list[tuple[Callable[[Any], Any], tuple[str, str]]] = [
    (fill(-100.0), ("units are dead", "4")),
    (fill(0.0, "weight"), ("weights collapsed", "4")),
    (shared, ("layers are equal", "4")),
    (lambda model: model[4].weight.requires_grad_(False), ("layer is frozen", "4")),
    (lambda model: model[4].weight.data.mul_(100), ("weights jumped", "4")),
    (lambda model: model[4].register_forward_hook(lambda m, a, out: out.detach()), ("gradient is cut off", "4")),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[kind for _, (kind, _) in CHANGES])
def test_a_layer_that_breaks_is_named(change: Callable[[Any], Any], expected: tuple[str, str]) -> None:
    model = network()
    seen, events = train(model, 61, 10, at=45, change=lambda optimizer: change(model))
    assert kinds(events)[:1] == [expected]
    assert events[0].step == 50
    assert str(events[0]).startswith("step 50: ")
    assert events[0].advice
    assert not seen.healthy or any(event.recovered for event in events)


def test_an_infinite_weight_is_found_in_the_step_that_meets_it() -> None:
    model = network()
    _, events = train(model, 51, at=50, change=lambda optimizer: one_infinite(model))
    assert kinds(events) == [("not finite", "4")]
    model = network()
    _, events = train(model, 51, at=45, change=lambda optimizer: one_infinite(model))
    assert kinds(events) == [("not finite", "0")]
    assert "since step 40" in events[0].sentence


def test_the_rate_is_named_from_both_sides() -> None:
    _, events = train(network(), 1, rate=1.0)
    assert kinds(events)[0][0] == "steps are too large"
    assert "at rate 1" in events[0].sentence
    _, events = train(network(), 31, rate=1e-9)
    assert kinds(events) == [("steps are too small", "")]


def test_weight_decay_is_named() -> None:
    def decay(optimizer: torch.optim.Optimizer) -> None:
        optimizer.param_groups[0].update(weight_decay=50.0, decoupled_weight_decay=True)

    _, events = train(network(), 81, at=45, change=decay)
    assert kinds(events)[0] == ("weights decay", "")


def test_inputs_that_change_and_recover_are_told() -> None:
    def prepare(step: int, x: Tensor) -> Tensor:
        return 1e3 * x if step == 20 else x

    _, events = train(network(), 31, prepare=prepare)
    assert [(event.step, event.kind, event.recovered) for event in events[:1]] == [(20, "inputs changed scale", False)]
    over = [event for event in events if event.kind == "inputs changed scale" and event.recovered]
    assert [event.step for event in over] == [30]
    assert str(over[0]) == 'step 30: "inputs changed scale" recovered; it had been failing since step 20.'


def test_a_batch_that_is_not_finite_is_named_and_hides_what_it_breaks() -> None:
    def prepare(step: int, x: Tensor) -> Tensor:
        return x * torch.nan if step == 20 else x

    _, events = train(network(), 41, prepare=prepare)
    assert kinds(events) == [("not finite", "")]
    assert events[0].sentence == "the inputs are not finite"


def test_a_head_or_a_branch_of_zeros_may_start_so() -> None:
    """Nothing below it gets a gradient in the first step."""
    model = network()
    nn.init.zeros_(model[-1].weight)  # type: ignore[arg-type]
    _, events = train(model, 31)
    assert events == []


def test_layers_that_are_frozen_from_the_start_are_meant_so() -> None:
    model = network()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    _, events = train(model, 31)
    assert events == []


def loss_of(model: nn.Module, number: int) -> Tensor:
    x, y = batch(number)
    return F.cross_entropy(model(x.to(next(model.parameters()).dtype)).float(), y)


def lost_before_the_step(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    loss = loss_of(model, number)
    loss.backward()
    (optimizer.zero_grad if broken else optimizer.step)()
    (optimizer.step if broken else optimizer.zero_grad)()
    return loss


def clipped(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    optimizer.zero_grad()
    loss = loss_of(model, number)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-5 if broken else 5.0)
    optimizer.step()
    return loss


def accumulated(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    if broken or number % 4 == 0:
        optimizer.zero_grad()
    loss = loss_of(model, number)
    (loss / 4).backward()
    if number % 4 == 3:
        optimizer.step()
    return loss


def half_precision(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    optimizer.zero_grad()
    loss = loss_of(model.half(), number)
    (loss * (1e-7 if broken else 1.0)).backward()
    optimizer.step()
    return loss


def slow(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    """On one batch and without dropout, as noise may look like progress."""
    model[-1].p = 0.0  # type: ignore[index]
    optimizer.param_groups[0]["lr"] = 1e-4 if broken else 0.1
    return clipped(model, optimizer, 0, False)


def vanishing(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    optimizer.param_groups[0]["lr"] = 1e-6 * 0.5**number if broken else 0.1 * 0.99**number
    return clipped(model, optimizer, number, False)


def evaluating(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    model.train(not broken)
    return clipped(model, optimizer, number, False)


def validating(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    """Now and then: what runs without gradients in every step is part of the step."""
    loss = clipped(model, optimizer, number, False)
    model.train(broken)
    if number % 10 == 0:
        with torch.no_grad():
            model(batch(number)[0])
    model.train()
    return loss


def made_anew(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    own = torch.optim.SGD(model.parameters(), 0.05, momentum=0.5)
    optimizer.defaults.setdefault("kept", own)
    return clipped(model, own if broken else optimizer.defaults["kept"], number, False)


def stepped_twice(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    loss = clipped(model, optimizer, number, False)
    if broken:
        optimizer.step()
    return loss


def nothing_learned(model: nn.Module, optimizer: Any, number: int, broken: bool) -> Tensor:
    """Targets in an order of their own."""
    optimizer.param_groups[0]["lr"] = 0.3
    x, y = batch(number, 256)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y.roll(1, 0) if broken else y)
    loss.backward()
    optimizer.step()
    return loss


LOOPS: list[tuple[str, Callable[..., Tensor]]] = [
    ("gradient is lost before the step", lost_before_the_step),
    ("gradient is clipped away", clipped),
    ("accumulated gradients are lost", accumulated),
    ("gradient underflows", half_precision),
    ("learning rate is too low", slow),
    ("learning rate has vanished", vanishing),
    ("model is in evaluation mode", evaluating),
    ("evaluated in training mode", validating),
    ("optimizer is made anew", made_anew),
    ("optimizer steps twice", stepped_twice),
    ("nothing was learned", nothing_learned),
]


@pytest.mark.parametrize(("kind", "step"), LOOPS, ids=[kind for kind, _ in LOOPS])
def test_a_loop_that_breaks_is_named_and_its_twin_is_silent(kind: str, step: Callable[..., Tensor]) -> None:
    for broken in (True, False):
        model = network().append(nn.Dropout(0.1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with watch(model, every=3, report=lambda event: None) as seen:
            for number in range(150 if kind == "nothing was learned" else 90):
                seen.step(step(model, optimizer, number, broken))
            found = {event.kind for event in (*seen.events, *seen.open)}
        assert (kind in found) if broken else found == set(), found


def test_a_watch_that_knows_the_optimizer_needs_no_change_of_the_loop() -> None:
    """`watch(model, optimizer)` sees the steps and losses that `step(loss)` is told, scaled ones too."""
    plain, backward = {}, Tensor.backward
    for one_line in (False, True):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        seen = watch(model, optimizer, every=50) if one_line else watch(model, 50)
        for number in range(101):
            optimizer.zero_grad()
            loss = loss_of(model, number)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            if not one_line:
                seen.step(loss)
        seen.close()
        plain[one_line] = (seen.steps, seen.samples, seen.verdict)
        assert Tensor.backward is backward
    assert plain[True] == plain[False]
    assert plain[True][:2] == (101, 3)
    with pytest.raises(StiefelError, match="optimizer is a str"):
        watch(network(), optimizer="adam")  # type: ignore[arg-type]
