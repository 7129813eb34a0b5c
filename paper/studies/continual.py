"""Networks that learn one task after another, with what is proposed against the loss of plasticity; and the tasks.

Many are trained at once, each with a rate, a strength and a seed of its own: layer l of all of them is one tensor, and
what a method does beside a step of Adam is done to its slice of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stiefel_init.core import geometry
from stiefel_init.lab.data import load
from stiefel_init.torch import initialize_

SIDE, LAYERS, WIDTH, BATCH, STEPS = 14, 8, 32, 32, 100
RECYCLED = 10
"""Steps from one look of continual backprop to the next."""
OURS = "restore", "restore, own size", "on the set"
MEASURED = "online", "first", "last", "end", "forgotten"
"""What is measured of a network, in per cent."""


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


def target(weights: Tensor, on_set: bool) -> Tensor:
    """The nearest members of Õ(m,n), or else semi-orthogonal matrices, to matrices of shape (…, m, n)."""
    if on_set:
        return geometry.nearest(weights.double(), torch.linalg.svd)[0].float()
    u, _, v = torch.linalg.svd(weights, full_matrices=False)
    return u @ v


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
        if "ReDo" in self.methods:
            part = self.methods["ReDo"]
            for at, signal in enumerate(self.forward(x)[1:-1]):
                score = signal[part].mean(1)
                self._recycle(at, part, score <= self.strength[part, 0] * score.mean(-1, keepdim=True))
        for method in {"FIRE", *OURS[:2]} & self.methods.keys():
            strength, *held = self.of(method, self.strength, *self.p)
            for at, (w, b) in enumerate(zip(held[::2], held[1::2])):
                new = target(w, on_set=method in OURS and at < LAYERS - 1)
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
    def of(cls, name: str, directory: Path | None) -> Images:
        """The set of that name, every 2 × 2 pixels as one."""
        data = load(name, directory=directory)
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
        {"kind": kind, **cell._asdict(), "tasks": len(online), "ms": ""}
        | {name: round(of[at], 2) for name, of in shares.items()}
        for at, cell in enumerate(cells)
    ]
