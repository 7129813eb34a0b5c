"""Networks that see: plain, normalized and mobile convolutions, U-Nets; image classes of packages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import problems
from ..networks import Net, chain, sized
from .entry import ACCURACY, DECIBELS, Batch, Entry, Task, accuracy, adam, cross_entropy, decibels, sgd, squared


@lru_cache
def _images(name: str, directory: Path | None) -> tuple[Batch, Batch]:
    found = problems.images(name, torch.device("cpu"), directory)
    return (found.x, found.y), (found.test_x, found.test_y)


def grey(big: bool, directory: Path | None, side: int = 28) -> tuple[Batch, Batch]:
    """Images of clothes with their classes, few; at the large scale, of digits. Between -1 and 1."""
    train, test = _images("mnist" if big else "fashion-mnist", directory)
    rows, held = (len(train[0]), len(test[0])) if big else (6000, 1000)
    parts = [(F.interpolate(2 * x[:n] - 1, (side, side), mode="area"), y[:n]) for (x, y), n in
             ((train, rows), (test, held))]  # fmt: skip
    return parts[0], parts[1]


def coloured(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """Photographs of ten kinds of things, cut to 28 × 28; at the small scale, clothes in grey."""
    if not big:
        return grey(big, directory)
    train, test = ((2 * x[:, :, 2:30, 2:30] - 1, y) for x, y in _images("cifar10-jpeg", directory))
    return train, test


def colours(big: bool) -> int:
    """Channels of these images."""
    return 3 if big else 1


CLASSES = Task(coloured, ACCURACY._replace(chance=10.0), cross_entropy, accuracy)


def noisy(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """Images with strong noise, and without."""
    train, test = grey(big, directory)
    generator = torch.Generator().manual_seed(0)
    parts = [(x + 0.6 * torch.randn(x.shape, generator=generator), x) for x in
             ((train[0] + 1) / 2, (test[0][:500] + 1) / 2)]  # fmt: skip
    return parts[0], parts[1]


def conv(n: int, m: int, side: int = 3, stride: int = 1, groups: int = 1, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps the size, but for its stride."""
    return nn.Conv2d(n, m, side, stride, side // 2, groups=groups, bias=bias)


class Mean(nn.Module):
    """Over the places of an image."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def vgg(big: bool) -> nn.Sequential:
    """Plain 3 × 3 convolutions between poolings, and fully connected layers with dropout."""
    layers: list[nn.Module] = []
    n = colours(big)
    for m in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512) if big else (16, 16, 0, 32, 32, 0, 64, 64):
        layers += [conv(n, m, bias=True), nn.ReLU()] if m else [nn.MaxPool2d(2)]
        n = m or n
    width = 512 if big else 64
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * n, width), nn.ReLU(), nn.Dropout(0.5)]
    net = nn.Sequential(*layers, nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, 10))
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            else:
                nn.init.normal_(layer.weight, 0, 0.01)
            nn.init.zeros_(layer.bias)
    return net


def lenet(big: bool) -> nn.Sequential:
    """Two convolutions and three layers with tanh."""
    return nn.Sequential(
        nn.Conv2d(colours(big), 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )  # fmt: skip


def all_convolutions(big: bool) -> nn.Sequential:
    """Twelve plain convolutions, then the mean: no pooling, no normalization."""
    width = 64 if big else 16
    layers: list[nn.Module] = [conv(colours(big), width, stride=2, bias=True), nn.ReLU()]
    for k in range(11):
        layers += [conv(width, width, stride=2 if k == 4 else 1, bias=True), nn.ReLU()]
    return nn.Sequential(*layers, Mean(), nn.Linear(width, 10))


class Residual(nn.Module):
    """Two normalized convolutions and a shortcut."""

    def __init__(self, n: int, m: int, stride: int, norm: Any) -> None:
        super().__init__()
        self.conv1, self.norm1, self.conv2, self.norm2 = conv(n, m, 3, stride), norm(m), conv(m, m), norm(m)
        self.short = nn.Sequential(conv(n, m, 1, stride), norm(m)) if stride > 1 or n != m else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.short(x))


def resnet(big: bool, norm: Any) -> nn.Sequential:
    """Four stages of residual blocks; kernels normal by their outputs."""
    sizes = (64, 128, 256, 512) if big else (16, 32, 64)
    blocks = [
        Residual(n, m, s, norm) for n, m in zip((sizes[0], *sizes), sizes) for n, s in ((n, 1 + (n != m)), (m, 1))
    ]
    stem = conv(colours(big), sizes[0], stride=1 if big else 2)
    net = nn.Sequential(stem, norm(sizes[0]), nn.ReLU(), *blocks, Mean(), nn.Linear(sizes[-1], 10))
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return net


def separable(big: bool) -> nn.Sequential:
    """Depth-wise and point-wise convolutions in turn, each with batch normalization, as on telephones."""
    width = 64 if big else 16

    def normed(layer: nn.Conv2d) -> list[nn.Module]:
        return [layer, nn.BatchNorm2d(layer.out_channels), nn.ReLU6()]

    layers, n = normed(conv(colours(big), width, stride=2)), width
    for m, stride in ((2, 1), (4, 2), (4, 1), (8, 2), (8, 1)):
        layers += [*normed(conv(n, n, 3, stride, groups=n)), *normed(conv(n, m * width // 2, 1))]
        n = m * width // 2
    return nn.Sequential(*layers, Mean(), nn.Linear(n, 10))


def double(n: int, m: int) -> nn.Sequential:
    """Two convolutions with batch normalization, the unit of a U-Net."""
    return nn.Sequential(conv(n, m), nn.BatchNorm2d(m), nn.ReLU(), conv(m, m), nn.BatchNorm2d(m), nn.ReLU())


def unet(n: int) -> Net:
    """Down twice and up again, with what was seen on the way down."""

    def rule(net: Any, x: Tensor) -> Tensor:
        fine = net.first(x)
        half = net.second(F.max_pool2d(fine, 2))
        up = net.join2(torch.cat([net.up2(net.third(F.max_pool2d(half, 2))), half], 1))
        return net.out(net.join1(torch.cat([net.up1(up), fine], 1)))

    m, k = 2 * n, 4 * n
    return Net(
        rule, first=double(1, n), second=double(n, m), third=double(m, k),
        up2=nn.ConvTranspose2d(k, m, 2, 2), join2=double(2 * m, m),
        up1=nn.ConvTranspose2d(m, n, 2, 2), join1=double(2 * n, n), out=nn.Conv2d(n, 1, 1),
    )  # fmt: skip


def weighed(n: int) -> Net:
    """A normalized residual block whose channels are weighed by a small network of their means."""

    def rule(net: Any, x: Tensor) -> Tensor:
        y = net.norm2(net.conv2(F.silu(net.norm1(net.conv1(x)))))
        return F.silu(x + y * net.weigh(y)[:, :, None, None])

    return Net(
        rule, conv1=conv(n, n), norm1=nn.BatchNorm2d(n), conv2=conv(n, n), norm2=nn.BatchNorm2d(n),
        weigh=nn.Sequential(Mean(), *chain([n, n // 4, n]), nn.Sigmoid()),
    )  # fmt: skip


def excited(big: bool) -> nn.Sequential:
    """Blocks that weigh their channels, in two stages."""
    n = 32 if big else 16
    return nn.Sequential(conv(colours(big), n, bias=True), nn.SiLU(), nn.MaxPool2d(2), weighed(n), weighed(n),
                         conv(n, 2 * n, 3, 2, bias=True), weighed(2 * n), weighed(2 * n), Mean(),
                         nn.Linear(2 * n, 10))  # fmt: skip


def growing(n: int, more: int) -> Net:
    """Batch norm, ReLU and a convolution whose result is put beside its input."""
    return Net(
        lambda net, x: torch.cat([x, net.conv(F.relu(net.norm(x)))], 1), norm=nn.BatchNorm2d(n), conv=conv(n, more)
    )  # fmt: skip


def dense(big: bool) -> nn.Sequential:
    """Two blocks of convolutions that read all before them, a transition between them."""
    more, count = (16, 6) if big else (6, 3)
    n, layers = 2 * more, [conv(colours(big), 2 * more, 3, 2)]
    for stage in range(2):
        layers += [growing(n + k * more, more) for k in range(count)]  # type: ignore[misc]
        n += count * more
        layers += [nn.BatchNorm2d(n), nn.ReLU()]  # type: ignore[list-item]
        if not stage:
            layers += [conv(n, n // 2, 1), nn.AvgPool2d(2)]  # type: ignore[list-item]
            n //= 2
    return nn.Sequential(*layers, Mean(), nn.Linear(n, 10))


def mixed_block(tokens: int, width: int) -> Net:
    """A network over the places, then one over the channels, each behind a layer norm and with a shortcut."""

    def rule(net: Any, x: Tensor) -> Tensor:
        x = x + net.places(net.norm1(x).mT).mT
        return x + net.channels(net.norm2(x))

    return Net(
        rule, norm1=nn.LayerNorm(width), norm2=nn.LayerNorm(width),
        places=chain([tokens, width // 2, tokens], nn.GELU), channels=chain([width, 4 * width, width], nn.GELU),
    )  # fmt: skip


def mixed(channels: int, width: int, blocks: int) -> Net:
    """Patches of an image, and networks over places and channels in turn."""
    return Net(
        lambda net, x: net.head(net.norm(net.blocks(net.patches(x).flatten(2).mT)).mean(1)),
        patches=nn.Conv2d(channels, width, 4, 4),
        blocks=nn.Sequential(*(mixed_block(49, width) for _ in range(blocks))),
        norm=nn.LayerNorm(width), head=nn.Linear(width, 10),
    )  # fmt: skip


def hf(kind: str, **words: Any) -> Callable[[bool], nn.Module]:
    """A model of transformers with random weights, from its configuration."""

    def make(**words: Any) -> nn.Module:
        import transformers

        config = getattr(transformers, re.split("For[A-Z]|LMHead", kind)[0] + "Config")(**words)
        return getattr(transformers, kind)(config)

    return sized(make, **words)


def seen(kind: str, rates: tuple[float, ...], steps: int = 120, **words: Any) -> Entry:
    """An image model of transformers."""
    words = {"num_labels": 10, "num_channels": (1, 3), **words}
    task = replace(CLASSES, inputs=lambda b: {"pixel_values": b[0]})
    return Entry(kind, "package: images", hf(kind, **words), task, (steps, 1_000), (32, 128), rates, adam(0.05),
                 "warm cosine", package="transformers")  # fmt: skip


def timm(name: str, kind: str, **words: Any) -> Entry:
    """A model of timm."""

    def make(big: bool) -> nn.Module:
        from timm import create_model

        return create_model(name, num_classes=10, in_chans=colours(big), **words)

    return Entry(f"timm {name}", kind, make, CLASSES, (60, 1_000), (32, 128), RATES, adam(0.05), "warm cosine",
                 package="timm")  # fmt: skip


SGD, RATES = (0.01, 0.03, 0.1), (3e-4, 1e-3, 3e-3)
SMALL = {"hidden_size": (32, 192), "num_hidden_layers": (3, 8), "num_attention_heads": (2, 3),
         "intermediate_size": (128, 768), "image_size": 28, "patch_size": 7, "hidden_dropout_prob": 0.0}  # fmt: skip
ENTRIES = [
    Entry("VGG", "plain CNN", vgg, CLASSES, (150, 1_500), (32, 128), SGD, sgd(), clip=5.0),
    Entry("LeNet", "plain CNN", lenet, CLASSES, (400, 1_500), (64, 128), RATES),
    Entry("all convolutions", "plain CNN", all_convolutions, CLASSES, (250, 1_500), (32, 128), RATES),
    Entry("ResNet, batch norm", "residual CNN", lambda big: resnet(big, nn.BatchNorm2d), CLASSES, (120, 1_200),
          (32, 128), SGD, sgd()),
    Entry("ResNet, group norm", "residual CNN", lambda big: resnet(big, lambda m: nn.GroupNorm(8, m)), CLASSES,
          (120, 1_200), (32, 128), SGD, sgd()),
    Entry("depth-wise CNN", "mobile CNN", separable, CLASSES, (150, 1_200), (32, 128), SGD, sgd(4e-5)),
    Entry("U-Net", "U-Net", sized(unet, (6, 32)), Task(noisy, DECIBELS, squared, decibels), (100, 800),
          (16, 64), RATES),
    seen("ViTForImageClassification", RATES, **SMALL),
    seen("SwinForImageClassification", RATES, 70, image_size=28, patch_size=2, embed_dim=(16, 96), depths=[2, 2],
         num_heads=[2, 4], window_size=7),
    seen("ConvNextForImageClassification", RATES, patch_size=2, hidden_sizes=([16, 32], [64, 128]),
         depths=([2, 2], [3, 6]), num_stages=2),
    seen("ResNetForImageClassification", RATES, embedding_size=(16, 64), hidden_sizes=([32, 64], [256, 512]),
         depths=([2, 2], [3, 4])),
    seen("RegNetForImageClassification", RATES, embedding_size=(16, 32), hidden_sizes=([32, 64], [128, 256]),
         depths=([1, 2], [2, 4]), groups_width=8),
    seen("MobileNetV2ForImageClassification", RATES, 80, image_size=28, depth_multiplier=(0.25, 1.0),
         tf_padding=False),
    seen("PoolFormerForImageClassification", RATES, hidden_sizes=([16, 24, 32, 48], [64, 128, 256, 320]),
         depths=[1, 1, 2, 1], patch_sizes=[3, 3, 3, 3]),
    seen("MobileNetV1ForImageClassification", RATES, 80, image_size=28, depth_multiplier=(0.25, 0.5),
         tf_padding=False),
    seen("ConvNextV2ForImageClassification", RATES, patch_size=2, hidden_sizes=([16, 32], [64, 128]),
         depths=([2, 2], [2, 4]), num_stages=2),
    seen("DeiTForImageClassification", RATES, **SMALL),
    Entry("squeeze and excite", "residual CNN", excited, CLASSES, (120, 1_200), (32, 128), RATES),
    Entry("densely connected", "residual CNN", dense, CLASSES, (100, 1_000), (32, 64), SGD, sgd(1e-4)),
    Entry("MLP-Mixer", "mixer", sized(mixed, (1, 3), (32, 128), (3, 6)), CLASSES,
          (120, 1_200), (32, 128), RATES, adam(0.05), "warm cosine", gain=1.0),
    timm("mobilenetv3_small_050", "mobile CNN"), timm("resnet10t", "residual CNN"),
    timm("vit_tiny_patch16_224", "transformer", img_size=28, patch_size=4, depth=6),
    timm("mixer_s32_224", "mixer", img_size=28, patch_size=4, embed_dim=128, num_blocks=6),
    timm("convnext_atto", "residual CNN"), timm("efficientnet_lite0", "mobile CNN"),
    timm("regnetx_002", "residual CNN"),
    timm("repvgg_a0", "plain CNN"), timm("nf_regnet_b0", "residual CNN"), timm("resmlp_12_224", "mixer", img_size=28,
         patch_size=4, embed_dim=128, num_blocks=6),
]  # fmt: skip
