"""Can a network go on learning? Tasks one after another, with what is proposed against the loss of plasticity.

Many networks are trained at once, each with a rate, a strength and a seed of its own: layer l of all of them is one
tensor, and what a method does beside a step of Adam is done to its slice of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from stiefel_init.core import geometry
from stiefel_init.lab.data import load
from stiefel_init.lab.files import prepare
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.record import environment
from stiefel_init.torch import initialize_
from stiefel_init.torch.restoring import target

from ..experiment import Experiment, Options, titled
from ..results import Results, note_environment, write_table

SIDE, LAYERS, WIDTH, BATCH, STEPS, TASKS = 14, 8, 32, 32, 100, 200
TUNED, SEEDS, TRIED = 50, 5, (100, 101)
"""Tasks that rates and strengths are chosen on, the seeds that are reported, and those that are chosen on."""
MOST = 64
"""Networks at once, so that they stay in the caches."""
RECYCLED = 10
"""Steps from one look of continual backprop to the next."""
OURS = "restore", "restore, own size", "on the set"
STRENGTHS: dict[str, tuple[float, ...]] = {
    "nothing": (0.0,), "L2": (0.01, 0.03, 0.1), "shrink and perturb": (0.2, 0.5, 0.8), "start anew": (1.0,),
    "ReDo": (0.01, 0.05, 0.1), "continual backprop": (1e-4, 1e-3, 1e-2), "FIRE": (0.25, 0.5, 1.0),
    "Parseval": (1e-4, 1e-3, 1e-2), "restore": (0.25, 0.5, 1.0), "restore, own size": (0.25, 0.5, 1.0),
    "on the set": (0.0,),
}  # fmt: skip
RATES = (1e-3, 3e-3, 6e-3, 1e-2)
"""The last one only for methods without a strength: the others try three of each."""

MEASURED = "online", "first", "last", "end", "forgotten"
"""Columns of the table, in per cent."""


class Cell(NamedTuple):
    """One network."""

    method: str
    rate: float
    strength: float
    seed: int


Batches = Iterator[tuple[Tensor, Tensor]]
Tasks = Iterator[tuple[Batches, Tensor, Tensor]]
"""Of each task its batches, and images and labels to ask for; the first dimension is that of the seeds."""


def fresh(seeds: Sequence[int], start: int = 0) -> list[Tensor]:
    """The parameters of a network as `initialize_` starts it, stacked over seeds; biases are columns."""
    sizes, drawn = [SIDE**2, *[WIDTH] * (LAYERS - 1), 10], dict[int, list[Tensor]]()
    for seed in set(seeds):
        layers = [part for m, n in zip(sizes[1:], sizes) for part in (nn.Linear(n, m), nn.ReLU())]
        initialize_(model := nn.Sequential(*layers[:-1]), seed=seed + 1000 * start)
        drawn[seed] = [p.detach().reshape(len(p), -1) for p in model.parameters()]
    return [torch.stack(each) for each in zip(*(drawn[seed] for seed in seeds))]


class Networks:
    """Networks of sorted cells, and Adam, which starts anew with each task."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells, self.count, self.methods = cells, 0, dict[str, slice]()
        for index, cell in enumerate(cells):
            self.methods[cell.method] = slice(self.methods.get(cell.method, slice(index, 0)).start, index + 1)
        self.rate, self.strength = (torch.tensor([cell[at] for cell in cells])[:, None, None] for at in (1, 2))
        start = fresh([cell.seed for cell in cells])
        self.flat = torch.cat([each.flatten(1) for each in start], 1)[..., None]
        self.shapes = [each.shape[1:] for each in start]
        self.first, self.second = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.p, self.m, self.v = map(self._views, (self.flat, self.first, self.second))
        self.use, self.mean, self.age = (torch.zeros(LAYERS - 1, len(cells), WIDTH) for _ in range(3))
        self.due = torch.zeros(LAYERS - 1, len(cells))
        self.decay = 1 - self.rate * self.strength * torch.tensor([c.method == "L2" for c in cells])[:, None, None]
        self.random = torch.Generator().manual_seed(0)
        self.steps = 0

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = flat[..., 0].split([math.prod(shape) for shape in self.shapes], 1)
        return [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes)]

    def of(self, method: str, *tensors: Tensor) -> list[Tensor]:
        """The method's part of each."""
        return [each[self.methods[method]] for each in tensors]

    def forward(self, x: Tensor) -> list[Tensor]:
        """The input, and what each layer makes of it."""
        signals = [x]
        for at in range(LAYERS):
            y = torch.baddbmm(self.p[2 * at + 1].mT, signals[-1], self.p[2 * at].mT)
            signals.append(y.relu_() if at < LAYERS - 1 else y)
        return signals

    def right(self, x: Tensor, y: Tensor) -> Tensor:
        """The share of right answers of each network."""
        return (self.forward(x)[-1].argmax(-1) == y).float().mean(-1)

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Learn from a batch; the share of right answers before."""
        signals = self.forward(x)
        right = (signals[-1].argmax(-1) == y).float().mean(-1)
        g = (torch.softmax(signals[-1], -1) - nn.functional.one_hot(y, 10)) / BATCH
        gradients = [torch.empty(0)] * 2 * LAYERS
        for at in reversed(range(LAYERS)):
            w = self.p[2 * at]
            gradients[2 * at : 2 * at + 2] = g.mT @ signals[at], g.sum(1)[..., None]
            g = (g @ w) * (signals[at] > 0) if at else g
            if "Parseval" in self.methods:  # the derivative of ‖WWᵀ - I‖²
                gradient, weight, strength = self.of("Parseval", gradients[2 * at], w, self.strength)
                gradient += 4 * strength * (weight @ weight.mT @ weight - weight)
        self.steps, self.count = self.steps + 1, self.count + 1
        members = self._on_set(gradients) if "on the set" in self.methods else []
        gradient = torch.cat([each.flatten(1) for each in gradients], 1)[..., None]
        root = math.sqrt(1 - 0.999**self.steps)
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        moved = self.first / self.second.sqrt().add_(1e-8 * root) * (self.rate * root / (1 - 0.9**self.steps))
        self.flat.mul_(self.decay).sub_(moved)
        for old, new in members:
            old.copy_(new)
        if "continual backprop" in self.methods and self.count % RECYCLED == 0:
            self._replace(signals)
        return right

    def _on_set(self, gradients: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """The weights of all layers but the last, and their moments, as one step of Adam on the set leaves them."""
        found = []
        for same in [0], [*range(2, 2 * LAYERS - 2, 2)]:
            held = [self.of("on the set", *(each[at] for at in same)) for each in (self.p, self.m, self.v)]
            w, first, second = map(torch.cat, held)
            gradient = torch.cat(self.of("on the set", *(gradients[at] for at in same)))
            rates = self.of("on the set", self.rate)[0].repeat(len(same), 1, 1)
            after = geometry.adam_step(w, gradient, first, second, self.steps, rates)
            found += [pair for old, new in zip(held, after) for pair in zip(old, new.chunk(len(same)))]
        return found

    def _recycle(self, at: int, part: slice, units: Tensor) -> None:
        """Give units of a layer new weights, as He draws them, zero bias, and no weight behind them."""
        w, b, out = (each[part] for each in self.p[2 * at : 2 * at + 3])
        rows, columns = units[..., None], units[:, None]
        drawn = torch.rand(w.shape, generator=self.random).mul_(2).sub_(1) * math.sqrt(6 / w.shape[-1])
        w.copy_(torch.where(rows, drawn, w))
        b.masked_fill_(rows, 0), out.masked_fill_(columns, 0)
        for moments in self.m, self.v:
            for index, mask in enumerate((rows, rows, columns)):
                moments[2 * at + index][part].masked_fill_(mask, 0)

    def _replace(self, signals: list[Tensor]) -> None:
        """Continual backprop: of the units that are older than 100 steps, those of least use."""
        part = self.methods["continual backprop"]
        keep, index = 0.99**RECYCLED, torch.arange(LAYERS - 1)
        self.age += RECYCLED
        for at in index.tolist():
            use, mean, age, due = (each[at][part] for each in (self.use, self.mean, self.age, self.due))
            active, out = signals[at + 1][part].mean(1), self.p[2 * at + 2][part]
            use.lerp_(active * out.abs().mean(1), 1 - keep)
            mean.lerp_(active, 1 - keep)
            old, fair = age > 100, 1 - 0.99**age
            due += self.strength[part, 0, 0] * RECYCLED * old.sum(-1)
            least = torch.where(old, use / fair, torch.inf).argmin(-1, keepdim=True)
            units = torch.zeros_like(old).scatter_(-1, least, True) & old & (due >= 1)[:, None]
            if units.any():
                due -= units.any(-1).float()
                self.p[2 * at + 3][part] += out @ torch.where(units, mean / fair, 0)[..., None]
                self._recycle(at, part, units)
                for each in use, mean, age:
                    each.masked_fill_(units, 0)

    def between(self, task: int, x: Tensor) -> None:
        """What is done before a task begins; `x` is of the one that has ended."""
        for method in {"shrink and perturb", "start anew"} & self.methods.keys():
            part = self.methods[method]
            for old, new in zip(self.p, fresh([cell.seed for cell in self.cells[part]], task)):
                old[part].lerp_(new, self.strength[part])
        if part := self.methods.get("ReDo"):
            for at, signal in enumerate(self.forward(x)[1:-1]):
                score = signal[part].mean(1)
                self._recycle(at, part, score <= self.strength[part, 0] * score.mean(-1, keepdim=True))
        for method in {"FIRE", *OURS[:2]} & self.methods.keys():
            strength, *held = self.of(method, self.strength, *self.p)
            for at, (w, b) in enumerate(zip(held[::2], held[1::2])):
                new = target(w, on_set=method in OURS and at < LAYERS - 1).float()
                if method == "FIRE":
                    new *= math.sqrt(w.shape[1] / w.shape[2])
                else:
                    b.mul_(1 - strength)
                if method == OURS[1]:
                    new *= w.norm(dim=(1, 2), keepdim=True) / new.norm(dim=(1, 2), keepdim=True)
                w.lerp_(new, strength)
        self.first.zero_(), self.second.zero_()
        self.steps = 0


class Images(NamedTuple):
    """Images of 14 × 14, of size 1, and their digits."""

    x: Tensor
    y: Tensor

    @classmethod
    def of(cls, name: str, options: Options) -> Images:
        """The set of that name, every 2 × 2 pixels as one."""
        data = load(name, directory=options.data)
        x = torch.from_numpy(np.asarray(data.x)).float().view(-1, 1, 28, 28)
        x = nn.functional.avg_pool2d(x, 2).flatten(1)
        return cls(x / x.square().mean().sqrt(), torch.from_numpy(np.asarray(data.y)).long())


def permuted(images: Images, seeds: Sequence[int], tasks: int) -> Tasks:
    """Each task shuffles the pixels in another way; every image is seen once."""
    draws = [np.random.default_rng(seed) for seed in seeds]
    for _ in range(tasks):
        orders = [draw.permutation(SIDE**2) for draw in draws]
        rows = [draw.choice(60_000, STEPS * BATCH, replace=False) for draw in draws]
        x, y = torch.stack([images.x[row][:, order] for row, order in zip(rows, orders)]), images.y[np.stack(rows)]
        asked = torch.stack([images.x[-256:, order] for order in orders])
        yield zip(x.split(BATCH, 1), y.split(BATCH, 1)), asked, images.y[-256:].expand(len(seeds), -1)


def random_labels(images: Images, seeds: Sequence[int], tasks: int) -> Tasks:
    """Each task has 320 images with labels drawn at random, to be seen ten times."""
    draws = [np.random.default_rng(seed) for seed in seeds]
    for _ in range(tasks):
        x = images.x[np.stack([draw.choice(60_000, 320, replace=False) for draw in draws])]
        y = torch.from_numpy(np.stack([draw.integers(10, size=320) for draw in draws]))
        orders = np.concatenate([draws[0].permutation(320) for _ in range(STEPS * BATCH // 320)])
        yield ((x[:, o], y[:, o]) for o in orders.reshape(-1, BATCH)), x[:, :256], y[:, :256]


def warm_start(images: Images, seeds: Sequence[int], tasks: int) -> Tasks:
    """1,000 images forty times, then these and 1,000 more twenty times; asked for are 2,000 others."""
    draws = [np.random.default_rng(seed) for seed in seeds]
    rows = np.stack([draw.choice(60_000, 2000, replace=False) for draw in draws])
    for count, epochs in ((1000, 40), (2000, 20)):
        seen = [np.stack([draw.permutation(row[:count]) for draw, row in zip(draws, rows)]) for _ in range(epochs)]
        batches = (part for part in np.split(np.concatenate(seen, 1), count * epochs // BATCH, 1))
        yield (
            ((images.x[part], images.y[part]) for part in batches),
            images.x[60_000:62_000].expand(len(seeds), -1, -1), images.y[60_000:62_000].expand(len(seeds), -1),
        )  # fmt: skip


KINDS: dict[str, tuple[Callable[..., Tasks], str]] = {
    "permuted MNIST": (permuted, "mnist"), "random labels": (random_labels, "mnist"),
    "warm start": (warm_start, "fashion-mnist"),
}  # fmt: skip


def train(kind: str, cells: Sequence[Cell], tasks: int, images: Images) -> list[dict[str, Any]]:
    """Train networks through the tasks; a row of results for each."""
    seeds = list(dict.fromkeys(cell.seed for cell in cells))
    place = torch.tensor([seeds.index(cell.seed) for cell in cells])
    networks = Networks(cells)
    online, ends, kept = (list[Tensor]() for _ in range(3))
    before: tuple[Tensor, Tensor] | None = None
    for task, (batches, x, y) in enumerate(KINDS[kind][0](images, seeds, tasks)):
        if before is not None:
            networks.between(task, before[0])
        online.append(torch.stack([networks.step(a[place], b[place]) for a, b in batches]).mean(0))
        asked = x[place], y[place]
        ends.append(networks.right(*asked))
        if before is not None:
            kept.append(networks.right(*before))
        before = asked
    share, last = max(1, tasks // 10), torch.stack(ends) if kind != "warm start" else ends[-1][None]
    columns = {
        "online": torch.stack(online).mean(0), "first": torch.stack(online[:share]).mean(0),
        "last": torch.stack(online[-share:]).mean(0), "end": last.mean(0),
        "forgotten": (torch.stack(ends[:-1]) - torch.stack(kept)).mean(0),
    }  # fmt: skip
    shares = {name: (100 * column).tolist() for name, column in columns.items()}
    return [
        {"kind": kind, **cell._asdict(), **{name: round(of[at], 2) for name, of in shares.items()}, "ms": ""}
        for at, cell in enumerate(cells)
    ]


def tried() -> list[Cell]:
    """What rates and strengths are chosen from."""
    rates = {method: RATES if len(strengths) == 1 else RATES[:-1] for method, strengths in STRENGTHS.items()}
    return [Cell(m, r, s, seed) for m in STRENGTHS for r, s, seed in product(rates[m], STRENGTHS[m], TRIED)]


def score(kind: str) -> str:
    """The column that rates and strengths are chosen by."""
    return "end" if kind == "warm start" else "online"


def chosen(rows: Sequence[Mapping[str, Any]], kind: str) -> dict[str, tuple[float, float]]:
    """The best rate and strength of each method, of the seeds that they are chosen on."""
    found: dict[str, dict[tuple[float, float], list[float]]] = {}
    for row in rows:
        if row["kind"] == kind and row["seed"] in TRIED:
            of = found.setdefault(row["method"], {}).setdefault((float(row["rate"]), float(row["strength"])), [])
            of.append(row[score(kind)])
    return {method: max(of, key=lambda key: float(np.mean(of[key]))) for method, of in found.items()}


def cost(cells: Sequence[Cell], images: Images) -> float:
    """Milliseconds of a processor for a step of one network, with what is done between tasks, beside others alike."""
    train("permuted MNIST", cells, 2, images)
    taken = []
    for _ in range(3):
        start = time.process_time()
        train("permuted MNIST", cells, 3, images)
        taken.append(time.process_time() - start)
    return 1e3 * min(taken) / (3 * STEPS * len(cells))


class Plasticity(Experiment):
    """Tasks one after another: what helps a network to go on learning?"""

    name = "plasticity"
    title = "What was measured"
    page = "plasticity"
    files = ("plasticity",)

    def run(self, options: Options) -> None:
        """Train what is not in the table yet, and show it."""
        label, start = self.label(options.quick), time.perf_counter()
        out = prepare(options.out)
        tasks, tuned, seeds = (10, 4, 2) if options.quick else (TASKS, TUNED, options.seeds or SEEDS)
        rows = Results(out).table(label)
        for kind, (_, name) in KINDS.items():
            images = Images.of(name, options)
            for final in False, True:
                known = {(row["kind"], *(row[field] for field in Cell._fields)) for row in rows}
                best = chosen(rows, kind) if final else {}
                cells = [Cell(m, *best[m], seed) for m in best for seed in range(seeds)] if final else tried()
                left = sorted(cell for cell in cells if (kind, *cell) not in known)
                for at in range(0, len(left), MOST):
                    rows += train(kind, left[at : at + MOST], tasks if final else tuned, images)
                    write_table(rows, out / f"{label}.csv")
                    print(f"{kind}: {len(rows)} networks", flush=True)
            if kind == "permuted MNIST" and left:
                for method in best:
                    taken = cost([cell for cell in cells if cell.method == method], images)
                    for row in rows:
                        if row["kind"] == kind and row["method"] == method and row["seed"] < seeds:
                            row["ms"] = round(taken, 3)
                write_table(rows, out / f"{label}.csv")
        seconds = time.perf_counter() - start
        note_environment(out, label, environment(torch.device("cpu"), "stacked"), seconds, len(rows))
        self.present(rows, options)

    def evidence(self, results: Results) -> list[dict[str, Any]] | None:
        return results.table(self.name) or None

    def tables(self, evidence: Sequence[Mapping[str, Any]]) -> list[Table]:
        return [_table(evidence, kind) for kind in KINDS]

    def section(self, evidence: Sequence[Mapping[str, Any]]) -> list[str]:
        lines = [f"## {self.title}", ""]
        for table in self.tables(evidence):
            told = [_goal(evidence, table.title, method) for method in OURS] if table.title != "warm start" else []
            lines += [*titled([table]), *(line for each in told for line in wrapped(f"- {each}"))]
            lines += [""] * bool(told)
        return lines


def _table(rows: Sequence[Mapping[str, Any]], kind: str) -> Table:
    """The methods of a kind of tasks, best first."""
    finals = {method: found for method in STRENGTHS if (found := _final(rows, kind, method))}
    once = kind == "warm start"
    names = ["test accuracy"] if once else ["online", "first tenth", "last tenth", "last - first", "forgotten"]
    timed = any(found[0]["ms"] for found in finals.values())
    lines = []
    for method, found in sorted(finals.items(), key=lambda item: -_column(item[1], score(kind)).mean()):
        strength = f"{found[0]['strength']:g}" if len(STRENGTHS[method]) > 1 else ""
        online, first, last, end, lost = (_column(found, name) for name in MEASURED)
        shown = [_spread(end)] if once else [_spread(online), *(f"{each.mean():.1f}" for each in (first, last))]
        shown += [] if once else [_spread(last - first, "+"), f"{lost.mean():.1f}"]
        lines.append([method, f"{found[0]['rate']:g}", strength, *shown, *[f"{found[0]['ms']:.2f}"] * timed])
    return Table(kind, ["", "rate", "strength", *names, *["ms"] * timed], lines)


def _final(rows: Sequence[Mapping[str, Any]], kind: str, method: str) -> list[Mapping[str, Any]]:
    """The reported rows, by seed."""
    found = [row for row in rows if row["kind"] == kind and row["method"] == method and row["seed"] not in TRIED]
    return sorted(found, key=lambda row: row["seed"])


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], float)


def _half(values: np.ndarray) -> float:
    """Half of Student's 95 % interval of the mean."""
    return float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))


def _spread(values: np.ndarray, sign: str = "") -> str:
    return f"{values.mean():{sign}.1f} ± {_half(values):.1f}"


def _goal(rows: Sequence[Mapping[str, Any]], kind: str, method: str) -> str:
    """Whether a method of ours goes on learning, and as well as the best rival, seed by seed."""
    ours = _final(rows, kind, method)
    rivals = {name: _column(_final(rows, kind, name), "online") for name in STRENGTHS if name not in OURS}
    rival = max(rivals, key=lambda name: rivals[name].mean())
    change = _column(ours, "last") - _column(ours, "first")
    apart = _column(ours, "online") - rivals[rival]
    lost = "loses" if change.mean() < -_half(change) else "does not lose"
    than = "below" if apart.mean() < -_half(apart) else "above" if apart.mean() > _half(apart) else "level with"
    return (
        f"**{method}** {lost} accuracy from the first tenth of the tasks to the last ({_spread(change, '+')} points); "
        f"its online accuracy is {than} that of the best rival, {rival} ({_spread(apart, '+')})."
    )
