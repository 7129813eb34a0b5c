"""How the networks of a stack are tested: scores after some epochs; after the last also calibration and noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import _stream
from ...torch.sampling._stream import normals
from .network import Parameters, predict
from .stack import BINS, ROWS, Stack

NOISE = 0.3
"""Standard deviation of the noise, in the unit of the network's inputs: pixels from 0 to 1, standardized features."""


class Tested(NamedTuple):
    """Of each network; what is not measured is None."""

    score: Tensor
    """Accuracy in percent, or root mean squared error."""
    balanced: Tensor | None = None
    """The mean over classes of the share predicted correctly, in percent; so below, of classifications alone."""
    log_loss: Tensor | None = None
    """Mean of -ln p of the true class."""
    calibration: Tensor | None = None
    """Expected calibration error in percent: the mean distance of confidence and accuracy, over bins of confidence."""
    noisy: Tensor | None = None
    """Accuracy in percent under Gaussian noise in the inputs."""


def evaluate(stack: Stack, *, last: bool = False) -> Tested:
    """Test a stack; after the `last` epoch, all that there is to measure."""
    parts = [_part(stack, *test, last=last) for test in stack.data.tests]
    places = torch.tensor([index for members, _, _ in stack.data.tests for index in members], device=stack.order.device)
    values: list[Any] = [None if column[0] is None else torch.cat(column)[places.argsort()] for column in zip(*parts)]
    return Tested(*values)


def _part(stack: Stack, members: list[int], features: Tensor, targets: Tensor, *, last: bool) -> Tested:
    """Of the networks that share a test part."""
    networks = stack.parameters
    if len(members) < len(stack.cells):
        networks = Parameters.of(networks.flat[members], stack.net)

    def outputs(x: Tensor) -> Tensor:
        return predict(networks, stack.net, x.expand(len(members), -1, -1))

    chunks = [
        (stack.data.inputs(features[start : start + ROWS]), targets[start : start + ROWS])
        for start in range(0, len(features), ROWS)
    ]
    if stack.loss == "squared_error":
        squares = torch.stack([(outputs(x).squeeze(-1) - y).double().square().sum(1) for x, y in chunks]).sum(0)
        return Tested((squares / len(features)).sqrt() * stack.units[members])
    classes = stack.net.widths[-1]
    right = torch.zeros(len(members), classes, dtype=torch.float64, device=features.device)
    rows, loss, gaps = right.new_zeros(classes), right.new_zeros(len(members)), right.new_zeros(len(members), BINS)
    for x, y in chunks:
        out = outputs(x)
        of_class = torch.nn.functional.one_hot(y, classes).double()
        correct = (out.argmax(-1) == y).double()
        right += correct @ of_class
        rows += of_class.sum(0)
        if last:
            log_p = torch.log_softmax(out, -1)
            loss -= (log_p.double() * of_class).sum((1, 2))
            confidence = log_p.exp().amax(-1).double().nan_to_num(0)
            which = (BINS * confidence).ceil().long().sub(1).clamp(0, BINS - 1)
            gaps += ((correct - confidence)[:, None] @ torch.nn.functional.one_hot(which, BINS).double())[:, 0]
    here = rows > 0
    scores = Tested(100 * right.sum(1) / len(features), 100 * (right[:, here] / rows[here]).mean(1))
    if not last:
        return scores
    x, y = chunks[0]
    key = _stream.key(0, "noise")
    noisy = outputs(x + NOISE * normals(key, (0, x.shape[0]), (0, x.shape[1]), torch.float32, x.device))
    return scores._replace(
        log_loss=loss / len(features),
        calibration=100 * gaps.abs().sum(1) / len(features),
        noisy=100 * (noisy.argmax(-1) == y).double().mean(1),
    )
