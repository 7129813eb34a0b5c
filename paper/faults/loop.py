"""The loop: order of its lines, learning rate and schedule, precision, and the batches that it draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from .catalogue import Program, fault
from .causes import Cause
from .tasks import Task, adam, digits, houses, mlp, program, sgd, shuffled


def script(
    task: Task,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Callable[[Tensor, int], None],
    steps: int = 300,
) -> Program:
    """A program whose loop computes the loss and leaves the rest, from backward on, to `step(loss, number)`."""
    numbers = iter(range(10**6))

    def whole(x: Tensor, y: Tensor) -> Tensor:
        loss = task.loss(model(x), y)
        step(loss, next(numbers))
        return loss

    return program(task, model, optimizer, step=whole, steps=steps)


def scheduled(
    optimizer: torch.optim.Optimizer, schedule: Callable[[float, int], None]
) -> Callable[[Tensor, int], None]:
    """The usual step, and after it `schedule(loss, number)`."""

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule(float(loss.detach()), number)

    return step


@fault(
    "https://github.com/lucidrains/byol-pytorch/issues/93",
    Cause.ZEROED_BEFORE_STEP,
    "gradients are zeroed after the step",
)
def zeroed_between_backward_and_step(repaired: bool) -> Program:
    """The trainer sets gradients to zero right before it steps the optimizer."""
    model = mlp(64, 32, 10)
    optimizer = adam(model)

    def step(loss: Tensor, number: int) -> None:
        loss.backward()
        (optimizer.step if repaired else optimizer.zero_grad)()
        (optimizer.zero_grad if repaired else optimizer.step)()

    return script(digits(), model, optimizer, step)


@fault(
    "https://github.com/IBM/aihwkit/issues/446",
    Cause.NEVER_ZEROED,
    "gradients are zeroed in each iteration",
)
def gradients_never_zeroed(repaired: bool) -> Program:
    """The loss decreases for five iterations, then increases again."""
    model = mlp(8, 32, 1)
    optimizer = sgd(model)

    def step(loss: Tensor, number: int) -> None:
        if repaired:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return script(houses(), model, optimizer, step)


@fault(
    "https://github.com/heartcored98/Standalone-DeepLearning/issues/11",
    Cause.NEVER_ZEROED,
    "gradients are zeroed before each backward",
)
def zeroed_once_per_epoch(repaired: bool) -> Program:
    """Gradients are set to zero once per epoch, although each batch calls backward."""
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1, 0.9)

    def step(loss: Tensor, number: int) -> None:
        if repaired or number % 60 == 0:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return script(digits(), model, optimizer, step)


@fault(
    "https://github.com/zhaoyuzhi/deepfillv2/issues/6",
    Cause.NO_STEP,
    "the optimizer's step after backward",
)
def no_step(repaired: bool) -> Program:
    """The discriminator's optimizer is never stepped."""
    model = mlp(64, 32, 10)
    optimizer = adam(model)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        if repaired:
            optimizer.step()

    return script(digits(), model, optimizer, step)


@fault(
    "https://github.com/pytorch/pytorch/issues/3814",
    Cause.NO_STEP,
    "the optimizer is stepped as well as its scheduler",
)
def scheduler_stepped_instead(repaired: bool) -> Program:
    """Nothing works: the weights are the same after each step of the scheduler, taken for a wrapped optimizer."""
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

    return script(houses(), model, optimizer, step)


@fault(
    "https://github.com/emo-box/EmoBox/issues/12",
    Cause.NO_STEP,
    "no check before the step",
)
def step_behind_a_check(repaired: bool) -> Program:
    """The loss stays the same until the condition before the step is taken out; no gradient was ever at fault."""
    model = mlp(64, 32, 10)
    optimizer = adam(model)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        if repaired or not all(bool(gradient.isfinite().all()) for gradient in gradients):
            optimizer.step()

    return script(digits(), model, optimizer, step)


