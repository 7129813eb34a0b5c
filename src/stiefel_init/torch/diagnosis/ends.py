"""What enters and leaves a model as a whole: `inputs_of` and `fit_of`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...health.rows import ENOUGH, Fit, Inputs
from ..observe.statistics import distinct, double, some

_SAMPLES, _NUMBERS = 1024, 1 << 22  # rows looked at, fewer where there are very many features


def inputs_of(given: Iterable[Tensor], first: nn.Module) -> Inputs | None:
    """The first tensor of numbers among the inputs; None for tokens, or a single number."""
    tensor = next((t for t in given if t.is_floating_point() and t.ndim > 0), None)
    if tensor is None:
        return None
    is_image = isinstance(first, nn.modules.conv._ConvNd) and tensor.ndim == len(first.kernel_size) + 2
    rows = tensor.detach().movedim(1 if is_image else -1, -1) if tensor.ndim > 1 else tensor.detach().unsqueeze(1)
    most = max(ENOUGH, min(_SAMPLES, _NUMBERS // rows.shape[-1]))
    rows = double(some(rows.reshape(-1, rows.shape[-1]), most))
    std = rows.std(0, correction=0)
    varying = std[std > 1e-12 * rows.abs().amax().clamp(min=1e-300)]
    square = float(rows.square().mean())
    different = float(distinct(rows.float().unsqueeze(0))) if len(rows) > 1 else 0.0
    widest, middle = (float(varying.amax()), float(varying.median())) if len(varying) else (0.0, 0.0)
    same = 1 - float(std.square().mean()) / square if square > 0 else 1.0
    sizes = double(tensor.detach()).reshape(len(tensor), -1).square().sum(1).sqrt()
    usual = float(sizes.median())
    return Inputs(
        mean=float(rows.mean()), std=float(rows.std(correction=0)), samples=len(rows), features=rows.shape[1],
        largest_std=widest, median_std=middle, distinct=different or None, same=same,
        apart=float(sizes.amax()) / usual if usual > 0 else None,
    )  # fmt: skip


def readable(inputs: Tensor, targets: Any) -> float | None:
    """The share of the targets' variance that the three widest directions of the inputs tell, adjusted for chance.

    Each feature counts with its std as the unit. None where there is not one class or row of numbers for each input.
    """
    samples = len(inputs)
    if not isinstance(targets, Tensor) or targets.is_complex() or targets.shape[:1] != (samples,) or samples < ENOUGH:
        return None
    if targets.is_floating_point():
        aims = double(targets.detach()).reshape(samples, -1)
    elif targets.ndim == 1:
        aims = F.one_hot(torch.unique(targets, return_inverse=True)[1]).double()
    else:
        return None
    rows = double(some(inputs.detach().reshape(samples, -1), _SAMPLES, 1))
    chosen = _SAMPLES // 4
    rows, aims = some(rows, chosen), some(aims.to(rows.device), chosen)
    rows, aims = rows - rows.mean(0), aims - aims.mean(0)
    rows = rows / rows.square().mean(0).sqrt().clamp(min=1e-300)
    whole = float(aims.square().sum())
    if not whole > 0 or not bool(rows.isfinite().all()):
        return None
    if rows.shape[1] < len(rows):  # the smaller of both products has the same directions
        widest = rows @ torch.linalg.eigh(rows.mT @ rows)[1][:, -_WIDEST:]
        lengths = torch.linalg.vector_norm(widest, dim=0)
        widest = torch.where(lengths > 1e-9 * lengths.amax(), widest / lengths.clamp(min=1e-300), 0.0)
    else:
        widest = torch.linalg.eigh(rows @ rows.mT)[1][:, -_WIDEST:]
    told = float((widest.mT @ aims).square().sum()) / whole
    return 1 - (1 - told) * (len(rows) - 1) / (len(rows) - 1 - _WIDEST)


_WIDEST = 3
_DISTANCES: tuple[Any, ...] = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
_DISTANCE_MODULES = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)


def fit_of(value: Tensor, outputs: Tensor | None, targets: Any, loss: Any, inputs: Any = None) -> Fit:
    """Compare the outputs with the targets, where the loss, None for the default, is a distance."""
    is_batch = isinstance(inputs, Tensor) and inputs.is_floating_point() and inputs.ndim > 1
    told = Fit(loss=float(value.detach()), constant_loss=None, readable=readable(inputs, targets) if is_batch else None)
    if outputs is None or not isinstance(targets, Tensor) or targets.is_complex():
        return told
    if not targets.is_floating_point():
        if not (loss is None or loss is F.cross_entropy or type(loss) is nn.CrossEntropyLoss):
            return replace(told, zero_loss=_zero_loss(outputs, targets, loss))
        counts = torch.unique(targets, return_counts=True)[1].double()
        each = counts.sum() if getattr(loss, "reduction", "mean") == "sum" else 1.0
        return replace(told, constant_loss=float(each * torch.special.entr(counts / counts.sum()).sum()))
    squares = loss is None or loss is F.mse_loss or type(loss) is nn.MSELoss
    if targets.numel() != outputs.numel() or not (squares or loss in _DISTANCES or isinstance(loss, _DISTANCE_MODULES)):
        return replace(told, zero_loss=_zero_loss(outputs, targets, loss))
    each = targets.numel() if getattr(loss, "reduction", "mean") == "sum" else 1.0
    out, aim = double(outputs.detach()), double(targets.detach())
    columns = aim.reshape(len(aim), -1) if aim.ndim > 0 else aim.reshape(1, 1)
    return replace(
        told, constant_loss=float(each * columns.var(0, correction=0).mean()) if squares else None,
        output_mean=float(out.mean()), output_std=float(out.std(correction=0)),
        target_mean=float(aim.mean()), target_std=float(aim.std(correction=0)),
    )  # fmt: skip


@torch.no_grad()
def _zero_loss(outputs: Tensor, targets: Any, loss: Any) -> float | None:
    """The loss of outputs that are all zero; None where the loss does not take them."""
    try:
        value = float(loss(torch.zeros_like(outputs), targets))
    except Exception:  # a loss of several outputs, say, which has taken the model's own
        return None
    return value if math.isfinite(value) and value > 0 else None
