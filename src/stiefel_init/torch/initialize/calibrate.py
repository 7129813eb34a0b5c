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

from ...core.errors import StiefelError
from ...schemes import MetaInit, Scheme
from ..inputs import arguments, plain, tensors_in
from ..sampling.tensors import WORKING
from .layers import TailoredReLU
from .parameters import TorchRef
from .sharded import is_sharded, local
from .trace import runs_undisturbed, undisturbed
from .wrappers import unwrapped


def check(model: nn.Module, scheme: Scheme, parameters: Iterable[TorchRef], inputs: Any) -> None:
    """Refuse what the scheme cannot start, before anything is changed.

    Raises:
        StiefelError: without a batch where one is needed, for parametrized weights, or without the right activation.
    """
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
        tensor = ref.tensor
        if scheme.calibrates == "quotient" and (is_sharded(tensor) or tensor.dtype not in WORKING):
            trouble = "is sharded" if is_sharded(tensor) else f"has dtype {str(tensor.dtype).removeprefix('torch.')}"
            raise StiefelError(
                f"{ref.name} {trouble}, and scheme={name!r} differentiates the whole model three times; "
                "initialize it before, in float32 or float64."
            )


def calibrate_(
    model: nn.Module, scheme: Scheme, drawn: list[TorchRef], inputs: Any, stems: Collection[str], seed: int | None
) -> None:
    """Scale freshly drawn weights by what the batch measures.

    Raises:
        StiefelError: if the model does not run on the batch, or a layer's outputs do not vary.
    """
    if isinstance(scheme, MetaInit):
        held = [ref for ref in drawn if len(ref.shape) > 1]
        tensors = {id(tensor): tensor for ref in held if (tensor := ref.module._parameters[ref.leaf]) is not None}
        runs_undisturbed(unwrapped(model), inputs)  # refuses inputs that do not fit
        descend_(unwrapped(model), scheme, list(tensors.values()), inputs, seed)
        return
    weights = {id(ref.module): ref for ref in drawn if _is_weight(ref)}
    if scheme.calibrates == "inputs":
        size = _root_mean_square(inputs)
        factors = {key: size for key, ref in weights.items() if ref.stream in stems}
    else:
        factors = _deviations(unwrapped(model), inputs, weights)
    for key, factor in factors.items():
        ref = weights[key]
        weight: Any = ref.module._parameters[ref.leaf]
        (local(weight) if is_sharded(weight) else weight.detach()).mul_(1 / factor)


def _is_weight(ref: TorchRef) -> bool:
    kinds = isinstance(ref.module, nn.Linear | nn.modules.conv._ConvNd | nn.Bilinear)
    return ref.leaf == "weight" and (kinds or type(ref.module).__name__ == "Conv1D")


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
            whole = out.full_tensor() if is_sharded(out) else out  # type: ignore[attr-defined]
            size = float(whole.double().std(correction=0))
            if not 0 < size < math.inf:
                raise StiefelError(
                    f"the outputs of {weights[key].name} have deviation {size:g} on the batch; give more "
                    "inputs, which differ."
                )
            sizes[key] = size
        return out / sizes[key]

    with _hooked([ref.module for ref in weights.values()], measure):
        runs_undisturbed(model, inputs)
    return sizes


@contextmanager
def _hooked(modules: list[nn.Module], hook: Any) -> Iterator[None]:
    handles = [module.register_forward_hook(hook) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def restored_on_failure(parameters: Sequence[TorchRef]) -> Iterator[None]:
    """Put the parameters' values back if something goes wrong."""
    tensors = [tensor for ref in parameters if (tensor := ref.module._parameters.get(ref.leaf)) is not None]
    before = [
        (tensor, (local(tensor) if is_sharded(tensor) else tensor.detach()).clone())
        for tensor in tensors
        if not tensor.is_meta
    ]
    try:
        yield
    except BaseException:
        for tensor, old in before:
            (local(tensor) if is_sharded(tensor) else tensor.detach()).copy_(old)
        raise


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
