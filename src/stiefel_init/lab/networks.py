"""Networks as stacks: parameters with a leading model axis, their first values, and their gradients by hand.

A stack of E networks of one architecture keeps all parameters in one array of shape (E, P). Layer l's
weights are a view of shape (E, m, n); a product for all networks at once is one batched matmul.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from .. import _stream
from ..torch._sample import fill_seeded_
from ..torch._schemes import lee_
from ..torch._stream import normals, words
from .cells import Cell, member

LEAKY_SLOPE = 0.01
PRELU_START = 0.25
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
_SELU = SELU_ALPHA, SELU_SCALE


@dataclass(frozen=True)
class Architecture:
    """widths: inputs, hidden units of each layer, outputs."""

    widths: tuple[int, ...]
    activation: str

    @property
    def layers(self) -> int:
        """Weight layers: hidden ones and the output."""
        return len(self.widths) - 1

    @property
    def sizes(self) -> list[int]:
        """Parameters of each kind, in the order they lie: W_1, b_1, …, W_L, b_L, then the slopes of PReLU."""
        sizes = [size for n, m in zip(self.widths, self.widths[1:]) for size in (m * n, m)]
        return [*sizes, self.layers - 1] if self.activation == "prelu" else sizes

    @property
    def parameters(self) -> int:
        """P, the parameters of one network."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Parameters:
    """Views into one array of shape (E, P)."""

    flat: Tensor
    weights: list[Tensor]
    biases: list[Tensor]
    slopes: Tensor | None

    def slope(self, layer: int) -> Tensor | None:
        """PReLU's slope of a hidden layer, of shape (E, 1, 1)."""
        return None if self.slopes is None else self.slopes[:, layer, None, None]

    @classmethod
    def of(cls, flat: Tensor, net: Architecture) -> Parameters:
        """The views of `flat` that belong to the layers of `net`."""
        parts = list(flat.split(net.sizes, dim=1))
        slopes = parts.pop() if net.activation == "prelu" else None
        weights = [part.unflatten(1, (m, n)) for part, n, m in zip(parts[::2], net.widths, net.widths[1:])]
        return cls(flat, weights, parts[1::2], slopes)


