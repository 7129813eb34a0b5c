"""The study of transfer: does one number for the learning rate suit networks of any depth and width?

Networks as users write them, from `initialize_`, each layer at the rate that `param_groups` gives it; or all layers at
one rate. Runs are in the order of their importance, and a run of the study may end anywhere: what it has is shown.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from stiefel_init.lab.files import prepare
from stiefel_init.lab.progress import progress
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.record import environment
from stiefel_init.lab.train.runner import pick_device
from stiefel_init.lab.train.stack import factor
from stiefel_init.torch import initialize_, param_groups

from ..experiment import QUICK_NOTE, Experiment, Options, titled
from ..networks import GPT, PlainCNN, mlp
from ..problems import Problem, Text, images
from ..results import Results, note_environment, write_table

NUMBER = 1e-3
"""The one number; the multiples of it make a valley."""
LONG, SHORT, QUICK = 3510, 234, 20
"""Steps: 15 epochs of MNIST in batches of 256, one epoch, and a few."""
TIMES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
WIDE_TIMES = (1 / 16, 0.125, *TIMES, 16.0)
CHANCE = {"mlp": 10.0, "cnn": 10.0, "gpt": math.log(256)}


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
    for way in ("groups", "one rate"):
        later += [run for depth in (3, *depths, 1000) for run in valley("mlp", depth, 64, way, WIDE_TIMES)]
        later += [run for width in (32, 512, 2048) for run in valley("mlp", 10, width, way, WIDE_TIMES)]
        later += [run for blocks in (2, 8, 24) for run in valley("gpt", blocks, 64, way, WIDE_TIMES)]
        later += [run for width in (128, 256, 512) for run in valley("gpt", 2, width, way, WIDE_TIMES)]
        later += [run for depth in (7, 19, 49, 100) for run in valley("cnn", depth, 32, way, WIDE_TIMES)]
    return list(dict.fromkeys(first + later))


@lru_cache
def _problem(network: str, device: torch.device, directory: Path | None, quick: bool) -> Problem:
    if network == "gpt":
        return Text(device, tokens=64)
    return images("digits" if quick else "mnist", device, directory, half=network == "cnn")


def _model(run: Run, inputs: int) -> nn.Module:
    if run.network == "gpt":
        return GPT(run.width, run.depth, 64)
    return (
        PlainCNN(run.depth, run.width)
        if run.network == "cnn"
        else nn.Sequential(nn.Flatten(), *mlp(inputs, 10, run.depth + 1, run.width))
    )


def train(run: Run, problem: Problem, device: torch.device) -> tuple[float, float]:
    """The test score, and the mean loss of the last fifth of the steps; of a network that diverged, those of chance."""
    torch.manual_seed(run.seed)
    example = problem.batch(torch.arange(2, device=device))[0]
    model = _model(run, math.prod(example.shape[1:]))
    initialize_(model, seed=run.seed)
    model.to(device)
    rate = NUMBER * run.times
    adam = torch.optim.Adam(
        param_groups(model, rate, inputs=example) if run.way == "groups" else model.parameters(), lr=rate, fused=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: factor("cosine", step, run.steps))
    generator, batch = torch.Generator().manual_seed(run.seed), 16 if run.network == "gpt" else 256
    batch = min(batch, problem.size)
    losses: list[torch.Tensor] = []
    order: list[torch.Tensor] = []
    for _ in range(run.steps):
        if run.network == "gpt":
            rows = torch.randint(problem.size, (batch,), generator=generator)
        else:
            order = order or list(
                torch.randperm(problem.size, generator=generator).split(batch)[: problem.size // batch]
            )
            rows = order.pop()
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


class Transfer(Experiment):
    """Valleys of learning rates over depth and width, and networks at the number itself."""

    name = "transfer"
    title = "Measured"
    page = "transfer"
    files = ("transfer",)

    def run(self, options: Options) -> None:
        """Train what is left, and note each run as it ends; after `minutes` none is begun."""
        device, label = pick_device(options.device), self.label(options.quick)
        path, begun = prepare(options.out) / f"{label}.csv", time.time()
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []
        done, fresh = _read(rows), 0
        wanted = runs(quick=options.quick, seeds=options.seeds or 10)
        left = [run for run in wanted if run not in done]
        with progress(len(left), label) as advance:
            for run in left:
                if options.minutes is not None and time.time() - begun > 60 * options.minutes:
                    print(f"Stopped after {options.minutes:g} minutes; finished networks are kept, rerun to resume.")
                    break
                started = time.time()
                score, loss = train(run, _problem(run.network, device, options.data, options.quick), device)
                seconds = round(time.time() - started, 1)
                rows.append({**run._asdict(), "score": f"{score:.4g}", "loss": f"{loss:.4g}", "seconds": seconds})
                write_table(rows, path)
                advance(1, f"{run.network} {run.depth} × {run.width}")
                fresh += 1
        if fresh:
            note_environment(
                options.out, label, environment(device, "loop"), time.time() - begun, fresh, add=fresh < len(rows)
            )
        evidence = _read(rows)
        for table in self.tables(evidence):
            table.show()
        self.write_pictures(evidence, options)
        if options.quick:
            print(QUICK_NOTE)

    def evidence(self, results: Results) -> Any:
        """Score and loss of each run on record."""
        return _read(results.table(self.name)) or None

    def tables(self, evidence: Any) -> list[Table]:
        """At the number itself; then the valleys."""
        long: dict[int, list[float]] = {}
        for run, (score, _) in sorted(evidence.items()):
            if run.steps == LONG:
                long.setdefault(run.depth, []).append(score)
        valleys = _valleys(evidence)
        found = [
            Table(
                "MNIST, 15 epochs, nothing tuned",
                ["layers", "seeds", "mean accuracy (%)", "lowest"],
                [[f"{d:,}", str(len(s)), f"{sum(s) / len(s):.2f}", f"{min(s):.2f}"] for d, s in sorted(long.items())],
            )
        ]
        for way in ("groups", "one rate"):
            chosen = {key: of for key, of in valleys.items() if key[3] == way and len(of) > 2}
            times = sorted({each for of in chosen.values() for each in of})
            rows = [
                [
                    f"{NAMES[key[0]]}, {key[1]} × {key[2]}",
                    *(f"{of[t][0]:.{DIGITS[key[0]]}f}" if t in of else "" for t in times),
                    _times(_best(of)),
                ]
                for key, of in sorted(chosen.items())
            ]
            named = "`param_groups`" if way == "groups" else "one rate for all layers"
            title = f"accuracy (%), or loss in nats, with {named}"
            header = ["network, depth × width", *(f"× {_times(t)}" for t in times), "least loss at ×"]
            found.append(Table(title, header, rows))
        return [table for table in found if table.rows]

    def pictures(self, evidence: Any) -> dict[str, Any]:
        """The loss over the multiple of the number: over depths, and over widths."""
        from stiefel_init.lab.report import plots

        drawn, axes = plots.figure(3, size=(3.4, 3.0), label="Training loss over multiples of the one number")
        panels = (
            ("one rate for all, width 64", lambda run: run.way == "one rate" and run.width == 64, "depth"),
            ("param_groups, width 64", lambda run: run.way == "groups" and run.width == 64, "depth"),
            ("param_groups, depth 10", lambda run: run.way == "groups" and run.depth == 10, "width"),
        )
        for axis, (title, belongs, by) in zip(axes[0], panels):
            lines: dict[int, list[tuple[float, float]]] = {}
            for run, (_, loss) in sorted(evidence.items()):
                if run.network == "mlp" and run.steps != LONG and belongs(run):
                    lines.setdefault(getattr(run, by), []).append((run.times, loss))
            for at, (value, points) in enumerate(sorted(lines.items())):
                axis.plot(*zip(*sorted(points)), "o-", color=f"C{at}", markersize=3, label=f"{by} {value}")
            axis.set(title=title, xlabel="multiple of 0.001", ylabel="training loss", xscale="log", yscale="log")
            shown = sorted({times for points in lines.values() for times, _ in points})
            axis.set_xticks(shown, [_times(times) for times in shown])
            axis.minorticks_off()
            axis.set_ylim(0.09, 0.5)
            axis.set_yticks([0.1, 0.2, 0.4], ["0.1", "0.2", "0.4"])
            if lines:
                axis.legend(fontsize=7)
        return {self.name: drawn}

    def section(self, evidence: Any) -> list[str]:
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
            *(f"- {_range(evidence, way)}" for way in ("groups", "one rate")), "",
            *self.shown(evidence), *titled(valleys),
        ]  # fmt: skip


def _range(evidence: Any, way: str) -> str:
    """How far the best multiple moves, and the loss at the number itself, over the depths of width 64."""
    chosen = [of for key, of in _valleys(evidence).items() if (key[0], key[2], key[3]) == ("mlp", 64, way)]
    best, at_number = [_best(of) for of in chosen], [of[1.0][1] for of in chosen if 1.0 in of]
    called = "`param_groups`" if way == "groups" else "one rate for all layers"
    return (
        f"{called}: the best multiple is from {_times(min(best))} to {_times(max(best))} over {len(chosen)} depths of "
        f"64 units; at the number itself the training loss is from {min(at_number):.3f} to {max(at_number):.3f}."
    )


NAMES = {"mlp": "MLP on MNIST", "cnn": "plain CNN on MNIST", "gpt": "transformer on text"}
DIGITS = {"mlp": 1, "cnn": 1, "gpt": 2}


def _valleys(evidence: Any) -> dict[tuple[str, int, int, str], dict[float, tuple[float, float]]]:
    """Over the multiples of the number, by network, depth, width and way."""
    found: dict[tuple[str, int, int, str], dict[float, tuple[float, float]]] = {}
    for run, values in sorted(evidence.items()):
        if run.steps != LONG:
            found.setdefault(run[:4], {})[run.times] = values
    return found


def _best(valley: dict[float, tuple[float, float]]) -> float:
    """The multiple with the least loss while training, which has less noise than a test score."""
    return min(valley, key=lambda times: valley[times][1])


def _times(value: float) -> str:
    return {0.0625: "1/16", 0.125: "⅛", 0.25: "¼", 0.5: "½"}.get(value, f"{value:g}")


def _read(rows: Iterable[Any]) -> dict[Run, tuple[float, float]]:
    """Score and loss by run."""
    return {
        Run(
            str(row["network"]), int(row["depth"]), int(row["width"]), str(row["way"]), float(row["times"]),
            int(row["steps"]), int(row["seed"]),
        ): (float(row["score"]), float(row["loss"]))
        for row in rows
    }  # fmt: skip
