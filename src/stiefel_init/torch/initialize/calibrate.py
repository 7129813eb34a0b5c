"""Schemes that look at a batch: weights are drawn first, and then scaled by what the batch measures.

LSUV divides them by the deviation of each layer's outputs, `tat` by the size of the inputs; MetaInit sets their norms
by descent on the gradient quotient.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...core.errors import StiefelError, said
from ...schemes import MetaInit, Scheme
from ..inputs import arguments, plain, tensors_in
from ..sampling.tensors import WORKING
from .layers import TailoredReLU
from .parameters import TorchRef
from .sharded import is_sharded, local, whole
from .trace import runs_undisturbed, undisturbed
from .wrappers import unwrapped


def check(model: nn.Module, scheme: Scheme, parameters: Iterable[TorchRef], inputs: Any) -> None:
    """Refuse what the scheme cannot start: no batch where one is needed, parametrized weights, another activation."""
    name = str(scheme)
    if scheme.activations == ("tat",) and not any(isinstance(module, TailoredReLU) for module in model.modules()):
        raise StiefelError(
            f"scheme={name!r} is made for its own activation; put stiefel_init.torch.TailoredReLU(depth) between the "
            "model's layers."
        )
    if scheme.calibrates in ("", "inputs"):
        return
    if inputs is None:
        raise StiefelError(f"scheme={name!r} measures a batch; give one as inputs=.")
    for ref in parameters:
        if ref.parametrization is not None:
            raise StiefelError(
                f"{ref.name} is parametrized, and scheme={name!r} would have to scale it; initialize the model "
                "before it is parametrized."
            )
        dtype = str(ref.tensor.dtype).removeprefix("torch.")
        trouble = (
            "is sharded" if is_sharded(ref.tensor) else "" if ref.tensor.dtype in WORKING else f"has dtype {dtype}"
        )
        if scheme.calibrates == "quotient" and trouble:
            raise StiefelError(
                f"{ref.name} {trouble}, and scheme={name!r} differentiates the whole model three times; "
                "initialize it before, in float32 or float64."
            )


def calibrate_(
    model: nn.Module, scheme: Scheme, drawn: list[TorchRef], inputs: Any, stems: Collection[str], seed: int | None
) -> None:
    """Scale freshly drawn weights by what the batch measures."""
    if isinstance(scheme, MetaInit):
        held = [ref for ref in drawn if len(ref.shape) > 1]
        tensors = {id(tensor): tensor for ref in held if (tensor := ref.module._parameters[ref.leaf]) is not None}
        runs_undisturbed(unwrapped(model), inputs)  # refuses inputs that do not fit
        descend_(unwrapped(model), scheme, list(tensors.values()), inputs, seed)
        return
    layers = nn.Linear, nn.modules.conv._ConvNd, nn.Bilinear
    known = (ref for ref in drawn if isinstance(ref.module, layers) or type(ref.module).__name__ == "Conv1D")
    weights = {id(ref.module): ref for ref in known if ref.leaf == "weight"}
    if scheme.calibrates == "inputs":
        size = _root_mean_square(inputs)
        factors = {key: size for key, ref in weights.items() if ref.stream in stems}
    else:
        factors = _deviations(unwrapped(model), inputs, weights)
    for key, factor in factors.items():
        local(weights[key].module._parameters[weights[key].leaf]).mul_(1 / factor)


def _root_mean_square(inputs: Any) -> float:
    numbers = [tensor for tensor in tensors_in(inputs) if tensor.is_floating_point()]
    size = math.sqrt(float(torch.cat([leaf.double().flatten() for leaf in numbers]).square().mean())) if numbers else 0
    if not 0 < size < math.inf:
        raise StiefelError("inputs have no finite mean square above 0; give a batch of what the model is called with.")
    return size


def _deviations(model: nn.Module, inputs: Any, weights: dict[int, TorchRef]) -> dict[int, float]:
    """The standard deviation of each layer's outputs, those before it already divided by theirs.

    One pass is enough: with zero biases, dividing a layer's outputs is dividing its weights.
    """
    sizes: dict[int, float] = {}

    def measure(module: nn.Module, _: Any, out: Tensor) -> Tensor:
        key = id(module)
        if key not in sizes:
            size = float(whole(out).double().std(correction=0))
            if not 0 < size < math.inf:
                raise StiefelError(
                    f"the outputs of {weights[key].name} have deviation {size:g} on the batch; give more "
                    "inputs, which differ."
                )
            sizes[key] = size
        return out / sizes[key]

    handles = [ref.module.register_forward_hook(measure) for ref in weights.values()]
    try:
        runs_undisturbed(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return sizes


@contextmanager
def restored_on_failure(parameters: Sequence[TorchRef]) -> Iterator[None]:
    """Put the parameters' values back if something goes wrong."""
    tensors = [tensor for ref in parameters if (tensor := ref.module._parameters.get(ref.leaf)) is not None]
    before = [(tensor, local(tensor).clone()) for tensor in tensors if not tensor.is_meta]
    try:
        yield
    except BaseException:
        for tensor, old in before:
            local(tensor).copy_(old)
        raise


