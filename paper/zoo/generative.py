"""Flows, diffusion, autoencoders and mixtures of densities."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..networks import Net, chain, sized
from ..problems import held_out
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
    return held_out(1000, x)


def folded(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """x = y + 0.3 sin 2πy + noise, turned around: several y for one x."""
    generator, rows = torch.Generator().manual_seed(1), 50_000 if big else 5_000
    y = torch.rand(rows, 1, generator=generator)
    x = y + 0.3 * (2 * math.pi * y).sin() + 0.05 * torch.randn(rows, 1, generator=generator)
    return held_out(1000, x, y)


def digits(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """Images of clothes as rows of numbers between 0 and 1."""
    (train, _), (test, _) = grey(big, directory)
    return ((train.flatten(1) + 1) / 2,), ((test.flatten(1) + 1) / 2,)


def little(big: bool, directory: Path | None) -> tuple[Batch, Batch]:
    """The same at 16 × 16 pixels, or 8 × 8, between -1 and 1."""
    (train, _), (test, _) = grey(big, directory, 16 if big else 8)
    return (train,), (test[:500],)


def flow(nets: nn.ModuleList, rule: Callable[..., tuple[Tensor, Tensor]], size: int) -> Net:
    """The logarithm of the density of what the nets make normal, one after the other; `rule` takes one of them."""

    def density(net: Any, x: Tensor) -> Tensor:
        logdet = torch.zeros(len(x), device=x.device)
        for each in net.nets:
            x, more = rule(each, x)
            logdet = logdet + more
        return logdet - x.square().sum(1) / 2 - size / 2 * LOG_2PI

    return Net(density, nets=nets)


def coupling(width: int, layers: int) -> Net:
    """Each half in turn is scaled and moved by networks of the other; their last layers begin at zero."""

    def rule(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, 1)
        scale, shift = net(a).chunk(2, 1)
        scale = 2 * torch.tanh(scale / 2)
        return torch.cat([b * scale.exp() + shift, a], 1), scale[:, 0]

    nets = nn.ModuleList(chain([1, width, width, 2]) for _ in range(layers))
    for net in nets:
        zeroed(net[-1])
    return flow(nets, rule, 2)


def mixture(width: int, parts: int = 5) -> Net:
    """Tanh layers that make the weights, means and deviations of normal distributions."""

    def rule(net: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = net.body(x)
        return net.weight(y).log_softmax(1), net.mean(y), net.log_deviation(y).clamp(-7, 7)

    body = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
    return Net(rule, body=body, **{name: nn.Linear(width, parts) for name in ("weight", "mean", "log_deviation")})


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


def autoregressive(width: int, layers: int, inputs: int = 6) -> Net:
    """Flows in which each number is scaled and moved by a network of those before it."""

    def rule(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        shift, scale = net(x).chunk(2, 1)
        scale = 2 * torch.tanh(scale / 2)
        return ((x - shift) * (-scale).exp()).flip(1), -scale.sum(1)

    place = torch.arange(1, inputs + 1)
    between = 1 + torch.arange(width) % (inputs - 1)
    nets = (
        nn.Sequential(Masked(place, between), nn.ReLU(), Masked(between, between), nn.ReLU(),
                      Masked(between, place.repeat(2), strict=True)) for _ in range(layers)
    )  # fmt: skip
    return flow(nn.ModuleList(nets), rule, inputs)


def chained(big: bool, _: Path | None) -> tuple[Batch, Batch]:
    """Six numbers, of which each bends with the one before."""
    generator, rows = torch.Generator().manual_seed(2), 50_000 if big else 5_000
    x = [torch.randn(rows, generator=generator)]
    for _step in range(5):
        x.append(torch.sin(1.5 * x[-1]) + 0.3 * (0.5 + x[-1].square()).sqrt() * torch.randn(rows, generator=generator))
    return held_out(1000, torch.stack(x, 1))


def coded(encoder: nn.Module, decoder: nn.Module, variational: bool = True) -> Net:
    """Logits of the pixels, and what the code costs in nats; with noise in the code a variational autoencoder."""

    def rule(net: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        code = net.encoder(x)
        if not variational:
            return net.decoder(code), code.new_zeros(())
        mean, log_variance = code.chunk(2, 1)
        cost = (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean() / 2
        noise = torch.randn_like(mean) if net.training else 0
        return net.decoder(mean + noise * (log_variance / 2).exp()), cost

    return Net(rule, encoder=encoder, decoder=decoder)


def autoencoder(sizes: list[int], *, variational: bool = False) -> Net:
    """Deep layers of ReLU down to a code, and back."""
    return coded(chain([*sizes[:-1], sizes[-1] * (1 + variational)]), chain(sizes[::-1]), variational)


def convolutional_code(n: int, code: int) -> Net:
    """A variational autoencoder of strided convolutions, and of transposed ones back."""
    m = 2 * n
    encoder = nn.Sequential(nn.Conv2d(1, n, 4, 2, 1), nn.ReLU(), nn.Conv2d(n, m, 4, 2, 1), nn.ReLU(),
                            nn.Flatten(), nn.Linear(49 * m, 2 * code))  # fmt: skip
    decoder = nn.Sequential(nn.Linear(code, 49 * m), nn.ReLU(), nn.Unflatten(1, (m, 7, 7)),
                            nn.ConvTranspose2d(m, n, 4, 2, 1), nn.ReLU(),
                            nn.ConvTranspose2d(n, 1, 4, 2, 1), nn.Flatten())  # fmt: skip
    net = coded(encoder, decoder)
    net.register_forward_pre_hook(lambda net, inputs: (inputs[0].view(-1, 1, 28, 28),))
    return net


def denoiser(width: int, blocks: int) -> Net:
    """An MLP of residual blocks of SiLU that is told the time by sines, as in diffusion of points."""

    def rule(net: Any, x: Tensor, time: Tensor) -> Tensor:
        y, told = net.read(x), net.time(waves(time, 32))
        for block in net.blocks:
            y = y + block(F.silu(y + told))
        return net.out(F.silu(y))

    return Net(
        rule, read=nn.Linear(2, width), time=chain([32, width, width], nn.SiLU),
        blocks=nn.ModuleList(chain([width, width, width], nn.SiLU) for _ in range(blocks)), out=nn.Linear(width, 2),
    )  # fmt: skip


def waves(time: Tensor, size: int) -> Tensor:
    """Sines and cosines of times between 0 and 1."""
    angle = 1000 * time[:, None] * (10_000 ** -torch.linspace(0, 1, size // 2, device=time.device))
    return torch.cat([angle.sin(), angle.cos()], 1)


def zeroed(layer: nn.Module) -> nn.Module:
    """The layer, with zeros."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


