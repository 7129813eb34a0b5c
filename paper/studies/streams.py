"""Residual streams that are mixed in each block: does a mixer in the set help, and does any?

n = 4 streams X of equal width: u = aX is what a block reads, X ← MX + bf(u) what it leaves, a and b are learned. The
mixer M is the same for all inputs. Networks of one mixer and depth, of several rates and seeds, are trained at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stiefel_init.lab.files import prepare
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.record import environment

from ..experiment import Experiment, Options, titled
from ..results import Results, note_environment, write_table
from .continual import SIDE, Images
from .plasticity import half

STREAMS, WIDTH, INNER, BATCH, STEPS, DEPTHS = 4, 16, 32, 32, 300, (12, 24, 48, 96)
RATES, SEEDS, TRIED = (3e-3, 1e-2, 3e-2), 5, 100
APART, COPIES = "apart", "copies"
"""How streams start: with embeddings of their own, or all with the same."""
SINKHORN, TOKENS = 20, 4096
RANKS = "rank_first", "rank_middle", "rank_last"
"""(Σσ²)²/Σσ⁴ of the streams before the blocks, half-way and behind them."""
SIGNS = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
"""Rows of the three signed columns of Hadamard's matrix; times ½, a basis of the complement of the ones."""


def sinkhorn(p: Tensor) -> Tensor:
    """exp(P), whose rows and columns are brought to sum 1 in turns."""
    m = p.exp()
    for _ in range(SINKHORN):
        m = m / m.sum(-1, keepdim=True)
        m = m / m.sum(-2, keepdim=True)
    return m


def cayley(p: Tensor) -> Tensor:
    """(I + A)⁻¹(I - A) with A = P - Pᵀ, which is orthogonal."""
    skew, one = p - p.mT, torch.eye(p.shape[-1], dtype=p.dtype)
    return torch.linalg.solve(one + skew, one - skew)


def member(q: Tensor) -> Tensor:
    """The member ¼·11ᵀ + U′RU′ᵀ of Õ(4,4), with the rotation R of a quaternion q of any length but 0."""
    a, b, c, d = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    r = torch.stack(
        [
            a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c),
            2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b),
            2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d,
        ],
        -1,
    ).unflatten(-1, (3, 3))  # fmt: skip
    signs = SIGNS.to(q.dtype)
    return (1 + signs @ r @ signs.mT) / 4


def hull(q: Tensor) -> Tensor:
    """¼·11ᵀ + U′AU′ᵀ with A = R(p)·diag(tanh s)·R(p′): singular values of at most 1; q = (p, p′, s)."""
    p, other, s = q.split((4, 4, 3), -1)
    half = SIGNS.to(q.dtype) / 2
    turns = (half.mT @ member(each) @ half for each in (p, other))
    return 0.25 + half @ (next(turns) * s.tanh()[..., None, :] @ next(turns)) @ half.mT


def near_one(random: torch.Generator) -> Tensor:
    return 0.02 * torch.randn(STREAMS, STREAMS, generator=random)


def apart(random: torch.Generator, spread: float = 0.3) -> Tensor:
    """A quaternion of a random rotation by about 2·spread: it sets the streams apart."""
    return torch.cat([torch.ones(1), spread * torch.randn(3, generator=random)])


Made = tuple[Callable[[torch.Generator], Tensor], Callable[[Tensor], Tensor]]
MIXERS: dict[str, Made | None] = {
    "none": None,
    "identity": None,
    "free": (lambda random: torch.eye(STREAMS) + near_one(random), lambda p: p),
    "doubly stochastic": (lambda random: 4 * torch.eye(STREAMS) + near_one(random), sinkhorn),
    "orthogonal": (near_one, cayley),
    "in the set": (apart, member),
    "its hull": (lambda random: torch.cat([apart(random), apart(random), 2 * torch.ones(3)]), hull),
}
"""How a mixer's parameters start, and what it is made of them. None: streams are not mixed; or there is only one."""


