"""Modes and normalization: running statistics, batches that are too small, dropout that is too strong or never off."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program, fault
from .causes import Cause
from .tasks import Net, adam, digits, houses, mlp, plain_step, program, sgd


def normalized(depth: int, momentum: float = 0.1, width: int = 24) -> nn.Sequential:
    """A chain of linear layers, batch normalization and rectifiers."""
    layers: list[nn.Module] = []
    for fan_in in [64, *[width] * (depth - 1)]:
        layers += [nn.Linear(fan_in, width), nn.BatchNorm1d(width, momentum=momentum), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def convolutional(*norms: nn.Module) -> nn.Sequential:
    """A convolution, what comes after it, and a classifier."""
    return nn.Sequential(nn.Conv2d(1, 8, 3), *norms, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10))


@fault(
    "https://github.com/fartashf/vsepp/issues/4",
    Cause.TRAINED_IN_EVAL_MODE,
    "back to training mode after validation",
)
def training_goes_on_in_eval_mode(repaired: bool) -> Program:
    """Validation in the middle of an epoch leaves the model in eval mode until the next one begins."""
    model, task = normalized(12), digits()
    model.eval()  # the first validation comes before the first step
    start = model.train if repaired else model.eval
    return program(task, model, sgd(model, 0.05), start=start)


@fault(
    "https://github.com/broadinstitute/keras-resnet/pull/47",
    Cause.TRAINED_IN_EVAL_MODE,
    "normalization follows the model's mode",
)
def normalization_frozen_from_scratch(repaired: bool) -> Program:
    """A network that is trained from scratch uses the example's option to freeze batch normalization."""
    model = normalized(12)

    def freeze() -> None:
        model.train()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.train(repaired)

    freeze()
    return program(digits(), model, sgd(model, 0.05), start=freeze)


@fault(
    "https://github.com/hiwonjoon/tf-frrn/issues/2",
    Cause.STATISTICS_NOT_TRACKED,
    "running mean and variance are updated",
)
def running_statistics_never_updated(repaired: bool) -> Program:
    """Pictures look right while training and are noise when evaluated."""
    task = digits().mapped(x=lambda x: 5 * x + 20)
    return program(task, normalized(4, momentum=0.1 if repaired else 0.0))


@fault(
    "https://github.com/svishwa/crowdcount-mcnn/issues/64",
    Cause.STATISTICS_NOT_TRACKED,
    "a momentum above zero",
)
def normalization_with_momentum_zero(repaired: bool) -> Program:
    """The layer after each convolution normalizes with momentum 0."""
    model = convolutional(nn.BatchNorm2d(8, momentum=0.1 if repaired else 0.0))
    return program(digits(images=True).mapped(x=lambda x: 100 * x + 500), model)


@fault(
    "https://github.com/pytorch/vision/issues/8250",
    Cause.STATISTICS_OF_LAST_BATCH,
    "one minus the momentum of the other framework",
    margin=0.85,  # statistics of one small batch are noisy, not useless
)
def momentum_of_the_other_framework(repaired: bool) -> Program:
    """Normalization has momentum 0.99, copied from a framework where that means 0.01."""
    return program(digits(), normalized(4, momentum=0.01 if repaired else 0.99), size=4, steps=1200)


@fault(
    "https://github.com/microsoft/CNTK/issues/905",
    Cause.BATCH_OF_ONE,
    "batches of 64 samples",
)
def batch_normalization_with_one_sample(repaired: bool) -> Program:
    """With minibatches of one the error stays above one half, while the network without normalization learns."""
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    model.insert(1, Net(lambda m, x: m.norm(x[:, :, None].expand(-1, -1, 2))[:, :, 0], norm=nn.BatchNorm1d(24)))
    return program(digits(), model, sgd(model, 0.05), size=64 if repaired else 1, steps=300 if repaired else 1000)


@fault(
    "https://github.com/ando-khachatryan/HiDDeN/issues/13",
    Cause.EVALUATED_IN_TRAINING_MODE,
    "eval mode before the test",
)
def tested_in_training_mode(repaired: bool) -> Program:
    """Without eval mode a trained model, given pictures one at a time, is no better than tossing a coin."""
    task = digits(images=True)
    levels, test_levels = torch.randint(3, task.y.shape), torch.randint(3, task.test_y.shape)  # how bright it is
    task = replace(task, x=(task.x + 2) * (levels[:, None, None, None] + 1), y=levels)
    task = replace(task, test_x=(task.test_x + 2) * (test_levels[:, None, None, None] + 1), test_y=test_levels)
    model = convolutional(nn.BatchNorm2d(8))

    def predict(x: Tensor) -> Tensor:
        model.train(not repaired)
        return torch.cat([model(picture) for picture in x.split(1)])

    return program(task, model, predict=predict)


