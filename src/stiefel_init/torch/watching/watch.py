"""See a network fail while it trains, and why: `watch`."""

from __future__ import annotations

import logging
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ...core.errors import StiefelError
from ...health.in_training.steps import FALLEN
from ...health.judge import Event, Judge
from ...health.rows import Row
from ...health.wording import capital
from ..initialize.wrappers import refuse_scripted, unwrapped
from ..inputs import check_module
from ..observe import plots
from ..observe.report import report as printed
from .history import History
from .page import LINEAR, SHOWN, body, page
from .sampler import Sampler
from .sinks import Sink, sink_of
from .weights import Spectra, Structure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Report = Literal["log", "warn"] | Callable[[Event], Any]
LOGGER = logging.getLogger("stiefel_init.watch")
_PRINTED = {
    "post_std": "std", "distinct": "distinct", "gradient": "gradient", "update": "update", "dead": "dead",
}  # fmt: skip
_EVENTS = 1000  # remembered
_ENOUGH = 20  # samples after which a loss should have fallen
_ANEW = 5  # first steps in a row of so many optimizers: each step has its own
_ACCUMULATED = 4  # samples in which an optimizer may not have stepped yet
_LONGEST = 128  # batches whose gradients may be accumulated for one step
_FAILURES = 3  # samples that may fail before the watch ends
_WATCHED: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Watch]] = weakref.WeakKeyDictionary()


def watch(
    model: nn.Module, optimizer: torch.optim.Optimizer | int | None = None, every: int = 50, *, report: Report = "log",
    to: Any = (),
) -> Watch:  # fmt: skip
    r"""Look at the layers of `model` in every `every`-th step of its training, and say what breaks and what recovers.

    Call `step()` of the result at the end of every training step, after the optimizer's. The hooks are on the model
    in sampled steps only; nothing about the training changes, and nothing that goes wrong here stops it.

    Args:
        model: The module that is trained, also inside DistributedDataParallel, FSDP2 or torch.compile.
        optimizer: Its steps end those of the training, so that the loop stays as it is: `watch(model, optimizer)`. The
            loss is then what `backward()` is called on. A number in this place is `every`.
        every: Steps 0, every, 2 · every, … are sampled.
        report: Where events go: `"log"`, the logger "stiefel_init.watch", which prints them unless told otherwise;
            `"warn"`, Python's warnings; or a function that takes an `Event`.
        to: Where samples go: a path that ends in .html (a page to open while training runs) or .jsonl (a line for each
            sample), a SummaryWriter of TensorBoard, a run of Weights & Biases; or a list of these.

    Returns:
        A `Watch`, which is also a context manager.

    Raises:
        StiefelError: if the model has no layer with weights, is TorchScript or is watched already, or an argument makes
            no sense.

    >>> from stiefel_init.torch import initialize_
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> plan = initialize_(model, seed=0)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    >>> with watch(model, every=5) as seen:
    ...     for _ in range(20):
    ...         optimizer.zero_grad()
    ...         loss = model(torch.randn(64, 4)).square().mean()
    ...         loss.backward()
    ...         optimizer.step()
    ...         seen.step(loss)
    >>> seen.samples, seen.healthy
    (4, True)
    """
    if isinstance(optimizer, int):
        return Watch(model, optimizer, report, to)
    return Watch(model, every, report, to, optimizer)


