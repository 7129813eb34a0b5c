"""Perceptrons as stacks: activations, parameters with a leading model axis, their first values, gradients by hand.

A stack of E networks of one architecture keeps all parameters in one array of shape (E, P). Layer l's
weights are a view of shape (E, m, n); a product for all networks at once is one batched matmul.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...core import stream as _stream
from ...schemes import Position, Scheme
from ...theory import tailored_slope
from ...theory.moments import LEAKY_SLOPE, PRELU_START, SELU_ALPHA, SELU_SCALE, resolve
from ...theory.tailored import tailored_scale
from ...torch import TailoredReLU
from ...torch.sampling.source import fill_
from .cell import Cell
from .problem import LossName, Problem

_aten = torch.ops.aten
MODULES: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "prelu": nn.PReLU, "elu": nn.ELU, "selu": nn.SELU, "tanh": nn.Tanh,
    "gelu": nn.GELU, "silu": nn.SiLU,
}  # fmt: skip
"""PyTorch's own modules, which `diagnose` and `watch` recognise."""


class Applied(NamedTuple):
    """An activation as the graph engine applies it; `slope` is PReLU's, of shape (E, 1, 1), else None."""

    forward: Callable[[Tensor, Tensor | None], Tensor]
    """(pre-activations, slope) -> activations; in place, unless the input is kept."""
    backward: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """(derivative by the activations, what was kept, slope) -> derivative by the pre-activations."""
    keeps_input: bool = False  # whether the backward pass needs the pre-activations; else the activations do


def _where_positive(y: Tensor, values: Tensor, slope: Tensor | None) -> Tensor:
    assert slope is not None
    return torch.where(y > 0, values, values * slope)


_BUILT_IN: dict[str, Applied] = {
    "relu": Applied(lambda y, _: y.relu_(), lambda d, x, _: _aten.threshold_backward(d, x, 0)),
    "leaky_relu": Applied(
        lambda y, _: F.leaky_relu_(y, LEAKY_SLOPE), lambda d, x, _: _aten.leaky_relu_backward(d, x, LEAKY_SLOPE, True)
    ),
    "prelu": Applied(  # its slope may turn negative
        lambda y, slope: _where_positive(y, y, slope), lambda d, y, slope: _where_positive(y, d, slope), True
    ),
    "elu": Applied(lambda y, _: F.elu_(y), lambda d, x, _: _aten.elu_backward(d, 1.0, 1.0, 1.0, True, x)),
    "selu": Applied(
        lambda y, _: torch.selu_(y), lambda d, x, _: _aten.elu_backward(d, SELU_ALPHA, SELU_SCALE, 1.0, True, x)
    ),
    "tanh": Applied(lambda y, _: y.tanh_(), lambda d, x, _: _aten.tanh_backward(d, x)),
    "gelu": Applied(lambda y, _: F.gelu(y), lambda d, y, _: _aten.gelu_backward(d, y), True),
    "silu": Applied(lambda y, _: F.silu(y), lambda d, y, _: _aten.silu_backward(d, y), True),
}


