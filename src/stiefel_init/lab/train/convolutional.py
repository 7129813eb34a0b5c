"""Convolutional networks and the user's own as modules: `Blueprint`; and how large a network is: `size_of`."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...core.errors import StiefelError
from ...schemes import Scheme
from ...torch import initialize_
from ..plugins import built, load_named, told
from .cell import Cell
from .family import PERCEPTRON, is_own
from .network import Architecture, module
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


class Blueprint(NamedTuple):
    """What a network is built from; a cell and its data tell it."""

    network: str
    depth: int
    width: int
    activation: str
    inputs: int
    outputs: int
    image: tuple[int, int, int] | None
    dataset: str

    @classmethod
    def of(cls, cell: Cell, problem: Problem) -> Blueprint:
        assert isinstance(cell.width, int)
        data = problem.inputs, problem.outputs, problem.image, cell.dataset
        return cls(cell.network, cell.depth, cell.width, cell.activation, *data)

    def build(self) -> nn.Module:
        """The network, as PyTorch draws it; refused for rows that are no images."""
        if is_own(self.network):
            if self.network not in OWN:
                raise StiefelError(f"network={self.network!r} is not known here; name its file with --network again.")
            return built(copy.deepcopy(OWN[self.network]), self.network.partition("@")[0])
        if self.image is None:
            raise StiefelError(f"network={self.network!r} needs images, and {self.dataset} has none; use perceptrons.")
        family, _, suffix = self.network.partition("-")
        normalized = suffix == "bn" or (family == "resnet" and not suffix)
        layers, channels = (self._vgg if family == "vgg" else self._staged)(self.image, normalized)
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, self.outputs))

    def _staged(self, image: tuple[int, ...], normalized: bool) -> tuple[list[nn.Module], int]:
        """Three stages of layers, or of residual blocks, each on images of half the side with twice the channels.

        Returned with them are the channels that come out.
        """
        kind, count = (Block, (self.depth - 2) // 2) if self.network.startswith("resnet") else (Layer, self.depth - 2)
        channels = self.width
        found: list[nn.Module] = [Layer(image[0], channels, 1, self.activations(), normalized=normalized)]
        for stage in range(3):
            for place in range(count // 3 + (stage < count % 3)):
                stride, outputs = 2 if stage and not place else 1, self.width << stage
                found.append(kind(channels, outputs, stride, self.activations(), normalized=normalized))
                channels = outputs
        return found, channels

    def _vgg(self, image: tuple[int, ...], normalized: bool) -> tuple[list[nn.Module], int]:
        """Five stages, after each of which the largest of four places goes on, while there are so many."""
        channels, side, found = image[0], min(image[1:]), list[nn.Module]()
        for stage, count in enumerate(_POOLED[self.depth]):
            for _ in range(count):
                outputs = self.width << min(stage, 3)
                found.append(Layer(channels, outputs, 1, self.activations(), normalized=normalized))
                channels = outputs
            if side > 1:
                found.append(nn.MaxPool2d(2))
                side //= 2
        return found, channels

    def activations(self) -> nn.Module:
        """One of the activations between its layers."""
        vgg = self.network.startswith("vgg")
        return module(self.activation, sum(_POOLED[self.depth]) if vgg else self.depth - 1)


def own(place: str) -> tuple[str, int]:
    """The name that cells have for the network at `place`, FILE.py:NAME, and how many layers of weights it has."""
    made = load_named(place)
    path = Path(place.rpartition(":")[0])
    content = hashlib.blake2b(path.expanduser().read_bytes(), digest_size=4).hexdigest()
    name = f"{path.name}:{place.rpartition(':')[2]}@{content}"
    OWN[name] = made
    return name, max(1, sum(parameter.ndim > 1 for parameter in built(made, place).parameters()))


_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Size(NamedTuple):
    """Of a network; the last three for each row that goes through it."""

    parameters: int
    products: int  # multiplications
    values: int  # that its layers make
    largest: int  # of one layer
    flat: bool = False  # whether it takes images as rows of numbers


def size_of(cell: Cell, problem: Problem) -> Size:
    """The size of a cell's network, which must take the rows of its problem, and have as many outputs."""
    if cell.network != PERCEPTRON:
        return _measured(Blueprint.of(cell, problem))
    net = Architecture.of(cell, problem)
    return Size(net.parameters, net.parameters, sum(net.widths), max(net.widths))


@lru_cache(maxsize=1000)
def check_scheme(blueprint: Blueprint, scheme: Scheme) -> None:
    """Refuse a scheme that a module cannot start from."""
    rows = example(blueprint, _measured(blueprint).flat) if scheme.calibrates else None
    initialize_(blueprint.build(), scheme, seed=0, inputs=rows, dry_run=True)


def example(blueprint: Blueprint, flat: bool) -> Tensor:
    """Two rows of noise, as the network takes them."""
    shape = (blueprint.inputs,) if flat or blueprint.image is None else blueprint.image
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


@lru_cache(maxsize=1000)
def _measured(blueprint: Blueprint) -> Size:
    """By running it; images are passed as rows only where the network does not take them."""
    raised = []
    with torch.random.fork_rng(devices=()):
        model = blueprint.build()
        for flat in (True,) if blueprint.image is None else (False, True):
            try:
                return _run(model, blueprint, flat=flat)
            except StiefelError:
                raise
            except Exception as error:  # whatever the user's forward raises
                raised.append(error)
    shape = tuple(example(blueprint, flat=False).shape)
    raise StiefelError(f"{blueprint.network} does not take inputs of shape {shape}: {told(raised[0])}.") from raised[0]


def _run(model: nn.Module, blueprint: Blueprint, *, flat: bool) -> Size:
    sizes: list[tuple[int, int]] = []

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            weight = getattr(module, "weight", None)
            each = weight[0].numel() if isinstance(module, _WEIGHTED) and isinstance(weight, Tensor) else 0
            sizes.append((output.numel() // 2, output.numel() // 2 * each))

    hooks = [each.register_forward_hook(note) for each in model.modules() if not list(each.children())]
    try:
        with torch.no_grad():
            outputs = model.train()(example(blueprint, flat))
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(outputs, Tensor) or outputs.shape != (2, blueprint.outputs):
        got = f"of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"as {type(outputs).__name__}"
        raise StiefelError(
            f"{blueprint.network} answers two rows of {blueprint.dataset} with outputs {got}; it must be "
            f"(2, {blueprint.outputs})."
        )
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if not parameters:
        raise StiefelError(f"{blueprint.network} has no parameter that can be trained; name another network.")
    values, products = (sum(column) for column in zip(*sizes))
    return Size(parameters, max(products, parameters), values, max(value for value, _ in sizes), flat)
