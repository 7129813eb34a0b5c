"""Schemes that look at a batch: weights are drawn first, and then scaled by what the batch measures.

LSUV divides them by the deviation of each layer's outputs, `tat` by the size of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import StiefelError
from ...schemes import Scheme
from ..inputs import tensors_in
from .layers import TailoredReLU
from .parameters import TorchRef
from .sharded import local, whole
from .trace import runs_undisturbed
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


def calibrate_(model: nn.Module, scheme: Scheme, drawn: list[TorchRef], inputs: Any, stems: Collection[str]) -> None:
    """Scale freshly drawn weights by what the batch measures."""
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
