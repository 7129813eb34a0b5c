"""The study of transfer: does one number for the learning rate suit networks of any depth and width?

Networks as users write them, from `initialize_`, each layer at the rate that `param_groups` gives it; or at the rates
of other rules. Perceptrons of 64 units are cells of the laboratory, which trains many at once; others are slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.core.errors import unknown
from stiefel_init.lab import run as train_cells
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.modules import OfTorch, Slot
from stiefel_init.lab.train.stack import factor
from stiefel_init.recipe.rates import DEPTH, WIDTH
from stiefel_init.torch import initialize_, param_groups

from ..experiment import Options, titled
from ..loop import OfRuns, command
from ..networks import GPT, PlainCNN, mlp
from ..problems import Examples, Problem, Text, images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBER = 1e-3
"""The one number; the multiples of it make a valley."""
LONG, SHORT = 15, 1
"""Epochs of MNIST in batches of 256."""
EPOCH, QUICK = 235, 20
"""Steps of an epoch, and of a quick run."""
TIMES = tuple(2.0**power for power in range(-4, 5))
NAMES = {
    "mlp": "MLP on MNIST", "fashion": "MLP on Fashion-MNIST", "cnn": "plain CNN on MNIST", "gpt": "transformer on text",
}  # fmt: skip
SETS = {"mlp": "mnist", "fashion": "fashion-mnist", "cnn": "mnist"}
GROUPS, ONE, PAPER, MUP = "groups", "one rate", "paper", "mup"
WAYS = {
    GROUPS: "`param_groups`",
    ONE: "one rate for all layers",
    PAPER: "the paper's 1/√depth",
    MUP: "mup's rule over width",
}


class Run(NamedTuple):
    """One training."""

    network: str
    depth: int
    """Hidden layers, or blocks."""
    width: int
    way: str
    """One of `WAYS`."""
    times: float
    """The rate over `NUMBER`."""
    epochs: int
    seed: int = 0

    @property
    def many(self) -> bool:
        """Whether the laboratory's engines train it: its layers have two rates at most."""
        return self.network in ("mlp", "fashion") and self.width == WIDTH


Evidence = Mapping[Run, Mapping[str, Any]]


def runs(*, quick: bool = False, seeds: int = 10) -> list[Run]:
    """All of the study, the most important first."""
    if quick:
        sizes = [("mlp", 10, WIDTH), ("mlp", 20, WIDTH), ("mlp", 10, 16)]
        return [Run(*size, GROUPS, times, SHORT) for size in sizes for times in (0.5, 1.0, 2.0)]

    def valleys(network: str, way: str, sizes: Iterable[tuple[int, int]], seeds: Iterable[int] = (0,)) -> list[Run]:
        return [Run(network, *size, way, times, SHORT, seed) for size in sizes for seed in seeds for times in TIMES]

    depths, widths = (3, 10, 30, 100, 300, 1000), (32, 128, 256, 512, 1024, 2048)
    found = [Run("mlp", d, WIDTH, GROUPS, 1.0, LONG, seed) for d in (10, 100, 300, 1000) for seed in range(seeds)]
    for network, ways in {"mlp": (GROUPS, ONE, PAPER), "fashion": (GROUPS, ONE)}.items():
        for way in ways:
            found += valleys(network, way, [(depth, WIDTH) for depth in depths])
    found += [Run("mlp", 10_000, WIDTH, GROUPS, 1.0, LONG, seed) for seed in range(seeds)]
    found += valleys("mlp", GROUPS, [(10, width) for width in (WIDTH, *widths[:4])], (1, 2))
    for way in (GROUPS, ONE, MUP):
        found += valleys("mlp", way, [(10, width) for width in widths])
    for way in (GROUPS, ONE):
        found += valleys("gpt", way, [(2, 64), (8, 64), (24, 64), (2, 128), (2, 256), (2, 512)])
        found += valleys("cnn", way, [(7, 32), (19, 32), (49, 32), (100, 32), (7, 64)])
    return found


@lru_cache
def _problem(network: str, device: torch.device, directory: Path | None, quick: bool) -> Problem:
    if network == "gpt":
        return Text(device, tokens=64)
    return images("digits" if quick else SETS[network], device, directory, half=network == "cnn")


def _model(run: Run, inputs: int) -> nn.Module:
    if run.network == "gpt":
        return GPT(run.width, run.depth, 64)
    if run.network == "cnn":
        return PlainCNN(run.depth, run.width)
    return nn.Sequential(nn.Flatten(), *mlp(inputs, 10, run.depth + 1, run.width))