def gradient_quotient(loss: Tensor, parameters: Sequence[Tensor], epsilon: float) -> Tensor:
    """E |(g - Hg)/(g + ε sign g) - 1| over all entries of the parameters, g their gradient and H the Hessian."""
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, materialize_grads=True)
    half = torch.stack([gradient.square().sum() for gradient in gradients]).sum() / 2
    products = torch.autograd.grad(half, parameters, create_graph=True, materialize_grads=True)
    total = loss.new_zeros(())
    for g, hg in zip(gradients, products):
        sign = torch.where(g >= 0, 1.0, -1.0)  # 1 for 0, so that nothing is divided by 0
        total = total + ((g - hg) / (g + epsilon * sign) - 1).abs().sum()
    return total / sum(parameter.numel() for parameter in parameters)


def descend_(model: nn.Module, scheme: MetaInit, weights: list[Tensor], inputs: Any, seed: int | None) -> None:
    """Set the norms of the weights; the seed is that of the targets, None for torch's global generator."""
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
            raise StiefelError(
                f"scheme={str(scheme)!r} needs the model's third derivatives on the inputs, and they fail "
                f"({type(error).__name__}: {said(error)}); use another scheme, such as 'lsuv'."
            ) from None
        if not math.isfinite(quotient.item()):
            raise StiefelError(
                f"scheme={str(scheme)!r} met a gradient quotient of {quotient.item():g}; give inputs of about unit "
                "size, or another base."
            )
        for index, (weight, slope) in enumerate(zip(weights, slopes)):
            norm = float(weight.detach().norm())
            if not norm:
                continue
            along = float((weight.detach() * slope).sum())
            moved[index] = scheme.momentum * moved[index] - scheme.rate * ((along > 0) - (along < 0))
            # A norm stays positive, however large the step.
            weight.detach().mul_(max(norm + moved[index], 0.1 * norm) / norm)


def _loss(result: Any, generator: torch.Generator | None) -> Tensor:
    """The loss for drawn targets: cross-entropy over the last axis, of one output the mean square."""
    out = next((tensor for tensor in tensors_in(plain(result)) if tensor.is_floating_point()), None)
    if out is None or not out.ndim or not out.numel():
        raise StiefelError("the model returns no tensor of floating-point numbers; give a scheme without a batch.")
    if out.shape[-1] == 1:
        targets = torch.randn(out.shape, generator=generator).to(out)
        return nn.functional.mse_loss(out, targets)
    rows = out.flatten(0, -2) if out.ndim > 1 else out[None]
    classes = torch.randint(out.shape[-1], (len(rows),), generator=generator)
    return nn.functional.cross_entropy(rows, classes.to(out.device))
