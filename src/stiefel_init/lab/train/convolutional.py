"""Convolutional networks as modules, and those of the user's own: `Blueprint`."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from ...core.errors import StiefelError
from ..plugins import built, load_named
from .activation import module
from .cell import Cell
from .family import is_own
from .problem import Problem

_POOLED = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Layers of VGG's stages. With one linear layer after them its depth counts two that are not there, as usual here."""
OWN: dict[str, Callable[[], object] | nn.Module] = {}
"""The networks of the user's own, or what builds them, by the name that cells have for them."""


class Layer(nn.Sequential):
    """A convolution of 3 × 3 places, a normalization if there is one, an activation."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: nn.Module, *, normalized: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not normalized)
        self.norm = nn.BatchNorm2d(outputs) if normalized else nn.Identity()
        self.activation = activation


class Block(nn.Module):
    """Two convolutions with a shortcut, which is a convolution of 1 × 1 places where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: nn.Module, *, normalized: bool) -> None:
        super().__init__()

        def norm() -> nn.Module:
            return nn.BatchNorm2d(outputs) if normalized else nn.Identity()

        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=not normalized)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=not normalized)
        self.norm1, self.norm2 = norm(), norm()
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=not normalized), norm())
        )
        self.activation1, self.activation2 = activation, copy.deepcopy(activation)

    def forward(self, x: Tensor) -> Tensor:
        """f(shortcut(x) + norm(conv(f(norm(conv(x))))))."""
        y = self.activation1(self.norm1(self.conv1(x)))
        z: Tensor = self.activation2(self.shortcut(x) + self.norm2(self.conv2(y)))
        return z


Image = tuple[int, int, int]


class Blueprint(NamedTuple):
    """What a network is built from; a cell and its data tell it."""

    network: str
    depth: int
    width: int
    activation: str
    inputs: int
    outputs: int
    image: Image | None
    dataset: str

    @classmethod
    def of(cls, cell: Cell, problem: Problem) -> Blueprint:
        """Of a cell on its problem."""
        assert isinstance(cell.width, int)
        data = problem.inputs, problem.outputs, problem.image, cell.dataset
        return cls(cell.network, cell.depth, cell.width, cell.activation, *data)

    def build(self) -> nn.Module:
        """The network, as PyTorch draws it.

        Raises:
            StiefelError: for rows that are no images, and for what the user's own function raises.
        """
        if is_own(self.network):
            if self.network not in OWN:
                raise StiefelError(f"network={self.network!r} is not known here; name its file with --network again.")
            return built(copy.deepcopy(OWN[self.network]), self.network.partition("@")[0])
        if self.image is None:
            raise StiefelError(f"network={self.network!r} needs images, and {self.dataset} has none; use perceptrons.")
        family, _, suffix = self.network.partition("-")
        normalized = suffix == "bn" or (family == "resnet" and not suffix)
        layers, channels = (_vgg if family == "vgg" else _staged)(self, self.image, normalized)
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, self.outputs))

    def activations(self) -> nn.Module:
        """One of the activations between its layers."""
        vgg = self.network.startswith("vgg")
        return module(self.activation, sum(_POOLED[self.depth]) if vgg else self.depth - 1)


def own(place: str) -> tuple[str, int]:
    """The name that cells have for the network at `place`, FILE.py:NAME, and how many layers of weights it has.

    Raises:
        StiefelError: if there is no module nor what builds one, or the file cannot be imported.
    """
    made = load_named(place)
    path = Path(place.rpartition(":")[0])
    content = hashlib.blake2b(path.expanduser().read_bytes(), digest_size=4).hexdigest()
    name = f"{path.name}:{place.rpartition(':')[2]}@{content}"
    OWN[name] = made
    return name, max(1, sum(parameter.ndim > 1 for parameter in built(made, place).parameters()))


Made = tuple[list[nn.Module], int]
"""Layers, and the channels that come out of them."""


def _staged(net: Blueprint, image: Image, normalized: bool) -> Made:
    """Three stages of layers, or of residual blocks, each on images of half the side with twice the channels."""
    kind, count = (Block, (net.depth - 2) // 2) if net.network.startswith("resnet") else (Layer, net.depth - 2)
    channels = net.width
    found: list[nn.Module] = [Layer(image[0], channels, 1, net.activations(), normalized=normalized)]
    for stage in range(3):
        for place in range(count // 3 + (stage < count % 3)):
            stride, outputs = 2 if stage and not place else 1, net.width << stage
            found.append(kind(channels, outputs, stride, net.activations(), normalized=normalized))
            channels = outputs
    return found, channels


def _vgg(net: Blueprint, image: Image, normalized: bool) -> Made:
    """Five stages, after each of which the largest of four places goes on, while there are so many."""
    channels, side, found = image[0], min(image[1:]), list[nn.Module]()
    for stage, count in enumerate(_POOLED[net.depth]):
        for _ in range(count):
            outputs = net.width << min(stage, 3)
            found.append(Layer(channels, outputs, 1, net.activations(), normalized=normalized))
            channels = outputs
        if side > 1:
            found.append(nn.MaxPool2d(2))
            side //= 2
    return found, channels