def timed(n: int, m: int, time: int) -> Net:
    """Group norms, SiLU and convolutions; the time is added between, and the last convolution begins at zero."""

    def rule(net: Any, x: Tensor, time: Tensor) -> Tensor:
        y = net.conv1(F.silu(net.norm1(x))) + net.told(F.silu(time))[:, :, None, None]
        return net.short(x) + net.conv2(F.silu(net.norm2(y)))

    return Net(
        rule, norm1=nn.GroupNorm(4, n), conv1=nn.Conv2d(n, m, 3, padding=1), told=nn.Linear(time, m),
        norm2=nn.GroupNorm(4, m), conv2=zeroed(nn.Conv2d(m, m, 3, padding=1)),
        short=nn.Conv2d(n, m, 1) if n != m else nn.Identity(),
    )  # fmt: skip


def diffusion(n: int) -> Net:
    """The noise of an image, by a U-Net that is told the time."""

    def rule(net: Any, x: Tensor, time: Tensor) -> Tensor:
        told = net.time(waves(time, n))
        fine = net.down1(net.read(x), told)
        y = net.middle(net.down2(net.down(fine), told), told)
        y = torch.cat([net.up(F.interpolate(y, scale_factor=2.0)), fine], 1)
        return net.out(F.silu(net.norm(net.up1(y, told))))

    m, t = 2 * n, 4 * n
    return Net(
        rule, time=chain([n, t, t], nn.SiLU), read=nn.Conv2d(1, n, 3, padding=1),
        down1=timed(n, n, t), down=nn.Conv2d(n, m, 3, 2, 1), down2=timed(m, m, t),
        middle=timed(m, m, t), up=nn.Conv2d(m, n, 3, padding=1),
        up1=timed(2 * n, n, t), norm=nn.GroupNorm(4, n), out=zeroed(nn.Conv2d(n, 1, 3, padding=1)),
    )  # fmt: skip


