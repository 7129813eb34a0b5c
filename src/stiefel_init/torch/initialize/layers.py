"""What each kind of layer's parameters are: matrices to be drawn, constants, or something to be left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from torch import Tensor, nn

from ...recipe.layers import ONES, ZEROS, Constant, Conv, Layer, Leave, Matrices, Rule, Shape, kernel_matrices
from ...theory import tailored_slope
from ...theory.tailored import tailored_scale


def rule(module: nn.Module, name: str, shape: Shape, conv: Conv, *, entrywise: bool = False) -> Rule | None:
    """The rule of the module's own parameter `name`; None when it belongs to no layer known here."""
    if (rule_of := _rule_of(type(module))) is not None:  # type: ignore[arg-type]
        return rule_of(module, name, shape)
    if isinstance(module, nn.modules.conv._ConvNd):
        return (
            kernel_matrices(layer_of(module, name), shape, conv, entrywise=entrywise)
            if name == "weight"
            else ZEROS
            if name == "bias"
            else None
        )
    if type(module).__name__ == "Conv1D" and hasattr(module, "nf"):
        return _conv1d(name, shape)
    return None


def layer_of(module: nn.Module, name: str) -> Layer:
    """What the recipe needs to know of a module and its parameter of that name."""
    if isinstance(module, nn.modules.conv._ConvNd):
        stride, dilation = tuple(module.stride), tuple(module.dilation)
        return Layer("convolution", module.groups, stride, dilation, module.transposed)
    if name.startswith("weight_hh") and getattr(module, "nonlinearity", "") == "relu":
        return _STATE
    if name.removesuffix("_reverse") in ("weight_ih", "weight_ih_l0") and isinstance(module, nn.LSTM | nn.LSTMCell):
        return _INPUTS
    if isinstance(module, EMBEDDINGS):
        return _TABLE
    return _MEMBERS if isinstance(module, _KEPT) else _LINEAR


EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
_LINEAR, _MEMBERS, _TABLE = Layer(), Layer("members"), Layer("embedding")
_STATE, _INPUTS = Layer("state"), Layer("gates")
_KEPT = nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.Bilinear


@lru_cache
def _rule_of(kind: type[nn.Module]) -> Callable[[nn.Module, str, Shape], Rule | None] | None:
    return next((rule_of for kinds, rule_of in _KINDS if issubclass(kind, kinds)), None)


@lru_cache(maxsize=64)  # layer shapes repeat
def _flat(shape: Shape, count: int = 1) -> Matrices:
    return Matrices(count, shape[0] // count, math.prod(shape[1:]))


def _linear(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    """Bilinear too: W acts on the products x₁ᵢx₂ⱼ, so its matrix is out × in₁·in₂."""
    return _flat(shape) if name == "weight" and len(shape) > 1 else ZEROS if name == "bias" else None


def _conv1d(name: str, shape: Shape) -> Rule | None:
    """The linear layer of GPT-2 in the package transformers, which stores its weight as in × out."""
    return Matrices(1, shape[1], shape[0], order=(1, 0)) if name == "weight" else ZEROS if name == "bias" else None


def _attention(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    if name == "in_proj_bias":
        return ZEROS
    if name.endswith("_proj_weight"):
        return _flat(shape, 3 if name == "in_proj_weight" else 1)
    return None


def _recurrent(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    """A matrix for each gate; of `weight_hr`, the LSTM's projection, the whole."""
    if name.startswith("bias_"):
        return ZEROS
    if name.startswith("weight_"):
        assert isinstance(module, nn.RNNBase | nn.RNNCellBase)
        return _flat(shape, 1 if name.startswith("weight_hr") else shape[0] // module.hidden_size)
    return None


def _norm(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    return {"weight": ONES, "bias": ZEROS}.get(name)


def _embedding(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    assert isinstance(module, nn.Embedding | nn.EmbeddingBag)
    fresh = Matrices(1, shape[0], math.prod(shape[1:]), zero_row=module.padding_idx)
    return Leave("an embedding", fresh) if name == "weight" else None


def _slope(module: nn.Module, name: str, shape: Shape) -> Rule | None:
    assert isinstance(module, nn.PReLU)
    return Leave("the slope of PReLU", Constant(module.init)) if name == "weight" else None


_NORMS = nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm


def is_normalization(module: nn.Module) -> bool:
    """Whether a module is one of torch's normalization layers."""
    return isinstance(module, _NORMS)


_KINDS: tuple[tuple[tuple[type[nn.Module], ...], Callable[[nn.Module, str, Shape], Rule | None]], ...] = (
    ((nn.Linear, nn.Bilinear), _linear),
    (_NORMS, _norm),
    ((nn.MultiheadAttention,), _attention),
    ((nn.RNNBase, nn.RNNCellBase), _recurrent),
    (EMBEDDINGS, _embedding),
    ((nn.PReLU,), _slope),
)

RULED_BY_SHAPE = frozenset({nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d})
"""Layers whose rule looks at nothing but a parameter's name and shape."""


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