def _batches(run: Run, size: int, steps: int) -> Tensor:
    """Places of a text by chance; of images each once in an epoch: (steps, rows)."""
    generator, batch = torch.Generator().manual_seed(run.seed), min(16 if run.network == "gpt" else 256, size)
    if run.network == "gpt":
        return torch.randint(size, (steps, batch), generator=generator)
    epochs = -(-steps // (size // batch))
    orders = [torch.randperm(size, generator=generator)[: size // batch * batch] for _ in range(epochs)]
    return torch.cat(orders).view(-1, batch)[:steps]


def groups_of(run: Run, model: nn.Module, example: Tensor) -> list[dict[str, Any]]:
    """The parameters with the rates of the run's rule."""
    if run.way == GROUPS:
        return param_groups(model, NUMBER * run.times, inputs=example)
    scale = math.sqrt(DEPTH / run.depth) if run.way == PAPER else 1.0
    if run.way == ONE or run.width == WIDTH:
        return [{"params": list(model.parameters()), "lr": NUMBER * run.times * scale}]
    found: dict[float, list[nn.Parameter]] = {1.0: [], WIDTH / run.width: []}
    first = next(model.parameters())
    for each in model.parameters():  # mup: of what reads a hidden layer, over the width
        found[1.0 if each is first or each.ndim == 1 else WIDTH / run.width].append(each)
    return [{"params": params, "lr": NUMBER * run.times * share} for share, params in found.items()]


def cell_of(run: Run, *, quick: bool = False) -> Cell:
    """A run as a cell of the laboratory."""
    rate = NUMBER * run.times
    if run.way == GROUPS:
        rate *= DEPTH / run.depth
    elif run.way == PAPER:
        rate *= math.sqrt(DEPTH / run.depth)
    return Cell(
        "digits" if quick else SETS[run.network], "recipe", run.depth, run.width, seed=run.seed, epochs=run.epochs,
        rate=rate, schedule="cosine", ends=run.depth if run.way == GROUPS else 1.0,
    )  # fmt: skip


class Training:
    """A run in a slot."""

    def __init__(self, run: Run, problem: Problem, device: torch.device, steps: int) -> None:
        self.problem, self.steps = problem, steps
        torch.manual_seed(run.seed)
        example = problem.batch(torch.arange(2, device=device))[0]
        model = _model(run, math.prod(example.shape[1:]))
        initialize_(model, seed=run.seed)
        model.to(device)
        self.order = _batches(run, problem.size, steps).to(device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        self.slot = Slot(model, self._loss, groups_of(run, model, example), self._adam, counters=[self.place])

    @staticmethod
    def _adam(groups: list[dict[str, Any]]) -> OfTorch:
        cuda = groups[0]["lr"].is_cuda
        return OfTorch(torch.optim.Adam(groups, lr=groups[0]["lr"], fused=True, capturable=cuda))

    def _loss(self, model: nn.Module) -> Tensor:
        inputs, targets = self.problem.batch(self.order.index_select(0, self.place)[0])
        self.place += 1
        return self.problem.loss(model(inputs), targets)

    def step(self, step: int) -> None:
        """Train on the next batch."""
        self.slot.step(factor("cosine", step, self.steps))

    def tested(self) -> dict[str, float]:
        """The test score, and the test loss; of a network that diverged, those of chance."""
        model, problem = self.slot.model.eval(), self.problem
        with self.slot.on_stream(), torch.no_grad():
            score, loss = float(problem.score(model)), math.nan
            if isinstance(problem, Examples):
                parts = zip(problem.test_x.split(2000), problem.test_y.split(2000))
                loss = float(sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in parts)) / len(problem.test_y)
            else:
                loss = score
        return _row(score, loss, problem)


def _row(score: float, loss: float | None, problem: Problem | None = None) -> dict[str, float]:
    """What a line has: of a network that diverged, what chance has."""
    text = isinstance(problem, Text)
    if loss is None or not math.isfinite(loss):
        score, loss = (math.log(256),) * 2 if text else (10.0, math.log(10))
    return {"score": float(f"{score:.4g}"), "loss": float(f"{loss:.4g}")}


class Transfer(OfRuns):
    """Valleys of learning rates over depth and width, and networks at the number itself."""

    name = "transfer"
    title = "Measured"
    page = "transfer"
    files = ("transfer",)
    kind = Run
    engine = "fused, slots"

    def __init__(self, networks: Collection[str] = ()) -> None:
        for name in set(networks) - NAMES.keys():
            raise unknown("network", name, NAMES)
        self.networks = networks or tuple(NAMES)

    def wanted(self, options: Options) -> list[Run]:
        """All of the study, or what there is of some networks."""
        found = runs(quick=options.quick, seeds=options.seeds or 10)
        return [run for run in found if run.network in self.networks]

    def parts(self, left: Sequence[Run], options: Options, device: torch.device) -> Iterator[list[Run]]:
        """All cells, which the laboratory orders by itself; then slots of one size."""
        if cells := [run for run in left if run.many]:
            yield cells
        for _, same in groupby((run for run in left if not run.many), key=lambda run: run[:4]):
            slots = list(same)
            yield from [slots] if device.type == "cuda" else ([run] for run in slots)

    def train(
        self, runs: Sequence[Run], options: Options, device: torch.device, tell: Callable[..., None]
    ) -> list[dict[str, Any]]:
        """Side by side."""
        what = f"{runs[0].network} {runs[0].depth} × {runs[0].width}"
        if runs[0].many:
            cells = [cell_of(run, quick=options.quick) for run in runs]
            out = options.out / f"{self.label(options.quick)}-networks"
            records = train_cells(cells, out=out, device=options.device, directory=options.data, title=self.name)
            tell(len(runs), what)
            return [_row(record.score, record.log_loss) for record in records]
        problem = _problem(runs[0].network, device, options.data, options.quick)
        steps = QUICK if options.quick else EPOCH * runs[0].epochs
        trainings = [Training(run, problem, device, steps) for run in runs]
        for step in range(steps):
            for each in trainings:
                each.step(step)
        tell(len(runs), what)
        return [each.tested() for each in trainings]

    def tables(self, evidence: Evidence) -> list[Table]:
        """At the number itself; then where each valley is lowest, and what the base's number costs there."""
        long: dict[int, list[float]] = {}
        for run, row in sorted(evidence.items()):
            if run.epochs == LONG:
                long.setdefault(run.depth, []).append(row["score"])
        rows = [[f"{d:,}", str(len(s)), f"{sum(s) / len(s):.2f}", f"{min(s):.2f}"] for d, s in sorted(long.items())]
        found = [Table("", ["layers", "seeds", "mean accuracy (%)", "lowest"], rows)]
        valleys = _valleys(evidence)
        ways = [way for way in WAYS if any(key[3] == way for key in valleys)]
        rows = []
        for size in sorted({key[:3] for key in valleys}, key=lambda key: (list(NAMES).index(key[0]), key[2], key[1])):
            told = (_told(valleys, size, way) for way in ways)
            rows.append([f"{NAMES[size[0]]}, {size[1]:,} × {size[2]:,}", *told])
        found.append(Table("", ["network, depth × width", *(WAYS[way] for way in ways)], rows))
        return [table for table in found if table.rows]

    def pictures(self, evidence: Evidence) -> dict[str, Figure]:
        """The loss over the multiple of the number: over depths, and over widths."""
        valleys, panels = _valleys(evidence), list[tuple[str, list[tuple[int, Valley]]]]()
        for way, by in ((ONE, 1), (GROUPS, 1), (ONE, 2), (GROUPS, 2)):
            fixed = BASES["mlp"][2 - by]
            family: list[tuple[Any, Valley]] = [
                (key[by], of) for key, of in valleys.items() if (key[0], key[3], key[3 - by]) == ("mlp", way, fixed)
            ]
            if len(family) > 1:
                panels.append(
                    (
                        f"{WAYS[way].replace('`', '')}, over {('depth', 'width')[by - 1]}",
                        sorted(family, key=lambda each: each[0]),
                    )
                )
        drawn, axes = plots.column(max(1, len(panels)), label="Test loss over multiples of the one number")
        for axis, (title, family) in zip(axes, panels):
            for at, (value, of) in enumerate(family):
                points = sorted((times, row["loss"]) for times, row in of.items())
                shade = plots.shade(at / (len(family) - 1))
                axis.plot(*zip(*points), "o-", color=shade, markersize=4, label=f"{value:,}")
            axis.set(title=title, xlabel="multiple of 0.001", ylabel="test loss", xscale="log", yscale="log")
            shown = TIMES[::2]
            axis.set_xticks(shown, [_times(times) for times in shown])
            axis.minorticks_off()
            axis.set_ylim(0.06, 2.5)
            axis.set_yticks([0.1, 0.3, 1.0], ["0.1", "0.3", "1"])
            plots.direct(axis)
        return {self.name: drawn}

    def section(self, evidence: Evidence) -> list[str]:
        """What is measured, and what is not yet."""
        wanted, tables = runs(), self.tables(evidence)
        have = sum(run in evidence for run in wanted)
        left = "" if have == len(wanted) else f", of which {have:,} are on record; the others are not measured yet"
        lines = []
        if any(run.epochs == LONG for run in evidence):
            lines += [
                "## Nothing tuned", "",
                "MNIST, 15 epochs in batches of 256, a warm-up and a cosine; 64 units; `initialize_(model)` and",
                "`param_groups(model, 1e-3)`.", "", *tables.pop(0).markdown(), "",
            ]  # fmt: skip
        return [
            *lines, "## Over depths and widths", "",
            "One epoch of MNIST or of Fashion-MNIST, or as many steps on text; multiples from 1/16 to 16.",
            "The number is tuned on the smallest network of its kind, and used for all others.", "",
            *_summary(evidence), "", *self.shown(evidence),
            "Of each network the best multiple, by its test loss together with that of its double; and what the number",
            "tuned on the smallest one costs against it, in points of test accuracy, or in nats of text.",
            "*: at an end of those tried.", "",
            *titled(tables),
            f"`stiefel-init reproduce transfer` has {len(wanted):,} runs{left}.",
            "[Where they were made](results.md#what-was-run).", "",
        ]  # fmt: skip


Valley = dict[float, Mapping[str, Any]]
Valleys = Mapping[tuple[str, int, int, str], Valley]
BASES = {"mlp": (10, WIDTH), "fashion": (10, WIDTH), "cnn": (7, 32), "gpt": (2, 64)}
"""Depth and width of the network of each kind that the number is tuned on."""


def _valleys(evidence: Evidence) -> Valleys:
    """Over the multiples of the number, by network, depth, width and way; the mean of the seeds.

    At the base several rules are one.
    """
    each: dict[tuple[str, int, int, str], dict[float, list[Mapping[str, Any]]]] = {}
    for run, row in evidence.items():
        if run.epochs != LONG:
            each.setdefault(run[:4], {}).setdefault(run.times, []).append(row)
    found: dict[tuple[str, int, int, str], Valley] = {
        key: {t: {name: mean(row[name] for row in rows) for name in ("score", "loss")} for t, rows in of.items()}
        for key, of in each.items()
    }
    for (network, depth, width, way), of in list(found.items()):
        if (depth, width, way) == (10, WIDTH, ONE):
            found |= {(network, depth, width, each): of for each in (PAPER, MUP) if any(k[3] == each for k in found)}
    return found


def _cost(valleys: Valleys, key: tuple[str, int, int, str]) -> tuple[float, float] | None:
    """The best multiple of a network, and what the base's costs it; chosen by the test loss, which has less noise."""
    of, base = valleys.get(key), valleys.get((key[0], *BASES[key[0]], key[3]))
    if of is None or base is None:
        return None
    best, number = _best(of), _best(base)
    if number not in of:
        return None
    sign = -1 if key[0] == "gpt" else 1
    return best, sign * (of[best]["score"] - of[number]["score"])


def _told(valleys: Valleys, size: tuple[str, int, int], way: str) -> str:
    cost = _cost(valleys, (*size, way))
    if cost is None:
        return ""
    best, points = cost
    tried = valleys[*size, way]
    end = "*" if best in (min(tried), max(tried) / 2) else ""
    return f"× {_times(best)}{end}, {points:.{3 if size[0] == 'gpt' else 1}f}"


def _summary(evidence: Evidence) -> list[str]:
    """Of each rule how far the best multiple moves, and what the base's number costs at most."""
    valleys, lines = _valleys(evidence), []
    for network, base in BASES.items():
        for by, what in ((1, "depths"), (2, "widths")):
            told = []
            for way, name in WAYS.items():
                costs = {
                    key[by]: cost for key in valleys
                    if (key[0], key[3], key[3 - by]) == (network, way, base[2 - by]) and (cost := _cost(valleys, key))
                }  # fmt: skip
                if len(costs) < 3 or (what == "widths" and way == PAPER) or (what == "depths" and way == MUP):
                    continue
                best = [multiple for multiple, _ in costs.values()]
                most = max(points for _, points in costs.values())
                unit = "nats" if network == "gpt" else "points"
                told.append(
                    f"{name}: the best multiple within a factor of {max(best) / min(best):g}, "
                    f"a cost of at most {most:.{3 if network == 'gpt' else 1}f} {unit}"
                )
                span = f"{min(costs):,} to {max(costs):,}"
            if told:
                lines += wrapped(f"- **{NAMES[network]}, {what} {span}**: {'; '.join(told)}.", "  ")
    return lines


def _best(valley: Valley) -> float:
    """The multiple that is lowest together with its double: none at a cliff, and none by chance."""
    pairs = {times: row["loss"] + valley[2 * times]["loss"] for times, row in valley.items() if 2 * times in valley}
    return min(pairs, key=lambda times: pairs[times]) if pairs else next(iter(valley))


def _times(value: float) -> str:
    return {0.0625: "1/16", 0.125: "⅛", 0.25: "¼", 0.5: "½"}.get(value, f"{value:g}")


if __name__ == "__main__":
    command(Transfer, "paper.studies.transfer", __doc__, {"networks": {"nargs": "*", "help": ", ".join(NAMES)}})
