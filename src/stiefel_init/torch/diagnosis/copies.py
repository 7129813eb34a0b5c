"""Copies of a model that train on one batch: what they learn of it, and with which optimizer."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...health.setup import Tried
from ..initialize import initialize_
from ..inputs import arguments, tensors_in
from ..observe.weights import survey, weight_layers
from .graph import Calls
from .losses import freed, groups_of
from .mixing import changed

Loss = Callable[[Any, Any], Tensor]
Change = tuple[str, Callable[[Any], Any]]
STEPS = 60
"""On one batch, until a model counts as one that does not learn it."""
_MUCH, _LITTLE = 0.6, 0.25  # shares of what can be learned: enough to stop, and too little
_NARROW = 0.1  # the share of a loss that has to be in the outputs' hands
_FAR = 0.4  # how much more of it a change of the optimizer has to make learned
_RATES = (1e-2, 3e-3)  # of Adam
_NOISE = 0.01  # of what can be learned
_FALLS = 0.01  # the share of what can be learned that an optimizer gets in its first steps, at least
_PATIENT = 240  # steps of Adam where fewer were not enough
_CHANGES: tuple[tuple[str, Change], ...] = (
    ("decay", ("weight_decay", lambda value: 0.0)),
    ("slower", ("lr", lambda value: value / 30)),
    ("epsilon", ("eps", lambda value: min(value, 1e-8))),
    ("averages", ("betas", lambda value: (0.9, 0.999))),
    ("momentum", ("momentum", lambda value: min(value, 0.9))),
    ("faster", ("lr", lambda value: value * 30)),
    ("faster", ("lr", lambda value: value * 300)),
    ("faster", ("lr", lambda value: value * 3000)),
    ("slower", ("lr", lambda value: value / 300)),
)
"""Of an optimizer: the setting and what it is changed to."""
_DROPOUT = nn.modules.dropout._DropoutNd
_FREE = 1 << 20  # numbers of outputs that are set free, at most


def tried_on(
    model: nn.Module, inputs: Any, targets: Any, loss: Loss, optimizers: Sequence[torch.optim.Optimizer],
    outputs: Tensor | None, constant: float | None,
) -> tuple[tuple[float, ...], Tried | None, tuple[str, str] | None]:  # fmt: skip
    """The losses of a copy that the optimizers train; how much of what there is to learn it and others get; what broke.

    What there is to learn lies between the losses of the best constant outputs and of the best outputs, no matter of
    which network. `constant` is the former, where it is known.
    """

    broke: list[tuple[str, str]] = []
    frozen = not all(parameter.requires_grad for parameter in model.parameters())
    drops = any(isinstance(module, _DROPOUT) for module in model.modules())
    weights = ""

    def run(change: Change | None = None, rate: float = 0.0, steps: int = STEPS, ease: str = "") -> float:
        """How much of what there is to learn a copy gets, with another setting of the optimizers or with Adam."""
        nonlocal weights
        try:
            twin, steppers = copy.deepcopy((model, optimizers))
            weights = _eased(twin, ease)
            for group in (group for stepper in steppers for group in stepper.param_groups if change is not None):
                group[change[0]] = change[1](group[change[0]])  # type: ignore[index]
            if rate:
                steppers = (torch.optim.Adam([p for p in twin.parameters() if p.requires_grad], rate),)
            losses = list(_until(share, _steps(twin, inputs, targets, loss, steppers, steps, broke)))
        except Exception:  # a model that cannot be copied, or an optimizer that asks for a closure
            losses = []
        own.extend(losses if not own else ())
        return share(losses[-1]) if losses and math.isfinite(losses[-1]) else -math.inf

    plain, least = _range_of(loss, inputs, outputs, targets, constant)
    usual = plain if plain is not None else math.nan

    def share(value: float) -> float:
        return (usual - value) / (usual - least) if usual > least else 0.0

    own: list[float] = []
    first = run()
    trial, why = tuple(own), broke[0] if broke else None
    if len(own) < 2 or not max(usual, own[0]) > 0:
        return trial, None, why
    if usual - least <= _NARROW * max(usual, 0.1 * own[0]):
        of_classes = isinstance(targets, Tensor) and not targets.is_floating_point()
        return trial, Tried(0.0, 0.0, flat=(usual - least) / max(usual, own[0])) if of_classes else None, why
    found = Tried(first, (own[0] - own[-1]) / max(own[0] - least, 1e-12))
    if found.own > _MUCH:
        return trial, found, why
    enough = min(_MUCH, max(0.0, found.own) + _FAR)
    adam = max(run(rate=rate) for rate in _RATES)
    found = found._replace(adam=adam)
    if adam > _MUCH:
        groups = [group for stepper in optimizers for group in stepper.param_groups]
        little = not found.fell >= _LITTLE  # nothing finite is none of it either
        for name, change in _CHANGES if little else ():
            new = change[0] in groups[0] and any(change[1](group[change[0]]) != group[change[0]] for group in groups)
            if new and run(change) >= enough:
                return trial, found._replace(change=name), why
        return trial, found._replace(change="optimizer" if little else ""), why
    if _draws(model, inputs, targets, loss, _NOISE * (usual - least)):
        return trial, found, why
    at_last = max(adam, *(run(rate=rate, steps=_PATIENT) for rate in (_RATES[0], 0.0, _RATES[0] / 10)))
    for ease in ["thaw"] * frozen + ["dropout"] * drops + ["weights"] * (not frozen) if at_last < _MUCH else ():
        if run(rate=_RATES[0], steps=_PATIENT, ease=ease) >= min(_MUCH, max(0.0, at_last) + _FAR):
            found = found._replace(change=ease, weights=weights)
            break
    if at_last > _MUCH and not found.fell >= _FALLS:
        found = found._replace(change="optimizer")
    size = sum(parameter.numel() for parameter in model.parameters())
    is_small = outputs is not None and size < outputs.numel()  # and need not learn a batch by heart
    return trial, found._replace(at_last=None if is_small else at_last), why


def _until(share: Callable[[float], float], losses: Iterator[float]) -> Iterator[float]:
    for value in losses:
        yield value
        if share(value) > _MUCH:
            return


def _eased(twin: nn.Module, ease: str) -> str:
    """Take one thing from a copy that may hold it back; of new weights, what they were and are."""
    if ease == "thaw":
        twin.requires_grad_()
    for module in twin.modules() if ease == "dropout" else ():
        vars(module).update(p=0.0) if isinstance(module, _DROPOUT) else None
    if ease != "weights":
        return ""
    layers = [layer for _, layer in weight_layers(twin.named_modules())]
    before = survey(layers)
    initialize_(twin, seed=0)
    after = survey(layers)
    sizes = [[each.row_norm for each in known.values() if each.row_norm is not None] for known in (before, after)]
    then, now = (statistics.median(each) if each else math.nan for each in sizes)
    return f"the weights of a unit then had a norm of {now:.2g} in the median layer, and have {then:.2g}"


def _draws(model: nn.Module, inputs: Any, targets: Any, loss: Loss, least: float) -> bool:
    """Whether outputs are drawn by chance, without dropout too, so that no copy can learn the batch by heart."""
    twin, (args, kwargs) = copy.deepcopy(model), arguments(inputs)
    for module in twin.modules():
        if "Dropout" in type(module).__name__:
            module.eval()
    with torch.no_grad():
        one, other = (float(loss(twin(*args, **kwargs), targets)) for _ in range(2))
    return abs(one - other) > least


def _range_of(
    loss: Loss, inputs: Any, outputs: Tensor | None, targets: Any, constant: float | None
) -> tuple[float | None, float]:
    """The losses of the best constant outputs and of the best ones, equal for equal inputs; None without a bound."""
    if outputs is None or outputs.ndim < 2 or outputs.numel() > _FREE or not outputs.is_floating_point():
        return constant or None, 0.0
    equal, one = groups_of(list(tensors_in(inputs)), len(outputs)), outputs.new_zeros(len(outputs), dtype=torch.long)
    equal = None if equal is None or int(equal.max()) + 1 == len(outputs) else equal.to(outputs.device)
    if constant and equal is None:
        return constant, 0.0
    try:
        plain, least = (freed(loss, outputs, targets, groups)[0] for groups in (one, equal))
    except Exception:  # a loss of more than one output, say
        return constant or None, 0.0
    told = 0 <= least <= plain < math.inf and (equal is None or least < (1 - _NARROW) * plain)
    return (plain, least) if told else (constant or None, 0.0)


def learns_by_heart(model: nn.Module, inputs: Any, targets: Any, loss: Loss, optimizers: Any, steps: int) -> bool:
    """Whether a copy that learned three quarters of the batch in this many steps knows nothing of the last quarter.

    What it says of those is to fit their own targets better than it fits them in any other order.
    """
    count = len(targets) if isinstance(targets, Tensor) and targets.ndim else 0
    kept = count // 4
    if kept < 4 or any(tensor.ndim < 1 or len(tensor) != count for tensor in tensors_in(inputs)):
        return False
    try:
        for _, twin in trained_on(  # noqa: B007 - the last of them
            model, changed(inputs, lambda x: x[kept:]), targets[kept:], loss, optimizers, steps
        ):
            pass
        args, kwargs = arguments(changed(inputs, lambda x: x[:kept]))
        with torch.no_grad():
            outputs = twin(*args, **kwargs)
            right, *others = (float(loss(outputs, targets[:kept].roll(shift, 0))) for shift in range(min(kept, 20)))
    except Exception:  # a model or a loss of whole batches only
        return False
    return right > min(others)


def trained_on(
    model: nn.Module, inputs: Any, targets: Any, loss: Callable[[Any, Any], Tensor],
    optimizers: Sequence[torch.optim.Optimizer] = (), steps: int = STEPS,
) -> Iterator[tuple[float, nn.Module]]:  # fmt: skip
    """A copy that is trained on this one batch, by copies of the optimizers or by Adam at 0.001, and its losses."""
    twin, steppers = copy.deepcopy((model, optimizers))
    steppers = steppers or (torch.optim.Adam(twin.parameters(), 1e-3),)
    for value in _steps(twin, inputs, targets, loss, steppers, steps):
        yield value, twin


def _steps(
    twin: nn.Module, inputs: Any, targets: Any, loss: Loss, steppers: Sequence[torch.optim.Optimizer],
    steps: int = STEPS, broke: list[tuple[str, str]] | None = None,
) -> Iterator[float]:  # fmt: skip
    """Losses before each step, until one is not finite: what made it so goes to `broke`, if weights are finite."""
    args, kwargs = arguments(inputs)
    for _ in range(steps + 1):
        for stepper in steppers:
            stepper.zero_grad()
        chance = torch.get_rng_state()
        value = loss(twin(*args, **kwargs), targets)
        yield float(value.detach())
        if not math.isfinite(float(value.detach())):
            torch.set_rng_state(chance)
            with Calls(check=True) as calls:
                loss(twin(*args, **kwargs), targets)
            if broke is not None and calls.broke is not None and calls.broke[0] != "numbers overflow":
                broke.append(calls.broke)  # large numbers are those of steps that are too large
            return
        value.backward()
        for stepper in steppers:
            stepper.step()
