"""Reported bugs of optimizers, their schedules and the loop of training and use, each with its repaired twin."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import (
    Net,
    accuracy,
    adam,
    digits,
    houses,
    mlp,
    program,
    raw_digits,
    recall,
    sgd,
    split,
)


def _small_cnn() -> nn.Sequential:
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def adadelta_at_the_default_of_another_release(repaired: bool) -> Program:
    task = digits(images=True)
    model = _small_cnn()
    model.insert(8, nn.Dropout(0.25))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0 if repaired else 0.001, rho=0.95, eps=1e-7)
    return program(task, model, optimizer, steps=200, size=64)


def layers_decayed_in_every_step(repaired: bool) -> Program:
    task = digits()
    model = mlp(64, 48, 48, 10)
    scales = [0.75 ** (3 - place) for place in range(3)]
    groups = [{"params": layer.parameters(), "lr": 5e-3} for layer in list(model)[::2]]
    optimizer = torch.optim.AdamW(groups)

    def scale() -> None:
        for group, factor in zip(optimizer.param_groups, scales, strict=True):
            group["lr"] *= factor

    def step(x: Tensor, y: Tensor) -> Tensor:
        if not repaired:
            scale()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return program(task, model, optimizer, step=step, steps=200, size=32)


def copied_with_the_optimizer_of_the_original(repaired: bool) -> Program:
    task = houses()
    original = mlp(8, 64, 1)
    optimizer = torch.optim.Adam(original.parameters(), lr=1e-2)
    model = deepcopy(original)
    if repaired:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return program(task, model, optimizer, steps=300, size=64)


def loss_made_a_leaf_again(repaired: bool) -> Program:
    task = recall(8)

    def forward(net: Net, x: Tensor) -> Tensor:
        outputs = net.out(net.lstm(net.embed(x))[0].mean(1))
        return outputs if repaired else outputs.data

    model = Net(forward, embed=nn.Embedding(4, 16), lstm=nn.LSTM(16, 32, batch_first=True), out=nn.Linear(32, 4))
    optimizer = adam(model, 1e-2)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if not repaired:
            loss.requires_grad = True
        loss.backward()
        optimizer.step()
        return loss

    return program(task, model, optimizer, step=step, steps=200, size=64)


def rate_divided_by_ten_in_each_step(repaired: bool) -> Program:
    task = digits(images=True)
    model = _small_cnn()
    optimizer = sgd(model, 0.05, 0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 200 if repaired else 1, 0.1)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return program(task, model, optimizer, step=step, steps=250, size=64)


def averaged_over_the_map_once_more(repaired: bool) -> Program:
    x = 0.4 * torch.rand(600, 1, 12, 12)
    y = torch.zeros_like(x)
    for image, target, (row, column) in zip(x, y, torch.randint(8, (600, 2)), strict=True):
        target[0, row : row + 4, column : column + 4] = 1
        image[0, row : row + 4, column : column + 4] += 0.5
    count = 1 if repaired else 12 * 12

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs, y) / count

    task = split(x, y, loss, lambda o, t: accuracy(o.reshape(-1, 1), t), 100)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    return program(task, model, sgd(model, 0.2, 0.9), steps=200, size=16)


class _Decaying(torch.optim.SGD):
    """Gradient descent with a penalty of its own on the weights."""

    penalty = 0.0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad += self.penalty * parameter
        return super().step(closure)


def penalty_subtracted_from_the_gradient(repaired: bool) -> Program:
    task = houses()
    model = mlp(8, 64, 64, 1)
    optimizer = _Decaying(model.parameters(), lr=0.05, momentum=0.9)
    optimizer.penalty = 0.01 if repaired else -0.01
    return program(task, model, optimizer, steps=400, size=32)


def initializer_run_after_the_weights_were_loaded(repaired: bool) -> Program:
    task = digits(images=True)
    model = _small_cnn()

    def predict(x: Tensor) -> Tensor:
        network = _small_cnn()
        network.load_state_dict(model.state_dict())
        if not repaired:
            network.apply(lambda layer: layer.reset_parameters() if hasattr(layer, "reset_parameters") else None)
        return network.eval()(x)

    return program(task, model, adam(model), steps=200, size=64, predict=predict)


def evaluating_since_the_first_validation(repaired: bool) -> Program:
    task = raw_digits()
    model = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = sgd(model, 0.05, 0.9)
    seen = 0

    def step(x: Tensor, y: Tensor) -> Tensor:
        nonlocal seen
        if seen % 100 == 0:
            model.eval()
            with torch.no_grad():
                model(task.test_x)
            if repaired:
                model.train()
        seen += 1
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return program(task, model, optimizer, step=step, steps=300, size=64)


def vgg_at_a_rate_too_high_for_adam(repaired: bool) -> Program:
    task = digits(images=True)

    def conv(inputs: int, outputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]

    first, second = [*conv(1, 16), *conv(16, 16), nn.MaxPool2d(2)], [*conv(16, 32), *conv(32, 32), nn.MaxPool2d(2)]
    head = [nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)]
    model = nn.Sequential(*first, *second, *head)
    return program(task, model, adam(model, 3e-3 if repaired else 5e-2), steps=150, size=64)


def updated_once_with_all_examples(repaired: bool) -> Program:
    task = digits()
    model = mlp(64, 32, 10)
    rows, epochs = len(task.x), 20
    size = 64 if repaired else rows
    return program(task, model, sgd(model, 0.05), steps=epochs * (rows // size), size=size)
