"""Data: scales, statistics, missing values, labels that do not belong to their inputs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import Program, fault
from .causes import Cause
from .tasks import Task, accuracy, adam, cancer, digits, houses, mlp, plain_step, program, raw_digits, sgd, split


@fault(
    "https://github.com/kratzert/finetune_alexnet_with_tensorflow/issues/79",
    Cause.INPUTS_UNSCALED,
    "pictures are divided by 255",
)
def pixels_up_to_255(repaired: bool) -> Program:
    """Results are bad and the loss is easily NaN unless pictures are divided by 255."""
    task, model = raw_digits(), mlp(64, 32, 10)
    return program(task.mapped(x=lambda x: x / 255) if repaired else task, model, sgd(model, 0.1, 0.9))


@fault(
    "https://github.com/GoogleCloudPlatform/vertex-ai-samples/issues/1599",
    Cause.INPUTS_UNSCALED,
    "columns are scaled, not rows",
)
def rows_scaled_instead_of_columns(repaired: bool) -> Program:
    """Scaling runs over the first rows instead of the columns: features keep their sizes."""
    task, model = cancer(scaled=False), mlp(30, 16, 1)
    largest = task.x.amax(0)
    task = task.mapped(x=lambda x: x / largest) if repaired else replace(task, x=_first_rows_scaled(task.x))
    return program(task, model, sgd(model, 0.1, 0.9))


def _first_rows_scaled(x: Tensor) -> Tensor:
    x = x.clone()
    x[:30] /= x[:30].amax(1, keepdim=True)
    return x


@fault(
    "https://github.com/ranshiju/Python-for-Tensor-Network-Tutorial/issues/4",
    Cause.ONE_SCALE_FOR_ALL,
    "each feature is scaled by its own range",
)
def one_scale_for_all_features(repaired: bool) -> Program:
    """Samples are normalized by one minimum and maximum although each feature has its own range."""
    sizes = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 300.0])  # the last one says nothing about the target
    task = houses().mapped(x=lambda x: x * sizes)
    low, high = (task.x.amin(0), task.x.amax(0)) if repaired else (task.x.min(), task.x.max())
    model = mlp(8, 32, 32, 1)
    return program(task.mapped(x=lambda x: 2 * (x - low) / (high - low) - 1), model, adam(model, 0.005), steps=500)


@fault(
    "https://github.com/calmiLovesAI/YOLOv3_TensorFlow2/issues/21",
    Cause.INPUTS_TOO_SMALL,
    "divided once",
)
def divided_by_255_twice(repaired: bool) -> Program:
    """The largest value of a picture is 0.0039: it was divided by 255 in two places."""
    model = mlp(64, 32, 10)
    return program(raw_digits().mapped(x=lambda x: x / (255 if repaired else 255**2)), model, sgd(model))


@fault(
    "https://github.com/choyingw/SynergyNet/issues/19",
    Cause.INPUTS_NEARLY_CONSTANT,
    "mean and deviation of the range that the pixels have",
)
def statistics_of_another_range(repaired: bool) -> Program:
    """Pictures between 0 and 1 lose a mean of 127.5 and are divided by 128: all values are near -1."""
    task = raw_digits().mapped(x=lambda x: (x - 127.5) / 128 if repaired else (x / 255 - 127.5) / 128)
    model = mlp(64, 32, 10)
    return program(task, model, sgd(model))


@fault(
    "https://github.com/Entropy-xcy/RankFace/issues/2",
    Cause.INPUTS_NEARLY_CONSTANT,
    "division of real numbers",
)
def pixels_divided_as_integers(repaired: bool) -> Program:
    """The features of all pixels are 0 after division by 255: the program ran under the older Python."""
    task = raw_digits().mapped(x=lambda x: x / 255 if repaired else x // 256)
    return program(task, mlp(64, 32, 10))


@fault(
    "https://github.com/danielegrattarola/keras-gat/issues/14",
    Cause.NOT_FINITE,
    "missing values become zero",
)
def missing_values(repaired: bool) -> Program:
    """On one data set the loss is NaN from the first epoch: some of its features are missing."""
    task = cancer()
    gaps = torch.where(torch.rand_like(task.x) < 0.002, torch.nan, task.x)
    return program(replace(task, x=gaps.nan_to_num(0.0) if repaired else gaps), mlp(30, 16, 1))


@fault(
    "https://github.com/deeplearning4j/deeplearning4j/issues/1646",
    Cause.NOT_FINITE,
    "a column without deviation is divided by one",
)
def constant_column_standardized(repaired: bool) -> Program:
    """After standardization there are NaN: some columns have the same value in every row."""
    task = houses()
    x = torch.cat([task.x, torch.ones(len(task.x), 1)], 1)
    mean, deviation = x.mean(0), x.std(0)
    deviation = torch.where(deviation > 0, deviation, 1.0) if repaired else deviation
    task = task.mapped(x=lambda x: (torch.cat([x, torch.ones(len(x), 1)], 1) - mean) / deviation)
    return program(task, mlp(9, 32, 32, 1))


@fault(
    "https://github.com/DrexelChatbotGroup/DrexelChatbot/issues/15",
    Cause.LABELS_OF_OTHER_INPUTS,
    "both are permuted alike",
)
def inputs_shuffled_without_labels(repaired: bool) -> Program:
    """The order of the inputs is randomized and that of the labels is not."""
    task = digits()
    order = torch.randperm(len(task.x))
    return program(replace(task, x=task.x[order], y=task.y[order] if repaired else task.y), mlp(64, 32, 10))


@fault(
    "https://github.com/twosixlabs/armory/issues/799",
    Cause.LABELS_SHIFTED,
    "one is subtracted from the labels",
)
def labels_from_one(repaired: bool) -> Program:
    """Classes of the data set start at 1 and those of the model at 0: predictions are off by one."""
    task = digits()
    return program(task if repaired else replace(task, y=task.y + 1), mlp(64, 32, 11))


@fault(
    "https://github.com/mlpack/examples/pull/213",
    Cause.HELD_OUT_DATA_DIFFER,
    "the same scaling for both",
)
def test_data_not_normalized(repaired: bool) -> Program:
    """Accuracy is fine in training and 9 percent on test data, which are not normalized."""
    task = raw_digits()
    mean, deviation = task.x.mean(), task.x.std()
    test = (task.test_x - mean) / deviation if repaired else task.test_x
    return program(replace(task, x=(task.x - mean) / deviation, test_x=test), mlp(64, 32, 10))


def letters() -> Task:
    """Strokes (1, 6, 6) with a bowl at the right or at the left, like b and d."""
    y = torch.randint(2, (2000,))
    x = 0.3 * torch.randn(2000, 1, 6, 6)
    x[:, :, :, 2:4] += 0.5
    x[torch.arange(2000), 0, 4, torch.where(y == 0, 5, 0)] += 2
    return split(x, y, F.cross_entropy, accuracy)


@fault(
    "https://github.com/AlexeyAB/darknet/issues/674",
    Cause.AUGMENTATION_CHANGES_CLASS,
    "no flips",
)
def letters_flipped(repaired: bool) -> Program:
    """Half of all pictures are flipped, with no way to switch it off: a bad idea for letters."""
    task, model = letters(), nn.Sequential(nn.Flatten(), *mlp(36, 16, 2))
    optimizer = adam(model)
    plain = plain_step(model, task.loss, optimizer)

    def step(x: Tensor, y: Tensor) -> Tensor:
        flipped = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
        return plain(x if repaired else flipped, y)

    return program(task, model, optimizer, step=step)


@fault(
    "https://github.com/Borda/kaggle_image-classify/pull/12",
    Cause.LABELS_OF_OTHER_INPUTS,
    "labels are taken after the shuffle",
)
def labels_taken_before_the_shuffle(repaired: bool) -> Program:
    """The data set is shuffled after its labels were taken."""
    task = cancer()
    order = torch.randperm(len(task.x))
    shuffled = replace(task, x=task.x[order], y=task.y[order])
    return program(shuffled if repaired else replace(shuffled, y=task.y), mlp(30, 16, 1))
