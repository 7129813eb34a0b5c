"""The study of transfer: does one number for the learning rate suit networks of any depth and width?

Networks as users write them, from `initialize_`, each layer at the rate that `param_groups` gives it; or all layers at
one rate. Runs are in the order of their importance, and a run of the study may end anywhere: what it has is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.stack import factor
from stiefel_init.torch import initialize_, param_groups

from ..experiment import Options, titled
from ..loop import OfRuns
from ..networks import GPT, PlainCNN, mlp
from ..problems import Problem, Text, images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBER = 1e-3
"""The one number; the multiples of it make a valley."""
LONG, SHORT, QUICK = 3510, 234, 20
"""Steps: 15 epochs of MNIST in batches of 256, one epoch, and a few."""
TIMES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
WIDE_TIMES = (1 / 16, 0.125, *TIMES, 16.0)
CHANCE = {"mlp": 10.0, "cnn": 10.0, "gpt": math.log(256)}
NAMES = {"mlp": "MLP on MNIST", "cnn": "plain CNN on MNIST", "gpt": "transformer on text"}
DIGITS = {"mlp": 1, "cnn": 1, "gpt": 2}
WAYS = {"groups": "`param_groups`", "one rate": "one rate for all layers"}


class Run(NamedTuple):
    """One training."""

    network: str
    depth: int
    """Hidden layers, or blocks."""
    width: int
    way: str
    """`"groups"`, or `"one rate"` for all layers."""
    times: float
    """The rate over `NUMBER`."""
    steps: int
    seed: int = 0


Evidence = Mapping[Run, Mapping[str, Any]]


def runs(*, quick: bool = False, seeds: int = 10) -> list[Run]:
    """All of the study, the most important first."""
    if quick:
        return [Run("mlp", depth, 16, "groups", times, QUICK) for depth in (10, 20) for times in (0.5, 1.0, 2.0)]

    def valley(network: str, depth: int, width: int, way: str = "groups", times: Sequence[float] = TIMES) -> list[Run]:
        return [Run(network, depth, width, way, each, SHORT) for each in times]

    def untuned(depths: Iterable[int], seeds: Iterable[int]) -> list[Run]:
        return [Run("mlp", depth, 64, "groups", 1.0, LONG, seed) for seed in seeds for depth in depths]

    depths, widths = (10, 30, 100, 300), (16, 32, 128, 256)
    first = untuned((10, 100), range(2))
    first += [run for depth in depths for run in valley("mlp", depth, 64)]
    first += [run for width in widths for run in valley("mlp", 10, width)]
    first += [run for depth in depths[:3] for run in valley("mlp", depth, 64, "one rate")]
    first += untuned((300,), range(1))
    first += [run for blocks, width in ((2, 64), (8, 64), (2, 128), (2, 32)) for run in valley("gpt", blocks, width)]
    first += [run for depth, width in ((7, 16), (19, 16), (49, 16), (7, 32)) for run in valley("cnn", depth, width)]
    later = untuned((1000, 10, 100, 300), range(seeds))
    for way in WAYS:
        for network, sizes in {
            "mlp": [*((depth, 64) for depth in (3, *depths, 1000)), (10, 32), (10, 512), (10, 2048)],
            "gpt": [(2, 64), (8, 64), (24, 64), (2, 128), (2, 256), (2, 512)],
            "cnn": [(7, 32), (19, 32), (49, 32), (100, 32)],
        }.items():
            later += [run for depth, width in sizes for run in valley(network, depth, width, way, WIDE_TIMES)]
    return list(dict.fromkeys(first + later))


@lru_cache
def _problem(network: str, device: torch.device, directory: Path | None, quick: bool) -> Problem:
    if network == "gpt":
        return Text(device, tokens=64)
    return images("digits" if quick else "mnist", device, directory, half=network == "cnn")


def _model(run: Run, inputs: int) -> nn.Module:
    if run.network == "gpt":
        return GPT(run.width, run.depth, 64)
    if run.network == "cnn":
        return PlainCNN(run.depth, run.width)
    return nn.Sequential(nn.Flatten(), *mlp(inputs, 10, run.depth + 1, run.width))


def _batches(run: Run, size: int) -> Iterator[Tensor]:
    """Places of a text by chance; of images each once in an epoch."""
    generator, batch = torch.Generator().manual_seed(run.seed), min(16 if run.network == "gpt" else 256, size)
    while True:
        if run.network == "gpt":
            yield torch.randint(size, (batch,), generator=generator)
        else:
            yield from reversed(torch.randperm(size, generator=generator).split(batch)[: size // batch])


def train(run: Run, problem: Problem, device: torch.device) -> tuple[float, float]:
    """The test score, and the mean loss of the last fifth of the steps; of a network that diverged, those of chance."""
    torch.manual_seed(run.seed)
    example = problem.batch(torch.arange(2, device=device))[0]
    model = _model(run, math.prod(example.shape[1:]))
    initialize_(model, seed=run.seed)
    model.to(device)
    rate = NUMBER * run.times
    groups: Any = param_groups(model, rate, inputs=example) if run.way == "groups" else model.parameters()
    adam = torch.optim.Adam(groups, lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: factor("cosine", step, run.steps))
    losses: list[Tensor] = []
    for _, rows in zip(range(run.steps), _batches(run, problem.size)):
        inputs, targets = problem.batch(rows.to(device))
        loss = problem.loss(model(inputs), targets)
        adam.zero_grad()
        loss.backward()
        adam.step()
        schedule.step()
        losses.append(loss.detach())
    with torch.no_grad():
        score, last = float(problem.score(model.eval())), float(torch.stack(losses[-max(1, run.steps // 5) :]).mean())
    return (score, last) if math.isfinite(last) else (CHANCE[run.network], math.log(10))


class Transfer(OfRuns):
    """Valleys of learning rates over depth and width, and networks at the number itself."""

    name = "transfer"
    title = "Measured"
    page = "transfer"
    files = ("transfer",)
    kind = Run

    def wanted(self, options: Options) -> list[Run]:
        """All of the study."""
        return runs(quick=options.quick, seeds=options.seeds or 10)

    def train(
        self, runs: Sequence[Run], options: Options, device: torch.device, tell: Callable[..., None]
    ) -> list[dict[str, Any]]:
        """One after another."""
        found = []
        for run in runs:
            values = train(run, _problem(run.network, device, options.data, options.quick), device)
            found.append({name: float(f"{value:.4g}") for name, value in zip(("score", "loss"), values)})
            tell(1, f"{run.network} {run.depth} × {run.width}")
        return found

    def tables(self, evidence: Evidence) -> list[Table]:
        """At the number itself; then the valleys."""
        long: dict[int, list[float]] = {}
        for run, row in sorted(evidence.items()):
            if run.steps == LONG:
                long.setdefault(run.depth, []).append(row["score"])
        rows = [[f"{d:,}", str(len(s)), f"{sum(s) / len(s):.2f}", f"{min(s):.2f}"] for d, s in sorted(long.items())]
        header = ["layers", "seeds", "mean accuracy (%)", "lowest"]
        found = [Table("MNIST, 15 epochs, nothing tuned", header, rows)]
        for way, called in WAYS.items():
            chosen = {key: of for key, of in _valleys(evidence).items() if key[3] == way and len(of) > 2}
            times = sorted({each for of in chosen.values() for each in of})
            rows = []
            for (network, depth, width, _), of in sorted(chosen.items()):
                scores = (f"{of[t]['score']:.{DIGITS[network]}f}" if t in of else "" for t in times)
                rows.append([f"{NAMES[network]}, {depth} × {width}", *scores, _times(_best(of))])
            header = ["network, depth × width", *(f"× {_times(t)}" for t in times), "least loss at ×"]
            found.append(Table(f"accuracy (%), or loss in nats, with {called}", header, rows))
        return [table for table in found if table.rows]

    def pictures(self, evidence: Evidence) -> dict[str, Figure]:
        """The loss over the multiple of the number: over depths, and over widths."""
        drawn, axes = plots.figure(3, size=(3.4, 3.0), label="Training loss over multiples of the one number")
        panels = (
            ("one rate for all, width 64", "one rate", "depth", "width", 64),
            ("param_groups, width 64", "groups", "depth", "width", 64),
            ("param_groups, depth 10", "groups", "width", "depth", 10),
        )
        for axis, (title, way, by, other, fixed) in zip(axes[0], panels):
            lines = {
                getattr(Run(*key, 1.0, SHORT), by): {times: row["loss"] for times, row in of.items()}
                for key, of in _valleys(evidence).items()
                if (key[0], key[3]) == ("mlp", way) and getattr(Run(*key, 1.0, SHORT), other) == fixed
            }
            for at, (value, points) in enumerate(sorted(lines.items())):
                axis.plot(*zip(*sorted(points.items())), "o-", color=f"C{at}", markersize=3, label=f"{by} {value}")
            axis.set(title=title, xlabel="multiple of 0.001", ylabel="training loss", xscale="log", yscale="log")
            shown = sorted({times for points in lines.values() for times in points})
            axis.set_xticks(shown, [_times(times) for times in shown])
            axis.minorticks_off()
            axis.set_ylim(0.09, 0.5)
            axis.set_yticks([0.1, 0.2, 0.4], ["0.1", "0.2", "0.4"])
            if lines:
                axis.legend(fontsize=7)
        return {self.name: drawn}

    def section(self, evidence: Evidence) -> list[str]:
        """What is measured, and what is not yet."""
        wanted = runs()
        have = sum(run in evidence for run in wanted)
        left = "" if have == len(wanted) else f", of which {have} are on record; the others are not measured yet"
        untuned, *valleys = self.tables(evidence)
        return [
            "## Nothing tuned", "",
            "MNIST, 15 epochs in batches of 256, a warm-up and a cosine; 64 units; `initialize_(model)` and",
            "`param_groups(model, 1e-3)`.", "", *untuned.markdown(), "",
            f"`stiefel-init reproduce transfer` has {len(wanted):,} runs{left}.",
            "[Where they were made](results.md#what-was-run).", "",
            "## Over depths and widths", "",
            f"Multiples of the number, {SHORT} steps, one seed. Plain perceptrons:", "",
            *(f"- {_range(evidence, way)}" for way in WAYS), "",
            *self.shown(evidence), *titled(valleys),
        ]  # fmt: skip


Valley = dict[float, Mapping[str, Any]]


def _range(evidence: Evidence, way: str) -> str:
    """How far the best multiple moves, and the loss at the number itself, over the depths of width 64."""
    chosen = [of for key, of in _valleys(evidence).items() if (key[0], key[2], key[3]) == ("mlp", 64, way)]
    best, at_number = [_best(of) for of in chosen], [of[1.0]["loss"] for of in chosen if 1.0 in of]
    return (
        f"{WAYS[way]}: the best multiple is from {_times(min(best))} to {_times(max(best))} over {len(chosen)} depths "
        f"of 64 units; at the number itself the training loss is from {min(at_number):.3f} to {max(at_number):.3f}."
    )


def _valleys(evidence: Evidence) -> dict[tuple[str, int, int, str], Valley]:
    """Over the multiples of the number, by network, depth, width and way."""
    found: dict[tuple[str, int, int, str], Valley] = {}
    for run, row in sorted(evidence.items(), key=lambda each: each[0]):
        if run.steps != LONG:
            found.setdefault(run[:4], {})[run.times] = row
    return found


def _best(valley: Valley) -> float:
    """The multiple with the least loss while training, which has less noise than a test score."""
    return min(valley, key=lambda times: valley[times]["loss"])


def _times(value: float) -> str:
    return {0.0625: "1/16", 0.125: "⅛", 0.25: "¼", 0.5: "½"}.get(value, f"{value:g}")
