"""What a cell may name: optimizers and the like; and networks, which are perceptrons, convolutional, or one's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from ...core.errors import StiefelError, unknown

OptimizerName = Literal["adam", "sgd", "stiefel-adam", "stiefel-sgd", "stiefel-muon", "orthogonal-adam", "gain-adam"]
PrecisionName = Literal["float32", "tf32", "bfloat16"]
AugmentName = Literal["none", "crop", "flip", "crop-flip"]
ScheduleName = Literal["constant", "cosine", "release"]
DeviceName = Literal["auto", "cpu", "cuda"]  # of where it is trained, which is no part of a cell
PERCEPTRON = "mlp"


class Family(NamedTuple):
    """Networks that differ in depth and width."""

    what: str
    width: int  # the usual one: units of a hidden layer, or channels of the first stage
    sound: Callable[[int], bool] = lambda depth: True
    depths: str = "1 or more"


def _residual(depth: int) -> bool:
    return depth > 2 and depth % 6 == 2


_VGG = (11, 13, 16, 19)
FAMILIES = {
    PERCEPTRON: Family("plain perceptrons", 64),
    "cnn": Family("plain convolutional networks", 32, lambda depth: depth >= 5, "5 or more"),
    "cnn-bn": Family("convolutional networks with batch normalization", 32, lambda depth: depth >= 5, "5 or more"),
    "vgg": Family("VGG without normalization", 64, _VGG.__contains__, "11, 13, 16 or 19"),
    "vgg-bn": Family("VGG with batch normalization", 64, _VGG.__contains__, "11, 13, 16 or 19"),
    "resnet": Family("residual networks with batch normalization", 16, _residual, "8, 14, 20, …, 56, …"),
    "resnet-nobn": Family("residual networks without normalization", 16, _residual, "8, 14, 20, …, 56, …"),
}


def is_own(network: str) -> bool:
    """Whether a network is the user's: FILE.py:NAME@ a word for the file's content."""
    return ":" in network


def settled(network: str, depth: int) -> tuple[str, int]:
    """A network's family and its layers with weights; of perceptrons, and of the user's own, the depth is as it is.

    >>> settled("vgg16", 10), settled("resnet20-nobn", 10), settled("cnn", 56)
    (('vgg', 16), ('resnet-nobn', 20), ('cnn', 56))
    """
    if is_own(network):
        return network, depth
    match = re.fullmatch(r"([a-z]+)(\d*)(-\w+)?", network)
    family, digits = (f"{match[1]}{match[3] or ''}", match[2]) if match else (network, "")
    if family not in FAMILIES or (digits and family == PERCEPTRON):
        raise unknown("network", network, (*FAMILIES, "vgg16", "resnet20"))
    depth = int(digits) if digits else depth
    if not FAMILIES[family].sound(depth):
        raise StiefelError(f"network={network!r} cannot have {depth} layers; give {FAMILIES[family].depths}.")
    return family, depth
