"""What a loss asks for: `wishes_of` tries outputs that say the targets, their opposite, or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .graph import LENGTHS

Loss = Callable[[Any, Any], Tensor]
_MOST = 1 << 21  # numbers of outputs that are tried
_FEW = 8  # examples, of which a constant may say the targets
_FITS = 0.7  # of the loss of saying nothing: a way to say the targets that costs less is one
_FREE = 120  # steps of outputs that are free
_SURE = 4.0  # standard deviations of a correlation that is none
IGNORED = -100


class Wishes(NamedTuple):
    """The losses of outputs that were made up."""

    contrary: tuple[float, float] | None = None
    """Of those that say the targets, the best of several ways, and of those that say nothing."""
    opposite: bool = False  # whether outputs that are free to go where the loss falls go the opposite way
    linear: bool = False  # whether it is linear in outputs that are to name classes, so that they can grow without end
    shift: int = 0  # by how many steps targets have to be moved to be what the loss asks for


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
        best = _best(of, _of_numbers(outputs, targets))
    else:
        best = _best(of, _of_classes(outputs, targets, 0))
        for shift in (1, -1) if best is not None and best.right >= _FITS * best.blank else ():
            moved = _best(of, _of_classes(outputs, targets, shift))
            if moved is not None and moved.right < _FITS * moved.blank:
                return Wishes((moved.right, moved.blank), shift=shift)
    if best is None or best.right < (1 - 1e-5) * best.blank:
        return Wishes(None if best is None else best[:2])
    return _confirmed(loss, outputs, targets, best)


def _confirmed(loss: Loss, outputs: Tensor, targets: Tensor, best: _Said) -> Wishes:
    """Whether it is so: where outputs go that are free to, whether that helps, and whose target an output follows.

    Else the targets only have a form that is not among those that were tried.
    """
    try:
        least, free = freed(loss, outputs, targets)
        plain, _ = freed(loss, outputs, targets, torch.zeros(len(outputs), dtype=torch.long, device=outputs.device))
        differs = (targets != targets[:1]).reshape(len(targets), -1).any(1)
        changed = targets.clone()
        changed[0] = targets[int(differs.int().argmax())]
        with torch.enable_grad():
            source = outputs.clone().requires_grad_()
            before, after = (torch.autograd.grad(loss(source, y), source)[0] for y in (targets, changed))
    except Exception:  # a loss that does not take other outputs or targets
        return Wishes()
    rows = torch.stack(((free - outputs).flatten(), best.said.flatten())).double()
    opposite = bool((rows.std(1) > 0).all()) and float(torch.corrcoef(rows)[0, 1]) < -0.5
    follows = (after - before).abs().reshape(len(outputs), -1).sum(1)
    others = float(follows[0]) < 0.1 * float(follows.amax())
    is_flat = plain - least <= 0.05 * abs(plain)
    return Wishes(best[:2], opposite) if opposite or others or is_flat else Wishes()


def freed(loss: Loss, outputs: Tensor, targets: Any, groups: Tensor | None = None) -> tuple[float, Tensor]:
    """The least loss of outputs that are free, as Adam finds them, and these; those of a group are equal."""
    start = outputs.detach()
    if groups is not None:
        sums = torch.zeros_like(start[: int(groups.max()) + 1]).index_add_(0, groups, start)
        start = sums / groups.bincount().to(start).reshape(-1, *[1] * (start.ndim - 1))
    free, best = start.clone().requires_grad_(), math.inf
    adam = torch.optim.Adam([free], 0.1 * max(1.0, float(outputs.detach().abs().amax())))
    with torch.enable_grad():
        for _ in range(_FREE):
            adam.param_groups[0]["lr"] *= 0.97
            value = loss(free if groups is None else free[groups], targets)
            best = min(best, float(value.detach()))
            adam.zero_grad()
            value.backward()
            adam.step()
    return best, free.detach()


@torch.no_grad()
def groups_of(given: Sequence[Tensor], count: int) -> Tensor | None:
    """For each of so many examples which of them are equal, by number; None where they are not to be compared."""
    if not given or any(tensor.ndim < 1 or len(tensor) != count for tensor in given):
        return None
    generator = torch.Generator().manual_seed(0)
    keys = torch.zeros(count, dtype=torch.double)
    for rows in (tensor.reshape(count, -1).double().cpu() for tensor in given):
        keys += rows @ torch.randn(rows.shape[1], generator=generator, dtype=torch.double)
    return torch.unique(keys, return_inverse=True)[1]


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


class _Said(NamedTuple):
    right: float  # the loss of outputs that say the targets, and of those that say nothing
    blank: float
    said: Tensor  # such outputs, in the plainest way


def _best(of: Callable[[Tensor], float], families: Iterator[Sequence[Tensor]]) -> _Said | None:
    """Of ways to say the targets, each followed by ways to say nothing: the first that fits, else the best."""
    known = []
    for said, *blanks in families:
        right = of(said)
        blank = min((value for value in map(of, blanks) if not math.isnan(value)), default=0.0)
        if not math.isnan(right) and blank > 0:
            known.append(_Said(right, blank, said))
            if right < _FITS * blank:
                break
    best = min(known, key=lambda losses: losses.right / losses.blank, default=None)
    return None if best is None else best._replace(said=known[0].said)


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
                said = [size * hot, 0 * hot, size * (usual == usual.amax(-1, keepdim=True)).to(hot.dtype)]
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
    ways = [y, y / size, (y - y.mean()) / y.std()]
    ways += [6 * (2 * unit - 1)] if binary else []
    ways += [(y + 1e-4).log(), y.log1p()] if low >= 0 else []
    ways += [0.98 * y + 0.01] if low >= 0 and high <= 1 else []
    for right in ways:
        constants = (right.mean(0, keepdim=True), right.mean(), right.amin(), right.amax(), right.new_zeros(()))
        yield [right, *(constant.expand_as(right) for constant in constants)]


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