def noised(batch: Batch, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs with noise of a random time, the time and the noise."""
    x = batch[0]
    time = torch.rand(len(x), generator=generator).to(x.device)
    noise = torch.randn(x.shape, generator=generator).to(x.device)
    kept = (math.pi / 2 * time).cos().view(-1, *[1] * (x.ndim - 1))
    return kept * x + (1 - kept.square()).clamp(min=0).sqrt() * noise, time, noise


def denoise(net: nn.Module, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
    """The squared error of the noise."""
    x, time, noise = noised(batch, generator)
    return F.mse_loss(net(x, time), noise)


def velocity(net: nn.Module, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
    """The squared error of the direction from noise to data."""
    time = torch.rand(len(batch[0]), generator=generator).to(batch[0].device)
    noise = torch.randn(batch[0].shape, generator=generator).to(time.device)
    x = time[:, None] * batch[0] + (1 - time[:, None]) * noise
    return F.mse_loss(net(x, time), batch[0] - noise)


def pixels(found: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
    """Nats of an image: what its pixels cost, and its code."""
    logits, cost = found
    return F.binary_cross_entropy_with_logits(logits, batch[0], reduction="sum") / len(logits) + cost


PIXELS = NATS._replace(margin=1.0, digits=1, chance=1e4)
FINE = NATS._replace(margin=0.01, chance=100.0)
FOLDED = Task(folded, NATS, surprise, surprise)
IMAGES = Task(digits, PIXELS, pixels, pixels)


def _surprise(log_density: Tensor, _: Batch) -> Tensor:
    return -log_density.mean()


def _steered(data: Any, loss: Callable[..., Tensor]) -> Task:
    """Of a loss that draws noise and times; the test part has those of one seed."""

    def told(batch: Batch) -> tuple[Tensor, Tensor]:
        return batch[0], torch.linspace(0, 1, len(batch[0]), device=batch[0].device)

    def test(net: nn.Module, batch: Batch) -> Tensor:
        return loss(net, batch, torch.Generator().manual_seed(0))

    return Task(data, FINE, lambda y, b: y, lambda y, b: y, told, loss, test)


RATES = (3e-4, 1e-3, 3e-3)

ENTRIES = [
    Entry("coupling flow", "flow", sized(coupling, (64, 128), (6, 8)), Task(moons, NATS, _surprise, _surprise),
          (300, 2_000), (128, 512), RATES, schedule="constant"),
    Entry("mixture density", "density", sized(mixture, (50, 128)), FOLDED, (400, 2_500), (128, 512),
          (1e-3, 3e-3, 1e-2), schedule="constant", gain=1.0),
    Entry("diffusion of points", "diffusion", sized(denoiser, (64, 128), (3, 4)), _steered(moons, denoise),
          (500, 2_500), (256, 1024), RATES),
    Entry("flow matching", "diffusion", sized(denoiser, (64, 256), (2, 4)), _steered(moons, velocity), (500, 2_500),
          (256, 1024), RATES, schedule="constant"),
    Entry("diffusion of images", "diffusion", sized(diffusion, (16, 64)), _steered(little, denoise), (200, 1_200),
          (32, 128), RATES, schedule="constant"),
    Entry("deep autoencoder", "autoencoder", sized(autoencoder, ([784, 128, 64, 32, 16, 8], [784, 1000, 500, 250, 30])),
          IMAGES, (300, 2_500), (64, 256), RATES, schedule="constant"),
    Entry("variational autoencoder", "autoencoder", sized(autoencoder, ([784, 128, 10], [784, 400, 200, 20]),
          variational=True), IMAGES, (300, 2_500), (64, 256), RATES, adam(), schedule="constant"),
    Entry("masked autoregressive flow", "flow", sized(autoregressive, (48, 128), (3, 5)),
          Task(chained, NATS, _surprise, _surprise), (300, 2_000), (128, 512), RATES),
    Entry("convolutional autoencoder", "autoencoder", sized(convolutional_code, (8, 32), 16), IMAGES, (200, 1_200),
          (64, 256), RATES, adam(), schedule="constant"),
]  # fmt: skip
