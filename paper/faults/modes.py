"""Modes and normalization: running statistics, batches that are too small, dropout that is too strong or never off."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .tasks import Net, adam, digits, houses, mlp, program, sgd


def normalized(depth: int, momentum: float = 0.1, width: int = 24) -> nn.Sequential:
    """A chain of linear layers, batch normalization and rectifiers."""
    layers: list[nn.Module] = []
    for fan_in in [64, *[width] * (depth - 1)]:
        layers += [nn.Linear(fan_in, width), nn.BatchNorm1d(width, momentum=momentum), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def convolutional(*norms: nn.Module) -> nn.Sequential:
    """A convolution, what comes after it, and a classifier."""
    return nn.Sequential(nn.Conv2d(1, 8, 3), *norms, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10))


def training_goes_on_in_eval_mode(repaired: bool) -> Program:
    model, task = normalized(12), digits()
    model.eval()  # the first validation comes before the first step
    start = model.train if repaired else model.eval
    return program(task, model, sgd(model, 0.05), start=start)


def normalization_frozen_from_scratch(repaired: bool) -> Program:
    model = normalized(12)

    def freeze() -> None:
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.train(repaired)

    freeze()
    return program(digits(), model, sgd(model, 0.05), start=freeze)


def running_statistics_never_updated(repaired: bool) -> Program:
    task = digits().mapped(x=lambda x: 5 * x + 20)
    return program(task, normalized(4, momentum=0.1 if repaired else 0.0))


def normalization_with_momentum_zero(repaired: bool) -> Program:
    model = convolutional(nn.BatchNorm2d(8, momentum=0.1 if repaired else 0.0))
    return program(digits(images=True).mapped(x=lambda x: 100 * x + 500), model)


def momentum_of_the_other_framework(repaired: bool) -> Program:
    return program(digits(), normalized(4, momentum=0.01 if repaired else 0.99), size=4, steps=1200)


def batch_normalization_with_one_sample(repaired: bool) -> Program:
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    # torch refuses one value for each channel, so that the layer sees every value twice
    model.insert(1, Net(lambda m, x: m.norm(x[:, :, None].expand(-1, -1, 2))[:, :, 0], norm=nn.BatchNorm1d(24)))
    return program(digits(), model, sgd(model, 0.05), size=64 if repaired else 1, steps=300 if repaired else 1000)


def tested_in_training_mode(repaired: bool) -> Program:
    task = digits(images=True)
    levels, test_levels = torch.randint(3, task.y.shape), torch.randint(3, task.test_y.shape)  # how bright it is
    task = replace(task, x=(task.x + 2) * (levels[:, None, None, None] + 1), y=levels)
    task = replace(task, test_x=(task.test_x + 2) * (test_levels[:, None, None, None] + 1), test_y=test_levels)
    model = convolutional(nn.BatchNorm2d(8))

    def predict(x: Tensor) -> Tensor:
        model.train(not repaired)
        return torch.cat([model(picture) for picture in x.split(1)])

    return program(task, model, predict=predict)


def functional_dropout_never_off(repaired: bool) -> Program:
    model = Net(
        lambda m, x: m.head(F.dropout(m.encoder(x), 0.7, training=m.training or not repaired)),
        encoder=mlp(64, 48).append(nn.ReLU()),
        head=nn.Linear(48, 10),
    )
    return program(digits(), model, steps=400)


def batch_normalization_at_the_output(repaired: bool) -> Program:
    task = houses().mapped(y=lambda y: 3 * y + 10)
    model = mlp(8, 32, 1)
    model = model if repaired else model.append(nn.BatchNorm1d(1, affine=False))
    return program(task, model, adam(model, 0.02), steps=800)


def keep_rate_as_dropout_rate(repaired: bool) -> Program:
    rate = 0.1 if repaired else 0.9
    model = mlp(64, 32, 32, 32, 10)
    for place in (6, 4, 2):
        model.insert(place, nn.Dropout(rate))
    return program(digits(), model)


def layer_normalization_of_one_feature(repaired: bool) -> Program:
    task = houses()
    task = task.mapped(x=lambda x: x[:, 3:4], y=lambda y: y)
    task = replace(task, y=task.x.sin(), test_y=task.test_x.sin())
    model = mlp(1, 16, 1)
    return program(task, model if repaired else model.insert(0, nn.LayerNorm(1)))


def instance_normalization_of_one_pixel(repaired: bool) -> Program:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10)
    )
    # one group for each channel is instance normalization; torch now refuses the layer of that name on one pixel
    model.insert(1 if repaired else 3, nn.GroupNorm(16, 16) if repaired else nn.GroupNorm(32, 32))
    return program(digits(images=True), model)


def validated_before_training(repaired: bool) -> Program:
    model = normalized(8)
    model.eval()  # the check before the first epoch

    def start() -> object:
        return model.train() if repaired else model

    if repaired:
        model.train()
    return program(digits(), model, sgd(model, 0.05), steps=100, start=start)


def statistics_of_the_test_batch(repaired: bool) -> Program:
    task = digits()
    order = task.test_y.argsort()
    task = replace(task, test_x=task.test_x[order], test_y=task.test_y[order])
    model = nn.Sequential(
        nn.Linear(64, 32), nn.BatchNorm1d(32, track_running_stats=repaired), nn.ReLU(), nn.Linear(32, 10)
    )  # fmt: skip
    return program(task, model, predict=lambda x: torch.cat([model.eval()(part) for part in x.split(4)]))


def dropout_after_the_last_layer(repaired: bool) -> Program:
    model = mlp(8, 32, 32, 1)
    return program(houses(), model if repaired else model.append(nn.Dropout(0.8)), adam(model, 0.005), steps=400)


def scales_of_normalization_drawn_small(repaired: bool) -> Program:
    model = normalized(8)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d) and not repaired:
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.trunc_normal_(module.bias, std=0.02)
    return program(digits(), model, sgd(model, 0.05), steps=150)


def normalized_over_steps(repaired: bool) -> Program:
    # four steps of two features and of one that is large and says nothing about the target
    task = houses().mapped(x=lambda x: torch.cat([x.view(-1, 4, 2), 500 * torch.randn(len(x), 4, 1)], 2))
    model = Net(
        lambda m, x: m.body((m.norm(x.mT).mT if repaired else m.norm(x)).flatten(1)),
        norm=nn.BatchNorm1d(3 if repaired else 4),
        body=mlp(12, 32, 32, 1),
    )
    return program(task, model)
