"""Reported bugs of inputs, targets and their preparation, each with its repaired twin."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import (
    Net,
    Task,
    accuracy,
    adam,
    cancer,
    digits,
    explained,
    mlp,
    program,
    sentences,
    sgd,
    split,
)


def validated_without_the_scaler(repaired: bool) -> Program:
    task = cancer(scaled=False)
    mean, std = task.x.mean(0), task.x.std(0)
    test = (task.test_x - mean) / std if repaired else task.test_x
    task = Task((task.x - mean) / std, task.y, test, task.test_y, task.loss, task.score)
    model = mlp(30, 16, 1)
    return program(task, model, adam(model, 3e-3), steps=150, size=32)


def last_fifth_is_a_class_of_its_own(repaired: bool) -> Program:
    task = digits()
    x, y = torch.cat([task.x, task.test_x]), torch.cat([task.y, task.test_y])
    x, y = x[y < 5], y[y < 5]
    order = torch.randperm(len(y)) if repaired else y.argsort()  # the folders, one after the other
    x, y = x[order], y[order]
    end = int(0.8 * len(y))

    def share(outputs: Tensor, targets: Tensor) -> float:
        return float((outputs.argmax(1) == targets).float().mean())

    task = Task(x[:end], y[:end], x[end:], y[end:], F.cross_entropy, share)
    model = mlp(64, 32, 5)
    return program(task, model, adam(model), steps=150, size=32)


def beginnings_of_texts_cut_off(repaired: bool) -> Program:
    rows, longest, kept = 1500, 30, 12
    sizes = torch.randint(18, longest + 1, (rows,))
    words = torch.randint(6, 40, (rows, longest))
    y = torch.randint(5, (rows,))
    words[torch.arange(rows), torch.randint(4, (rows,))] = y + 1
    x = torch.zeros(rows, kept, dtype=torch.long)
    for row, (text, size) in enumerate(zip(words, sizes.tolist(), strict=True)):
        x[row] = text[:kept] if repaired else text[size - kept : size]
    model = Net(
        lambda net, x: net.out(net.gru(net.embed(x))[0].amax(1)),
        embed=nn.Embedding(40, 16),
        gru=nn.GRU(16, 24, batch_first=True),
        out=nn.Linear(24, 5),
    )
    return program(split(x, y, F.cross_entropy, accuracy), model, adam(model, 1e-2), steps=200, size=32)


def columns_encoded_for_each_table(repaired: bool) -> Program:
    effects = torch.randn(3, 12)
    train, test = torch.randint(12, (1500, 3)), torch.randint(1, 12, (400, 3))  # no Holland in the second table

    def encoder(table: Tensor) -> list[Tensor]:
        return [column.unique() for column in table.T]

    def encode(table: Tensor, known: list[Tensor]) -> Tensor:
        return torch.stack([torch.searchsorted(k, c.contiguous()) for k, c in zip(known, table.T, strict=True)], 1)

    def target(table: Tensor) -> Tensor:
        return effects[torch.arange(3), table].sum(1, keepdim=True) + 0.1 * torch.randn(len(table), 1)

    x, test_x = encode(train, encoder(train)), encode(test, encoder(train if repaired else test))
    task = Task(x, target(train), test_x, target(test), F.mse_loss, explained)
    model = Net(
        lambda net, x: net.out(net.embed(x + 12 * torch.arange(3)).flatten(1)),
        embed=nn.Embedding(36, 4),
        out=mlp(12, 32, 1),
    )
    return program(task, model, adam(model, 1e-2), steps=300, size=64)


def alphabet_from_a_set_at_each_start(repaired: bool) -> Program:
    task = sentences()
    model = Net(
        lambda net, x: net.out(net.lstm(net.embed(x))[0]),
        embed=nn.Embedding(12, 16),
        lstm=nn.LSTM(16, 32, batch_first=True),
        out=nn.Linear(32, 12),
    )
    codes = torch.arange(12) if repaired else torch.randperm(12)  # of the letters, when the model is used
    return program(task, model, adam(model, 1e-2), steps=150, size=32, predict=lambda x: model(codes[x])[..., codes])


def pictures_of_the_whole_list(repaired: bool) -> Program:
    task = digits()
    chosen = torch.rand(len(task.x)) < 0.8  # the partition that the file assigns to training
    pictures = task.x[chosen] if repaired else task.x[: int(chosen.sum())]
    task = Task(pictures, task.y[chosen], task.test_x, task.test_y, task.loss, task.score)
    model = mlp(64, 64, 10)
    return program(task, model, adam(model), steps=300, size=32)


def fourth_powers_of_hundreds(repaired: bool) -> Program:
    x = torch.linspace(-100, 100, 1200)[:, None]
    y = x**4
    task = split(x / 100, y / 1e8, F.mse_loss, explained, 300) if repaired else split(x, y, F.mse_loss, explained, 300)
    model = nn.Sequential(nn.Linear(1, 50), nn.Sigmoid(), nn.Linear(50, 50), nn.ELU(), nn.Linear(50, 1))
    return program(task, model, adam(model, 5e-3), steps=400, size=32)


def sine_of_places_up_to_a_thousand(repaired: bool) -> Program:
    x = torch.arange(0, 1000.0)[:, None]
    y = torch.sin(4 * torch.pi * x / 1000)
    if repaired:
        x = (x - x.mean()) / x.std()
    model = mlp(1, 32, 32, 1, act=nn.Tanh)
    return program(split(x, y, F.mse_loss, explained, 250), model, adam(model, 5e-3), steps=400, size=32)


def line_through_numbers_up_to_a_hundred(repaired: bool) -> Program:
    x = 100 * torch.rand(700, 1)
    task = split(x, 5 * x + 3 + 0.1 * torch.randn(700, 1), F.mse_loss, explained, 200)
    model = nn.Linear(1, 1)
    return program(task, model, sgd(model, 1e-4 if repaired else 1e-2), steps=200, size=500)


def more_samples_at_the_same_rate(repaired: bool) -> Program:
    x = torch.rand(240, 1)
    task = split(x, 2 * x + 0.2 * torch.randn(240, 1), lambda o, y: ((o - y) ** 2).sum(), explained, 200)
    model = nn.Linear(1, 1, bias=False)
    return program(task, model, sgd(model, 1 / 40 if repaired else 0.1), steps=100, size=40)