@fault(
    "https://github.com/wandb/senpai/pull/978",
    Cause.CLIPPED_TO_NOTHING,
    "a bound that most gradients are below",
)
def clipped_far_below_gradients(repaired: bool) -> Program:
    """Every batch is clipped, and steps are a small part of what the learning rate says."""
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1)

    def step(loss: Tensor, number: int) -> None:
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0 if repaired else 0.02)
        optimizer.step()

    return script(digits(), model, optimizer, step)


@fault(
    "https://github.com/NVIDIA/apex/pull/1512",
    Cause.CLIPPED_BEFORE_UNSCALING,
    "gradients are unscaled, then clipped",
)
def clipped_before_unscaling(repaired: bool) -> Program:
    """Training with scaled losses goes wrong: clipping sees scaled gradients and leaves extremely small ones."""
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

    return script(digits(), model, optimizer, step)


@fault(
    "https://github.com/engichang1467/Open-Rig3R/issues/35",
    Cause.HALF_PRECISION_UNDERFLOW,
    "the loss is scaled up before backward and gradients down after it",
)
def half_precision_without_scaling(repaired: bool) -> Program:
    """In half precision without a scaler gradients are rounded to zero and the curve flattens too early."""
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

    return script(task, model, optimizer, step)


@fault(
    "https://github.com/ivadomed/ivadomed/pull/55",
    Cause.RATE_VANISHES,
    "the scheduler steps once per epoch",
)
def scheduler_stepped_per_batch(repaired: bool) -> Program:
    """The scheduler steps in the loop over batches: the learning rate falls after each one."""
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.8)

    def schedule(loss: float, number: int) -> None:
        if not repaired or number % 60 == 59:
            scheduler.step()

    return script(digits(), model, optimizer, scheduled(optimizer, schedule))


@fault(
    "https://github.com/md-mohaiminul/ViS4mer/issues/4",
    Cause.RATE_VANISHES,
    "mode max for a quantity that is to grow",
)
def plateau_of_the_wrong_sign(repaired: bool) -> Program:
    """The rate is to fall once accuracy no longer grows; the scheduler waits for it to stop falling."""
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.1)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, "max" if repaired else "min", patience=0)

    def schedule(loss: float, number: int) -> None:
        if number % 5 == 4:
            scheduler.step(-loss)  # grows as the model gets better

    return script(digits(), model, optimizer, scheduled(optimizer, schedule))


@fault(
    "https://github.com/Lightning-AI/pytorch-lightning/issues/5631",
    Cause.RATE_VANISHES,
    "the schedule is stepped after each batch",
)
def warm_up_counted_in_epochs(repaired: bool) -> Program:
    """A schedule that was written for batches moves once per epoch: the rate stays where it began."""
    model = mlp(64, 32, 10)
    optimizer = sgd(model, 0.2)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda number: min(1.0, (number + 1) / 1000))

    def schedule(loss: float, number: int) -> None:
        if repaired or number % 20 == 19:
            scheduler.step()

    return script(digits(), model, optimizer, scheduled(optimizer, schedule), 500)


@fault(
    "https://github.com/keras-team/keras/issues/2711",
    Cause.RATE_TOO_HIGH,
    "a learning rate of a hundredth",
)
def learning_rate_of_one(repaired: bool) -> Program:
    """Accuracy stays where it was, whatever is tried: stochastic gradient descent with learning rate 1."""
    model = mlp(64, 32, 32, 10)
    return program(digits(), model, sgd(model, 0.03 if repaired else 1.0, 0.9))


@fault(
    "https://github.com/Tessellate-Imaging/monk_v1/issues/5",
    Cause.RATE_TOO_HIGH,
    "the default becomes 0.001",
)
def adam_far_too_fast(repaired: bool) -> Program:
    """The loss on validation data improves a little and accuracy does not: the default rate is too high."""
    model = mlp(64, 32, 32, 32, 10)
    return program(digits(), model, adam(model, 0.003 if repaired else 0.5))


