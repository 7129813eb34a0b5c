"""Numbers: too large or too small for their type, divided by zero, or without a derivative."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program
from .outputs import pairs
from .tasks import Net, Task, adam, cancer, houses, mlp, program, raw_digits, sgd


def halved(task: Task) -> Task:
    """The task in half precision, its loss in single precision."""
    task = task.mapped(x=Tensor.half, y=lambda y: y.half() if y.is_floating_point() else y)
    plain = task.loss
    return replace(task, loss=lambda o, y: plain(o.float(), y.float() if y.is_floating_point() else y))


def adam_in_half_precision(repaired: bool) -> Program:
    model = mlp(8, 32, 32, 1).half()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, eps=1e-4 if repaired else 1e-8)
    return program(halved(houses()), model, optimizer)


def weights_of_sixteen_bits(repaired: bool) -> Program:
    task, model = houses(), mlp(8, 32, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.sign() * (0.3 + 0.2 * torch.rand_like(parameter)))
    model = model if repaired else model.bfloat16()
    task = task if repaired else task.mapped(x=Tensor.bfloat16)
    optimizer, task = adam(model, 6e-4), replace(task, loss=lambda o, y: F.mse_loss(o.float(), y))
    return program(task, model, optimizer, steps=1000, predict=lambda x: model(x).float())


def root_at_zero(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        squares = (m.body(x[:, 0]) - m.body(x[:, 1])).square().sum(1)
        return (squares + 1e-8).sqrt() if repaired else squares.sqrt() + 1e-8

    model = Net(rule, body=mlp(64, 32, 8))
    return program(pairs(), model, predict=lambda x: 0.5 - model(x)[:, None])


def rewards_without_deviation(repaired: bool) -> Program:
    task = cancer().mapped(y=lambda y: y[:, 0].long())

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        policy = scores.log_softmax(1)
        action = (torch.rand(len(y)) < policy[:, 1].exp()).long()
        reward = (action == y).float()
        advantage = (reward - reward.mean()) / (reward.std() + 1e-8 * repaired)
        return -(policy.gather(1, action[:, None])[:, 0] * advantage).mean()

    return program(task, mlp(30, 16, 2), loss=loss, size=16)


def exponentials_of_scores(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        scores = m.query(x) @ m.key(x).transpose(1, 2)
        scores = scores - scores.amax(2, keepdim=True) if repaired else scores
        weights = scores.exp() / scores.exp().sum(2, keepdim=True)
        return m.out((x + weights @ x).flatten(1))

    task = raw_digits().mapped(x=lambda x: x.view(-1, 8, 8) / 16)
    model = Net(rule, query=nn.Linear(8, 8), key=nn.Linear(8, 8), out=nn.Linear(64, 10))
    return program(task, model)


def squares_in_half_precision(repaired: bool) -> Program:
    def rule(m: Any, x: Tensor) -> Tensor:
        size = (x.float() if repaired else x).square().mean(1, keepdim=True).add(1e-6).rsqrt()
        return m.body(x * size.half())

    model = Net(rule, body=mlp(64, 32, 10)).half()
    return program(halved(raw_digits().mapped(x=lambda x: 8 * x)), model, sgd(model, 0.05, 0.9))


def angle_at_one(repaired: bool) -> Program:
    task, most = houses(), 1 - 1e-6 * repaired
    task = task.mapped(y=lambda y: torch.cat([y.sin(), y.cos()], 1))
    model = Net(lambda m, x: F.normalize(m.body(x)), body=mlp(8, 32, 32, 2))
    return program(task, model, loss=lambda o, y: (o * y).sum(1).clamp(-most, most).acos().mean(), steps=500)
