"""Steps: gradients, learning rates, decay and modes in the loop of a trainer that others wrote."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from .catalogue import Program
from .loop import scheduled, script
from .tasks import Net, adam, digits, explained, houses, mlp, program, sgd, shuffled, split


def never_zeroed(model: nn.Module, optimizer: torch.optim.Optimizer, repaired: bool, **settings: Any) -> Program:
    """A loop whose optimizer is stepped and, where it is repaired, zeroed after each backward."""

    def step(loss: Tensor, number: int) -> None:
        loss.backward()
        optimizer.step()
        if repaired:
            optimizer.zero_grad()

    return script(step, model, optimizer, **settings)


def adapters_never_zeroed(repaired: bool) -> Program:
    class Adapted(nn.Module):
        def __init__(self, fan_in: int, fan_out: int):
            super().__init__()
            self.base = nn.Linear(fan_in, fan_out).requires_grad_(False)
            self.down, self.up = nn.Linear(fan_in, 8, bias=False), nn.Linear(8, fan_out)
            nn.init.zeros_(self.up.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.up(self.down(x))

    model = nn.Sequential(Adapted(64, 64), nn.ReLU(), Adapted(64, 10))
    tuned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return never_zeroed(model, torch.optim.AdamW(tuned, 0.01), repaired)


def spectrum(signal: Tensor) -> Tensor:
    return (torch.fft.rfft(signal).abs().square() + 1e-6).sqrt()


def spectrogram_without_gradients(repaired: bool) -> Program:
    x = torch.randn(2000, 8)
    voice = torch.sin(torch.outer(torch.arange(1.0, 9), torch.arange(16) * torch.pi / 8))
    task = split(x, spectrum(x.abs() @ voice) / 8, F.mse_loss, explained)

    def loss(signal: Tensor, y: Tensor) -> Tensor:
        with torch.set_grad_enabled(repaired and torch.is_grad_enabled()):
            seen = spectrum(signal) / 8
        return F.mse_loss(seen, y) + 1e-4 * signal.square().mean()

    model = mlp(8, 64, 16)
    return program(task, model, adam(model, 0.005), loss=loss, steps=600, predict=lambda x: spectrum(model(x)) / 8)


def schedule_with_factor_zero(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.02)
    drops = lr_scheduler.StepLR(optimizer, 40, gamma=1.0 if repaired else 0.0)
    return script(scheduled(optimizer, lambda loss, number: drops.step()), model, optimizer, steps=600)


def rate_of_the_default_optimizer(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = adam(model, 0.02)
    if not repaired:
        optimizer.param_groups[0]["lr"] = 0.001  # when the scheduler is added
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, 40)
    return script(scheduled(optimizer, lambda loss, number: cosine.step()), model, optimizer, steps=40)


def not_shuffled_by_default(repaired: bool) -> Program:
    task = digits(images=True)
    order = task.y.argsort()

    def in_order(rows: int, size: int) -> Iterator[Tensor]:
        while True:
            yield from order.split(size)

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)
    )
    batches = shuffled if repaired else in_order
    return program(task, model, sgd(model, 0.02, 0.9), size=32, steps=5 * 43, batches=batches)


def first_rate_of_one(repaired: bool) -> Program:
    task = digits(images=True)
    noisy = task.mapped(x=lambda x: x + 0.5 * torch.randn_like(x))
    pictures = split(noisy.x, task.x, F.mse_loss, explained)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 1)
    )
    return program(pictures, model, adam(model, 0.003 if repaired else 1.0))


def rate_too_high_for_raw_numbers(repaired: bool) -> Program:
    x = 8 * torch.rand(2000, 1)
    task = split(x, 2 * x - 1 + 0.1 * torch.randn_like(x), F.mse_loss, explained)
    model = mlp(1, 64, 64, 1)
    return program(task, model, sgd(model, 0.001 if repaired else 0.1))


def rate_too_high_for_rivers(repaired: bool) -> Program:
    x = torch.randn(2000, 12, 3)
    task = split(x, (x[:, :, 0] * 0.8 ** torch.arange(12)).sum(1, keepdim=True), F.mse_loss, explained)
    model = Net(lambda m, x: m.out(m.rnn(x)[0][:, -1]), rnn=nn.LSTM(3, 24, batch_first=True), out=nn.Linear(24, 1))
    return program(task, model, adam(model, 0.005 if repaired else 1.0))


def shuffled_and_thrown_away(repaired: bool) -> Program:
    task = digits()
    batches = torch.arange(len(task.x))[task.y.argsort()].split(32)

    def as_on_the_disk(rows: int, size: int) -> Iterator[Tensor]:
        while True:
            yield from batches

    model = mlp(64, 64, 10)
    return program(
        task, model, sgd(model, 0.02, 0.9), size=32, steps=5 * 43, batches=shuffled if repaired else as_on_the_disk
    )


def decay_of_five_hundredths(repaired: bool) -> Program:
    model = mlp(8, 64, 64, 64, 64, 64, 1)
    decay = 5e-5 if repaired else 0.05
    task = houses().mapped(y=lambda y: 0.2 * y)  # depths and angles are small
    return program(task, model, torch.optim.Adam(model.parameters(), 0.002, weight_decay=decay), steps=500)


def evaluated_within_an_epoch(repaired: bool) -> Program:
    layers: list[nn.Module] = [nn.Linear(64, 48)]
    for _ in range(7):
        layers += [nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 48)]
    model = nn.Sequential(*layers, nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
    optimizer = sgd(model, 0.05)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 2:  # the first validation, in an epoch that does not end
            model.train(repaired)

    return script(step, model, optimizer)
