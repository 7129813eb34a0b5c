"""The parameters of a model in any framework: what is done to each, and the values that come of it, with NumPy.

JAX and Keras describe their models in these words; PyTorch, whose weights are drawn where they are, has its own.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.sample import of_kernel
from ..schemes import Scheme
from ._describe import described, row
from ._start import StartOf
from .layers import Constant, Conv, Layer, Leave, Matrices, Rule, Shape, Weight, kernel_matrices
from .plan import Row
from .rules import Part, reason_of


@dataclass(frozen=True, slots=True)
class Layout:
    """How a framework stores a weight: split so, and with its dimensions in another order, it has PyTorch's layout."""

    split: Shape
    axes: tuple[int, ...]
    shape: Shape
    """In PyTorch's layout."""

    def stored(self, weight: np.ndarray, shape: Shape) -> np.ndarray:
        """A weight in PyTorch's layout as the framework stores it, in an array of that shape."""
        apart = weight.reshape([self.split[axis] for axis in self.axes])
        return apart.transpose(np.argsort(self.axes)).reshape(shape)


def axes(shape: Shape, batch: Sequence[int], outputs: Sequence[int], inputs: Sequence[int]) -> Layout:
    """Of a linear map, whose dimensions are named: those of independent matrices, of outputs and of inputs."""
    rows, columns = (*batch, *outputs), tuple(inputs)
    return Layout(shape, rows + columns, (math.prod(shape[a] for a in rows), math.prod(shape[a] for a in columns)))


def dense(shape: Shape) -> Layout:
    """(inputs, outputs), behind dimensions of independent matrices."""
    rank = len(shape)
    return axes(shape, range(rank - 2), (rank - 1,), (rank - 2,))


def kernel(shape: Shape, window: int, *, swapped: bool = False) -> Layout:
    """(*window, a, b) as (b, a, *window), or (a, b, *window) if `swapped`; behind dimensions of independent kernels."""
    stacked, rank = len(shape) - 2 - window, len(shape)
    a, b = (rank - 1, rank - 2) if swapped else (rank - 2, rank - 1)
    order = (*range(stacked), b, a, *range(stacked, stacked + window))
    rows = math.prod(shape[axis] for axis in order[: stacked + 1])
    return Layout(shape, order, (rows, *(shape[axis] for axis in order[stacked + 1 :])))


def einsum(equation: str, shape: Shape) -> tuple[Layer | Leave, Layout | None]:
    """The second operand of an equation such as `"ab,bc->ac"`: what it shares with both others is a batch."""
    given, result = equation.replace(" ", "").replace("...", "").split("->")
    signal, letters = given.split(",")
    batch: list[int] = []
    outputs: list[int] = []
    inputs: list[int] = []
    for axis, letter in enumerate(letters):
        (batch if letter in signal and letter in result else outputs if letter in result else inputs).append(axis)
    if not outputs or not inputs:
        return Leave(f"no matrix in the equation {equation!r}"), None
    return Layer(count=math.prod(shape[axis] for axis in batch)), axes(shape, batch, outputs, inputs)


class Parameter(NamedTuple):
    """A parameter under one of its names."""

    name: str
    stream: str
    """The name of its random numbers, the same in every framework: that of the layer, and PyTorch's of the weight."""
    key: Hashable
    """The same under all names."""
    shape: Shape
    """As it is stored."""
    what: Layer | Constant | Leave
    layout: Layout | None = None
    """Of a weight; None where it is stored in PyTorch's."""
    bias: Hashable = None
    """The key of the bias of a weight's layer, if it has one."""

    @property
    def canonical(self) -> Shape:
        """The shape in PyTorch's layout."""
        return self.shape if self.layout is None else self.layout.shape


class Task(NamedTuple):
    """What is done to a parameter, or to a part of it."""

    parameter: Parameter
    what: Matrices | Constant
    scheme: Scheme
    source: str = ""
    first: int = 0