@fault(
    "https://github.com/danieltan07/learning-to-reweight-examples/issues/10",
    Cause.RATE_TOO_LOW,
    "0.1 instead of 0.001",
)
def learning_rate_too_low(repaired: bool) -> Program:
    """The baseline stays at chance with 0.001 and reaches 80 percent with 0.1."""
    model = mlp(64, 32, 10)
    return program(digits(), model, sgd(model, 0.1 if repaired else 0.001), steps=150)


@fault(
    "https://github.com/BVLC/caffe/issues/1396",
    Cause.DECAY_TOO_STRONG,
    "a decay of 0.0005",
)
def weight_decay_of_one_half(repaired: bool) -> Program:
    """Any input gives the same output; with a decay of 0.5 all weights end at zero."""
    model = mlp(64, 32, 10)
    return program(digits(), model, sgd(model, 0.05, 0.9, decay=0.0005 if repaired else 0.5))


@fault(
    "https://github.com/ooples/AiDotNet/issues/2008",
    Cause.MOMENTUM_TOO_LARGE,
    "the coefficient is on the velocity and below one",
)
def velocity_never_decays(repaired: bool) -> Program:
    """Momentum adds gradients up without forgetting: steps grow the longer training runs."""
    model = mlp(8, 32, 1)
    return program(houses(), model, sgd(model, 0.05, 0.9 if repaired else 1.0))


@fault(
    "https://github.com/agokrani/distillKitPlus/issues/5",
    Cause.ACCUMULATION_NOT_DIVIDED,
    "the loss is divided by the number of accumulated batches",
)
def accumulated_without_division(repaired: bool) -> Program:
    """The loss and its gradient grow with the number of accumulated batches."""
    model, parts = mlp(64, 32, 10), 32
    optimizer = sgd(model, 0.3)

    def step(loss: Tensor, number: int) -> None:
        (loss / (parts if repaired else 1)).backward()
        if number % parts == parts - 1:
            optimizer.step()
            optimizer.zero_grad()

    return script(digits(), model, optimizer, step, 40 * parts)


@fault(
    "https://github.com/bytetriper/RAE/issues/67",
    Cause.ACCUMULATION_LOST,
    "gradients are zeroed after the step alone",
)
def zeroed_in_each_part(repaired: bool) -> Program:
    """Gradients are cleared for each part of a batch, so only the last part counts."""
    model, parts = mlp(64, 32, 10), 16
    optimizer = sgd(model, 0.1)

    def step(loss: Tensor, number: int) -> None:
        if not repaired or number % parts == 0:
            optimizer.zero_grad()
        (loss / parts).backward()
        if number % parts == parts - 1:
            optimizer.step()

    return script(digits(), model, optimizer, step, 60 * parts)


@fault(
    "https://github.com/facebookresearch/fastText/issues/74",
    Cause.SORTED_DATA,
    "the lines are shuffled",
)
def sorted_by_class(repaired: bool) -> Program:
    """Precision and recall are very low when lines of the same label follow each other."""
    task, model = digits(), mlp(64, 32, 10)
    order = task.y.argsort()

    def in_order(rows: int, size: int) -> Iterator[Tensor]:
        while True:
            yield from order.split(size)

    return program(task, model, sgd(model, 0.05), size=16, steps=435, batches=shuffled if repaired else in_order)


@fault(
    "https://github.com/torch-points3d/torch-points3d/pull/247",
    Cause.SAME_BATCH,
    "the generator goes on between epochs",
)
def always_the_same_data(repaired: bool) -> Program:
    """The generator of random numbers starts again in each epoch: the loader always gives the same data."""

    def restarted(rows: int, size: int) -> Iterator[Tensor]:
        while True:
            yield torch.randperm(rows, generator=torch.Generator().manual_seed(0))[:size]

    model = mlp(64, 32, 10)
    return program(digits(), model, size=8, steps=500, batches=shuffled if repaired else restarted)
