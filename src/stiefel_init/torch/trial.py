"""`find_start`: which initialization and which learning rate for a model on its own data, by short trainings."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core import validate
from ..core.errors import StiefelError
from ..core.text import columns
from ..recipe.rates import Step
from ..recipe.search import LRS, ROUNDS, TIMES, downhill, planned, shortlist
from .diagnosis.depths import Start, starts_of
from .diagnosis.diagnose import Loss, loss_of
from .inputs import arguments, check_module
from .observe import plots
from .observe.report import Rows, text
from .rates import param_groups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AUTHOR = "built"
STARTS = (AUTHOR, "he", "orthogonal", "best")
ONE, GROUPS = "one rate", "param_groups"

Optimize = Callable[..., torch.optim.Optimizer]
Schedule = Callable[[float], float]
Setting = tuple[str, str, float]
"""An initialization, one rate or those of `param_groups`, and the learning rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training: from an initialization, at a rate, with a seed."""

    start: str
    rates: str
    """One rate for all layers, or those of `param_groups`."""
    lr: float
    seed: int
    steps: int
    loss: float
    """Of the validation batches at the end; without any, the mean over the last quarter of the steps."""
    curve: tuple[float, ...]
    """The training loss of each step, as far as it is finite."""

    @property
    def setting(self) -> Setting:
        """What was tried."""
        return self.start, self.rates, self.lr


@dataclass(frozen=True, eq=False, repr=False)
class Trials(Rows):
    """What `find_start` found. It prints as a sentence and a table; `plot()` shows the curves."""

    trials: tuple[Trial, ...]
    steps: int
    complete: bool
    """Whether the search went to its end; an interrupted one knows less."""
    step: Step = "adam"
    """What the groups are for."""

    @cached_property
    def _longest(self) -> dict[Setting, list[Trial]]:
        """The longest trainings of each setting: those trained furthest, with most seeds, first, the best before."""
        found: dict[Setting, list[Trial]] = {}
        for each in self.trials:
            known = found.setdefault(each.setting, [])
            if known and known[0].steps < each.steps:
                known.clear()
            known.append(each)
        return dict(sorted(found.items(), key=lambda item: (-item[1][0].steps, -len(item[1]), _mean(item[1]))))

    @cached_property
    def gain(self) -> tuple[float, float]:
        """By how much the best other setting's loss is below the author's, and what noise can explain.

        The noise is twice the standard error over the seeds that both were trained with to the end.
        """
        others, authors = ([each.loss for each in trials if each.steps == self.steps] for _, trials in self._finalists)
        if len(others) < 2 or not all(map(math.isfinite, others)):
            return 0.0, math.inf
        if not all(map(math.isfinite, authors)):
            return math.inf, 0.0
        gains = [author - other for author, other in zip(authors, others)]
        return statistics.mean(gains), 2 * statistics.stdev(gains) / math.sqrt(len(gains))

    @property
    def _finalists(self) -> list[tuple[Setting | None, list[Trial]]]:
        """The best setting of the others and the best of the author's, if there are any."""
        nothing: tuple[Setting | None, list[Trial]] = None, []
        found = self._longest.items()
        return [next((item for item in found if (item[0][0] == AUTHOR) is own), nothing) for own in (False, True)]

    @property
    def best(self) -> Setting:
        """(initialization, rates, learning rate): the author's, unless another is better by more than the noise."""
        (other, _), (author, _) = self._finalists
        gain, noise = self.gain
        chosen = other if author is None or gain > noise else author
        assert chosen is not None  # there is a trial
        return chosen

    @property
    def call(self) -> str:
        """What to write."""
        start, way, lr = self.best
        first = {AUTHOR: [], "best": ["initialize_(model)"], "paper": ['initialize_(model, recipe="paper")']}
        lines = first.get(start, [f'initialize_(model, "{start}")'])
        kind = "" if self.step == "adam" else f', optimizer="{self.step}"'
        given = f"param_groups(model, {lr:g}{kind})" if way == GROUPS else f"model.parameters(), lr={lr:g}"
        return "\n".join([*lines, f"optimizer = Optimizer({given})"])

    @property
    def sentence(self) -> str:
        """What was found."""
        start, way, lr = self.best
        gain, noise = self.gain
        if not self.complete:
            return "The search was interrupted: the table has what was trained, and nothing is settled."
        if not any(math.isfinite(each.loss) for each in self.trials):
            return "Nothing trained: no loss stayed finite; look at the data and the loss, or give smaller lrs."
        rates = [each.lr for each in self.trials if each.setting[:2] == (start, way)]
        edge = f" It is an end of what was tried: give lrs beyond {lr:g}." if lr in (min(rates), max(rates)) else ""
        if start == AUTHOR:
            kept = f"Keep the model's own initialization, with lr={lr:g}"
            return f"{kept}: no other is better by more than the noise.{edge}"
        name = "initialize_(model)" if start == "best" else start
        by = f"its loss is lower by {gain:.3g} ± {noise:.2g}" if gain < math.inf else "the model's own does not train"
        groups = " in param_groups" if way == GROUPS else ""
        return f"{name} with lr={lr:g}{groups} is better than the model's own initialization: {by}.{edge}"

    def __repr__(self) -> str:
        return f"<Trials: {len(self)} of up to {self.steps} steps; {self.sentence}>"

    def __str__(self) -> str:
        rows = [
            [start, way, f"{lr:g}", str(trials[0].steps), str(len(trials)), text(_mean(trials))]
            for (start, way, lr), trials in self._leaders.items()
        ]
        header = ["initialization", "rates", "best lr", "steps", "seeds", "loss"]
        return "\n".join([self.sentence, "", *columns(header, rows, left=2), "", self.call])

    @property
    def _leaders(self) -> dict[Setting, list[Trial]]:
        """The longest trainings at the best rate of each initialization, the best of all first."""
        first = {setting[:2]: setting for setting in reversed(self._longest)}
        return {setting: trials for setting, trials in self._longest.items() if first[setting[:2]] == setting}

    def plot(self) -> Figure:
        """Plot the training loss of the best trial of each initialization.

        Returns:
            A matplotlib figure, made without pyplot.

        Raises:
            StiefelError: if matplotlib is not installed.
        """
        leaders = self._leaders.items()
        return plots().of_trials({f"{start}, {way}, lr={lr:g}": found[-1].curve for (start, way, lr), found in leaders})