def decide(
    parameters: Sequence[Parameter], skipped: set[Hashable], scheme: Scheme, conv: Conv, start: StartOf | None
) -> tuple[list[Row], list[Task]]:
    """What is done to each parameter: by the scheme, or by `start` where weights differ."""
    first: dict[Hashable, Parameter] = {}
    rules: dict[Hashable, Rule] = {}
    for parameter in parameters:
        first.setdefault(parameter.key, parameter)
        if parameter.key in skipped:
            rules[parameter.key] = Leave("skipped")
        elif isinstance(parameter.what, Leave):  # a weight that an embedding shares is an embedding
            rules[parameter.key] = parameter.what
        elif parameter.key not in rules:
            rules[parameter.key] = _rule(parameter, scheme, conv)
    recipe = {} if start is None else _recipe(first, rules, start)
    names = {parameter.stream: parameter.name for parameter in first.values()}
    rows: list[Row] = []
    tasks: list[Task] = []
    for parameter in parameters:
        key, what = parameter.key, rules[parameter.key]
        if first[key] is not parameter:
            rows.append(Row(parameter.name, parameter.shape, f"tied to {first[key].name}"))
        elif isinstance(what, Leave):
            rows.append(Row(parameter.name, parameter.shape, "left alone", reason=what.reason))
        elif key in recipe:
            rows.append(row(parameter.name, parameter.shape, recipe[key]))
            if source := recipe[key][0].source:  # the plan speaks in the framework's names
                rows[-1] = rows[-1]._replace(reason=rows[-1].reason.replace(source, names[source]))
            tasks += [Task(parameter, part.matrices, part.scheme, part.source, part.first) for part in recipe[key]]
        else:
            rows.append(Row(parameter.name, parameter.shape, *described(what, scheme)))
            tasks.append(Task(parameter, what, scheme))
    return rows, tasks


def _rule(parameter: Parameter, scheme: Scheme, conv: Conv) -> Rule:
    what, shape = parameter.what, parameter.canonical
    if not isinstance(what, Layer):
        return what
    if what.kind == "convolution":
        return kernel_matrices(what, shape, conv, entrywise=scheme.entrywise)
    return Matrices(what.count, shape[0] // what.count, math.prod(shape[1:]))


def _recipe(
    first: Mapping[Hashable, Parameter], rules: Mapping[Hashable, Rule], start: StartOf
) -> dict[Hashable, list[Part]]:
    weights: dict[Hashable, Weight] = {}
    for key, parameter in first.items():
        if isinstance(held := rules[key], Matrices) and isinstance(parameter.what, Layer):
            free = isinstance(rules.get(parameter.bias), Constant)
            weights[key] = Weight(parameter.stream, parameter.canonical, held, parameter.what, free)
    by_name = start(weights.values())
    found = {key: by_name[weight.name] for key, weight in weights.items()}
    for key in weights:
        if (apart := found[key][0].bias) is not None:
            bias = first[key].bias
            units = math.prod(first[bias].shape)
            found[bias] = [Part(Matrices(1, units, 1), apart, reason_of(apart))]
    return found


def values(tasks: Iterable[Task], seed: int, double: Iterable[Hashable] = ()) -> dict[Hashable, np.ndarray]:
    """The new values of the parameters by their keys, as they are stored, in float32; in float64 for keys in `double`.

    Matrix i of a parameter is `stiefel_init.draw(…, seed=seed, name=stream)[i]`.
    """
    doubled = set(double)
    found: dict[Hashable, np.ndarray] = {}
    layouts: dict[Hashable, Parameter] = {}
    for task in tasks:
        parameter, what = task.parameter, task.what
        dtype = np.float64 if parameter.key in doubled else np.float32
        if isinstance(what, Constant):
            found[parameter.key] = what.filled(np.empty(parameter.shape, dtype))
            continue
        layer = isinstance(parameter.what, Layer)
        whole = found.setdefault(parameter.key, np.zeros(parameter.canonical if layer else (what.m, 1), dtype))
        layouts[parameter.key] = parameter
        if not whole.size:
            continue
        name = task.source or parameter.stream
        drawn = of_kernel(task.scheme, what.m, what.n, what.receptive, what.count, seed, name, dtype, first=task.first)
        drawn *= dtype(what.scale)
        blocks = what.blocks(np.ascontiguousarray(drawn.mT) if what.mirrored else drawn, whole.shape)
        places = what.places(whole)
        places[...] = blocks.reshape(places.shape)
    for key, parameter in layouts.items():
        layout = parameter.layout
        found[key] = (
            found[key].reshape(parameter.shape) if layout is None else layout.stored(found[key], parameter.shape)
        )
    return found
