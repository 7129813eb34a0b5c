"""Adam, gradient descent and Muon that keep matrices in the set: `StiefelAdam`, `StiefelSGD`, `StiefelMuon`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from ...core import geometry
from . import kernel, large
from .base import Params, StiefelOptimizer, fusible, local
from .squares import Squares
from .stack import Update

Room = Squares | None


class StiefelAdam(StiefelOptimizer):
    r"""Adam that keeps weights in Õ(m,n), and AdamW for all other parameters.

    Given a model, or parameters, it keeps those weights in the set that are in it: linear layers, attention's
    projections (three in `in_proj_weight`), patches and 1×1 kernels, gates, and stacks of shape (…, m, n). To choose
    them yourself, give groups with `on_set=True` or `False`; matrices with `on_set=True` that are not in the set are
    projected to it, with a warning. The kernel of a convolution is then read as a matrix of its first dimension by the
    rest, or with `batch_dims=1` in the group as a stack of them.

    A step turns no direction of a matrix by more than 23°, whatever the rate. Matrices with one row or column are the
    only ones of their shape, and do not change. Weights in bfloat16 or float16 are trained in float32 and rounded.
    What you write to the weights between steps counts, and is pulled back to the set in the next steps.

    Args:
        params: A model, parameters, or groups of them.
        lr: Learning rate; a tensor, to change it inside a CUDA graph.
        betas: Decay of the two moments.
        eps: Added to the root of the second moment.
        weight_decay: Of parameters off the set, as in AdamW. On the set it would do nothing: W points away from it.

    Raises:
        StiefelError: for an option out of range, a parameter given twice or not of real floats, and a matrix with
            `on_set=True` whose nearest member is not unique. Nothing is then changed.

    >>> import stiefel_init
    >>> from stiefel_init.torch import initialize_
    >>> model = torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    >>> _ = initialize_(model, seed=0, recipe="paper")
    >>> optimizer = StiefelAdam(model, lr=0.1)
    >>> for _ in range(10):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(1, 9)).square().sum().backward()
    ...     optimizer.step()
    >>> bool(stiefel_init.check(model[0].weight))
    True
    """

    moments = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _update(self, group: dict[str, Any]) -> Update:
        def update(
            weights: Tensor, gradients: Tensor, first: Tensor, second: Tensor, steps: Tensor, squares: Room
        ) -> Tensor:
            if kernel.fits(weights):
                numbers = kernel.adam_numbers(group["lr"], group["betas"], group["eps"], steps)
                return kernel.step(weights, gradients, (first, second), "adam", numbers)
            if large.fits(weights):
                numbers = kernel.adam_numbers(group["lr"], group["betas"], group["eps"], steps)
                return self._rotated_large(weights, large.adam_turn(weights, gradients, first, second, numbers))
            if weights.shape[-2] == weights.shape[-1] and steps.ndim < 3 and fusible([weights]):
                return _adam_of_squares(weights, gradients, [first, second], steps, squares, group)
            options = {"betas": group["betas"], "eps": group["eps"]}
            new, *moments = geometry.adam_step(weights, gradients, first, second, steps + 1, group["lr"], **options)
            first.copy_(moments[0])
            second.copy_(moments[1])
            return new

        return update


class StiefelSGD(StiefelOptimizer):
    r"""Gradient descent with momentum that keeps weights in Õ(m,n), and torch's SGD for all other parameters.

    The momentum of a matrix is that of its Riemannian gradient: for a square one a generator, which needs no transport,
    for others a tangent vector, transported by projection. See `StiefelAdam` for which weights are kept in the set.

    Args:
        params: As in `StiefelAdam`.
        lr: Learning rate.
        momentum: What is left of the momentum after a step.
        nesterov: Whether to look ahead.
        weight_decay: Of parameters off the set.

    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> [group["on_set"] for group in StiefelSGD(layer, lr=0.1, momentum=0.9).param_groups]  # weight, bias
    [True, False]
    """

    moments = ("momentum_buffer",)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay})

    def _update(self, group: dict[str, Any]) -> Update:
        return _momentum_update(group, self._rotated_large, muon=False)

    def _free_step(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        buffers: list[Tensor | None] = [None] * len(parameters)
        if group["momentum"]:
            for parameter in parameters:
                if "momentum_buffer" not in self.state[parameter]:
                    self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
            buffers = [*local(self.state[parameter]["momentum_buffer"] for parameter in parameters)]
        options = {key: group[key] for key in ("lr", "weight_decay", "momentum")}
        sgd(
            local(parameters), local(parameter.grad for parameter in parameters), buffers,
            fused=fusible(parameters), foreach=False, maximize=False, dampening=0.0,
            nesterov=group["nesterov"] and group["momentum"] > 0, **options,
        )  # fmt: skip


class StiefelMuon(StiefelOptimizer):
    r"""Muon that keeps weights in Õ(m,n), and AdamW for all other parameters.

    All singular values of a matrix's momentum are made about 1, so `lr` is about the angle, in radians, by which a step
    turns the weight. See `StiefelAdam` for which weights are kept in the set.

    Args:
        params: As in `StiefelAdam`.
        lr: Learning rate of matrices on the set.
        momentum: What is left of the momentum after a step.
        nesterov: Whether to look ahead.
        free_lr: Learning rate of all other parameters, unless their group has an `lr` of its own.
        betas: Of their Adam.
        eps: Likewise.
        weight_decay: Likewise.

    >>> layer = torch.nn.Linear(3, 3)
    >>> _ = torch.nn.init.eye_(layer.weight)
    >>> [group["lr"] for group in StiefelMuon(layer).param_groups]  # weight, bias
    [0.02, 0.001]
    """

    moments = ("momentum_buffer",)

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.02,
        momentum: float = 0.95,
        nesterov: bool = True,
        *,
        free_lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "free_lr": free_lr, "betas": betas, "eps": eps}
        super().__init__(params, options | {"weight_decay": weight_decay})

    def _update(self, group: dict[str, Any]) -> Update:
        return _momentum_update(group, self._rotated_large, muon=True)


def _momentum_update(group: dict[str, Any], rotated_large: Callable[..., Tensor], *, muon: bool) -> Update:
    """Of gradient descent with momentum, or of Muon, which makes all singular values of its direction about 1."""
    decay, nesterov = group["momentum"], group["nesterov"]
    step = geometry.muon_step if muon else geometry.sgd_step

    def update(weights: Tensor, gradients: Tensor, momentum: Tensor, steps: Tensor, squares: Room) -> Tensor:
        ways: Any = squares or (large if large.fits(weights) else None)
        if ways is not None:
            gradient = ways.generator(weights, gradients)
            momentum.mul_(decay).add_(gradient)
            direction = gradient.add_(momentum, alpha=decay) if nesterov else momentum
            direction = ways.orthogonalized(direction) if muon else direction
            rotated = rotated_large if ways is large else ways.rotate
            return rotated(weights, torch.mul(direction, -group["lr"], out=ways.turn(weights)))
        if not muon and kernel.fits(weights):
            numbers = kernel.sgd_numbers(group["lr"], decay, nesterov, weights)
            return kernel.step(weights, gradients, (momentum,), "sgd", numbers)
        new, moment = step(weights, gradients, momentum, group["lr"], decay=decay, nesterov=nesterov)
        momentum.copy_(moment)
        return new

    return update


def _adam_of_squares(
    weights: Tensor, gradients: Tensor, moments: list[Tensor], steps: Tensor, squares: Room, group: dict[str, Any]
) -> Tensor:
    """`geometry.adam_step` for square matrices that have all taken as many steps: in one pass of torch's fused Adam."""
    if squares is None:
        turn, gradient = torch.zeros_like(weights), geometry.generator(weights, gradients)
    else:
        turn, gradient = squares.turn(weights).zero_(), squares.generator(weights, gradients)
    beta1, beta2 = group["betas"]
    counted = [steps.to(torch.float32, copy=True).view(())]  # which adam counts up
    adam(
        [turn], [gradient], moments[:1], moments[1:], [], counted,
        fused=True, foreach=False, capturable=weights.is_cuda, amsgrad=False, maximize=False, weight_decay=0.0,
        beta1=beta1, beta2=beta2, lr=group["lr"] * geometry.SKEW, eps=group["eps"] * geometry.SKEW,
    )  # fmt: skip
    if squares is None:
        return geometry.rotate(weights, geometry.centred_skew(turn))
    return squares.rotate(weights, turn)