def warm_cosine(part: float) -> float:
    """A warm-up over a twentieth of the training, and a cosine.

    >>> warm_cosine(0.0), warm_cosine(0.5)
    (0.05, 0.5)
    """
    return min(1.0, 20 * part + 0.05) * (1 + math.cos(math.pi * part)) / 2


def _mean(trials: Sequence[Trial]) -> float:
    return statistics.mean(each.loss for each in trials)


def find_start(
    make_model: Callable[[], nn.Module],
    batches: Iterable[Any],
    loss: Loss | None = None,
    *,
    validation: Iterable[Any] | None = None,
    optimizer: Optimize = torch.optim.Adam,
    schedule: Schedule = warm_cosine,
    clip: float | None = None,
    starts: Sequence[str] | Mapping[str, Start] = STARTS,
    lrs: Iterable[float] = LRS,
    steps: int = 400,
    seeds: int = 3,
    device: torch.device | str | None = None,
) -> Trials:
    """Find out by training which initialization and which learning rate suit this model and these data.

    Every initialization is tried at every rate for a sixteenth of the steps; one in six goes on to a quarter of
    them. The best one and the best from the author's own initialization are trained to the end with fresh seeds, at
    that rate or a smaller one if it is better, for short trainings like large rates. A rate is judged together with its
    double. Trainings with the same seed see the same batches. Only what is better than the author's by more than the
    noise is recommended. As it is, that takes about 13 full trainings.

    Args:
        make_model: Builds the model, with its author's initialization.
        batches: A loader or list of `(inputs, targets)`, or of mappings that the model takes as keywords.
        loss: A function of outputs and targets, as for `diagnose`; of a mapping, the model's own `loss` by default.
        validation: Batches to be judged by; else the loss of the last quarter of the training does it.
        optimizer: `optimizer(parameters, lr=lr)`, such as `torch.optim.SGD` or a `functools.partial` of one.
        schedule: The rate's factor after a part of the training, 0 ≤ part < 1; by default a warm-up and a cosine.
        clip: The largest norm of a gradient, if there is to be one.
        starts: As in `check_depths`; `"built"` is the author's own, which is always among them.
        lrs: The learning rates; those of `param_groups`, tried beside one rate for `"best"`, are from the same list.
        steps: Of a full training. Short ones tell less: give at least a tenth of what you will train.
        seeds: Fresh seeds of the two that are compared at the end.
        device: Where to train; by default where `make_model` builds.

    Returns:
        The trials, with the sentence, the table, the picture and the call. Ctrl-C returns what there is so far.

    Raises:
        StiefelError: for batches that are none or can be read only once, or what cannot be trained.

    >>> x, make = torch.randn(64, 8), lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> found = find_start(make, [(x, (x[:, 0] > 0).long())], steps=32, seeds=2, lrs=[1e-3, 1e-2])
    >>> len(found) >= 16, found.complete
    (True, True)
    """
    steps = validate.size("steps", steps, at_least=TIMES ** (ROUNDS - 1))
    seeds = validate.size("seeds", seeds, at_least=2)
    rates = [validate.number("lrs", lr, above=0, hint="give positive numbers") for lr in lrs]
    names = dict.fromkeys((*starts_of(starts, 0), AUTHOR))
    if not rates:
        raise StiefelError("lrs is empty; give learning rates, such as [1e-3, 1e-2].")
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        kind = type(optimizer).__name__
        raise StiefelError(f"optimizer is a {kind}; give what makes one for each model, such as torch.optim.Adam.")
    for name, given in (("batches", batches), ("validation", validation)):
        if given is not None and iter(given) is given:
            raise StiefelError(f"{name} can be read only once; give a list or a DataLoader instead of an iterator.")
    trainer = Trainer(make_model, batches, validation, loss, optimizer, schedule, clip, starts, device)
    ways = [(start, way) for start in names for way in ((ONE, GROUPS) if start == "best" else (ONE,))]
    settings = [(start, way, lr) for start, way in ways for lr in rates]
    trials: list[Trial] = []
    clock = _Clock(planned(len(settings), steps) + min(2, len(names)) * (seeds + 1) * steps)

    def train(setting: Setting, length: int, seed: int = seeds) -> float:
        trials.append(trainer.train(setting, seed, length, clock.tick))
        return trials[-1].loss

    with torch.random.fork_rng():
        try:
            left = shortlist(settings, steps, train, lambda setting: setting[0] == AUTHOR)
            for own in (False, True):
                for last in [each for each in left if (each[0] == AUTHOR) is own][:1]:
                    best = downhill(last, settings, lambda setting: train(setting, steps, 0))
                    for seed in range(1, seeds):
                        train(best, steps, seed)
        except KeyboardInterrupt:
            if not trials:
                raise
            return Trials(tuple(trials), steps, complete=False, step=trainer.step)
        finally:
            clock.close()
    return Trials(tuple(trials), steps, complete=True, step=trainer.step)


