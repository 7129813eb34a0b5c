"""Starts made for residual networks and transformers against ours, on small networks with and without normalization.

    python benchmarks/residual_rivals.py [--networks transformer,resnet] [--seeds 5] [--epochs 12] [--write]

Digits, four fifths for training. The transformers read an image as eight rows of eight pixels: 32 wide, 8 blocks, the
mean of all tokens at the end. The residual network has 8 blocks of two 3 × 3 convolutions, 12 channels. The plain one
has ten layers of 32 units with tanh. The perceptrons have 64 units in each of 101 hidden layers, one after the other
("plain: ours") or all but the first in residual blocks of two ("ours"): the same parameters. Adam without warm-up,
batches of 128. Each start trains once at each of five rates, 0.0001 to 0.01, which chooses its rate; the networks
compared have other seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from _timing import RECORDS, machine, write_record
from torch import Tensor, nn

from stiefel_init.lab.data import load
from stiefel_init.torch import initialize_

WIDTH, HEADS, BLOCKS, CHANNELS, BATCH = 32, 4, 8, 12, 128
UNITS, DEPTH = 64, 100
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
TUNING_SEED = 1000
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


class Convolutions(nn.Module):
    """A residual block without normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv2(F.relu(self.conv1(x)))


class ResNet(nn.Module):
    """Its blocks, and the mean over the image at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.blocks = nn.Sequential(*(Convolutions() for _ in range(BLOCKS)))
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.blocks(F.relu(self.stem(x.view(-1, 1, 8, 8))))).mean((2, 3)))


class Pair(nn.Module):
    """A residual block of two layers of a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(UNITS, UNITS), nn.Linear(UNITS, UNITS)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc2(F.relu(self.fc1(x)))


class Residual(nn.Module):
    """A perceptron in residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(64, UNITS)
        self.blocks = nn.Sequential(*(Pair() for _ in range(DEPTH // 2)))
        self.head = nn.Linear(UNITS, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.blocks(F.relu(self.stem(x)))))


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
    "resnet": (ResNet, (*USUAL, "fixup", "skip-init")),
    "perceptron": (
        Residual,
        (*(PLAIN + start for start in ("ours", "permutation", "looks-linear", "he")), *USUAL, "fixup", "skip-init"),
    ),
    "tanh": (tanh, ("ours", "xavier", "meta-init xavier steps=100", "random", "meta-init random steps=100")),
}


def train(network: str, start: str, rate: float, seed: int, epochs: int) -> float:
    """The test accuracy in per cent; 10, that of guessing, for a network that diverged."""
    data = load("digits")
    x, y = torch.from_numpy(data.x).float() / data.scale, torch.from_numpy(data.y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    own, test = order[: -len(x) // 5], order[-len(x) // 5 :]
    torch.manual_seed(seed)  # of torch's own start
    model = plain() if start.startswith(PLAIN) else NETWORKS[network][0]()
    start = start.removeprefix(PLAIN)
    if start != "torch":
        initialize_(model, None if start == "ours" else start, seed=seed, inputs=_example(start, x[own[:BATCH]]))
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    shuffle = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in own[torch.randperm(len(own), generator=shuffle)].split(BATCH):
            adam.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            adam.step()
    with torch.no_grad():
        out = model(x[test])
    return 100 * float((out.argmax(1) == y[test]).double().mean()) if bool(out.isfinite().all()) else 10.0


def _example(start: str, rows: Tensor) -> Tensor | None:
    """What the starts are given that look at the flow of a model."""
    looks = start in ("ours", "skip-init", "fixup") or start.startswith("meta-init")
    return rows if looks else None


def measure(network: str, start: str, seeds: int, epochs: int) -> dict[str, Any]:
    """One row of the record."""
    tried = {rate: round(train(network, start, rate, TUNING_SEED, epochs), 2) for rate in RATES}
    rate = max(tried, key=lambda r: tried[r])
    scores = [round(train(network, start, rate, seed, epochs), 2) for seed in range(seeds)]
    return {"network": network, "start": start, "rate": rate, "tried": tried, "scores": scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS), help="some of: %(default)s")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument(
        "--write",
        action="store_true",
        help="keep the figures, beside those of other networks",
    )
    options = parser.parse_args()
    chosen = options.networks.split(",")
    if unknown := [name for name in chosen if name not in NETWORKS]:
        parser.error(f"--networks has {unknown[0]!r}; choose from {', '.join(NETWORKS)}.")
    if options.seeds < 2 or options.epochs < 1:
        parser.error(f"--seeds {options.seeds} --epochs {options.epochs}; give two seeds and one epoch at least.")
    rows = []
    for network in chosen:
        for start in NETWORKS[network][1]:
            row = measure(network, start, options.seeds, options.epochs)
            rows.append(row)
            mean, spread = statistics.mean(row["scores"]), statistics.stdev(row["scores"])
            print(f"{network:<28}{start:<28}{mean:6.1f} % ± {spread:4.1f} at rate {row['rate']:g}", flush=True)
    if options.write:
        path = RECORDS / f"{RECORD}.json"
        before = json.loads(path.read_text())["rows"] if path.exists() else []
        kept = [row for row in before if row["network"] in NETWORKS and row["network"] not in chosen]
        rows = sorted([*kept, *rows], key=lambda row: list(NETWORKS).index(row["network"]))
        record = {"machine": machine("cpu"), "epochs": options.epochs, "seeds": options.seeds, "rows": rows}
        print(f"wrote {write_record(RECORD, record).name}")


if __name__ == "__main__":
    main()
