"""The initializations that are compared, by the name they have in the records (their column is called `start`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from stiefel_init.torch import initialize_

from .networks import Recurrent, VisionTransformer


def _by_name(scheme: str) -> Callable[[nn.Module], Any]:
    return lambda model: initialize_(model, scheme)


def _gpt2_(model: nn.Module) -> None:
    """The scheme; a recurrent network is traced, as its forward cannot be read."""
    initialize_(model, "gpt-2", inputs=torch.zeros(2, 28 * model.inputs) if isinstance(model, Recurrent) else None)


def _identity_(model: nn.Module) -> None:
    initialize_(model, "xavier")
    for name, parameter in model.named_parameters():
        if "weight_hh" in name:
            nn.init.eye_(parameter)
        elif "weight_ih" in name:
            nn.init.normal_(parameter, std=0.001)


def _mimetic_(model: nn.Module) -> None:
    """The scheme, and positions in an image as sines and cosines of both coordinates of a patch, a row a patch."""
    initialize_(model, "mimetic")
    if isinstance(model, VisionTransformer):
        side, width = math.isqrt(model.position.shape[1]), model.position.shape[2]
        angles = torch.outer(torch.arange(side), 10_000 ** -torch.linspace(0, 1, width // 4))
        waves = torch.cat([angles.sin(), angles.cos()], 1)
        rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        sines: Tensor = torch.cat([waves[rows.flatten()], waves[columns.flatten()]], 1)
        model.position.detach().copy_(sines)


class Initialization(NamedTuple):
    """How weights are set, what the page says of it, its colour, and the kinds of networks it is defined for."""

    apply: Callable[[nn.Module], Any]
    what: str
    colour: str
    kinds: tuple[str, ...] | None = None
    """All if None."""


INITIALIZATIONS = {
    "torch": Initialization(lambda model: None, "PyTorch's own", "#777777"),
    "he": Initialization(_by_name("he"), "He's normal weights in every layer", "#009E73"),
    "xavier": Initialization(_by_name("xavier"), "Xavier's uniform weights in every layer", "#CC79A7"),
    "orthogonal": Initialization(
        _by_name(f"orthogonal {math.sqrt(2)}"), "orthogonal weights times √2, in kernels at the centre", "#E69F00"
    ),
    "gpt-2": Initialization(
        _gpt2_, "N(0, 0.02²), the ends of residual branches divided by the root of their number", "#D55E00"
    ),
    "looks-linear": Initialization(
        _by_name("looks-linear"), "orthogonal weights in mirrored pairs, for plain ReLU networks", "#000000",
        ("mlp", "cnn"),
    ),
    "identity": Initialization(
        _identity_, "the identity between states, for ReLU recurrence (Le, Jaitly and Hinton 2015)", "#F0E442", ("rnn",)
    ),
    "mimetic": Initialization(
        _mimetic_, "attention whose products are near the identity, for transformers (Trockman and Kolter 2023)",
        "#8C564B", ("vit", "gpt"),
    ),
    "paper": Initialization(
        lambda model: initialize_(model, recipe="paper"),
        "uniform members of the set in every layer, in kernels at the centre", "#56B4E9",
    ),
    "ours": Initialization(initialize_, "`initialize_(model)`", "#0072B2"),
}  # fmt: skip
OURS = "ours"


def names_of(kind: str) -> list[str]:
    """The initializations that a kind of network is trained from, ours first."""
    ours_first = sorted(INITIALIZATIONS, key=lambda name: name != OURS)
    return [name for name in ours_first if kind in (INITIALIZATIONS[name].kinds or (kind,))]
