"""What a loss asks for: `wishes_of` tries outputs that say the targets, their opposite, or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..observe.observer import first_tensor
from .graph import LENGTHS

Loss = Callable[[Any, Any], Tensor]
_MOST = 1 << 21  # numbers of outputs that are tried
_FEW = 8  # examples, of which a constant may say the targets
_SURE = 4.0  # standard deviations of a correlation that is none
IGNORED = -100


class Wishes(NamedTuple):
    """The losses of outputs that were made up."""

    contrary: tuple[float, float] | None = None
    """Of those that say the targets, the best of several ways, and of those that say nothing."""
    opposite: bool = False
    """Whether those that say the opposite have a lower loss than both."""
    linear: bool = False
    """Whether it is linear in outputs that are to name classes, so that they can grow without end."""
    shift: int = 0
    """By how many steps targets have to be moved to be what the loss asks for."""


@torch.no_grad()
def wishes_of(loss: Loss, outputs: Any, targets: Any, ends: Sequence[str]) -> Wishes:
    """Of a loss of one tensor that says the same twice; `ends` are the operations before it."""
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or targets.is_complex():
        return Wishes()
    if outputs.numel() > _MOST or outputs.ndim < 1 or targets.ndim < 1 or len(targets) < _FEW:
        return Wishes()
    outputs = outputs.detach()

    def of(made: Tensor, seed: int = 0) -> float:
        torch.manual_seed(seed)
        try:
            value = float(loss(made.to(outputs.dtype), targets))
        except Exception:  # a loss of more than one output, say, or of outputs of some values only
            return math.nan
        return value if math.isfinite(value) else math.nan

    if of(outputs) != of(outputs, 1):
        return Wishes()
    if _names_classes(outputs, targets) and _is_linear(of, outputs):
        return Wishes(linear=True)
    if targets.is_floating_point():
        if LENGTHS & set(ends) or ("Pow" in ends and bool((outputs >= 0).all())):  # distances are small where alike
            return Wishes(opposite=_pulls_apart(loss, outputs, targets))
        return _judged(((*map(of, family),) for family in _of_numbers(outputs, targets)), False)
    best = Wishes()
    for shift in (0, 1, -1):
        wishes = _judged(((*map(of, family),) for family in _of_classes(outputs, targets, shift)), True)
        if wishes.contrary is None or best.shift:
            return best
        if shift == 0:
            best = wishes
            if wishes.contrary[0] < 0.9 * wishes.contrary[1]:
                return wishes
        elif best.contrary is not None and wishes.contrary[0] < min(0.9 * wishes.contrary[1], best.contrary[0]):
            best = wishes._replace(shift=shift)
    return best


def _names_classes(outputs: Tensor, targets: Tensor) -> bool:
    if not targets.is_floating_point():
        return True
    is_share = (
        outputs.shape == targets.shape and outputs.ndim > 1 and outputs.shape[-1] > 1 and bool((targets >= 0).all())
    )
    return is_share and bool(((targets.sum(-1) - 1).abs() < 1e-3).all())


def _is_linear(of: Callable[[Tensor], float], outputs: Tensor) -> bool:
    """Whether steps of a size that no loss of scores takes for equal change it by equal amounts, and at all."""
    step = 4 * torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).abs().to(outputs) + 1
    losses = [of(times * step) for times in range(1, 4)]
    first, second = losses[1] - losses[0], losses[2] - losses[1]
    return abs(first) > 1e-3 and abs(second - first) < 1e-4 * max(abs(first), *map(abs, losses))


def _judged(families: Iterator[tuple[float, ...]], classes: bool) -> Wishes:
    """Of losses of outputs that say the targets, the opposite, and nothing in several ways: the family that fits.

    Of two classes or more, outputs that name none of the right ones are better than nothing by a little anyway.
    """
    known = []
    for right, wrong, *blanks in families:
        blank = min((value for value in blanks if not math.isnan(value)), default=0.0)
        if math.isnan(right) or blank <= 0:
            continue
        if right < 0.7 * blank:
            return Wishes((right, blank))
        known.append((right, blank, wrong))
    if not known:
        return Wishes()
    right, blank, _ = min(known, key=lambda losses: losses[0] / losses[1])
    prefers = any(wrong < 0.5 * (none if classes else said) for said, none, wrong in known)
    return Wishes((right, blank), right >= (1 - 1e-5) * blank and prefers)


def _of_classes(outputs: Tensor, targets: Tensor, shift: int) -> Iterator[Sequence[Tensor]]:
    """Scores, log-probabilities and probabilities; over each axis that may count classes, and labels from 0 or 1."""
    axes = [at for at in range(outputs.ndim) if outputs.shape[:at] + outputs.shape[at + 1 :] == targets.shape]
    if shift and (targets.ndim < 2 or targets.shape[1] < 3):
        return
    for axis in axes:
        classes = outputs.shape[axis]
        if classes < 2 or not IGNORED <= int(targets.min()) <= int(targets.max()) <= classes:
            continue
        for first in (0, 1):
            labels = (targets.roll(shift, 1) if shift else targets).clamp(min=0).long() - first
            hot = F.one_hot(labels.clamp(0, classes - 1), classes).to(outputs.dtype)
            usual = hot.flatten(0, -2).mean(0).expand_as(hot)
            for size in (3.0, 8.0):
                said = [size * hot, -size * hot, 0 * hot, size * (usual == usual.amax(-1, keepdim=True)).to(hot.dtype)]
                for ways in (said, [x.log_softmax(-1) for x in said], [x.softmax(-1) for x in said]):
                    yield [x.movedim(-1, axis) for x in ways]


def _of_numbers(outputs: Tensor, targets: Tensor) -> Iterator[Sequence[Tensor]]:
    """The targets, as probabilities, as logarithms, as signs or on another scale; each with its constants."""
    if targets.numel() != outputs.numel() or len(targets) != len(outputs):
        return
    y = targets.reshape(outputs.shape).to(outputs.dtype)
    low, high = y.amin(), y.amax()
    if not high > low:
        return
    binary = bool(((y == low) | (y == high)).all())
    unit, size = (y - low) / (high - low), y.abs().amax()
    turned = low + high - y if binary else 2 * y.mean() - y
    ways = [(y, turned), (y / size, turned / size), ((y - y.mean()) / y.std(), (y.mean() - y) / y.std())]
    ways += [(6 * (2 * unit - 1), 6 * (1 - 2 * unit))] if binary else []
    if low >= 0:
        ways += [((y + 1e-4).log(), (turned.clamp(min=0) + 1e-4).log()), (y.log1p(), turned.clamp(min=0).log1p())]
    if low >= 0 and high <= 1:
        ways += [(0.98 * y + 0.01, 0.99 - 0.98 * y)]
    for right, wrong in ways:
        constants = (right.mean(0, keepdim=True), right.mean(), right.amin(), right.amax(), right.new_zeros(()))
        yield [right, wrong, *(constant.expand_as(right) for constant in constants)]


def _pulls_apart(loss: Loss, outputs: Tensor, targets: Tensor) -> bool:
    """Whether distances between alike inputs are to grow: what the loss wants of them is what they surely are not."""
    if outputs.shape != targets.shape or outputs.numel() < 16:
        return False
    with torch.enable_grad():
        free = outputs.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(loss(free, targets), free)
    rows = torch.stack((outputs.flatten(), targets.flatten(), -wanted.flatten())).double()
    if not bool((rows.std(1) > 0).all()):
        return False
    is_now, is_wanted = torch.corrcoef(rows)[1, [0, 2]].tolist()
    return is_now * is_wanted < 0 and min(abs(is_now), abs(is_wanted)) * math.sqrt(outputs.numel()) > _SURE


@torch.no_grad()
def is_blind(loss: Loss, outputs: Any, targets: Any, value: float) -> bool:
    """Whether the loss is the same for targets in another order, though outputs and targets differ."""
    first = first_tensor(outputs)
    if not isinstance(targets, Tensor) or targets.ndim < 1 or len(targets) < 4 or first is None or first.ndim < 1:
        return False
    other = targets.roll(1, 0)
    # One output for all examples gets the same loss in any order; a target that hardly varies nearly so.
    if len(first) != len(targets) or float((first - first.roll(1, 0)).abs().amax()) == 0:
        return False
    if float((other != targets).double().mean()) < 0.2:
        return False
    try:
        again = [float(loss(outputs, targets.roll(shift, 0))) for shift in (1, 2, 3)]
    except Exception:  # the user's loss, which has taken the targets as they are
        return False
    return all(math.isclose(value, other, rel_tol=1e-6) for other in again)