def initial(cells: Sequence[Cell], net: Architecture, device: torch.device) -> Parameters:
    """The parameters the cells start from. A cell's depend on its scheme and seed, not on its neighbours."""
    rounded = -(-net.parameters // 64) * 64  # so that every network's parameters start on a boundary of memory
    parameters = Parameters.of(torch.zeros(len(cells), rounded, device=device)[:, : net.parameters], net)
    if parameters.slopes is not None:
        parameters.slopes.fill_(PRELU_START)
    for layer, weight in enumerate(parameters.weights):
        keys = np.stack([_stream.key(cell.seed, f"{layer}.weight") for cell in cells])
        for scheme in {(cell.scheme, cell.variant) for cell in cells}:
            where = [i for i, cell in enumerate(cells) if (cell.scheme, cell.variant) == scheme]
            weight[where] = _draw(*scheme, keys[where], weight.shape[1], weight.shape[2], device)
    return parameters


def _draw(scheme: str, variant: str | None, keys: np.ndarray, m: int, n: int, device: torch.device) -> Tensor:
    """One m × n matrix of the scheme for each stream key."""
    shape = (len(keys), m, n)
    if scheme in ("stiefel", "orthogonal"):
        # Member 0 of the key's batch: the very matrix that sample(m, n, seed=…, name=…) gives.
        out, own = torch.empty(shape, device=device), _stream.fold(keys, 0)
        if scheme == "orthogonal":
            return fill_seeded_(out, own, aligned=False).mul_(float(variant or 1))
        name, spread = member(variant)
        return fill_seeded_(out, own, member=name, spread=spread)
    if scheme == "lee":
        return lee_(torch.empty(m, n, device=device), variant=variant or "product").expand(shape)
    if scheme == "xavier":
        bound = math.sqrt(6 / (m + n))
        uniform = words(keys, (0, m), n, device).to(torch.float64).add_(0.5).mul_(bound * 2.0**-31)
        return uniform.to(torch.float32)
    std = math.sqrt(2 / n) if scheme == "he" else float(variant or 0.1)
    return normals(keys, (0, m), (0, n), torch.float32, device).mul_(std)


class Network:
    """Forward and backward passes of a stack on batches of one size, with all memory taken once."""

    def __init__(self, parameters: Parameters, net: Architecture, rows: int, gradients: Parameters) -> None:
        self.parameters, self.net, self.gradients = parameters, net, gradients
        flat = parameters.flat
        self.outputs = [flat.new_empty(len(flat), rows, m) for m in net.widths[1:]]
        self.through = _ACTIVATIONS[net.activation][1]

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for inputs of shape (E, rows, d). Hidden outputs are kept for the backward pass."""
        return _forward(self.parameters, self.net, x, self.outputs)

    def backward(self, x: Tensor, delta: Tensor) -> None:
        """Fill the gradients, given the inputs and the loss's derivative by the outputs, which is overwritten."""
        p, g = self.parameters, self.gradients
        for layer in reversed(range(self.net.layers)):
            source = x if layer == 0 else self._activated(layer - 1)
            torch.bmm(delta.mT, source, out=g.weights[layer])
            torch.sum(delta, 1, out=g.biases[layer])
            if layer:
                delta = torch.bmm(delta, p.weights[layer])
                delta = self._through_activation(delta, layer - 1)

    def _activated(self, layer: int) -> Tensor:
        """PReLU keeps what goes in, since its slope may turn negative; the others keep what comes out."""
        slope = self.parameters.slope(layer)
        return self.outputs[layer] if slope is None else _prelu(self.outputs[layer], slope)

    def _through_activation(self, delta: Tensor, layer: int) -> Tensor:
        out, slope = self.outputs[layer], self.parameters.slope(layer)
        if slope is None:
            return self.through(delta, out)
        assert self.gradients.slopes is not None
        negative = out.clamp(max=0)
        torch.sum((delta * negative).flatten(1), 1, out=self.gradients.slopes[:, layer])
        return torch.where(out > 0, delta, delta * slope)


def predict(parameters: Parameters, net: Architecture, x: Tensor) -> Tensor:
    """The outputs of the stack for inputs of shape (E, rows, d), keeping nothing."""
    return _forward(parameters, net, x, [None] * net.layers)


def _forward(p: Parameters, net: Architecture, x: Tensor, outputs: Sequence[Tensor | None]) -> Tensor:
    activate = _ACTIVATIONS[net.activation][0]
    for layer, out in enumerate(outputs):
        y = torch.baddbmm(p.biases[layer].unsqueeze(1), x, p.weights[layer].mT, out=out)
        x = y if layer == net.layers - 1 else activate(y, p.slope(layer))
    return x


def _prelu(out: Tensor, slope: Tensor | None) -> Tensor:
    assert slope is not None
    return torch.where(out > 0, out, out * slope)


_aten = torch.ops.aten
_Forward = Callable[[Tensor, Tensor | None], Tensor]
_Backward = Callable[[Tensor, Tensor], Tensor]

# In place where the derivative can be told from the output; aten's own backward formulas.
_ACTIVATIONS: dict[str, tuple[_Forward, _Backward]] = {
    "relu": (lambda y, _: y.relu_(), lambda d, x: _aten.threshold_backward(d, x, 0)),
    "leaky_relu": (
        lambda y, _: torch.nn.functional.leaky_relu_(y, LEAKY_SLOPE),
        lambda d, x: _aten.leaky_relu_backward(d, x, LEAKY_SLOPE, True),
    ),
    "prelu": (_prelu, lambda d, _: d),
    "elu": (lambda y, _: torch.nn.functional.elu_(y), lambda d, x: _aten.elu_backward(d, 1.0, 1.0, 1.0, True, x)),
    "selu": (
        lambda y, _: torch.selu_(y),
        lambda d, x: _aten.elu_backward(d, *_SELU, 1.0, True, x),
    ),
}


def _cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, correct predictions) of each network over the batch, and the derivative of the mean loss."""
    log_p = torch.log_softmax(outputs, -1)
    chosen = log_p.gather(-1, targets.unsqueeze(-1))
    slope = log_p.exp().scatter_add_(-1, targets.unsqueeze(-1), chosen.new_full((1, 1, 1), -1).expand_as(chosen))
    correct = (outputs.argmax(-1) == targets).sum(1)
    return -chosen.sum((1, 2)), correct, slope.div_(outputs.shape[1])


def _squared_error(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    error = outputs - targets.unsqueeze(-1)
    loss = error.square().sum((1, 2))
    return loss, torch.zeros_like(loss, dtype=torch.int64), error.mul_(2 / outputs.shape[1])


ACTIVATE = {name: forward for name, (forward, _) in _ACTIVATIONS.items()}
"""The activations, in place where they can: (pre-activations, PReLU's slope or None) -> activations."""

LOSSES = {"cross_entropy": _cross_entropy, "squared_error": _squared_error}


class Optimizer:
    """torch's own fused Adam (β 0.9, 0.999; ε 1e-8) or SGD over the rows of a stack, each at its own rate.

    By its functions: its classes import torch's compiler, which takes a second and may swallow a Ctrl-C.
    """

    def __init__(self, name: str, parameters: Tensor, gradients: Tensor, rates: Sequence[float]) -> None:
        self.adam = name == "adam"
        self.groups: list[tuple[float, list[list[Tensor]]]] = []
        for rate in dict.fromkeys(rates):
            chosen = [index for index, one in enumerate(rates) if one == rate]
            rows = [parameters[index] for index in chosen]
            state = [rows, [gradients[index] for index in chosen]]
            if self.adam:
                state += [[torch.zeros_like(row) for row in rows] for _ in range(2)]  # the two moments
                state.append([row.new_zeros(()) for row in rows])  # steps taken
            self.groups.append((rate, state))

    def step(self) -> None:
        """Apply the gradients to the parameters."""
        for rate, state in self.groups:
            if self.adam:
                rows, gradients, first, second, steps = state
                adam(
                    rows, gradients, first, second, [], steps, fused=True, capturable=rows[0].is_cuda, amsgrad=False,
                    beta1=0.9, beta2=0.999, lr=rate, weight_decay=0.0, eps=1e-8, maximize=False,
                )  # fmt: skip
            else:
                rows, gradients = state
                sgd(
                    rows, gradients, [None] * len(rows), fused=True, weight_decay=0.0, momentum=0.0, lr=rate,
                    dampening=0.0, nesterov=False, maximize=False,
                )  # fmt: skip
