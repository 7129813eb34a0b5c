"""Training one network, or many at once on a GPU.

Note [slots]
    On a GPU a step of these networks is hundreds of small kernels that leave most of it idle. A `Slot` holds a model,
    an optimizer and a CUDA graph of one whole step: it takes the step's number from a counter on the device, with it
    the rows of the batch and the learning rate, and counts on. A run is then its first weights and a number of replays,
    several slots run side by side on streams of their own, and nothing waits for the CPU. The next run of the same
    network copies its weights into the slot. On a CPU the same step runs as it is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stiefel_init.lab.train.forecast import timed

from .catalogue import Network
from .initializations import INITIALIZATIONS
from .problems import Problem

TUNING, SETTLING = 1000, 1001
"""The seeds with which rates are chosen, the first in shorter runs; those of the results are 0, 1, …"""
LOOKS, TUNING_LOOKS = 6, 2
"""How often a run is tested, the end included."""
_AHEAD = 2
"""Looks at most that a slot has queued."""


class Job(NamedTuple):
    """A run: its network, initialization, rate and seed."""

    network: str
    start: str
    rate: float
    seed: int

    @property
    def looks(self) -> int:
        """How often it is tested."""
        return TUNING_LOOKS if self.seed == TUNING else LOOKS


def model_of(network: Network, job: Job) -> nn.Module:
    """The network as it starts; the seed decides the weights."""
    torch.manual_seed(job.seed)
    model = network.make()
    INITIALIZATIONS[job.start].apply(model)
    return model


def schedule(rate: float, steps: int) -> Tensor:
    """The rate of each step: up for a twentieth of them, then half a cosine down to nothing."""
    step = torch.arange(steps, dtype=torch.float64)
    return (rate * (step + 1).div(max(1, steps // 20)).clamp(max=1) * (1 + (math.pi * step / steps).cos()) / 2).float()


class Slot:
    """Trains one run of a network after another; Note [slots]."""

    def __init__(
        self, network: Network, problem: Problem, device: torch.device, compiled: Callable[..., Tensor] | None = None
    ) -> None:
        self.network, self.problem, self.device = network, problem, device
        with device:  # a run brings its own values: none are drawn here that would have to travel
            self.model = network.make()
        if device.type == "cuda" and network.kind in ("cnn", "resnet"):
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as cuDNN wants them
        parameters = dict(self.model.named_parameters())
        self.forward = self.model if compiled is None else partial(compiled, parameters)
        self.rate = torch.zeros((), device=device)
        on_gpu = device.type == "cuda"
        self.adam = torch.optim.AdamW(
            self.model.parameters(), lr=self.rate, betas=network.betas, weight_decay=network.decay, fused=on_gpu,
            capturable=on_gpu,
        )  # fmt: skip
        self.order = torch.zeros(network.steps, network.batch, dtype=torch.long, device=device)
        self.rates = torch.zeros(network.steps, device=device)
        self.counter = torch.zeros(1, dtype=torch.long, device=device)
        self.stream = torch.cuda.Stream(device) if on_gpu else None
        self.job: Job | None = None
        self._take = self._captured() if on_gpu else self._step

    def _step(self) -> None:
        self.adam.zero_grad(set_to_none=True)
        self.rate.copy_(self.rates.index_select(0, self.counter)[0])
        inputs, targets = self.problem.batch(self.order.index_select(0, self.counter)[0])
        with self._precision():
            loss = self.problem.loss(self.forward(inputs).float(), targets)
        loss.backward()
        if self.network.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.network.clip, foreach=True)
        self.adam.step()
        self.counter += 1

    def _precision(self) -> Any:
        if self.device.type != "cuda" or not self.network.half:
            return nullcontext()
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)

    def _captured(self) -> Callable[[], None]:
        """The step as a CUDA graph."""
        assert self.stream is not None
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(2):
                self._step()
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                self._step()
        return graph.replay

    def begin(self, job: Job) -> None:
        """Take up a run."""
        generator = torch.Generator().manual_seed(job.seed)
        fresh = model_of(self.network, job).state_dict()
        steps = self.network.tuning_steps if job.seed == TUNING else self.network.steps
        batch, size = self.network.batch, self.problem.size
        epochs = -(-steps // max(1, size // batch))
        if size > 1_000_000:  # places in a text
            order = torch.randint(size, (steps, batch), generator=generator)
        else:
            rows = [torch.randperm(size, generator=generator)[: size // batch * batch] for _ in range(epochs)]
            order = torch.cat(rows).view(-1, batch)[:steps]
        with self._on_stream(), torch.no_grad():
            state = self.model.state_dict()
            torch._foreach_copy_(list(state.values()), [fresh[name] for name in state])
            if moments := [value for each in self.adam.state.values() for value in each.values()]:
                torch._foreach_zero_(moments)
            self.counter.zero_()
            self.order[:steps].copy_(order)
            self.rates[:steps].copy_(schedule(job.rate, steps))
        self.job, self.steps, self.done = job, steps, 0
        self.scores: list[Tensor] = []
        self.events: list[torch.cuda.Event] = []

    def _on_stream(self) -> Any:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def ready(self) -> bool:
        """Whether to queue more."""
        return len(self.events) < _AHEAD or self.events[-_AHEAD].query()

    def advance(self) -> int:
        """Train up to the next look; returns how many steps that is."""
        assert self.job is not None
        until = self.steps * (len(self.scores) + 1) // self.job.looks
        taken = until - self.done
        with self._on_stream():
            for _ in range(taken):
                self._take()
            self.model.eval()
            with torch.no_grad(), self._precision():
                self.scores.append(self.problem.score(self.model).float())
            self.model.train()
            if self.stream is not None:
                self.events.append(self.stream.record_event())
        self.done = until
        return taken

    @property
    def over(self) -> bool:
        """Whether all of the run is queued."""
        return self.done == self.steps

    def finished(self) -> bool:
        """Whether the run is over: at its end, or halfway if nothing was learnt by then."""
        assert self.job is not None
        half = self.job.looks // 2
        if self.over and (self.stream is None or self.events[-1].query()):
            return True
        if len(self.scores) < half or (self.stream is not None and not self.events[half - 1].query()):
            return False
        return not self.network.metric.learnt(float(self.scores[half - 1]))

    def result(self) -> list[float]:
        """The scores at each look; a network that diverged, or is worse than chance, has that of chance."""
        self.job = None
        metric = self.network.metric
        known = len(self.scores) if self.stream is None else sum(event.query() for event in self.events)
        scores = torch.stack([score.cpu() for score in self.scores[:known]]).tolist()  # what is still queued has none
        found = [score if metric.sign * (score - metric.chance) > 0 else metric.chance for score in scores]
        return [round(score, 4) for score in found]  # as they are written, so that a rerun decides as this run does


def train(
    network: Network,
    problem: Problem,
    device: torch.device,
    todo: Callable[[], Job | None],
    advanced: Callable[[int], None],
) -> Iterator[tuple[Job, list[float]]]:
    """Train what `todo` gives, several at once on a GPU; yields each run with its scores as it ends.

    Args:
        network: The network.
        problem: What it learns.
        device: Where.
        todo: The next run; None if there is none yet, which may change when a run ends.
        advanced: Called with numbers of steps taken.
    """
    slots: list[Slot] = []
    compiled = _compiled(network) if network.half and device.type == "cuda" else None
    waiting = todo()
    while waiting is not None or any(slot.job for slot in slots):
        if waiting is not None:
            free = next((slot for slot in slots if slot.job is None), None)
            if free is None and len(slots) < (network.slots if device.type == "cuda" else 1):
                free = Slot(network, problem, device, compiled)
                slots.append(free)
            if free is not None:
                free.begin(waiting)
                waiting = todo()
        moved = False
        for slot in slots:
            if slot.job is None:
                continue
            if slot.finished():
                job, rest = slot.job, slot.steps - slot.done
                yield job, slot.result()
                advanced(rest)
                moved, waiting = True, waiting or todo()
            elif not slot.over and slot.ready():
                advanced(slot.advance())
                moved = True
        if not moved:
            time.sleep(0.001)


def run_seconds(network: Network, problem: Problem, device: torch.device) -> float:
    """About how long a run takes, from a few steps of one and a test."""
    slot = Slot(network, problem, device)
    job = Job(network.name, network.starts[0], network.rates[0], 0)
    begun = timed(lambda: slot.begin(job), device)

    def step() -> None:
        slot.counter.zero_()
        slot._step()

    step()
    taken = timed(step, device)
    slot.model.eval()
    with torch.no_grad():
        tested = timed(lambda: problem.score(slot.model), device)
    return begun + network.steps * taken + job.looks * tested


def _compiled(network: Network) -> Callable[..., Tensor]:
    """The network as a compiled function of its parameters and inputs, one for all slots."""
    skeleton = network.make().to("meta")
    return torch.compile(lambda parameters, inputs: functional_call(skeleton, parameters, (inputs,)), dynamic=False)