class Watch:
    """A watched training; made by `watch`."""

    def __init__(
        self, model: nn.Module, every: int, report: Report, to: Any, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        self._sampler: Sampler | None = None
        self.running: bool = False
        check_module(model)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise StiefelError(f"every={every!r} is not a number of steps; give an integer of 1 or more.")
        if report not in ("log", "warn") and not callable(report):
            raise StiefelError(f'report={report!r} is unknown; give "log", "warn" or a function of an event.')
        self._model = unwrapped(model)
        refuse_scripted(list(self._model.named_modules()), "watch")
        self._structure = Structure(self._model)
        if not self._structure.layers:
            raise StiefelError(f"{type(model).__name__} has no layer with weights; there is nothing to watch.")
        other = _WATCHED.get(self._model)
        if other is not None and (watching := other()) is not None and watching.running:
            raise StiefelError(f"{type(model).__name__} is being watched already; close() that watch first.")
        self.every, self._report = every, report
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        """What broke and what recovered, the last of it."""
        self.steps = 0
        """Calls of `step`."""
        self.samples = 0
        """Sampled steps."""
        self.running = True
        self.history = History()
        self._judge, self._spectra = Judge(), Spectra()
        self._failures = 0
        self._stance: Any = None
        self._rows: tuple[Row, ...] = ()
        self._losses: tuple[float, float] | None = None  # the first and the last one that were given
        self._sinks: list[Sink] = []
        targets = to if isinstance(to, list | tuple) else [to]
        if self._speaks():
            self._sinks = [sink_of(target, self._page) for target in targets]
        self._evaluated = 0
        self._stepping = self._stepped_before = False
        """Whether the optimizer stepped in this step of the training, and in the one before."""
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._strange = False  # whether an optimizer stepped that holds none of the model's weights
        self._first_steps = 0  # first steps of optimizers, one after the other
        self._gap = self._period = 0
        """Steps of the training since the optimizer's last one, and at most between two of them."""
        begun, count = self._structure.begun, weakref.WeakMethod(self._count)  # a watch that is dropped is gone

        def begins(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            begun[id(optimizer)] = begun.get(id(optimizer), 0) + 1

        def ends(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if begun.pop(id(optimizer), 0) and (it := count()) is not None:
                it(optimizer)

        self._counting = register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)
        _WATCHED[self._model] = weakref.ref(self)
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise StiefelError(f"optimizer is a {type(optimizer).__name__}; give an optimizer of torch.")
        self._optimizer = None if optimizer is None else weakref.ref(optimizer)
        """The one whose steps end those of the training, if not the user does."""
        self._arm()

    @staticmethod
    def _speaks() -> bool:
        """Of several ranks all look, so that they stay in step, and the first one tells."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return not distributed or torch.distributed.get_rank() == 0

    def _count(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the steps of optimizers that hold weights of the model, and how many of them were the first of one."""
        known = self._structure.known
        new = optimizer not in self._optimizers
        self._optimizers.add(optimizer)
        if any(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"]):
            self._stepping = True
            self._first_steps = self._first_steps + 1 if new and any(optimizer.state.values()) else 0
        else:
            self._strange = True
        if self._optimizer is not None and optimizer is self._optimizer() and self.running:
            self.step()

    def step(self, loss: Tensor | float | None = None) -> None:
        """End a training step: call it after the optimizer's `step()`.

        Args:
            loss: The step's loss, read in sampled steps only; by default the `loss` among the model's outputs, if any.
        """
        if self._sampler is not None:
            self._finish(loss)
        self.steps += 1
        self._gap += 1
        if self._stepping:
            self._period, self._gap = max(self._period, self._gap), 0
        self._stepped_before, self._stepping = self._stepping, False
        if self.steps % self.every == 0 and self.running:
            self._arm()

    @property
    def sampling(self) -> bool:
        """Whether the step that has begun is sampled."""
        return self._sampler is not None

    def observe(self, on: bool) -> None:
        """Look from here on, or up to here: for trainers that do not call the model as a whole."""
        if self._sampler is not None:
            self._sampler.release()
            if on:
                self._sampler.begin()

    def _arm(self) -> None:
        try:
            if not self._structure.holds(self._model):
                self._structure = Structure(self._model)
            self._sampler = Sampler(self._model, self._structure, self._spectra, self._optimizer is not None)
            self._sampler.arm()
            if "torch._dynamo" in sys.modules:  # nothing is compiled otherwise
                # Hooks inside a compiled model would be compiled too, so the sampled step runs as written.
                self._stance = torch.compiler.set_stance("force_eager")
        except Exception as error:  # a model in a state that we do not know
            self._failed(error)

    def _disarm(self) -> Sampler | None:
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.disarm()
            self._evaluated += sampler.evaluated
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None
        return sampler

    def _finish(self, loss: Tensor | float | None) -> None:
        try:
            sampler = self._disarm()
            if sampler is None:
                return
            # Gradients of several batches may be accumulated: then the optimizer steps once for all of them.
            adds_up = self.samples < _ACCUMULATED or (sampler.adds_up and self._gap < _LONGEST)
            accumulates = self._gap < 1.5 * self._period if self._period else adds_up
            resting = accumulates and self._period != 1 and not self._stepping
            sample = sampler.finish(
                self.steps, loss, resting, self._period > 1 and not self._stepped_before, self._first_steps >= _ANEW,
                self._strange or len(self._optimizers) > 1, self._period,
            )  # fmt: skip
            if sampler.failure is not None or sample is None:
                self._failed(sampler.failure or RuntimeError("no sample"))
                return
            self.samples += 1
            self.history.add(sample)
            self._rows = sample.rows
            if sample.loss is not None:
                self._losses = self._losses[0] if self._losses else sample.loss, sample.loss
            events = self._judge(sample)
            self.events.extend(events)
            if self._speaks():
                for event in events:
                    self._tell(event)
            for sink in list(self._sinks):
                self._into(sink, lambda sink=sink: sink.write(sample, events))  # type: ignore[misc]
        except Exception as error:  # training goes on
            self._failed(error)

    def _tell(self, event: Event) -> None:
        try:
            if callable(self._report):
                self._report(event)
            elif self._report == "warn":
                warnings.warn(str(event), stacklevel=4)
            else:
                LOGGER.warning("%s", event)
        except Warning:  # warnings are errors here, and training goes on
            LOGGER.warning("%s", event)
        except Exception as error:  # the user's function
            LOGGER.warning("report raised %s (%s); the event was: %s", type(error).__name__, error, event)

    def _into(self, sink: Sink, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # a full disk, a lost connection
            self._sinks = [kept for kept in self._sinks if kept is not sink]
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            LOGGER.warning("%s cannot be written any more (%s); training goes on.", sink.name, reason)

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._disarm()
        rest = "training goes on"
        if self._failures >= _FAILURES:
            self.running, rest = False, "watching ends, training goes on"
        reason = str(error).strip().splitlines()[:1] or [""]
        LOGGER.warning(
            "step %s could not be sampled (%s: %s); %s.", f"{self.steps:,}", type(error).__name__, *reason, rest
        )

    def close(self) -> None:
        """End watching: take the hooks off and finish the files."""
        if not self.running and not self._sinks:
            self._disarm()
            return
        self.running = False
        self._disarm()
        for hook in self._counting:
            hook.remove()
        for sink in self._sinks:
            self._into(sink, sink.close)
        self._sinks = []

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if self._sampler is not None and not sys.is_finalizing():
            self._disarm()

    @property
    def healthy(self) -> bool:
        """Whether nothing is broken now."""
        return not self.open

    @property
    def open(self) -> tuple[Event, ...]:
        """What is broken now."""
        evaluated = self._evaluated + (0 if self._sampler is None else self._sampler.evaluated)
        often = 2 * evaluated > self.samples > 1  # then it is part of the step, as drawing samples is
        back = self.samples >= _ACCUMULATED and self._structure.is_back(self._judge.past.away)
        found = ((self._unlike(evaluated),) if evaluated and not often else (), (self._back(),) if back else ())
        return (*self._judge.open.values(), *found[0], *found[1])

    def _back(self) -> Event:
        sentence = "the weights are those of the first step again"
        advice = "look for code that loads a checkpoint, or keeps the best one by the wrong comparison"
        return Event(self.steps, "weights are set back", "", sentence, advice)

    def _unlike(self, times: int) -> Event:
        sentence = f"the model ran without gradients in training mode, in {times:,} of the steps that were looked at"
        advice = "call model.eval() before you evaluate, and model.train() after it"
        return Event(self.steps, "evaluated in training mode", "", sentence, advice)

    @property
    def verdict(self) -> tuple[str, ...]:
        """Sentences: what is broken, or that nothing is, and where the loss went."""
        if not self.samples:
            return ("No step was sampled; call step() at the end of every training step.",)
        loss = "the loss was not given; pass it to step()"
        if self._losses is not None:
            loss = "the loss went from {:.3g} to {:.3g}".format(*self._losses)
        over = sum(event.recovered for event in self.events)
        past = f" {over} thing{'s' if over > 1 else ''} broke and recovered." if over else ""
        count = f"{self.samples:,} of {max(self.steps, 1):,} steps sampled"
        fallen = self._judge.past.fallen(after=_ENOUGH)
        if self.healthy and fallen is not None and fallen < FALLEN:
            return (f"Nothing is broken, but nothing was learned: {loss}.{past} {count}.",)
        if self.healthy:
            return (f"The training is healthy: {loss}.{past} {count}.",)
        broken = [capital(str(event)) for event in self.open]
        return (*broken, f"{capital(loss)}.{past} {count}.")

    @property
    def table(self) -> Any:
        """A row for each layer and sampled step, as a pandas DataFrame; without pandas, a list of dicts."""
        return self.history.table

    def plot(self, columns: Sequence[str] = ("post_std", "distinct", "gradient", "update")) -> Figure:
        """Heat maps, layers × steps.

        Args:
            columns: Which quantities, by their names in `table`.

        Returns:
            A matplotlib figure, made without pyplot.

        Raises:
            StiefelError: if matplotlib is not installed, a column is unknown, or nothing was sampled.
        """
        names = [columns] if isinstance(columns, str) else list(columns)
        unknown = [name for name in names if name not in SHOWN]
        if unknown or not names:
            raise StiefelError(f"columns={columns!r} cannot be plotted; choose from {', '.join(SHOWN)}.")
        if not len(self.history):
            raise StiefelError("no step was sampled, so there is nothing to plot; call step() in every training step.")
        return plots().of_training(self.history, self.events, {name: SHOWN[name] for name in names}, LINEAR)

    def _page(self, running: bool) -> str:
        return page(self._repr_html_(), running)

    def __str__(self) -> str:
        return printed(self.verdict, self._rows, {"activation": "activation"}, _PRINTED)

    def _repr_html_(self) -> str:
        return body(self.history, [str(event) for event in self.events], self.verdict, self.healthy)

    def __repr__(self) -> str:
        state = "healthy" if self.healthy else self.open[0].kind
        return f"<Watch: {self.samples} samples of {self.steps} steps, {state}>"
