"""How large a network is, which tells the work and the memory that it takes: `size_of`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...core.errors import StiefelError
from ...schemes import Scheme
from ...torch import initialize_
from ..plugins import told
from .cell import Cell
from .convolutional import Blueprint
from .family import PERCEPTRON
from .network import Architecture
from .problem import Problem

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Size(NamedTuple):
    """Of a network; the last three for each row that goes through it."""

    parameters: int
    products: int
    """Multiplications."""
    values: int
    """That its layers make."""
    largest: int
    """Of one layer."""
    flat: bool = False
    """Whether it takes images as rows of numbers."""


def size_of(cell: Cell, problem: Problem) -> Size:
    """The size of a cell's network.

    Raises:
        StiefelError: for a network that does not take the rows of its problem, or has another number of outputs.
    """
    if cell.network != PERCEPTRON:
        return _measured(Blueprint.of(cell, problem))
    net = Architecture.of(cell, problem)
    return Size(net.parameters, net.parameters, sum(net.widths), max(net.widths))


def check_scheme(cell: Cell, problem: Problem) -> None:
    """Refuse a scheme that a module cannot start from."""
    _check_scheme(Blueprint.of(cell, problem), cell.scheme)


@lru_cache(maxsize=1000)
def _check_scheme(blueprint: Blueprint, scheme: Scheme) -> None:
    rows = example(blueprint, _measured(blueprint).flat) if scheme.calibrates else None
    initialize_(blueprint.build(), scheme, seed=0, inputs=rows, dry_run=True)


def example(blueprint: Blueprint, flat: bool) -> Tensor:
    """Two rows of noise, as the network takes them."""
    shape = (blueprint.inputs,) if flat or blueprint.image is None else blueprint.image
    return torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))


@lru_cache(maxsize=1000)
def _measured(blueprint: Blueprint) -> Size:
    """By running it; images are passed as rows only where the network does not take them."""
    raised = []
    with torch.random.fork_rng(devices=()):
        model = blueprint.build()
        for flat in (True,) if blueprint.image is None else (False, True):
            try:
                return _run(model, blueprint, flat=flat)
            except StiefelError:
                raise
            except Exception as error:  # whatever the user's forward raises
                raised.append(error)
    shape = tuple(example(blueprint, flat=False).shape)
    raise StiefelError(f"{blueprint.network} does not take inputs of shape {shape}: {told(raised[0])}.") from raised[0]


def _run(model: nn.Module, blueprint: Blueprint, *, flat: bool) -> Size:
    sizes: list[tuple[int, int]] = []

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            weight = getattr(module, "weight", None)
            each = weight[0].numel() if isinstance(module, _WEIGHTED) and isinstance(weight, Tensor) else 0
            sizes.append((output.numel() // 2, output.numel() // 2 * each))

    hooks = [each.register_forward_hook(note) for each in model.modules() if not list(each.children())]
    try:
        with torch.no_grad():
            outputs = model.train()(example(blueprint, flat))
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(outputs, Tensor) or outputs.shape != (2, blueprint.outputs):
        got = f"of shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else f"as {type(outputs).__name__}"
        raise StiefelError(
            f"{blueprint.network} answers two rows of {blueprint.dataset} with outputs {got}; it must be "
            f"(2, {blueprint.outputs})."
        )
    parameters = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if not parameters:
        raise StiefelError(f"{blueprint.network} has no parameter that can be trained; name another network.")
    values, products = (sum(column) for column in zip(*sizes))
    return Size(parameters, max(products, parameters), values, max(value for value, _ in sizes), flat)