def applied(name: str, depth: int) -> Applied:
    """The activation of that name, in a network with `depth` hidden layers.

    Any that `theory.activations` lists, those of the user too; `tat` is √(2/(1+a²)) · LeakyReLU_a.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if name == "tat":
        a = tailored_slope(depth)
        scale = tailored_scale(a)
        return Applied(
            lambda y, _: F.leaky_relu_(y, a).mul_(scale),
            lambda d, x, _: _aten.leaky_relu_backward(d * scale, x, a, True),
        )
    function: Any = resolve(name, {})
    return Applied(lambda y, _: function(y, torch), lambda d, y, _: d * function.slope(y, torch), keeps_input=True)


class Pointwise(nn.Module):
    """An activation that has no module of its own in PyTorch, or PReLU with a slope that is trained elsewhere."""

    def __init__(self, name: str, depth: int, slope: Tensor | None = None) -> None:
        super().__init__()
        self._apply_to: Any = applied(name, depth).forward
        self._slope = slope

    def forward(self, y: Tensor) -> Tensor:
        result: Tensor = self._apply_to(y.clone().unsqueeze(0), self._slope)
        return result.squeeze(0)


def module(name: str, depth: int, slope: Tensor | None = None) -> nn.Module:
    """The activation of that name as a module, in a network with `depth` hidden layers."""
    if name in MODULES and slope is None:
        return MODULES[name]()
    return TailoredReLU(depth) if name == "tat" else Pointwise(name, depth, slope)


_ENTRIES = 1 << 26
"""Drawn at once, at most: layers of one distribution and shape are, because a thousand small draws wait for their
launches."""


@dataclass(frozen=True)
class Architecture:
    """widths: inputs, hidden units of each layer, outputs."""

    widths: tuple[int, ...]
    activation: str

    @classmethod
    def of(cls, cell: Cell, problem: Problem) -> Architecture:
        return cls((problem.inputs, *cell.hidden, problem.outputs), cell.activation)

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
        """P, of one network."""
        return sum(self.sizes)


@dataclass(frozen=True)
class Parameters:
    """Views into one array of shape (E, P)."""

    flat: Tensor
    weights: list[Tensor]
    biases: list[Tensor]
    slopes: Tensor | None

    def slope(self, layer: int) -> Tensor | None:
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
    groups: dict[tuple[Position, int, int], list[int]] = {}
    for layer, (n, m) in enumerate(itertools.pairwise(net.widths)):
        first, last = layer == 0, layer == net.layers - 1
        position = Position(first, last, row=max(1, net.layers - 2), units=m, inputs=n, activation=net.activation)
        groups.setdefault((position, m, n), []).append(layer)
    for scheme in dict.fromkeys(cell.scheme for cell in cells):
        members = [i for i, cell in enumerate(cells) if cell.scheme == scheme]
        seeds, where = [cells[i].seed for i in members], torch.tensor(members, device=device)
        for (position, m, n), layers in groups.items():
            weights = scheme.at(position)
            biases, at_once = weights.bias(n), max(1, _ENTRIES // (len(seeds) * m * n))
            for start in range(0, len(layers), at_once):
                some = layers[start : start + at_once]
                for layer, drawn in zip(some, _drawn(weights, seeds, some, "weight", m, n, device)):
                    parameters.weights[layer][where] = drawn
                if biases is not None:
                    for layer, drawn in zip(some, _drawn(biases, seeds, some, "bias", m, 1, device)):
                        parameters.biases[layer][where] = drawn.squeeze(2)
    return parameters


def _drawn(
    scheme: Scheme, seeds: Sequence[int], layers: Sequence[int], name: str, m: int, n: int, device: torch.device
) -> Tensor:
    """For each layer and seed a matrix of the scheme, (layers, seeds, m, n).

    It is member 0 of the key's batch: the very matrix that `stiefel_init.draw(scheme, m, n, seed=…, name=…)` gives.
    """
    keys = np.stack([_stream.key(seed, f"{layer}.{name}") for layer in layers for seed in seeds])
    out = torch.empty(len(keys), m, n, device=device)
    return fill_(out, scheme, keys=_stream.fold(keys, 0)).unflatten(0, (len(layers), len(seeds)))


def calibrate(parameters: Parameters, net: Architecture, schemes: Sequence[Scheme], x: Tensor) -> None:
    """Divide freshly drawn weights by what a batch of shape (E, rows, inputs) measures, for schemes that ask for it."""
    by_inputs = [i for i, scheme in enumerate(schemes) if scheme.calibrates == "inputs"]
    if by_inputs:
        size = x[by_inputs].square().mean((1, 2)).sqrt()
        parameters.weights[0][by_inputs] /= size.where(size > 0, 1)[:, None, None]
    by_outputs = [i for i, scheme in enumerate(schemes) if scheme.calibrates == "outputs"]
    if not by_outputs:
        return
    activate = applied(net.activation, net.layers - 1).forward
    signal = x[by_outputs]
    for layer, weight in enumerate(parameters.weights):
        y = torch.bmm(signal, weight[by_outputs].mT)
        size = y.flatten(1).std(1, correction=0)
        size = size.where(size > 0, 1)[:, None, None]
        weight[by_outputs] /= size
        slope = parameters.slope(layer) if layer < net.layers - 1 else None
        signal = activate(y / size, None if slope is None else slope[by_outputs])


class Network:
    """Forward and backward passes of a stack on batches of one size, with all memory taken once."""

    def __init__(
        self,
        parameters: Parameters,
        net: Architecture,
        rows: int,
        gradients: Parameters,
        dropout: Sequence[Tensor] | None = None,
    ) -> None:
        self.parameters, self.net, self.gradients = parameters, net, gradients
        self.dropout = dropout  # what the outputs of each hidden layer are multiplied with
        flat = parameters.flat
        self.outputs = [flat.new_empty(len(flat), rows, m) for m in net.widths[1:]]
        self.activation = applied(net.activation, net.layers - 1)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs for inputs of shape (E, rows, d). What the backward pass needs of hidden layers is kept."""
        return predict(self.parameters, self.net, x, self.outputs, self.dropout)

    def backward(self, x: Tensor, delta: Tensor) -> None:
        """Fill the gradients, given the inputs and the loss's derivative by the outputs, which is overwritten."""
        p, g = self.parameters, self.gradients
        for layer in reversed(range(self.net.layers)):
            torch.bmm(delta.mT, x if layer == 0 else self._activations(layer - 1), out=g.weights[layer])
            torch.sum(delta, 1, out=g.biases[layer])
            if layer:
                delta = self._through_activation(torch.bmm(delta, p.weights[layer]), layer - 1)

    def _activations(self, layer: int) -> Tensor:
        x = self.outputs[layer]
        if self.activation.keeps_input:
            x = self.activation.forward(x, self.parameters.slope(layer))
        return x if self.dropout is None else x * self.dropout[layer]

    def _through_activation(self, delta: Tensor, layer: int) -> Tensor:
        kept = self.outputs[layer]
        if self.dropout is not None:
            delta = delta * self.dropout[layer]
        if self.gradients.slopes is not None:
            torch.sum((delta * kept.clamp(max=0)).flatten(1), 1, out=self.gradients.slopes[:, layer])
        return self.activation.backward(delta, kept, self.parameters.slope(layer))


def predict(
    p: Parameters,
    net: Architecture,
    x: Tensor,
    kept: Sequence[Tensor] | None = None,
    dropout: Sequence[Tensor] | None = None,
) -> Tensor:
    """The outputs of the stack for inputs of shape (E, rows, d); `kept` receives those of each layer."""
    activate = applied(net.activation, net.layers - 1).forward
    for layer in range(net.layers):
        out = None if kept is None else kept[layer]
        y = torch.baddbmm(p.biases[layer].unsqueeze(1), x, p.weights[layer].mT, out=out)
        x = y if layer == net.layers - 1 else activate(y, p.slope(layer))
        if dropout is not None and layer < net.layers - 1:
            x = x * dropout[layer]  # not in place: the backward pass takes what was before
    return x


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


Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
LOSSES: dict[LossName, Loss] = {"cross_entropy": _cross_entropy, "squared_error": _squared_error}
