"""What each kind of layer's parameters hold: matrices to be drawn, constants, or something to be left alone."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...recipe.layers import (
    A_SLOPE,
    AN_EMBEDDING,
    ONES,
    ZEROS,
    Constant,
    Conv,
    Held,
    Layer,
    Matrices,
    Rule,
    Shape,
    matrices_of,
)
from ...theory import tailored_slope
from ...theory.tailored import tailored_scale

EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_NORMS = nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm
_BIASED = nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, *_NORMS


def rule(module: nn.Module, name: str, shape: Shape, conv: Conv, *, entrywise: bool = False) -> Rule | None:
    """The rule of the module's own parameter `name`; None when it belongs to no layer known here."""
    held = held_by(module, name, shape)
    return matrices_of(held, shape, conv, entrywise=entrywise) if isinstance(held, Layer) else held


def held_by(module: nn.Module, name: str, shape: Shape) -> Held | None:
    """What the module's own parameter `name` holds: of a weight, the layer; None where that is not known here."""
    transposed = type(module).__name__ == "Conv1D" and hasattr(module, "nf")  # of GPT-2 in the package transformers
    if isinstance(module, nn.RNNBase | nn.RNNCellBase):
        return _recurrent(module, name, shape)
    if isinstance(module, nn.MultiheadAttention):
        projection = Layer("members", 3 if name == "in_proj_weight" else 1) if name.endswith("_proj_weight") else None
        return ZEROS if name == "in_proj_bias" else projection
    if name == "bias":
        return ZEROS if isinstance(module, _BIASED) or transposed else None
    if name != "weight":
        return None
    if isinstance(module, nn.Linear):
        return Layer() if len(shape) > 1 else None
    if isinstance(module, nn.modules.conv._ConvNd):
        stride, dilation = tuple(module.stride), tuple(module.dilation)
        return Layer("convolution", module.groups, stride, dilation, module.transposed)
    if isinstance(module, _NORMS):
        return ONES
    if isinstance(module, EMBEDDINGS):
        fresh = Matrices(1, shape[0], math.prod(shape[1:]), zero_row=module.padding_idx)
        return replace(AN_EMBEDDING, otherwise=fresh)
    if isinstance(module, nn.PReLU):
        return replace(A_SLOPE, otherwise=Constant(module.init))
    if isinstance(module, nn.Bilinear):  # W acts on the products x₁ᵢx₂ⱼ: its matrix is out × in₁·in₂
        return Layer("members")
    return Layer(transposed=True) if transposed else None


def _recurrent(module: nn.RNNBase | nn.RNNCellBase, name: str, shape: Shape) -> Held | None:
    """A matrix for each gate; of `weight_hr`, the LSTM's projection, the whole."""
    if not name.startswith("weight_"):
        return ZEROS if name.startswith("bias_") else None
    gates = 1 if name.startswith("weight_hr") else shape[0] // module.hidden_size
    if getattr(module, "nonlinearity", "") == "relu":
        return Layer("state" if name.startswith("weight_hh") else "members", gates)
    reads = name.removesuffix("_reverse") in ("weight_ih", "weight_ih_l0")
    return Layer("gates" if reads and isinstance(module, nn.LSTM | nn.LSTMCell) else "recurrent", gates)


def is_normalization(module: nn.Module) -> bool:
    """Whether a module normalizes: one of torch's layers, one that is called so, or one that takes no heed of size."""
    if isinstance(module, _NORMS):
        return True
    kind = type(module)
    own = [parameter for parameter in module._parameters.values() if parameter is not None]
    if module._modules or kind.__module__.startswith("torch.") or any(each.ndim != 1 for each in own):
        return False
    if "norm" in kind.__name__.lower():
        return True
    size = max((len(each) for each in own), default=0)
    if size < 2 or any(each.is_meta or len(each) not in (1, size) for each in own):
        return False
    x = torch.linspace(-1, 2, 2 * size, device=own[0].device, dtype=own[0].dtype).view(2, size)
    with suppress(Exception), torch.no_grad():  # whatever a forward wants
        one, three = module.forward(x), module.forward(3 * x)
        return bool(one.std() > 0) and bool(torch.allclose(one, three, rtol=1e-2, atol=1e-3))
    return False


class TailoredReLU(nn.Module):
    """√(2/(1+a²)) · LeakyReLU_a, its slope a tailored to the depth of the network.

    Args:
        depth: Activations between the network's input and its output.

    Raises:
        StiefelError: for a depth below 1.

    >>> TailoredReLU(100)
    TailoredReLU(depth=100, slope=0.570)
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth, self.slope = depth, tailored_slope(depth)
        self.scale = tailored_scale(self.slope)

    def forward(self, x: Tensor) -> Tensor:
        """The activation of x."""
        return nn.functional.leaky_relu(x, self.slope) * self.scale

    def extra_repr(self) -> str:
        """The depth and the slope."""
        return f"depth={self.depth}, slope={self.slope:.3f}"
