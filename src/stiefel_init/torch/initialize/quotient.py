"""MetaInit: the norms of a model's weights by descent on the gradient quotient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from ...core.errors import StiefelError
from ...schemes import MetaInit
from .trace import arguments, plain, undisturbed


def gradient_quotient(loss: Tensor, parameters: Sequence[Tensor], epsilon: float) -> Tensor:
    """E |(g - Hg)/(g + ε sign g) - 1| over all entries of the parameters, g their gradient and H the Hessian.

    Args:
        loss: With a graph.
        parameters: What it is differentiated by.
        epsilon: Keeps the denominator from zero; sign 0 = 1.

    Returns:
        A number with a graph.
    """
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    half = torch.stack([gradient.square().sum() for gradient in gradients]).sum() / 2
    products = torch.autograd.grad(half, parameters, create_graph=True, materialize_grads=True)
    total = loss.new_zeros(())
    for g, hg in zip(gradients, products):
        sign = torch.where(g >= 0, 1.0, -1.0)
        total = total + ((g - hg) / (g + epsilon * sign) - 1).abs().sum()
    return total / sum(parameter.numel() for parameter in parameters)


def descend_(model: nn.Module, scheme: MetaInit, weights: list[Tensor], inputs: Any, seed: int | None) -> None:
    """Set the norms of the weights.

    Args:
        model: In evaluation mode meanwhile.
        scheme: How far to go.
        weights: Those of its parameters whose norms are to be set.
        inputs: What the model is called with.
        seed: Of the targets; None for torch's global generator.

    Raises:
        StiefelError: if the model does not run, returns no numbers or cannot be differentiated three times.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    moved = [0.0] * len(weights)
    args, options = arguments(inputs)
    for _ in range(scheme.steps):
        try:
            with undisturbed(model), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                loss = _loss(model(*args, **options), generator)
                quotient = gradient_quotient(loss, parameters, scheme.epsilon)
                slopes = torch.autograd.grad(quotient, weights, materialize_grads=True)
        except StiefelError:
            raise
        except Exception as error:  # whatever the user's forward raises, or a function without such derivatives
            why = (str(error).splitlines() or [""])[0].rstrip(".")
            raise StiefelError(
                f"scheme={str(scheme)!r} needs the model's third derivatives on the inputs, and they fail "
                f"({type(error).__name__}: {why}); use another scheme, such as 'lsuv'."
            ) from None
        if not math.isfinite(quotient.item()):
            raise StiefelError(
                f"scheme={str(scheme)!r} met a gradient quotient of {quotient.item():g}; give inputs of about unit "
                "size, or another base."
            )
        for place, (weight, slope) in enumerate(zip(weights, slopes)):
            norm = float(weight.detach().norm())
            if not norm:
                continue
            along = float((weight.detach() * slope).sum())
            moved[place] = scheme.momentum * moved[place] - scheme.rate * ((along > 0) - (along < 0))
            # A norm stays positive, however large the step.
            weight.detach().mul_(max(norm + moved[place], 0.1 * norm) / norm)


def _loss(result: Any, generator: torch.Generator | None) -> Tensor:
    """The loss for drawn targets: cross-entropy over the last axis, of one output the mean square."""
    found = (leaf for leaf in tree_leaves(plain(result)) if isinstance(leaf, Tensor) and leaf.is_floating_point())
    out = next(found, None)
    if out is None or not out.ndim or not out.numel():
        raise StiefelError("the model returns no tensor of floating-point numbers; give a scheme without a batch.")
    if out.shape[-1] == 1:
        targets = torch.randn(out.shape, generator=generator).to(out)
        return nn.functional.mse_loss(out, targets)
    rows = out.flatten(0, -2) if out.ndim > 1 else out[None]
    classes = torch.randint(out.shape[-1], (len(rows),), generator=generator)
    return nn.functional.cross_entropy(rows, classes.to(out.device))
