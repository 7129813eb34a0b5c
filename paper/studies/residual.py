"""Initializations made for residual networks and transformers against ours, on small networks.

    python -m paper.studies.residual [--seeds 5] [--epochs 12] [--write]

Digits, four fifths for training. The transformers read an image as eight rows of eight pixels: 32 wide, 8 blocks, the
mean of all tokens at the end. The residual network has 8 blocks of two 3 × 3 convolutions, 12 channels. The plain one
has ten layers of 32 units with tanh. The perceptrons have 64 units in each of 101 hidden layers, one after the other
("plain: ours") or all but the first in residual blocks of two ("ours"): the same parameters. Adam without warm-up,
batches of 128. Each start trains once at each of five rates, 0.0001 to 0.01, which chooses its rate; the networks
compared have other seeds.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks import timing
from torch import Tensor, nn

from stiefel_init import schemes
from stiefel_init.lab.data import load
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.significance import Compared, compared, welch
from stiefel_init.lab.train.problem import ACCURACY
from stiefel_init.torch import initialize_

from .small_training import accuracy, at_best_rate, fit

WIDTH, HEADS, BLOCKS, CHANNELS, BATCH = 32, 4, 8, 12, 128
UNITS, DEPTH = 64, 100
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
RECORD = "residual-rivals-cpu"


class Block(nn.Module):
    """Attention and a feed-forward network, each behind a normalization or none."""

    def __init__(self, normalized: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH) if normalized else nn.Identity() for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.fc2(F.relu(self.fc1(self.norm2(x))))


class Transformer(nn.Module):
    """A token for each row of an image."""

    def __init__(self, normalized: bool) -> None:
        super().__init__()
        self.rows, self.position = nn.Linear(8, WIDTH), nn.Embedding(8, WIDTH)
        self.blocks = nn.Sequential(*(Block(normalized) for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH) if normalized else nn.Identity()
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.rows(x.view(-1, 8, 8)) + self.position.weight)).mean(1))


class Skip(nn.Module):
    """A residual block of two layers, without normalization."""

    def __init__(self, name: str, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = f"{name}1", f"{name}2"
        self.add_module(self.first, layer())
        self.add_module(self.second, layer())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.get_submodule(self.second)(F.relu(self.get_submodule(self.first)(x)))


class Residual(nn.Module):
    """Residual blocks of convolutions, and the mean over the image at the end; or a perceptron in residual blocks."""

    def __init__(self, convolutional: bool) -> None:
        super().__init__()
        self.convolutional = convolutional
        if convolutional:
            inner = partial(nn.Conv2d, CHANNELS, CHANNELS, 3, padding=1)
            self.stem: nn.Module = nn.Conv2d(1, CHANNELS, 3, padding=1)
            self.blocks = nn.Sequential(*(Skip("conv", inner) for _ in range(BLOCKS)))
        else:
            self.stem = nn.Linear(64, UNITS)
            self.blocks = nn.Sequential(*(Skip("fc", partial(nn.Linear, UNITS, UNITS)) for _ in range(DEPTH // 2)))
        self.head = nn.Linear(CHANNELS if convolutional else UNITS, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.blocks(F.relu(self.stem(x.view(-1, 1, 8, 8) if self.convolutional else x))))
        return self.head(y.mean((2, 3)) if self.convolutional else y)


def plain() -> nn.Sequential:
    """A perceptron of as many parameters, without skips."""
    inner = [layer for _ in range(DEPTH) for layer in (nn.Linear(UNITS, UNITS), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, UNITS), nn.ReLU(), *inner, nn.Linear(UNITS, 10))


def tanh() -> nn.Sequential:
    """A plain network."""
    inner = [layer for _ in range(BLOCKS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), *inner, nn.Linear(WIDTH, 10))


USUAL = ("ours", "torch", "xavier")
PLAIN = "plain: "
"""What a start is called with where it begins a network without skips beside residual ones."""
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    "transformer": (partial(Transformer, False), (*USUAL, "t-fixup", "mimetic", "skip-init")),
    "transformer with LayerNorm": (partial(Transformer, True), (*USUAL, "t-fixup", "mimetic", "skip-init")),
    "resnet": (partial(Residual, True), (*USUAL, "fixup", "skip-init")),
    "perceptron": (
        partial(Residual, False),
        (*(PLAIN + start for start in ("ours", "permutation", "looks-linear", "he")), *USUAL, "fixup", "skip-init"),
    ),
    "tanh": (tanh, ("ours", "xavier", "meta-init xavier steps=100", "random", "meta-init random steps=100")),
}


def train(network: str, start: str, rate: float, seed: int, epochs: int) -> float:
    """The test accuracy in per cent."""
    data = load("digits")
    x, y = torch.from_numpy(data.x).float() / data.scale, torch.from_numpy(data.y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    rows, test = order[: -len(x) // 5], order[-len(x) // 5 :]
    torch.manual_seed(seed)  # of torch's own initialization
    model = plain() if start.startswith(PLAIN) else NETWORKS[network][0]()
    start = start.removeprefix(PLAIN)
    if start != "torch":
        initialize_(model, None if start == "ours" else start, seed=seed, inputs=_example(start, x[rows[:BATCH]]))
    fit(model, x[rows], y[rows], rate=rate, seed=seed, epochs=epochs, batch=BATCH)
    return accuracy(model, x[test], y[test])


def _example(start: str, rows: Tensor) -> Tensor | None:
    """What the starts are given that look at the flow of a model."""
    looks = start in ("ours", "skip-init", "fixup") or start.startswith("meta-init")
    return rows if looks else None


NEEDS = {
    "t-fixup": "attention under its usual names, in blocks that are modules; embeddings are drawn too",
    "mimetic": "self-attention under its usual names, and the number of heads as an attribute of its module",
    "fixup": "residual branches without normalization; the authors' scalar biases and gains are the model's to have",
    "skip-init": "residual branches; the plan says which parameter silences each",
    "meta-init": "a batch, and a model that can be differentiated three times",
}
WORDS = {
    "transformer": "transformer without normalization",
    "transformer with LayerNorm": "transformer with LayerNorm",
    "resnet": "residual network without normalization",
    "perceptron": "perceptron of 100 layers",
    "tanh": "plain tanh network",
}
Found = dict[str, dict[str, Compared]]


def part() -> list[str]:
    """The part of docs/baselines.md on residual networks and transformers."""
    record = timing.kept(RECORD)
    found: Found = {}
    for network in dict.fromkeys(row["network"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["network"] == network]
        judged = compared([np.array(row["scores"]) for row in rows], ACCURACY)
        found[network] = {row["start"]: one for row, one in zip(rows, judged)}
    plain = [start for start in found.get("perceptron", ()) if start.startswith(PLAIN)]
    starts = dict.fromkeys([*(s for judged in found.values() for s in judged if s not in plain), *plain])
    rows = [[start, *(_cell(judged.get(start)) for judged in found.values())] for start in starts]
    seeds, epochs, device = record["seeds"], record["epochs"], record["machine"]["device"]
    lines = [
        f"Test accuracy in per cent on digits, mean and deviation of {seeds} seeds, {epochs} epochs, each start at its",
        "best of five rates. **Bold**: the best. †: shown to be worse (Welch's test, p < 0.05, by Holm).",
        f"`python -m paper.studies.residual --write`, {device}. Small networks: a direction, not a verdict.",
        "",
        *Table("", ["start", *(WORDS[network] for network in found)], rows).markdown(),
        "",
        *_beside(record, plain),
    ]
    for name, needs in NEEDS.items():
        described = inspect.cleandoc(type(schemes.get(name)).__doc__ or "").partition(">>>")[0].strip()
        formula, *rest = described.split("\n\n")
        lines += [f"### {name}", "", formula, ""]
        lines += [line for part in rest for line in (part, "")]
        lines += [f"Needs: {needs}.", "", _prefer(name, found), ""]
    return lines[:-1]


def _beside(record: dict[str, Any], plain: list[str]) -> list[str]:
    """Perceptrons with and without skips, at equal parameters."""
    scores = {row["start"]: np.array(row["scores"]) for row in record["rows"] if row["network"] == "perceptron"}
    if not plain:
        return []
    residual = [start for start in scores if start not in plain]
    best = [max(part, key=lambda start: float(scores[start].mean())) for part in (plain, residual)]
    means = [f"{scores[start].mean():.1f} %" for start in best]
    p = welch(scores[best[0]], scores[best[1]])
    shown = "their means differ" if p is not None and p < 0.05 else "their means are not shown to differ"
    return [
        "The perceptrons have equal parameters: in rows called *plain* the layers follow one another, in the others",
        f"two layers each are a residual block. The best without skips is {best[0].removeprefix(PLAIN)}, {means[0]},",
        f"the best with skips {best[1]}, {means[1]}; {shown} (Welch's test, p = {p:.2g}).",
        "",
    ]


def _cell(one: Compared | None) -> str:
    if one is None:
        return "—"
    text = f"{one.mean:.1f} ± {one.std:.1f}"
    return f"**{text}**" if one.best else text if _good(one) else f"{text} †"


def _good(one: Compared) -> bool:
    return one.best or one.p is None or one.p >= 0.05


def _prefer(name: str, found: Found) -> str:
    """When to prefer it, from the record alone."""
    told = []
    for network, judged in found.items():
        for start, one in judged.items():
            if start.split()[0] != name:
                continue
            over = f"{one.mean - judged['ours'].mean:+.1f} to ours"
            which = "" if start == name else f", `{start}`"
            others = "not shown to be worse than the best" if _good(one) else "worse than the best"
            verdict = "the best" if one.best else others
            told.append(f"{WORDS[network]}{which}: {verdict} ({over})")
    return "Here: " + "; ".join(told) + "."


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    if options.seeds < 2 or options.epochs < 1:
        parser.error(f"--seeds {options.seeds} --epochs {options.epochs}; give two seeds and one epoch at least.")
    rows = []
    for network, (_, starts) in NETWORKS.items():
        for start in starts:
            run = partial(train, network, start)
            tried, rate, scores = at_best_rate(run, RATES, options.seeds, options.epochs, options.epochs)
            rows.append({"network": network, "start": start, "rate": rate, "tried": tried, "scores": scores})
            print(rows[-1], flush=True)
    if options.write:
        record = {"machine": timing.machine("cpu"), "epochs": options.epochs, "seeds": options.seeds, "rows": rows}
        timing.write(RECORD, record)


if __name__ == "__main__":
    main()
