"""Whether the fused engine's kernels do on a card what the graph engine does, for activations nobody compared there."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import torch

from ...torch.sampling._precision import products
from .cell import Cell
from .engine import Engine
from .graph import GraphEngine
from .stack import Stack
from .task import Task

CLOSE = 1e-3
"""Largest difference of two steps, over the longest of them; kernels in three parts leave about 1e-6."""


@cache
def agrees(kernels: type[Any], activation: Any, device: torch.device) -> bool:
    """Whether a step of two small networks is that of the graph engine, tried once in a process.

    Compilers for GPUs come in many versions, and a wrong gradient would go unnoticed: what fails or differs is not
    used.
    """
    try:
        with products(device.type, "ieee"):
            taken = [_step(engine, activation, device) for engine in (kernels, GraphEngine)]
    except Exception as error:  # whatever a compiler raises
        print(
            f"No kernel for {activation} on {device} ({type(error).__name__}); its networks train slower.",
            file=sys.stderr,
        )
        return False
    return bool((taken[0] - taken[1]).abs().max() <= CLOSE * taken[1].abs().max())


def _step(kind: type[Engine], activation: Any, device: torch.device) -> torch.Tensor:
    """What a step of gradient descent on 17 rows adds to the parameters."""
    numbers = np.random.default_rng(0)
    rows, targets = numbers.normal(size=(17, 5)).astype(np.float32), numbers.integers(3, size=17)
    task = Task(rows, targets, rows, targets, 3, "cross_entropy")
    cells = [Cell("none", "he", 3, 6, activation, seed, batch=None, rate=1.0, optimizer="sgd") for seed in range(2)]
    stack = Stack(cells, [task] * 2, device)
    engine = kind(stack)
    before = stack.parameters.flat.clone()
    try:
        engine.epoch()
    finally:
        engine.close()
    return stack.parameters.flat - before
