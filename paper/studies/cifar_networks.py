"""The networks of the study of CIFAR-10, and how their signal is before training."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from stiefel_init.lab.data import Dataset
from stiefel_init.lab.train.convolutional import OWN, Blueprint
from stiefel_init.torch import diagnose, initialize_

REPVGG = "repvgg:20@1"
"""Layers of three branches with normalization, which can be folded into one convolution once they are trained."""
CENTRE = f"delta-orthogonal {math.sqrt(2)}"


class Contender(NamedTuple):
    """A network and how it starts and is trained."""

    network: str
    scheme: str
    activation: str = "relu"
    groups: bool = False
    width: int = 32
    decay: float = 0.02
    long: bool = False
    """Whether it is trained twice as long."""


def _cnn(scheme: str, *options: Any, **more: Any) -> Contender:
    return Contender("cnn", scheme, *options, **more)


OURS, HE, GROUPS = _cnn("recipe"), _cnn("he"), _cnn("recipe", groups=True)
BATCH = Contender("resnet", "he")
PLAIN = {
    "`initialize_(model)`": OURS, "the same, `param_groups`": GROUPS, "He": HE, "looks-linear": _cnn("looks-linear"),
    "PyTorch's default": _cnn("torch"), "orthogonal at the centre": _cnn(CENTRE), "LSUV": _cnn("lsuv"),
    "TAT, its activation": _cnn("tat", "tat"),
}  # fmt: skip
"""Plain networks by their initialization."""
RESIDUAL = {
    "residual, batch normalization, He": BATCH,
    "residual, batch normalization, `initialize_`": Contender("resnet", "recipe"),
    "residual, batch normalization, default": Contender("resnet", "torch"),
    "residual alone, He": Contender("resnet-nobn", "he"),
    "residual alone, `initialize_`": Contender("resnet-nobn", "recipe"),
}
WIDE = 48
"""Channels with which 11 layers cost about as much as 20 of 32."""
TRIED = {
    "`param_groups`": GROUPS,
    "TAT's activation": _cnn("recipe", "tat"),
    "TAT's activation, `param_groups`": _cnn("recipe", "tat", groups=True),
    "a slope of 0.01 below zero": _cnn("recipe", "leaky_relu"),
    "weight decay 0.1": _cnn("recipe", decay=0.1),
    "weight decay 0.5": _cnn("recipe", decay=0.5),
    "twice as long": _cnn("recipe", long=True),
    "three branches, folded at the end (RepVGG)": Contender(REPVGG, "he"),
}
"""What might bring a plain network nearer to a residual one; at 20 layers."""
WIDER = _cnn("recipe", width=WIDE)
VGG = {name: each._replace(network="vgg", width=64) for name, each in PLAIN.items()}
NAMES = {each: name for name, each in (PLAIN | RESIDUAL | TRIED | VGG).items()} | {
    WIDER: f"11 layers of {WIDE} channels"
}


class Branches(nn.Module):
    """A convolution of 3 × 3 places, one of 1 × 1 and, where it fits, the input itself, each normalized; ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.wide, self.narrow = (
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.Conv2d(inputs, outputs, 1, stride, bias=False),
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(outputs) for _ in range(3 if inputs == outputs and stride == 1 else 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [norm(part) for norm, part in zip(self.norms, (self.wide(x), self.narrow(x), x))]
        return torch.relu(torch.stack(parts).sum(0))

    def folded(self) -> nn.Conv2d:
        """One convolution that does the same in evaluation."""
        outputs, inputs = self.wide.weight.shape[:2]
        same = torch.eye(inputs)[:, :, None, None]
        kernels = [self.wide.weight, *(nn.functional.pad(each, (1, 1, 1, 1)) for each in (self.narrow.weight, same))]
        plain = nn.Conv2d(inputs, outputs, 3, self.wide.stride[0], 1)
        with torch.no_grad():
            plain.weight.zero_()
            assert plain.bias is not None
            plain.bias.zero_()
            for norm, kernel in zip(self.norms, kernels):
                mean, variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
                gain = norm.get_parameter("weight") / (variance + 1e-5).sqrt()
                plain.weight += gain[:, None, None, None] * kernel
                plain.bias += norm.get_parameter("bias") - gain * mean
        return plain


def repvgg(depth: int = 20, width: int = 32) -> nn.Sequential:
    """As many of such layers as a plain network has, on images as large."""
    layers: list[nn.Module] = [Branches(3, width, 1)]
    channels = width
    for stage in range(3):
        for place in range((depth - 2) // 3):
            layers.append(Branches(channels, width << stage, 2 if stage and not place else 1))
            channels = width << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


OWN[REPVGG] = repvgg


def signal(dataset: Dataset, *, quick: bool = False) -> list[dict[str, Any]]:
    """Of each layer of plain networks before training: how many units are distinct, how far apart images are."""
    assert dataset.train_rows is not None
    assert dataset.image is not None
    some = slice(0, dataset.train_rows, dataset.train_rows // 60)
    images = torch.from_numpy(dataset.x[some]).float().unflatten(1, dataset.image) / dataset.scale
    images = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)
    targets, rows = torch.from_numpy(dataset.y[some]), list[dict[str, Any]]()
    for depth in (20,) if quick else (20, 56):
        for name, each in PLAIN.items():
            if each.groups or (quick and each not in (OURS, HE)):
                continue
            width = 8 if quick else each.width
            shape = dataset.features, 10, dataset.image, dataset.name
            model = Blueprint("cnn", depth, width, each.activation, *shape).build()
            initialize_(model, each.scheme, seed=0, inputs=images if each.scheme in ("lsuv", "tat") else None)
            for place, layer in enumerate(diagnose(model, images, targets).layers[:-1], 1):
                told = {"distinct": layer.distinct or 0.0, "spread": layer.spread, "gradient": layer.gradient or 0.0}
                short = {key: f"{value:.4g}" for key, value in told.items()}
                rows.append({"initialization": name.strip("`"), "depth": depth, "layer": place, **short})
    return rows
