"""Flows, diffusion, autoencoders and mixtures of densities."""

from __future__ import annotations

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .coordinates import mlp
from .entry import NATS, Batch, Entry, Task, adam
from .pictures import grey

LOG_2PI = math.log(2 * math.pi)


def moons(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Points of two half circles with noise."""
    generator, rows = torch.Generator().manual_seed(0), 50_000 if big else 5_000
    angle, upper = math.pi * torch.rand(rows, generator=generator), torch.rand(rows, generator=generator) < 0.5
    sign = torch.where(upper, 1.0, -1.0)
    x = torch.stack([sign * angle.cos() - sign / 2, sign * angle.sin() - sign / 4], 1)
    x = 1.5 * (x + 0.06 * torch.randn(rows, 2, generator=generator))
    return (x[1000:],), (x[:1000],)


def folded(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """x = y + 0.3 sin 2πy + noise, turned around: several y for one x."""
    generator, rows = torch.Generator().manual_seed(1), 50_000 if big else 5_000
    y = torch.rand(rows, 1, generator=generator)
    x = y + 0.3 * (2 * math.pi * y).sin() + 0.05 * torch.randn(rows, 1, generator=generator)
    return (x[1000:], y[1000:]), (x[:1000], y[:1000])


def digits(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """Images of clothes as rows of numbers between 0 and 1."""
    (train, _), (test, _) = grey(big, directory)
    return ((train.flatten(1) + 1) / 2,), ((test.flatten(1) + 1) / 2,)


def little(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """The same at 16 × 16 pixels, or 8 × 8, between -1 and 1."""
    (train, _), (test, _) = grey(big, directory, 16 if big else 8)
    return (train,), (test[:500],)


class Coupling(nn.Module):
    """Each half in turn is scaled and moved by networks of the other; their last layers begin at zero."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.nets = nn.ModuleList(mlp([1, width, width, 2]) for _ in range(layers))
        for net in self.nets:
            nn.init.zeros_(net[-1].weight)
            nn.init.zeros_(net[-1].bias)

    def forward(self, x: Tensor) -> Tensor:
        """The logarithm of the density."""
        logdet = torch.zeros(len(x), device=x.device)
        a, b = x[:, :1], x[:, 1:]
        for net in self.nets:
            scale, shift = net(a).chunk(2, 1)
            scale = 2 * torch.tanh(scale / 2)
            a, b = b * scale.exp() + shift, a
            logdet = logdet + scale[:, 0]
        return logdet - (a.square() + b.square())[:, 0] / 2 - LOG_2PI


class Mixture(nn.Module):
    """Tanh layers that make the weights, means and deviations of normal distributions."""

    def __init__(self, width: int, parts: int = 5) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.weight, self.mean, self.log_deviation = (nn.Linear(width, parts) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.body(x)
        return self.weight(y).log_softmax(1), self.mean(y), self.log_deviation(y).clamp(-7, 7)


def surprise(found: tuple[Tensor, Tensor, Tensor], batch: Batch) -> Tensor:
    """The negative logarithm of the mixture's density."""
    weight, mean, log_deviation = found
    each = -((batch[1] - mean) / log_deviation.exp()).square() / 2 - log_deviation - LOG_2PI / 2
    return -(weight + each).logsumexp(1).mean()


class Masked(nn.Linear):
    """A linear layer some of whose weights are held at zero by a mask."""

    def __init__(self, before: Tensor, after: Tensor, *, strict: bool = False) -> None:
        super().__init__(len(before), len(after))
        mask = after[:, None] > before if strict else after[:, None] >= before
        self.register_buffer("mask", mask.float())

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight * self.mask, self.bias)


class Autoregressive(nn.Module):
    """Flows in which each number is scaled and moved by a network of those before it."""

    def __init__(self, width: int, layers: int, inputs: int = 6) -> None:
        super().__init__()
        place = torch.arange(1, inputs + 1)
        between = 1 + torch.arange(width) % (inputs - 1)
        self.nets = nn.ModuleList(
            nn.Sequential(Masked(place, between), nn.ReLU(), Masked(between, between), nn.ReLU(),
                          Masked(between, place.repeat(2), strict=True)) for _ in range(layers)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        logdet = torch.zeros(len(x), device=x.device)
        for net in self.nets:
            shift, scale = net(x).chunk(2, 1)
            scale = 2 * torch.tanh(scale / 2)
            x, logdet = ((x - shift) * (-scale).exp()).flip(1), logdet - scale.sum(1)
        return logdet - x.square().sum(1) / 2 - 3 * LOG_2PI


def chained(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Six numbers, of which each bends with the one before."""
    generator, rows = torch.Generator().manual_seed(2), 50_000 if big else 5_000
    x = [torch.randn(rows, generator=generator)]
    for _step in range(5):
        x.append(torch.sin(1.5 * x[-1]) + 0.3 * (0.5 + x[-1].square()).sqrt() * torch.randn(rows, generator=generator))
    every = torch.stack(x, 1)
    return (every[1000:],), (every[:1000],)


class ConvolutionalCode(nn.Module):
    """A variational autoencoder of strided convolutions, and of transposed ones back."""

    def __init__(self, width: int, code: int) -> None:
        super().__init__()
        n, m = width, 2 * width
        self.encoder = nn.Sequential(nn.Conv2d(1, n, 4, 2, 1), nn.ReLU(), nn.Conv2d(n, m, 4, 2, 1), nn.ReLU(),
                                     nn.Flatten(), nn.Linear(49 * m, 2 * code))  # fmt: skip
        self.decoder = nn.Sequential(nn.Linear(code, 49 * m), nn.ReLU(), nn.Unflatten(1, (m, 7, 7)),
                                     nn.ConvTranspose2d(m, n, 4, 2, 1), nn.ReLU(),
                                     nn.ConvTranspose2d(n, 1, 4, 2, 1), nn.Flatten())  # fmt: skip

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = self.encoder(x.view(-1, 1, 28, 28)).chunk(2, 1)
        cost = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean() / 2
        noise = torch.randn_like(mean) if self.training else 0
        return self.decoder(mean + noise * (log_variance / 2).exp()), cost


class Denoiser(nn.Module):
    """An MLP of residual blocks of SiLU that is told the time by sines, as in diffusion of points."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.read, self.time = nn.Linear(2, width), mlp([32, width, width], nn.SiLU)
        self.blocks = nn.ModuleList(mlp([width, width, width], nn.SiLU) for _ in range(blocks))
        self.out = nn.Linear(width, 2)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y, told = self.read(x), self.time(waves(time, 32))
        for block in self.blocks:
            y = y + block(F.silu(y + told))
        return self.out(F.silu(y))


def waves(time: Tensor, size: int) -> Tensor:
    """Sines and cosines of times between 0 and 1."""
    angle = 1000 * time[:, None] * (10_000 ** -torch.linspace(0, 1, size // 2, device=time.device))
    return torch.cat([angle.sin(), angle.cos()], 1)


def zeroed(layer: nn.Module) -> nn.Module:
    """The layer, with zeros."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class TimedBlock(nn.Module):
    """Group norms, SiLU and convolutions; the time is added between, and the last convolution begins at zero."""

    def __init__(self, n: int, m: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1, self.told = nn.GroupNorm(4, n), nn.Conv2d(n, m, 3, padding=1), nn.Linear(time, m)
        self.norm2, self.conv2 = nn.GroupNorm(4, m), zeroed(nn.Conv2d(m, m, 3, padding=1))
        self.short = nn.Conv2d(n, m, 1) if n != m else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.told(F.silu(time))[:, :, None, None]
        return self.short(x) + self.conv2(F.silu(self.norm2(y)))


class DiffusionUNet(nn.Module):
    """The noise of an image, by a U-Net that is told the time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        n, m, t = width, 2 * width, 4 * width
        self.time, self.read = mlp([width, t, t], nn.SiLU), nn.Conv2d(1, n, 3, padding=1)
        self.down1, self.down, self.down2 = TimedBlock(n, n, t), nn.Conv2d(n, m, 3, 2, 1), TimedBlock(m, m, t)
        self.middle, self.up = TimedBlock(m, m, t), nn.Conv2d(m, n, 3, padding=1)
        self.up1, self.norm = TimedBlock(2 * n, n, t), nn.GroupNorm(4, n)
        self.out = zeroed(nn.Conv2d(n, 1, 3, padding=1))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        told = self.time(waves(time, self.read.out_channels))
        fine = self.down1(self.read(x), told)
        y = self.middle(self.down2(self.down(fine), told), told)
        y = torch.cat([self.up(F.interpolate(y, scale_factor=2.0)), fine], 1)
        return self.out(F.silu(self.norm(self.up1(y, told))))


def noised(batch: Batch, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs with noise of a random time, the time and the noise."""
    x = batch[0]
    time = torch.rand(len(x), generator=generator).to(x.device)
    noise = torch.randn(x.shape, generator=generator).to(x.device)
    kept = (math.pi / 2 * time).cos().view(-1, *[1] * (x.ndim - 1))
    return kept * x + (1 - kept.square()).clamp(min=0).sqrt() * noise, time, noise


def denoise(net: nn.Module, batch: Batch) -> Tensor:
    """The squared error of the noise."""
    x, time, noise = noised(batch)
    return F.mse_loss(net(x, time), noise)


def denoised(net: nn.Module, batch: Batch) -> Tensor:
    """The same with noise that is always the same."""
    x, time, noise = noised(batch, torch.Generator().manual_seed(0))
    return F.mse_loss(net(x, time), noise)


def velocity(net: nn.Module, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
    """The squared error of the direction from noise to data."""
    time = torch.rand(len(batch[0]), generator=generator).to(batch[0].device)
    noise = torch.randn(batch[0].shape, generator=generator).to(time.device)
    x = time[:, None] * batch[0] + (1 - time[:, None]) * noise
    return F.mse_loss(net(x, time), batch[0] - noise)


class Autoencoder(nn.Module):
    """Deep layers of ReLU down to a code, and back; with noise in the code a variational one."""

    def __init__(self, sizes: list[int], *, variational: bool = False) -> None:
        super().__init__()
        self.variational = variational
        self.encoder = mlp([*sizes[:-1], sizes[-1] * (1 + variational)])
        self.decoder = mlp(sizes[::-1])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the pixels, and what the code costs in nats."""
        code = self.encoder(x)
        if not self.variational:
            return self.decoder(code), code.new_zeros(())
        mean, log_variance = code.chunk(2, 1)
        cost = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean() / 2
        noise = torch.randn_like(mean) if self.training else 0
        return self.decoder(mean + noise * (log_variance / 2).exp()), cost


def pixels(found: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
    """Nats of an image: what its pixels cost, and its code."""
    logits, cost = found
    return F.binary_cross_entropy_with_logits(logits, batch[0], reduction="sum") / len(logits) + cost


PIXELS = NATS._replace(margin=1.0, digits=1, chance=1e4)
FINE = NATS._replace(margin=0.01, chance=100.0)
COUPLED = Task(moons, NATS, lambda y, b: -y.mean(), lambda y, b: -y.mean())
FOLDED = Task(folded, NATS, surprise, surprise)
IMAGES = Task(digits, PIXELS, pixels, pixels)


def _told(batch: Batch) -> tuple[Tensor, Tensor]:
    return batch[0], torch.linspace(0, 1, len(batch[0]), device=batch[0].device)


NOISE = Task(moons, FINE, lambda y, b: y, lambda y, b: y, _told, denoise, denoised)
FLOW = Task(moons, FINE, lambda y, b: y, lambda y, b: y, _told, velocity,
            lambda net, b: velocity(net, b, torch.Generator().manual_seed(0)))  # fmt: skip
NOISY = Task(little, FINE, lambda y, b: y, lambda y, b: y, _told, denoise, denoised)
RATES = (3e-4, 1e-3, 3e-3)

ENTRIES = [
    Entry("coupling flow", "flow", lambda big: Coupling(128 if big else 64, 8 if big else 6), COUPLED, (300, 2_000),
          (128, 512), RATES, schedule="constant"),
    Entry("mixture density", "density", lambda big: Mixture(128 if big else 50), FOLDED, (400, 2_500), (128, 512),
          (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
    Entry("diffusion of points", "diffusion", lambda big: Denoiser(128 if big else 64, 4 if big else 3), NOISE,
          (500, 2_500), (256, 1024), RATES),
    Entry("flow matching", "diffusion", lambda big: Denoiser(256 if big else 64, 4 if big else 2), FLOW, (500, 2_500),
          (256, 1024), RATES, schedule="constant"),
    Entry("diffusion of images", "diffusion", lambda big: DiffusionUNet(64 if big else 16), NOISY, (200, 1_200),
          (32, 128), RATES, schedule="constant"),
    Entry("deep autoencoder", "autoencoder", lambda big: Autoencoder([784, 1000, 500, 250, 30] if big else
          [784, 128, 64, 32, 16, 8]), IMAGES, (300, 2_500), (64, 256), RATES, schedule="constant"),
    Entry("variational autoencoder", "autoencoder", lambda big: Autoencoder([784, 400, 200, 20] if big else
          [784, 128, 10], variational=True), IMAGES, (300, 2_500), (64, 256), RATES, adam(), schedule="constant"),
    Entry("masked autoregressive flow", "flow", lambda big: Autoregressive(128 if big else 48, 5 if big else 3),
          Task(chained, NATS, lambda y, b: -y.mean(), lambda y, b: -y.mean()), (300, 2_000), (128, 512), RATES),
    Entry("convolutional autoencoder", "autoencoder", lambda big: ConvolutionalCode(32 if big else 8, 16), IMAGES,
          (200, 1_200), (64, 256), RATES, adam(), schedule="constant"),
]  # fmt: skip
