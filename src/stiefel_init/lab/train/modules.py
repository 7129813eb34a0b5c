"""Networks that are modules, each cell one of its own: their images, `Slot`, and the engine that trains them.

Note [slots]
    On a GPU a step of such a network is hundreds of small kernels that leave much of it idle. A `Slot` holds a module,
    what its optimizer remembers, and a CUDA graph of one whole step, which finds its batch and its learning rate on the
    device. A run is then first weights and a number of replays; several slots run side by side, each on a stream of its
    own, and nothing waits for the CPU. On a CPU the same step runs as it is written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core import stream as _stream
from ...torch import initialize_, param_groups
from ...torch.sampling.stream import words
from .cell import Cell
from .convolutional import Blueprint, size_of
from .family import PERCEPTRON, AugmentName, PrecisionName
from .optimizer import Plain
from .problem import Problem
from .stack import Engine, Stack, factor

WARM_UP = 2  # steps that are taken before one is captured, and taken back
_MEASURED = 5000  # images, spread evenly, that tell the mean and the deviation of each channel


class Pictures:
    """Rows of bytes as images of shape (rows, channels, height, width), whose channels have mean 0 and deviation 1.

    Where images are cut, each is taken out of a frame an eighth of its side wider on each side, in which it goes on as
    in a mirror; where they are flipped, every second one is.
    """

    def __init__(self, problem: Problem, on_device: Tensor) -> None:
        """`on_device` are the features of the problem's training rows, on the device."""
        assert problem.image is not None
        self.image, self.scale, device = problem.image, problem.scale, on_device.device
        self.table = on_device.view(-1, *self.image)
        some = problem.features[:: -(-len(problem.features) // _MEASURED)] / self.scale
        some = some.reshape(len(some), self.image[0], -1)
        deviation = some.std((0, 2))
        self.mean, self.deviation = (
            torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1)
            for values in (some.mean((0, 2)), np.where(deviation > 0, deviation, 1.0))
        )
        self.channels, self.rows, self.columns = (torch.arange(size, device=device) for size in self.image)

    def standardized(self, rows: Tensor) -> Tensor:
        """Rows that were divided by the scale, as images."""
        return ((rows.view(-1, *self.image) - self.mean) / self.deviation).contiguous(memory_format=torch.channels_last)

    def batch(self, chosen: Tensor, lots: Tensor, augment: AugmentName) -> Tensor:
        """Training rows as images; a lot of 32 random bits says how each is cut and flipped."""
        rows, columns = (each.expand(len(chosen), -1) for each in (self.rows, self.columns))
        lots = lots.long() + 2**31
        if "flip" in augment:
            columns = torch.where((lots % 2 == 1)[:, None], len(self.columns) - 1 - columns, columns)
        if "crop" in augment:
            high, wide = len(self.rows) // 8, len(self.columns) // 8
            down, right = lots // 2 % (2 * high + 1), lots // (4 * high + 2) % (2 * wide + 1)
            rows = _mirrored(rows + (down - high)[:, None], len(self.rows))
            columns = _mirrored(columns + (right - wide)[:, None], len(self.columns))
        pixels = self.table[
            chosen[:, None, None, None], self.channels, rows[:, :, None, None], columns[:, None, :, None]
        ]
        return (pixels.permute(0, 3, 1, 2) / self.scale - self.mean) / self.deviation  # channels last in memory


def _mirrored(places: Tensor, size: int) -> Tensor:
    """Places beyond the edges of 0 … size - 1 as those that lie there in a mirror at the edge."""
    return size - 1 - (size - 1 - places.abs()).abs()


class OfTorch:
    """An optimizer of torch's kind as a slot takes it; on a GPU it must be capturable."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        self.optimizer.step()

    def state(self) -> list[Tensor]:
        kept = self.optimizer.state.values()
        return [value for each in kept for value in each.values() if isinstance(value, Tensor)]


def values_of(model: nn.Module) -> list[Tensor]:
    """What a module is: parameters and buffers, those included that no state dict has."""
    return [*model.parameters(), *model.buffers()]


class Slot:
    """Trains a module, whose memory it keeps; Note [slots]."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module], Tensor],
        groups: Sequence[dict[str, Any]],
        stepper: Callable[[list[dict[str, Any]]], Plain | OfTorch] = Plain,
        *,
        clip: float | None = None,
        counters: Sequence[Tensor] = (),
    ) -> None:
        """`model` is on its device, with its first weights; `loss` keeps there itself which batch is next.

        `groups` are of parameters, each with the `lr` that a rate of 1 means for it; `stepper` makes the optimizer of
        groups whose `lr` is a tensor that changes. `clip` is the largest norm of the gradient. `counters` are what the
        loss changes on the device, such as the place of the next batch.
        """
        self.model, self.loss, self.clip, self.counters = model, loss, clip, list(counters)
        device = next(model.parameters()).device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.scales = torch.tensor([group["lr"] for group in groups], device=device)
        self.rates = torch.zeros_like(self.scales)
        settings = [{**group, "lr": rate} for group, rate in zip(groups, self.rates.unbind())]
        self.parameters: list[nn.Parameter] = [parameter for group in settings for parameter in group["params"]]
        self.stepper = stepper(settings)
        self.graph: Any = None
        if self.stream is not None:
            self._capture()

    def _capture(self) -> None:
        """Make the graph of a step; nothing else changes."""
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        changed = [*values_of(self.model), *self.counters]
        with torch.cuda.stream(self.stream):
            kept = [tensor.detach().clone() for tensor in changed]
            try:
                for _ in range(WARM_UP):
                    self._step()
                self.stream.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, stream=self.stream):
                    self._step()
            finally:
                with torch.no_grad():
                    for tensor, value in zip(changed, kept):
                        tensor.copy_(value)
                    for tensor in self.stepper.state():
                        tensor.zero_()

    def on_stream(self) -> Any:
        """Whose work is queued in its order."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def step(self, rate: float) -> None:
        with self.on_stream():
            torch.mul(self.scales, rate, out=self.rates)
            if self.graph is not None:
                self.graph.replay()
            else:
                self._step()

    def _step(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
        self.loss(self.model).backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.clip, foreach=True)
        self.stepper.step()


class Modules(Stack):
    """Cells whose networks are modules. What is left of an epoch beyond its last whole batch is for another epoch."""

    def _begin(self, problem: Problem, device: torch.device) -> None:
        self.steps = max(1, self.size // self.batch)
        self.size = self.steps * self.batch
        self.flat = [size_of(cell, problem).flat for cell in self.cells]
        self.pictures = None if problem.image is None else Pictures(problem, self.data.features)
        self.lots = torch.zeros(len(self.cells), self.size, dtype=torch.int32, device=device)
        """Of the rows of an epoch, what decides how each image is cut."""
        self._lot_keys = np.stack([_stream.key(cell.seed, "pictures") for cell in self.cells])
        self.models = [self._model(place, problem, device) for place in range(len(self.cells))]

    def _model(self, place: int, problem: Problem, device: torch.device) -> nn.Module:
        """A network as it starts; the seed decides all of it, what no scheme draws included."""
        cell = self.cells[place]
        where = device if cell.scheme.calibrates else torch.device("cpu")  # which draws faster than it launches
        with torch.random.fork_rng(devices=()):
            torch.default_generator.manual_seed(cell.seed)
            model = Blueprint.of(cell, problem).build().to(where)
        rows = self.data.inputs(self.data.features[self.calibration_rows()[place]])
        inputs = self.as_inputs(place, rows) if cell.scheme.calibrates else None
        initialize_(model, cell.scheme, seed=cell.seed, inputs=inputs)
        model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # as convolutions want it
        return model.train()

    def as_inputs(self, place: int, rows: Tensor) -> Tensor:
        """Rows that were divided by the scale, as a network takes them."""
        images = rows if self.pictures is None else self.pictures.standardized(rows)
        return images.flatten(1) if self.flat[place] else images

    def state(self) -> list[Tensor]:
        return [tensor.detach() for model in self.models for tensor in values_of(model)]

    def shuffle(self, epoch: int) -> None:
        super().shuffle(epoch)
        if any(cell.augment != "none" for cell in self.cells):
            self.lots.copy_(words(self._lot_keys, (epoch, epoch + 1), self.size, self.lots.device).squeeze(1))

    def taken(self, place: int, rows: Tensor, lots: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a network, of training rows that are cut as their lots say."""
        targets, augment = self.data.targets.index_select(0, rows), self.cells[place].augment
        if self.pictures is None:
            return self.data.inputs(self.data.features.index_select(0, rows)), targets
        images = self.pictures.batch(rows, lots, augment)
        return images.flatten(1) if self.flat[place] else images, targets

    def batch_of(self, place: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self.taken(place, self.order[place, start:stop], self.lots[place, start:stop])

    def mean_loss(self, place: int, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.loss == "squared_error":
            return F.mse_loss(outputs.float().squeeze(1), targets)
        return F.cross_entropy(outputs.float(), targets, label_smoothing=self.cells[place].smoothing)

    def precision(self) -> Any:
        """What products are computed in."""
        if self.cells[0].precision != "bfloat16":
            return nullcontext()
        return torch.autocast(self.order.device.type, torch.bfloat16, cache_enabled=False)

    def predict(self, x: Tensor) -> Tensor:
        outputs = []
        # Without a search for the fastest algorithms: tests have batches of their own sizes, and are few.
        plain = partial(convolutions, self.order.device, self.cells[0].precision, search=False)
        for place, (model, rows) in enumerate(zip(self.models, x)):
            model.eval()
            try:
                with torch.no_grad(), self.precision(), plain():
                    outputs.append(model(self.as_inputs(place, rows)).float())
            finally:
                model.train()
        return torch.stack(outputs)

    def mirror(self, place: int) -> nn.Module:
        """A network as another module, whose parameters are its own memory, and whose buffers are not."""
        model = self.models[place]
        shared = {id(parameter): nn.Parameter(parameter.detach()) for parameter in model.parameters()}
        return copy.deepcopy(model, shared)  # what is in the memo is not copied


class Run(Slot):
    """A network of a stack in training; `loss_sum` and `correct_sum` are its places in the engine's sums."""

    def __init__(self, stack: Modules, place: int, loss_sum: Tensor, correct_sum: Tensor) -> None:
        self.stack, self.place, self.loss_sum, self.correct_sum = stack, place, loss_sum, correct_sum
        self.cell, model, device = stack.cells[place], stack.models[place], stack.order.device
        self.position = torch.zeros((), dtype=torch.int64, device=device)  # the row of the epoch that is next
        self._offsets = torch.arange(stack.batch, device=device)
        self.warm = None if self.cell.warmup is None else round(self.cell.warmup * stack.steps)
        super().__init__(
            model, self._loss, groups_of(model, self.cell), partial(Plain, adam=self.cell.optimizer == "adam"),
            clip=self.cell.clip, counters=(self.position, loss_sum, correct_sum),
        )  # fmt: skip

    def _loss(self, model: nn.Module) -> Tensor:
        stack, at = self.stack, self.position + self._offsets
        rows, lots = (each[self.place].index_select(0, at) for each in (stack.order, stack.lots))
        inputs, targets = stack.taken(self.place, rows, lots)
        with stack.precision():
            outputs = model(inputs)
        loss = stack.mean_loss(self.place, outputs, targets)
        with torch.no_grad():
            self.loss_sum += loss * stack.batch
            if stack.loss == "cross_entropy":
                self.correct_sum += (outputs.argmax(1) == targets).sum()
            self.position += stack.batch
        return loss


def groups_of(model: nn.Module, cell: Cell) -> list[dict[str, Any]]:
    """The parameters that a cell trains, in groups with the `lr` that a rate of 1 means for each."""
    if cell.groups:
        return param_groups(model, 1.0, optimizer=cell.optimizer, weight_decay=cell.decay)  # type: ignore[arg-type]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: dict[float, list[nn.Parameter]] = {1.0: trained}
    if cell.ends != 1:
        weights = {
            id(parameter)
            for group in param_groups(model, 1.0)
            if group["name"].startswith(("first layer", "last layer"))
            for parameter in group["params"]
        }
        layers = [each for each in model.modules() if id(getattr(each, "weight", None)) in weights]
        ends = {id(parameter) for layer in layers for parameter in layer.parameters(recurse=False)}
        groups = {1.0: [p for p in trained if id(p) not in ends], cell.ends: [p for p in trained if id(p) in ends]}
    return [{"params": some, "lr": lr, "weight_decay": cell.decay} for lr, some in groups.items() if some]


class SlotEngine(Engine):
    """Trains modules, step by step together; on a GPU each on a stream of its own."""

    name = "slots"
    networks = Modules

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        assert isinstance(stack, Modules)
        sums = zip(self.losses[:, 0].unbind(), self.corrects[:, 0].unbind())
        self.runs = [Run(stack, place, *of_run) for place, of_run in enumerate(sums)]

    @staticmethod
    def suits(cell: Cell, problem: Problem, device: torch.device) -> bool:
        return cell.network != PERCEPTRON

    @staticmethod
    def memory(cell: Cell, problem: Problem) -> int:
        size, rows = size_of(cell, problem), min(cell.batch or problem.size, problem.size)
        each = 2 if cell.precision == "bfloat16" else 4
        return 8 * size.parameters + 2 * each * rows * size.values + 32 * rows * problem.inputs

    def begin(self, start: int) -> None:
        super().begin(start)
        for run in self.runs:
            run.position.fill_(start)
        self._fork()

    def step(self, start: int, stop: int) -> None:
        step, steps = self.stack.step_at(start), self.stack.cells[0].epochs * self.stack.steps
        for run in self.runs:
            run.step(run.cell.rate * factor(run.cell.schedule, step, steps, run.warm))
        if self.stack.followers is not None:  # which look at every step
            self._join()
            self._fork()

    def sums(self) -> tuple[Tensor, Tensor]:
        self._join()
        return super().sums()

    def state(self) -> list[Tensor]:
        self._join()
        return [*(tensor for run in self.runs for tensor in run.stepper.state()), *super().state()]

    def _fork(self) -> None:
        """The streams of the slots begin where this one is."""
        for run in self.runs:
            if run.stream is not None:
                run.stream.wait_stream(torch.cuda.current_stream())

    def _join(self) -> None:
        """This stream goes on where those of the slots end."""
        for run in self.runs:
            if run.stream is not None:
                torch.cuda.current_stream().wait_stream(run.stream)

    def close(self) -> None:
        super().close()
        for run in self.runs:
            run.graph = None
        self.runs.clear()


@contextmanager
def convolutions(device: torch.device, precision: PrecisionName, *, search: bool = True) -> Iterator[None]:
    """Convolutions on a GPU in float32 itself where that is asked; by default by their fastest algorithms."""
    if device.type != "cuda":
        yield
        return
    backend: Any = torch.backends.cudnn
    before = backend.benchmark, backend.conv.fp32_precision
    backend.benchmark, backend.conv.fp32_precision = search, "ieee" if precision == "float32" else "tf32"
    try:
        yield
    finally:
        backend.benchmark, backend.conv.fp32_precision = before
