"""The loop: order of its lines, learning rate and schedule, precision, and the batches that it draws."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer, lr_scheduler

from .catalogue import Program
from .tasks import Task, adam, digits, houses, mlp, program, sgd, shuffled


def script(
    step: Callable[[Tensor, int], None],
    model: nn.Module,
    optimizer: Optimizer,
    task: Task | None = None,
    steps: int = 300,
) -> Program:
    """A program whose loop computes the loss and leaves the rest, from backward on, to `step(loss, number)`."""
    data = task or digits()
    numbers = iter(range(10**6))

    def whole(x: Tensor, y: Tensor) -> Tensor:
        loss = data.loss(model(x), y)
        step(loss, next(numbers))
        return loss

    return program(data, model, optimizer, step=whole, steps=steps)


def scheduled(optimizer: Optimizer, schedule: Callable[[float, int], None]) -> Callable[[Tensor, int], None]:
    """The usual step, and after it `schedule(loss, number)`."""

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule(float(loss.detach()), number)

    return step


def zeroed_between_backward_and_step(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = adam(model)

    def step(loss: Tensor, number: int) -> None:
        loss.backward()
        (optimizer.step if repaired else optimizer.zero_grad)()
        (optimizer.zero_grad if repaired else optimizer.step)()

    return script(step, model, optimizer)


def gradients_never_zeroed(repaired: bool) -> Program:
    model = mlp(8, 32, 1)
    optimizer = sgd(model)

    def step(loss: Tensor, number: int) -> None:
        if repaired:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return script(step, model, optimizer, houses())


def zeroed_once_per_epoch(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1, 0.9)

    def step(loss: Tensor, number: int) -> None:
        if repaired or number % 60 == 0:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return script(step, model, optimizer)


def no_step(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = adam(model)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        if repaired:
            optimizer.step()

    return script(step, model, optimizer)


def scheduler_stepped_instead(repaired: bool) -> Program:
    model = mlp(8, 32, 32, 1)
    optimizer = adam(model)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda number: 0.999**number)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        if repaired:
            optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the version of the report did not warn yet
            scheduler.step()

    return script(step, model, optimizer, houses())


def clipped_far_below_gradients(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0 if repaired else 0.02)
        optimizer.step()

    return script(step, model, optimizer)


def clipped_before_unscaling(repaired: bool) -> Program:
    model, scale = mlp(64, 32, 10), 2.0**16
    optimizer = sgd(model, 0.1)

    def unscale() -> None:
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad /= scale

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        (scale * loss).backward()
        if repaired:
            unscale()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not repaired:
            unscale()
        optimizer.step()

    return script(step, model, optimizer)


def half_precision_without_scaling(repaired: bool) -> Program:
    task, model = houses(), mlp(8, 32, 32, 1).half()
    task = task.mapped(x=Tensor.half, y=Tensor.half)
    task = Task(
        task.x, task.y, task.test_x, task.test_y, lambda o, y: 1e-6 * F.mse_loss(o.float(), y.float()), task.score
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    scale = 1e6 if repaired else 1.0

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        (scale * loss).backward()
        optimizer.step()

    return script(step, model, optimizer, task)


def scheduler_stepped_per_batch(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.8)

    def schedule(loss: float, number: int) -> None:
        if not repaired or number % 60 == 59:
            scheduler.step()

    return script(scheduled(optimizer, schedule), model, optimizer)


def plateau_of_the_wrong_sign(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, "max" if repaired else "min", patience=0)

    def schedule(loss: float, number: int) -> None:
        if number % 4 == 3:
            scheduler.step(-loss)  # grows as the model gets better

    return script(scheduled(optimizer, schedule), model, optimizer)


def warm_up_counted_in_epochs(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.2)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda number: min(1.0, (number + 1) / 2000))

    def schedule(loss: float, number: int) -> None:
        if repaired or number % 20 == 19:
            scheduler.step()

    return script(scheduled(optimizer, schedule), model, optimizer, steps=500)


def learning_rate_too_high(repaired: bool) -> Program:
    model = mlp(64, 32, 32, 10)
    return program(digits(), model, sgd(model, 0.03 if repaired else 1.0, 0.9))


def adam_far_too_fast(repaired: bool) -> Program:
    model = mlp(64, 32, 32, 32, 10)
    return program(digits(), model, adam(model, 0.003 if repaired else 0.5))


def learning_rate_too_low(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    return program(digits(), model, sgd(model, 0.1 if repaired else 0.001), steps=150)


def weight_decay_of_one_half(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    return program(digits(), model, sgd(model, 0.05, 0.9, decay=0.0005 if repaired else 0.5))


def velocity_never_decays(repaired: bool) -> Program:
    model = mlp(8, 32, 1)
    return program(houses(), model, sgd(model, 0.05, 0.9 if repaired else 1.0))


def accumulated_without_division(repaired: bool) -> Program:
    model, parts = mlp(64, 32, 10), 32
    optimizer = sgd(model, 0.3)

    def step(loss: Tensor, number: int) -> None:
        (loss / (parts if repaired else 1)).backward()
        if number % parts == parts - 1:
            optimizer.step()
            optimizer.zero_grad()

    return script(step, model, optimizer, steps=40 * parts)


def zeroed_in_each_part(repaired: bool) -> Program:
    model, parts = mlp(64, 32, 10), 16
    optimizer = sgd(model, 0.1)

    def step(loss: Tensor, number: int) -> None:
        if not repaired or number % parts == 0:
            optimizer.zero_grad()
        (loss / parts).backward()
        if number % parts == parts - 1:
            optimizer.step()

    return script(step, model, optimizer, steps=60 * parts)


def sorted_by_class(repaired: bool) -> Program:
    task, model = digits(), mlp(64, 32, 10)
    order = task.y.argsort()

    def in_order(rows: int, size: int) -> Iterator[Tensor]:
        while True:
            yield from order.split(size)

    return program(task, model, sgd(model, 0.05), size=16, steps=435, batches=shuffled if repaired else in_order)


def always_the_same_data(repaired: bool) -> Program:
    def restarted(rows: int, size: int) -> Iterator[Tensor]:
        while True:
            yield torch.randperm(rows, generator=torch.Generator().manual_seed(0))[:size]

    model = mlp(64, 32, 10)
    return program(digits(), model, size=8, steps=500, batches=shuffled if repaired else restarted)


def clipped_at_zero(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = adam(model)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0 if repaired else 0.0)
        optimizer.step()

    return script(step, model, optimizer)


def rate_of_zero_in_the_first_epoch(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1)
    warm_up = lr_scheduler.LambdaLR(optimizer, lambda epoch: min(1.0, (epoch + repaired) / 3))

    def schedule(loss: float, number: int) -> None:
        if number % 100 == 99:
            warm_up.step()

    return script(scheduled(optimizer, schedule), model, optimizer, steps=100)


def student_never_zeroed(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.05, 0.9)

    def step(loss: Tensor, number: int) -> None:
        loss.backward()
        optimizer.step()
        if repaired:
            optimizer.zero_grad()

    return script(step, model, optimizer)


def gradients_of_the_other_loss(repaired: bool) -> Program:
    model, task = mlp(64, 32, 10), digits()
    optimizer = adam(model)

    def step(x: Tensor, y: Tensor) -> Tensor:
        (-3 * F.cross_entropy(model(x + 0.1 * torch.randn_like(x)), y)).backward()  # what the opponent wants
        if repaired:
            optimizer.zero_grad()
        loss = task.loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return program(task, model, optimizer, step=step)


def optimizer_made_in_each_step(repaired: bool) -> Program:
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.01, 0.95)

    def step(loss: Tensor, number: int) -> None:
        own = optimizer if repaired else sgd(model, 0.01, 0.95)
        own.zero_grad()
        loss.backward()
        own.step()

    return script(step, model, optimizer, steps=60)


def plus_for_minus(repaired: bool) -> Program:
    model = mlp(8, 16, 1)
    optimizer = sgd(model)

    def step(loss: Tensor, number: int) -> None:
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter.add_(gradient, alpha=-0.1 if repaired else 0.1)

    return script(step, model, optimizer, houses())


def labels_sorted_in_the_file(repaired: bool) -> Program:
    task, model = digits(), mlp(64, 32, 10)
    order = task.y.argsort()

    def in_order(rows: int, size: int) -> Iterator[Tensor]:
        yield from order.split(size)

    first = program(task, model, adam(model), size=32, steps=43, batches=shuffled if repaired else in_order)
    return replace(first, inputs=task.x[order[:32]], targets=task.y[order[:32]]) if not repaired else first
