"""The fused engine: an epoch of a stack as launches of the kernels in `kernels`, one or two for each training step."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...theory import ACTIVATIONS, tailored_slope
from ...theory.tailored import tailored_scale
from ...torch.optim import kernel
from ...torch.sampling.tensors import products
from .cell import ON_SET, SMOOTH, Cell
from .graph import GraphEngine
from .network import Architecture
from .optimizer import EdgeRates, FusedOnSet
from .problem import Problem
from .stack import Engine, Stack

try:
    import triton

    from .kernels.optimizer import update
    from .kernels.propagation import propagate
except (ImportError, AttributeError):  # no Triton, or one before 3.3: the other engine serves every device
    triton = None

KERNELS = (*ACTIVATIONS, "tat", "tanh", *SMOOTH)  # the activations that the kernels have, in the order of their numbers
_PROVEN = (*ACTIVATIONS, "tat")
"""Those whose compiled kernels were compared with autograd on a card; the others are tried there first."""
MOST_WIDTH = 128
MOST_OUTPUTS = 128
BLOCK = 256  # parameters for each program of `update`
_COMPILING = threading.Lock()
"""Held while an engine takes its first step, for which Triton may compile: it does not expect threads."""


class FusedEngine(Engine):
    """Trains stacks of networks with hidden layers of one width."""

    name = "fused"

    def __init__(self, stack: Stack) -> None:
        cell, widths = stack.cells[0], stack.net.widths
        count, device = len(stack.cells), stack.order.device
        parts, block = _parts(cell), _block(widths[1])
        rows = _tile_rows(cell, stack.batch)
        self.tiles = -(-stack.batch // rows)
        super().__init__(stack, self.tiles)
        self.depth = stack.net.layers - 1
        self.adam = not cell.optimizer.endswith("sgd")
        self.compiled = False
        self.scheduled = cell.schedule != "constant"
        self.full_rates, self.decays = (
            torch.tensor(values, device=device)
            for values in ([cell.rate for cell in stack.cells], [cell.decay for cell in stack.cells])
        )
        self.rates, self.keeps = self.full_rates.clone(), 1 - self.full_rates * self.decays
        flat = stack.parameters.flat
        self.moments = [torch.zeros(count, flat.stride(0), device=device) if self.adam else flat for _ in range(2)]
        half = torch.float16 if parts == 1 else torch.float32
        self.kept = torch.empty(count, self.tiles, self.depth, rows, block, dtype=half, device=device)
        self.ups = torch.empty(count, self.tiles, self.depth, device=device)
        self.shares = torch.zeros(count, self.tiles, flat.stride(0), device=device)
        keeps = cell.optimizer in ON_SET and self.depth > 1
        self.on_set = FusedOnSet(stack.cells, stack.net, flat, self.shares) if keeps else None
        # Where weights are to be let go, Adam already follows their gradients; else it leaves them alone.
        self.alone = keeps and cell.schedule != "release"
        self.edges = EdgeRates(stack.cells, stack.parameters)
        self.order = stack.order.to(torch.int32)
        slope = tailored_slope(self.depth) if stack.net.activation == "tat" else 0.0
        self.shape: dict[str, Any] = {
            "INPUTS": widths[0], "WIDTH": widths[1], "CLASSES": widths[-1], "ROWS": rows,
            "TILE_HIDDEN": block, "TILE_INPUTS": min(32, _block(widths[0])), "TILE_CLASSES": _block(widths[-1]),
            "ACTIVATION": KERNELS.index(stack.net.activation), "SLOPE": slope, "SCALE": tailored_scale(slope),
            "REGRESSION": stack.loss == "squared_error",
            "PARTS": parts, "EXACT": stack.data.features.dtype == torch.uint8,
            "WHOLE": parts == 1 and self.tiles == 1, "ADAM": self.adam,
            "DECAYS": any(cell.decay for cell in stack.cells),
        }  # fmt: skip
        # Found by measurement on an H200. What one part leaves free of shared memory holds the loads of the layers to
        # come; of three parts, with fewer registers for each, four programs share a multiprocessor. Layers of up to
        # 16 units are so little work that two warps do it faster than four, which would wait for each other.
        warps = 2 if block <= 16 and rows <= 64 else 4 if block <= 64 and rows <= 64 else 8
        self.options: dict[str, Any] = {"num_warps": warps, "num_stages": 3 if parts == 1 and block <= 64 else 1}
        card = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        if parts == 3 and 16 < block <= 64 and count * self.tiles > 2 * card:
            self.options["maxnreg"] = 128

    @staticmethod
    def refuses(cell: Cell, problem: Problem) -> str | None:
        if triton is None:
            return "engine='fused' needs Triton 3.3 or newer; use engine='graph'."
        on_set = cell.optimizer in ON_SET and (FusedOnSet.refuses(cell) or cell.precision != "float32")
        lacking = {
            f"dropout={cell.dropout:g}": cell.dropout > 0,
            f"activation={cell.activation!r}": cell.activation not in KERNELS,
            f"optimizer={cell.optimizer!r} with width={cell.width} in {cell.precision}": on_set,
        }
        if what := [what for what, lacks in lacking.items() if lacks]:
            return f"engine='fused' has no kernel for {what[0]}; use engine='graph'."
        if len(set(cell.hidden)) > 1 or cell.hidden[0] > MOST_WIDTH or problem.outputs > MOST_OUTPUTS:
            return (
                f"engine='fused' takes hidden layers of one width up to {MOST_WIDTH} and at most {MOST_OUTPUTS} "
                f"outputs; width={cell.width} and {problem.outputs} outputs need engine='graph'."
            )
        return None

    @staticmethod
    def suits(cell: Cell, problem: Problem, device: torch.device) -> bool:
        if device.type != "cuda" or torch.version.cuda is None or FusedEngine.refuses(cell, problem) is not None:
            return False
        if cell.optimizer in ON_SET and not kernel.agrees(device):
            return False
        card = torch.cuda.get_device_properties(device)
        narrow = max(cell.hidden[0], problem.outputs) <= 64
        needed = (192 if not narrow else 74 if _parts(cell) == 3 else 162) << 10  # as compiled for an H200
        if card.major < 8 or getattr(card, "shared_memory_per_block_optin", 0) < needed:
            return False
        return cell.activation in _PROVEN or agrees_with_graph(FusedEngine, cell.activation, device)

    @staticmethod
    def memory(cell: Cell, problem: Problem) -> int:
        batch = min(cell.batch or problem.size, problem.size)
        rows = _tile_rows(cell, batch)
        kept = rows * cell.depth * _block(cell.hidden[0]) * (2 if _parts(cell) == 1 else 4)
        parameters = Architecture.of(cell, problem).parameters
        on_set = 20 * parameters if cell.optimizer in ON_SET else 0  # moments, and copies of weights and gradients
        return -(-batch // rows) * (kept + 4 * parameters) + on_set

    def begin(self, start: int) -> None:
        super().begin(start)
        self.order.copy_(self.stack.order)

    def step(self, start: int, stop: int) -> None:
        with nullcontext() if self.compiled else _COMPILING:
            self._step(start, stop)
        self.compiled = True

    def _step(self, start: int, stop: int) -> None:
        stack, flat = self.stack, self.stack.parameters.flat
        data, taken = stack.data, stack.step_at(start) + 1
        edges = self.edges.before()
        factor = 1.0
        if self.scheduled:
            factor = stack.rate_factor(start)
            torch.mul(self.full_rates, factor, out=self.rates)
            torch.sub(1, self.rates * self.decays, out=self.keeps)  # what decay leaves of a weight
        strides = self.order.stride(0), flat.stride(0)
        fixes = 1 / (1 - 0.9**taken), (1 - 0.999**taken) ** -0.5
        propagate[(len(flat) * self.tiles,)](
            flat, *self.moments, self.rates, self.keeps, self.shares, self.kept, self.ups, self.losses, self.corrects,
            data.features, data.targets, self.order, start, stop, self.tiles, *strides, 1 / data.scale, *fixes,
            self.depth, **self.shape, **self.options,
        )  # fmt: skip
        on_set = None if stack.released(start) else self.on_set
        weights = None if on_set is None else on_set.step(taken, factor)  # from those before `update`
        if not self.shape["WHOLE"]:
            size, (inputs, width) = stack.net.parameters, stack.net.widths[:2]
            update[(-(-size // BLOCK), len(flat))](
                flat, *self.moments, self.shares, self.rates, self.keeps, self.tiles, size, flat.stride(0), *fixes,
                width * (inputs + 1) + (self.depth - 1) * width * (width + 1),
                BLOCK=BLOCK, ADAM=self.adam, DECAYS=self.shape["DECAYS"], ALONE=self.alone,
                FIRST_LAYER=width * (inputs + 1), WIDTH=width,
            )  # fmt: skip
        if on_set is not None and weights is not None:
            on_set.write(weights)
        self.edges.after(edges)

    def state(self) -> list[Tensor]:
        kept = [] if self.on_set is None else self.on_set.state()
        return [*(self.moments if self.adam else []), *kept, *super().state()]


def _block(size: int) -> int:
    """The size of the tiles that hold `size` numbers: a power of two, at least what a tensor core takes."""
    return max(16, 1 << (size - 1).bit_length())


def _parts(cell: Cell) -> int:
    """What the tensor cores get of a number: see the notes of `kernels`."""
    return 1 if cell.precision == "tf32" else 3


def _tile_rows(cell: Cell, batch: int) -> int:
    """Rows of a tile, all of the batch where shared memory and registers hold it."""
    return min(256 if _parts(cell) == 1 and _block(cell.hidden[0]) <= 64 else 64, _block(batch))


CLOSE = 1e-3  # largest difference of two steps, over the longest of them; kernels in three parts leave about 1e-6


@cache
def agrees_with_graph(kernels: type[Any], activation: Any, device: torch.device) -> bool:
    """Whether a step of two small networks is that of the graph engine, tried once in a process.

    Compilers for GPUs come in many versions, and a wrong gradient would go unnoticed: what fails or differs is not
    used.
    """
    try:
        with products(device.type, "ieee"):
            taken = [_step(engine, activation, device) for engine in (kernels, GraphEngine)]
    except Exception as error:  # whatever a compiler raises
        why = f"No kernel for {activation} on {device} ({type(error).__name__})"
        print(f"{why}; its networks train slower.", file=sys.stderr)
        return False
    return bool((taken[0] - taken[1]).abs().max() <= CLOSE * taken[1].abs().max())


def _step(kind: type[Engine], activation: Any, device: torch.device) -> torch.Tensor:
    """What a step of gradient descent on 17 rows adds to the parameters."""
    numbers = np.random.default_rng(0)
    data = numbers.normal(size=(17, 5)).astype(np.float32), numbers.integers(3, size=17)
    problem = Problem(*data, *data, 3, "cross_entropy")
    cells = [Cell("none", "he", 3, 6, activation, seed, batch=None, rate=1.0, optimizer="sgd") for seed in range(2)]
    stack = Stack(cells, [problem] * 2, device)
    engine = kind(stack)
    before = stack.parameters.flat.clone()
    try:
        engine.epoch()
    finally:
        engine.close()
    return stack.parameters.flat - before
