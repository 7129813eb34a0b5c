"""The starts that are compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stiefel_init.torch import initialize_

from .networks import VisionTransformer

Start = Callable[[nn.Module], Any]
_WEIGHTS = (nn.Linear, nn.Conv2d, nn.Embedding)
_ENDS_OF_BRANCHES = ("proj", "fc2", "tokens2", "conv2")


def _gpt2_(model: nn.Module) -> None:
    """GPT-2's own: N(0, 0.02²), the ends of residual branches divided by the root of their number."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, _WEIGHTS)]
    branches = sum(name.endswith(_ENDS_OF_BRANCHES) for name, _ in layers)
    for name, module in layers:
        last = name.endswith(_ENDS_OF_BRANCHES)
        nn.init.normal_(module.weight, std=0.02 / (math.sqrt(branches) if last else 1))
        if isinstance(bias := getattr(module, "bias", None), Tensor):
            nn.init.zeros_(bias)
    for recurrent in model.modules():
        if isinstance(recurrent, nn.RNNBase):
            for name, parameter in recurrent.named_parameters():
                nn.init.normal_(parameter, std=0.02) if "weight" in name else nn.init.zeros_(parameter)


def _identity_(model: nn.Module) -> None:
    """Le, Jaitly and Hinton (2015): the identity between the states of a ReLU network, small inputs."""
    initialize_(model, "xavier")
    for name, parameter in model.named_parameters():
        if "weight_hh" in name:
            nn.init.eye_(parameter)
        elif "weight_ih" in name:
            nn.init.normal_(parameter, std=0.001)


def _mimetic_(model: nn.Module) -> None:
    """Trockman and Kolter (2023): the scheme, and positions in an image as sines."""
    initialize_(model, "mimetic")
    if isinstance(model, VisionTransformer):
        model.position.detach().copy_(_sines(math.isqrt(model.position.shape[1]), model.position.shape[2]))


def _sines(side: int, width: int) -> Tensor:
    """Sines and cosines of both coordinates of a patch, a row a patch."""
    frequencies = 10_000 ** -torch.linspace(0, 1, width // 4)
    angles = torch.outer(torch.arange(side), frequencies)
    waves = torch.cat([angles.sin(), angles.cos()], 1)
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    return torch.cat([waves[rows.flatten()], waves[columns.flatten()]], 1)


def _looks_linear_(model: nn.Module) -> None:
    """Balduzzi and others (2017): units in pairs, x⁺ and x⁻, so that a plain ReLU network starts linear.

    Orthogonal V: the first layer is (V; -V), the last (V, -V), those between (V, -V; -V, V); in kernels at the centre.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    for place, layer in enumerate(layers):
        m, n = layer.weight.shape[:2]
        first, last = place == 0, place == len(layers) - 1
        v = torch.empty(m if last else m // 2, n if first else n // 2)
        nn.init.orthogonal_(v)
        if not last:
            v = torch.cat([v, -v])
        if not first:
            v = torch.cat([v, -v], 1)
        with torch.no_grad():
            centre: Tensor = layer.weight.zero_()
            for size in layer.weight.shape[2:]:
                centre = centre[:, :, (size - 1) // 2]
            centre.copy_(v)
            if layer.bias is not None:
                layer.bias.zero_()


STARTS: dict[str, Start] = {
    "ours": initialize_,
    "torch": lambda model: None,
    "he": lambda model: initialize_(model, "he"),
    "xavier": lambda model: initialize_(model, "xavier"),
    "orthogonal": lambda model: initialize_(model, f"orthogonal {math.sqrt(2)}"),
    "gpt-2": _gpt2_,
    "looks-linear": _looks_linear_,
    "identity": _identity_,
    "mimetic": _mimetic_,
    "paper": lambda model: initialize_(model, recipe="paper"),
}
OURS = "ours"
SPECIAL = {"looks-linear": ("mlp", "cnn"), "identity": ("rnn",), "mimetic": ("vit", "gpt")}
"""Starts that are defined for some networks alone, and the kinds of those."""
WHAT_THEY_ARE = {
    "torch": "PyTorch's own",
    "he": "He's normal weights in every layer",
    "xavier": "Xavier's uniform weights in every layer",
    "orthogonal": "orthogonal weights times √2, in kernels at the centre",
    "gpt-2": "N(0, 0.02²), the ends of residual branches divided by the root of their number",
    "looks-linear": "orthogonal weights in mirrored pairs, for plain ReLU networks",
    "identity": "the identity between states, for ReLU recurrence (Le, Jaitly and Hinton 2015)",
    "mimetic": "attention whose products are near the identity, for transformers (Trockman and Kolter 2023)",
    "paper": "uniform members of the set in every layer, in kernels at the centre",
    "ours": "`initialize_(model)`",
}


def starts_of(kind: str) -> list[str]:
    """The starts that a kind of network is trained from."""
    return [name for name in STARTS if kind in SPECIAL.get(name, (kind,))]
