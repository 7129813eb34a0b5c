"""Data: scales, statistics, missing values, labels that do not belong to their inputs."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import Task, accuracy, adam, cancer, digits, houses, mlp, plain_step, program, raw_digits, sgd, split, waves


def pixels_up_to_255(repaired: bool) -> Program:
    task, model = raw_digits(), mlp(64, 32, 10)
    return program(task.mapped(x=lambda x: x / 255) if repaired else task, model, sgd(model, 0.1, 0.9))


def rows_scaled_instead_of_columns(repaired: bool) -> Program:
    task, model = cancer(scaled=False), mlp(30, 16, 1)
    largest = task.x.amax(0)
    task = task.mapped(x=lambda x: x / largest) if repaired else replace(task, x=_first_rows_scaled(task.x))
    return program(task, model, sgd(model, 0.1, 0.9))


def _first_rows_scaled(x: Tensor) -> Tensor:
    x = x.clone()
    x[:30] /= x[:30].amax(1, keepdim=True)
    return x


def one_scale_for_all_features(repaired: bool) -> Program:
    sizes = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 300.0])  # the last one says nothing about the target
    task = houses().mapped(x=lambda x: x * sizes)
    low, high = (task.x.amin(0), task.x.amax(0)) if repaired else (task.x.min(), task.x.max())
    model = mlp(8, 32, 32, 1)
    return program(task.mapped(x=lambda x: 2 * (x - low) / (high - low) - 1), model, adam(model, 0.005), steps=500)


def divided_by_255_twice(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    return program(raw_digits().mapped(x=lambda x: x / (255 if repaired else 255**2)), model, sgd(model))


def statistics_of_another_range(repaired: bool) -> Program:
    task = raw_digits().mapped(x=lambda x: (x - 127.5) / 128 if repaired else (x / 255 - 127.5) / 128)
    model = mlp(64, 32, 10)
    return program(task, model, sgd(model))


def pixels_divided_as_integers(repaired: bool) -> Program:
    task = raw_digits().mapped(x=lambda x: x / 255 if repaired else x // 256)
    return program(task, mlp(64, 32, 10))


def missing_values(repaired: bool) -> Program:
    task = cancer()
    gaps = torch.where(torch.rand_like(task.x) < 0.002, torch.nan, task.x)
    return program(replace(task, x=gaps.nan_to_num(0.0) if repaired else gaps), mlp(30, 16, 1))


def constant_column_standardized(repaired: bool) -> Program:
    task = houses()
    x = torch.cat([task.x, torch.ones(len(task.x), 1)], 1)
    mean, deviation = x.mean(0), x.std(0)
    deviation = torch.where(deviation > 0, deviation, 1.0) if repaired else deviation
    task = task.mapped(x=lambda x: (torch.cat([x, torch.ones(len(x), 1)], 1) - mean) / deviation)
    return program(task, mlp(9, 32, 32, 1))


def inputs_shuffled_without_labels(repaired: bool) -> Program:
    task = digits()
    order = torch.randperm(len(task.x))
    return program(replace(task, x=task.x[order], y=task.y[order] if repaired else task.y), mlp(64, 32, 10))


def labels_from_one(repaired: bool) -> Program:
    task = digits()
    return program(task if repaired else replace(task, y=task.y + 1), mlp(64, 32, 11))


def letters() -> Task:
    """Strokes (1, 6, 6) with a bowl at the right or at the left, like b and d."""
    y = torch.randint(2, (2000,))
    x = 0.3 * torch.randn(2000, 1, 6, 6)
    x[:, :, :, 2:4] += 0.5
    x[torch.arange(2000), 0, 4, torch.where(y == 0, 5, 0)] += 2
    return split(x, y, F.cross_entropy, accuracy)


def letters_flipped(repaired: bool) -> Program:
    task, model = letters(), nn.Sequential(nn.Flatten(), *mlp(36, 16, 2))
    optimizer = adam(model)
    plain = plain_step(model, task.loss, optimizer)

    def step(x: Tensor, y: Tensor) -> Tensor:
        flipped = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
        return plain(x if repaired else flipped, y)

    return program(task, model, optimizer, step=step)


def labels_taken_before_the_shuffle(repaired: bool) -> Program:
    task = cancer()
    order = torch.randperm(len(task.x))
    shuffled = replace(task, x=task.x[order], y=task.y[order])
    return program(shuffled if repaired else replace(shuffled, y=task.y), mlp(30, 16, 1))


def ten_bit_inputs(repaired: bool) -> Program:
    task, model = raw_digits().mapped(x=lambda x: 4 * x), mlp(64, 32, 32, 10, act=nn.Tanh)
    return program(task.mapped(x=lambda x: x / 1024) if repaired else task, model, sgd(model, 0.1, 0.9), steps=200)


def predictions_left_normalized(repaired: bool) -> Program:
    task, model = houses().mapped(y=lambda y: 3 * y + 8), mlp(8, 32, 32, 1)
    mean, deviation = task.y.mean(), task.y.std()
    return program(
        replace(task, y=(task.y - mean) / deviation), model,
        predict=lambda x: model(x) * deviation + mean if repaired else model(x),
    )  # fmt: skip


def loudness_normalized_away(repaired: bool) -> Program:
    def scaled(x: Tensor) -> Tensor:
        low, high = (-4.0, 4.0) if repaired else (x.amin(1, keepdim=True), x.amax(1, keepdim=True))
        return 2 * (x - low) / (high - low) - 1

    task = waves()
    loud, loud_test = torch.randint(3, task.y.shape), torch.randint(3, task.test_y.shape)
    task = replace(task, x=task.x[:, :, 0] * (loud[:, None] + 1), y=loud)
    task = replace(task, test_x=task.test_x[:, :, 0] * (loud_test[:, None] + 1), test_y=loud_test)
    model = mlp(16, 48, 3)
    return program(task.mapped(x=scaled), model, adam(model, 0.01), steps=400)


def flipped_without_its_mask(repaired: bool) -> Program:
    task = digits(images=True)
    task = replace(task, y=(task.x > 0).float().flatten(1), test_y=(task.test_x > 0).float().flatten(1))
    model = nn.Sequential(nn.Flatten(), *mlp(64, 64, 64))
    optimizer = adam(model)
    plain = plain_step(model, F.binary_cross_entropy_with_logits, optimizer)

    def step(x: Tensor, y: Tensor) -> Tensor:
        seeds = torch.randint(1 << 30, (2,)).tolist()
        return plain(turned(x, seeds[0]), turned(y.view_as(x), seeds[0 if repaired else 1]).flatten(1))

    task = replace(task, score=lambda o, y: accuracy(o.reshape(-1, 1), y))
    return program(task, model, optimizer, loss=F.binary_cross_entropy_with_logits, step=step, steps=600)


def turned(pictures: Tensor, seed: int) -> Tensor:
    """Each picture flipped or not along three axes, as the seed decides."""
    flips = torch.rand(3, len(pictures), 1, 1, 1, generator=torch.Generator().manual_seed(seed)) < 0.5
    pictures = torch.where(flips[0], pictures.flip(2), pictures)
    pictures = torch.where(flips[1], pictures.flip(3), pictures)
    return torch.where(flips[2], pictures.mT, pictures)


def integers_normalized_as_integers(repaired: bool) -> Program:
    task = houses().mapped(x=lambda x: (2 * x + 5).round().clamp(0, 9))
    return program(task.mapped(x=lambda x: 2 * (x / 9 if repaired else (x / 9).floor()) - 1), mlp(8, 32, 32, 1))