class Networks:
    """Residual networks with streams, of one mixer and depth; each has a rate and a seed."""

    def __init__(self, mixer: str, start: str, depth: int, seeds: Sequence[int]) -> None:
        self.mixer, self.depth, self.count = mixer, depth, 1 if mixer == "none" else STREAMS
        self.embedded = self.count if start == APART else 1
        drawn = [self._drawn(torch.Generator().manual_seed(seed)) for seed in seeds]
        parts = [torch.stack(each, min(at // 2, 1)) for at, each in enumerate(zip(*drawn))]
        self.p = [part.requires_grad_() for part in parts]

    def _drawn(self, random: torch.Generator) -> list[Tensor]:
        """Embedding, head, and of all blocks what they read, write, hold, and their mixers."""

        def normal(*shape: int, size: float) -> Tensor:
            return size * torch.randn(shape, generator=random)

        reads = torch.eye(self.count)[torch.arange(self.depth) % self.count]  # as the authors of hyper-connections do
        made = MIXERS[self.mixer]
        return [
            normal(SIDE**2, WIDTH * self.embedded, size=1 / SIDE), normal(WIDTH, 10, size=WIDTH**-0.5),
            reads[:, None], torch.ones(self.depth, self.count, 1),
            normal(self.depth, WIDTH, INNER, size=math.sqrt(2 / WIDTH)),
            normal(self.depth, INNER, WIDTH, size=1 / math.sqrt(INNER * self.depth)),
            *([torch.stack([made[0](random) for _ in range(self.depth)])] if made else ()),
        ]  # fmt: skip

    def mixers(self) -> Tensor | None:
        """The mixers of all blocks and networks; None where streams are not mixed."""
        made = MIXERS[self.mixer]
        return None if made is None else made[1](self.p[6])

    def streams(self, x: Tensor) -> list[Tensor]:
        """The streams before the blocks and behind each, of shape (networks, streams, images · width)."""
        networks, images = x.shape[:2]
        first = (x @ self.p[0]).unflatten(-1, (self.embedded, WIDTH)).transpose(1, 2).flatten(2)
        held = [first.expand(-1, self.count, -1)]
        mixed = self.mixers()
        for at in range(self.depth):
            reads, writes, inner, outer = (each[at] for each in self.p[2:6])
            u = _of_size_one((reads @ held[-1]).view(networks, images, WIDTH))
            y = writes * ((u @ inner).relu() @ outer).flatten(1)[:, None]
            held.append(held[-1] + y if mixed is None else torch.baddbmm(y, mixed[at], held[-1]))
        return held

    def answers(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.head(self.streams(x)[-1], x)

    def head(self, last: Tensor, x: Tensor) -> Tensor:
        return _of_size_one(last.mean(1).view(*x.shape[:2], WIDTH)) @ self.p[1]


def _of_size_one(u: Tensor) -> Tensor:
    return u * (u.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def train(
    mixer: str, start: str, depth: int, cells: Sequence[tuple[float, int]], images: Images
) -> list[dict[str, Any]]:
    """Train networks of these rates and seeds; a row for each."""
    networks = Networks(mixer, start, depth, [seed for _, seed in cells])
    first, second = ([torch.zeros_like(p) for p in networks.p] for _ in range(2))
    rates = torch.tensor([rate for rate, _ in cells])
    draws = [np.random.default_rng(seed) for _, seed in cells]
    rows = np.stack([draw.integers(60_000, size=STEPS * BATCH) for draw in draws])
    for step in range(1, STEPS + 1):
        batch = rows[:, (step - 1) * BATCH : step * BATCH]
        outputs = networks.answers(images.x[batch])
        loss = nn.functional.cross_entropy(outputs.flatten(0, 1), images.y[batch].flatten(), reduction="sum") / BATCH
        factor = rates * min(1, step / 30) * (0.5 + 0.5 * math.cos(math.pi * step / STEPS)) / (1 - 0.9**step)
        with torch.no_grad():
            gradients = torch.autograd.grad(loss, networks.p)
            for at, (p, m, v, g) in enumerate(zip(networks.p, first, second, gradients)):
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 0.01)
                each = factor.view(-1, *[1] * (p.ndim - 1 - min(at // 2, 1)))
                p -= each * m / ((v / (1 - 0.99**step)).sqrt() + 1e-8)
    with torch.no_grad():
        columns = measured(networks, len(cells), images)
    return [
        {"mixer": mixer, "start": start, "depth": depth, "rate": rate, "seed": seed}
        | {name: float(f"{float(column[at]):.5g}") for name, column in columns.items()}
        for at, (rate, seed) in enumerate(cells)
    ]


def measured(networks: Networks, count: int, images: Images) -> dict[str, Tensor]:
    """Of trained networks: what they answer of 1,000 other images, and what becomes of the streams on the way."""
    x, y = images.x[60_000:61_000].expand(count, -1, -1), images.y[60_000:61_000]
    held = networks.streams(x)
    outputs = networks.head(held[-1], x)
    losses = nn.functional.cross_entropy(outputs.mT, y.expand(count, -1), reduction="none").mean(-1)
    right = (outputs.argmax(-1) == y).float().mean(-1)
    ones = torch.ones(1, networks.count)
    passed, mixed = ones.expand(count, -1, -1), networks.mixers()
    for each in reversed(mixed) if mixed is not None else ():
        passed = passed @ each
    leak = (passed - ones).abs().amax((1, 2))
    grams = [(streams @ streams.mT).double() for streams in (held[0], held[len(held) // 2], held[-1])]
    ranks = [g.diagonal(0, -2, -1).sum(-1) ** 2 / g.square().sum((1, 2)) for g in grams]
    return {"loss": losses, "accuracy": 100 * right, "leak": leak} | dict(zip(RANKS, ranks))


def timed(name: str, tokens: int) -> dict[str, Any]:
    """Microseconds of a processor for a mixer of each token, and back; and how far float32 leaves it from the set."""
    made = MIXERS[name]
    assert made is not None
    random = torch.Generator().manual_seed(0)
    p = torch.stack([made[0](random) for _ in range(tokens)])
    p = (p + 0.5 * torch.randn(p.shape, generator=random)).requires_grad_()
    taken = []
    for _ in range(15):
        start = time.process_time()
        made[1](p).square().sum().backward()
        taken.append(time.process_time() - start)
    m, ones = made[1](p).detach().double(), torch.ones(STREAMS, dtype=torch.float64)
    leak = float(((ones @ m - ones).abs().amax() + (m @ ones - ones).abs().amax()) / 2)
    apart = float((m.mT @ m - torch.eye(STREAMS)).abs().amax())
    return {"mixer": name, "us": round(1e6 * min(taken) / tokens, 4), "leak": leak, "apart": apart}


class Streams(Experiment):
    """Residual streams and their mixers: does any beat the identity?"""

    name = "streams"
    title = "What was measured"
    page = "streams"
    files = ("streams", "streams-mixers")

    def run(self, options: Options) -> None:
        """Train what is not in the table yet, time the mixers, and show both."""
        label, begun, out = self.label(options.quick), time.perf_counter(), prepare(options.out)
        images, rows = Images.of("mnist", options.data), Results(out).table(label)
        seeds = range(2 if options.quick else options.seeds or SEEDS)
        for mixer, start, depth in asked(DEPTHS[:1] if options.quick else DEPTHS):
            if not any((row["mixer"], row["start"], row["depth"]) == (mixer, start, depth) for row in rows):
                found = train(mixer, start, depth, [(rate, TRIED) for rate in RATES], images)
                best = min(found, key=lambda row: row["loss"])["rate"]
                rows += found + train(mixer, start, depth, [(best, seed) for seed in seeds], images)
                write_table(rows, out / f"{label}.csv")
                print(f"{mixer}, {start}, {depth} blocks", flush=True)
        tokens = 256 if options.quick else TOKENS
        mixers = [timed(name, tokens) for name, made in MIXERS.items() if made and name != "free"]
        write_table(mixers, out / f"{label}-mixers.csv")
        seconds = time.perf_counter() - begun
        note_environment(out, label, environment(torch.device("cpu"), "stacked"), seconds, len(rows))
        self.present((rows, mixers), options)

    def evidence(self, results: Results) -> Any:
        rows, mixers = results.table("streams"), results.table("streams-mixers")
        return (rows, mixers) if rows and mixers else None

    def tables(self, evidence: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> list[Table]:
        rows, mixers = evidence
        settings = dict.fromkeys((row["depth"], row["start"]) for row in rows)
        losses = []
        for depth, start in sorted(settings, key=lambda key: (key[1], key[0])):
            for mixer in MIXERS:
                found = _final(rows, mixer, start, depth)
                if found:
                    loss, accuracy, leak = (_column(found, name) for name in ("loss", "accuracy", "leak"))
                    rank = " → ".join(f"{_column(found, name).mean():.1f}" for name in RANKS)
                    losses.append(
                        [f"{depth}, {start}", mixer, f"{found[0]['rate']:g}", f"{loss.mean():.3f} ± {half(loss):.3f}",
                         f"{accuracy.mean():.1f}", f"{leak.max():.0e}", rank]
                    )  # fmt: skip
        header = ["blocks, streams", "mixer", "rate", "loss", "accuracy", "leak", "rank"]
        cost = [[row["mixer"], f"{row['us']:.2f}", f"{row['leak']:.0e}", f"{row['apart']:.0e}"] for row in mixers]
        return [
            Table("trained networks", header, losses),
            Table("one mixer", ["", "µs", "leak", "from orthogonal"], cost),
        ]

    def section(self, evidence: Any) -> list[str]:
        rows, mixers = evidence
        trained, cost = self.tables(evidence)
        us = {row["mixer"]: row["us"] for row in mixers}
        said = [told for mixer in MIXERS if (told := _against_identity(rows, mixer))]
        faster = (
            f"To make a mixer of the set took {us['in the set']:.2f} µs of a processor, forward and backward, and "
            f"{SINKHORN} iterations of Sinkhorn {us['doubly stochastic']:.2f}: "
            f"{us['doubly stochastic'] / us['in the set']:.1f} times as long."
        )
        lines = [f"## {self.title}", "", *(line for each in said for line in wrapped(f"- {each}")), ""]
        return [*lines, *titled([trained]), *wrapped(faster), "", *titled([cost])]


def asked(depths: Sequence[int]) -> list[tuple[str, str, int]]:
    """Mixer, start and depth of all networks; one stream has nothing to be apart from."""
    settings = [(APART, depth) for depth in depths] + [(COPIES, depth) for depth in depths[:2]]
    one = [("none", COPIES, depth) for depth in depths]
    return one + [(mixer, *setting) for setting in settings for mixer in MIXERS if mixer != "none"]


def _final(rows: Sequence[Mapping[str, Any]], mixer: str, start: str, depth: int) -> list[Mapping[str, Any]]:
    """The reported rows, by seed."""
    found = [
        row for row in rows
        if (row["mixer"], row["start"], row["depth"]) == (mixer, start, depth) and row["seed"] != TRIED
    ]  # fmt: skip
    return sorted(found, key=lambda row: row["seed"])


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], float)


def _against_identity(rows: Sequence[Mapping[str, Any]], mixer: str) -> str:
    """In how many settings a mixer has a lower loss than the identity beyond the interval, and in how many a higher."""
    apart = []
    for start, depth in dict.fromkeys((row["start"], row["depth"]) for row in rows if row["mixer"] == mixer):
        ours, other = (_final(rows, name, start, depth) for name in (mixer, "identity"))
        if mixer != "identity" and other:
            apart.append(_column(ours, "loss") - _column(other, "loss"))
    if not apart:
        return ""
    better = sum(each.mean() < -half(each) for each in apart)
    worse = sum(each.mean() > half(each) for each in apart)
    mean = float(np.mean([each.mean() for each in apart]))
    return (
        f"**{mixer}** against no mixing of the streams: a lower loss in {better}, a higher one in {worse} of "
        f"{len(apart)} settings beyond the interval; {mean:+.3f} in the mean."
    )
