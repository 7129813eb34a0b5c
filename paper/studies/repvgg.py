"""RepVGG for the study of CIFAR-10: layers of three branches, which can be folded once they are trained."""

from __future__ import annotations

import torch
from torch import nn

from stiefel_init.lab.train.convolutional import OWN

REPVGG = "repvgg:20@1"


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
