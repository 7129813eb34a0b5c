"""Epochs: what is trained on, kept and scheduled from one to the next, and how the optimizer is set for it."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim import lr_scheduler

from .catalogue import Program
from .loop import scheduled, script
from .tasks import adam, digits, houses, mlp, program, sgd

LONG = 22  # batches in an epoch of the digits


def accumulation_longer_than_an_epoch(repaired: bool) -> Program:
    model, parts = mlp(64, 32, 10), 32
    optimizer = sgd(model, 0.2)

    def step(loss: Tensor, number: int) -> None:
        (loss / parts).backward()
        counted = number if repaired else number % LONG
        if counted % parts == parts - 1:
            optimizer.step()
            optimizer.zero_grad()

    return script(step, model, optimizer, steps=45 * parts)


def checkpoint_loaded_in_each_epoch(repaired: bool) -> Program:
    model = mlp(8, 32, 1)
    optimizer, checkpoint = adam(model), copy.deepcopy(model.state_dict())

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not repaired and number % LONG == LONG - 1:
            model.load_state_dict(checkpoint)

    return script(step, model, optimizer, houses())


def rate_multiplied_with_itself(repaired: bool) -> Program:
    model, rate = mlp(64, 32, 10), 0.05
    optimizer = sgd(model, rate)
    decay = lr_scheduler.LambdaLR(optimizer, lambda number: (1 if repaired else rate) * (1 + 0.001 * number) ** -0.75)
    return script(scheduled(optimizer, lambda loss, number: decay.step()), model, optimizer, steps=200)


def dropped_by_the_final_rate(repaired: bool) -> Program:
    model, rate, final = mlp(64, 32, 10), 0.05, 0.045
    optimizer = sgd(model, rate)
    factor = final / rate if repaired else final
    drops = lr_scheduler.LambdaLR(optimizer, lambda number: factor ** (number // 10))
    return script(scheduled(optimizer, lambda loss, number: drops.step()), model, optimizer, steps=200)


def return_inside_the_loop(repaired: bool) -> Program:
    task, model = digits(), mlp(64, 32, 10)

    def epochs(rows: int, size: int) -> Iterator[Tensor]:
        for _ in range(8):
            for batch in torch.randperm(rows).split(size):
                yield batch
                if not repaired:
                    break

    return program(task, model, sgd(model), steps=8 * LONG, batches=epochs)


def step_after_the_loop(repaired: bool) -> Program:
    model = mlp(8, 32, 1)
    optimizer = adam(model, 0.01)

    def step(loss: Tensor, number: int) -> None:
        if repaired or number % LONG == LONG - 1:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return script(step, model, optimizer, houses())


def epsilon_of_one(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    return program(digits(), model, torch.optim.Adam(model.parameters(), 3e-3, eps=1e-8 if repaired else 1.0))


def sampled_with_weights_of_classes(repaired: bool) -> Program:
    task, model = digits(), mlp(64, 32, 10)
    of_class = 1 / task.y.bincount().float()
    weights = of_class[task.y] if repaired else of_class

    def sampler(rows: int, size: int) -> Iterator[Tensor]:
        while True:
            yield torch.multinomial(weights, size, replacement=True)

    return program(task, model, batches=sampler)