@fault(
    "https://github.com/wenwenyu/PICK-pytorch/issues/77",
    Cause.EVALUATED_IN_TRAINING_MODE,
    "dropout is told whether the model trains",
    margin=0.85,  # it costs predictions, not learning
)
def functional_dropout_never_off(repaired: bool) -> Program:
    """The last dropout of the encoder is no module, so validation runs it as well."""
    model = Net(
        lambda m, x: m.head(F.dropout(m.encoder(x), 0.7, training=m.training or not repaired)),
        encoder=mlp(64, 48).append(nn.ReLU()),
        head=nn.Linear(48, 10),
    )
    return program(digits(), model, steps=400)


@fault(
    "https://github.com/Lab41/attalos/pull/89",
    Cause.NORMALIZED_OUTPUT,
    "the last layer is linear and not normalized",
)
def batch_normalization_at_the_output(repaired: bool) -> Program:
    """The last layer of a regression is followed by batch normalization."""
    task = houses().mapped(y=lambda y: 3 * y + 10)
    model = mlp(8, 32, 1)
    model = model if repaired else model.append(nn.BatchNorm1d(1, affine=False))
    return program(task, model, adam(model, 0.02), steps=500)


@fault(
    "https://github.com/fastai/fastai2/issues/107",
    Cause.NORMALIZED_OUTPUT,
    "nothing between the last convolution and the sigmoid",
)
def batch_normalization_before_the_last_sigmoid(repaired: bool) -> Program:
    """Normalization before the sigmoid that maps to the range of pictures forces their mean to the middle."""
    task = digits()
    task = replace(task, y=(task.x > 1.2).float(), test_y=(task.test_x > 1.2).float(), loss=F.mse_loss, score=_variance)
    model = mlp(64, 64).append(nn.Sigmoid())
    if not repaired:
        model.insert(1, nn.BatchNorm1d(64, affine=False))
    return program(task, model, adam(model, 0.02))


def _variance(outputs: Tensor, targets: Tensor) -> float:
    return float(1 - (outputs - targets).square().mean() / (targets - targets.mean(0)).square().mean())


@fault(
    "https://github.com/macanv/BERT-BiLSTM-CRF-NER/issues/193",
    Cause.DROPOUT_TOO_STRONG,
    "one minus the rate, as the layer expects",
)
def keep_rate_as_dropout_rate(repaired: bool) -> Program:
    """The rate of dropout is 0.9: elsewhere it was the share of units to keep."""
    rate = 0.1 if repaired else 0.9
    model = mlp(64, 32, 32, 32, 10)
    for place in (6, 4, 2):
        model.insert(place, nn.Dropout(rate))
    return program(digits(), model)


@fault(
    "https://github.com/hunkim/DeepLearningZeroToAll/issues/204",
    Cause.DROPOUT_TOO_STRONG,
    "0.3 instead of 0.7",
    margin=0.8,  # 0.7 slows training down in the budget that 0.3 needs
)
def seven_tenths_dropped(repaired: bool) -> Program:
    """A keep probability of 0.7 became a rate of 0.7 in every layer of a network for digits."""
    rate = 0.3 if repaired else 0.7
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(rate), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Dropout(rate)),
        *(nn.Flatten(), nn.Linear(128, 24), nn.ReLU(), nn.Dropout(rate), nn.Linear(24, 10)),
    )
    return program(digits(images=True), model, steps=120)


@fault(
    "https://github.com/pytorch/pytorch/issues/108956",
    Cause.NORMALIZED_AWAY,
    "no normalization over a single feature",
)
def layer_normalization_of_one_feature(repaired: bool) -> Program:
    """Layer normalization of inputs with a single column gives zeros for every row."""
    task = houses()
    task = task.mapped(x=lambda x: x[:, 3:4], y=lambda y: y)
    task = replace(task, y=task.x.sin(), test_y=task.test_x.sin())
    model = mlp(1, 16, 1)
    return program(task, model if repaired else model.insert(0, nn.LayerNorm(1)))


@fault(
    "https://github.com/pytorch/pytorch/issues/45687",
    Cause.NORMALIZED_AWAY,
    "normalization before the pictures shrink to one pixel",
)
def instance_normalization_of_one_pixel(repaired: bool) -> Program:
    """Instance normalization of maps that are one pixel large silently returns zeros."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10)
    )
    # one group for each channel is instance normalization; torch now refuses the layer of that name on one pixel
    model.insert(1 if repaired else 3, nn.GroupNorm(16, 16) if repaired else nn.GroupNorm(32, 32))
    return program(digits(images=True), model)


@fault(
    "https://github.com/wkentaro/pytorch-fcn/issues/57",
    Cause.TRAINED_IN_EVAL_MODE,
    "training mode again right after each validation",
)
def eval_mode_after_each_validation(repaired: bool) -> Program:
    """The training loss jumps whenever an epoch begins: after validation nothing switches back."""
    task, model = digits().mapped(x=lambda x: 20 * x), normalized(8)
    optimizer = sgd(model, 0.05)
    plain, count = plain_step(model, task.loss, optimizer), iter(range(10**6))

    def step(x: Tensor, y: Tensor) -> Tensor:
        if next(count) % 100 == 0:
            model.eval()  # validation
            model.train(repaired)
        return plain(x, y)

    return program(task, model, optimizer, step=step)
