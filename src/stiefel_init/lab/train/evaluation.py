"""What is measured of a stack: test scores after some epochs, after the last also calibration and noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...core import stream as _stream
from ...torch.sampling.stream import normals
from .stack import BINS, ROWS, Stack

NOISE = 0.3
"""Standard deviation of the noise, in the unit of the network's inputs: pixels from 0 to 1, standardized features."""


def evaluate(stack: Stack, *, last: bool = False) -> dict[str, Tensor]:
    """Of each network the score, and of a classification the rest: `balanced`, and after the `last` epoch `log_loss`,
    `calibration` and `noisy`, as `Record` explains them."""
    tests, predict = stack.data.tests, stack.predict
    count, total = len(stack.cells), tests.features.shape[1]

    def chunk(start: int, noise: float = 0.0) -> tuple[Tensor, Tensor]:
        some = slice(start, start + ROWS)
        x = stack.data.inputs(tests.features[:, some])
        if noise:
            key, (_, rows, inputs) = _stream.key(0, "noise"), x.shape
            x = x + noise * normals(key, (0, rows), (0, inputs), torch.float32, x.device)
        return tests.of_networks(x), tests.targets[:, some]

    chunks = range(0, total, ROWS)
    if stack.loss == "squared_error":
        squares = torch.zeros(count, dtype=torch.float64, device=stack.order.device)
        for x, y in map(chunk, chunks):
            squares += (predict(x).squeeze(-1) - tests.of_networks(y)).double().square().sum(1)
        return {"score": (squares / total).sqrt() * stack.units}
    classes = stack.outputs
    right = torch.zeros(count, classes, dtype=torch.float64, device=stack.order.device)
    rows, loss, gaps = torch.zeros_like(right), right.new_zeros(count), right.new_zeros(count, BINS)
    for x, y in map(chunk, chunks):
        out = predict(x)
        of_class = one_hot(y, classes).double()  # (parts, rows, classes)
        correct = (out.argmax(-1) == tests.of_networks(y)).double()
        right += _by_class(correct, tests.of_networks(of_class))
        rows += tests.of_networks(of_class.sum(1))
        if last:
            log_p = torch.log_softmax(out, -1)
            loss -= (log_p.double() * tests.of_networks(of_class)).sum((1, 2))
            confidence = log_p.exp().amax(-1).double().nan_to_num(0)
            which = (BINS * confidence).ceil().long().sub(1).clamp(0, BINS - 1)
            gaps += _by_class(correct - confidence, one_hot(which, BINS).double())
    shares = torch.where(rows > 0, right / rows, 0)
    scores = {"score": 100 * right.sum(1) / total, "balanced": 100 * shares.sum(1) / (rows > 0).sum(1)}
    if not last:
        return scores
    x, y = chunk(0, NOISE)
    noisy = (predict(x).argmax(-1) == tests.of_networks(y)).double()
    calibration = 100 * gaps.abs().sum(1) / total
    return scores | {"log_loss": loss / total, "calibration": calibration, "noisy": 100 * noisy.mean(1)}


def _by_class(values: Tensor, of_class: Tensor) -> Tensor:
    """The sums of a network's values over each class: (E, rows), (E, rows, classes) → (E, classes)."""
    if not of_class.stride(0):  # one for all: a single product
        return values @ of_class[0]
    return torch.bmm(values[:, None], of_class)[:, 0]