@dataclass(frozen=True, eq=False)
class Trainer:
    """What all trials of a search share."""

    make: Callable[[], nn.Module]
    batches: Iterable[Any]
    validation: Iterable[Any] | None
    loss: Loss | None
    optimizer: Optimize
    schedule: Schedule
    clip: float | None
    starts: Sequence[str] | Mapping[str, Start]
    device: Any

    @cached_property
    def step(self) -> Step:
        """The kind of the optimizer."""
        made = self.optimizer([nn.Parameter(torch.zeros(1))], lr=1.0)
        return "sgd" if "SGD" in type(made).__name__ else "adam"

    def train(self, setting: Setting, seed: int, steps: int, tick: Callable[[int], Any] = bool) -> Trial:
        """One training, which tells `tick` its steps; a loss that is not finite ends it."""
        start, rates, lr = setting
        torch.manual_seed(seed)
        model = self.make()
        check_module(model, "make_model")
        model = model.to(self.device).train()
        if start != AUTHOR:
            starts_of(self.starts, seed)[start](model)
        given = param_groups(model, lr, optimizer=self.step) if rates == GROUPS else model.parameters()
        stepper = self.optimizer(given, lr=lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(stepper, lambda at: self.schedule(at / steps))
        torch.manual_seed(seed)  # the order of a loader, and what dropout drops, are the same for all
        curve: list[float] = []
        for batch in self._read(steps):
            value = self._loss(model, batch)
            curve.append(float(value.detach()))
            tick(1)
            if not math.isfinite(curve[-1]):
                tick(steps - len(curve))
                break
            stepper.zero_grad()
            value.backward()
            if self.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            stepper.step()
            schedule.step()
        finite = [each for each in curve if math.isfinite(each)]
        loss = self._judge(model, curve) if len(finite) == steps else math.inf
        return Trial(start=start, rates=rates, lr=lr, seed=seed, steps=steps, loss=loss, curve=tuple(finite))

    def _judge(self, model: nn.Module, curve: Sequence[float]) -> float:
        if self.validation is None:
            return statistics.mean(curve[-max(1, len(curve) // 4) :])
        model.eval()
        with torch.enable_grad():  # a loss may need derivatives by its inputs
            losses = [float(self._loss(model, batch, gradient=False).detach()) for batch in self.validation]
        if not losses:
            raise StiefelError("validation has no batch; give some, or none at all.")
        return found if math.isfinite(found := statistics.mean(losses)) else math.inf

    def _read(self, steps: int) -> Iterator[Any]:
        """So many batches, from the beginning again where they end."""
        count = 0
        while count < steps:
            before = count
            for batch in self.batches:
                yield batch
                count += 1
                if count == steps:
                    return
            if count == before:
                raise StiefelError("batches has no batch, or none when it is read again; give a loader or a list.")

    def _loss(self, model: nn.Module, batch: Any, *, gradient: bool = True) -> Tensor:
        batch = _moved(batch, self.device)
        if isinstance(batch, Mapping):
            inputs, targets = batch, batch.get("labels")
        elif isinstance(batch, tuple | list) and len(batch) == 2:
            inputs, targets = batch
        else:
            raise StiefelError(f"a batch is a {type(batch).__name__}; give pairs (inputs, targets), or mappings.")
        positional, named = arguments(inputs)
        outputs = model(*positional, **named)
        own = getattr(outputs, "loss", None)
        if self.loss is None and isinstance(own, Tensor):
            return own
        return loss_of(self.loss, outputs, targets, gradient=gradient)


def _moved(value: Any, device: Any) -> Any:
    """Tensors in nested containers, to a device."""
    if device is None or not isinstance(value, Tensor | tuple | list | Mapping):
        return value
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {name: _moved(each, device) for name, each in value.items()}
    return type(value)(_moved(each, device) for each in value)


class _Clock:
    """How much is left, on a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.began, self.said = total, 0, time.monotonic(), 0.0

    def tick(self, steps: int) -> None:
        self.done += steps
        now = time.monotonic()
        if sys.stderr.isatty() and now - max(self.began + 2, self.said) > 1:
            self.said = now
            left = (now - self.began) * (self.total / self.done - 1)
            print(f"\rfind_start: {self.done / self.total:.0%}, about {left:.0f} s left ", end="", file=sys.stderr)

    def close(self) -> None:
        if self.said:
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr)
