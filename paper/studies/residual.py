"""Plain perceptrons against residual ones of a hundred layers, with equal parameters, from several initializations.

    python -m paper.studies.residual [--seeds 5] [--epochs 12] [--write]

Digits, four fifths for training; 64 units in each of 101 hidden layers, one after the other (`PLAIN`), or all but the
first in residual blocks of two. Adam without warm-up, batches of 128. Each initialization trains once at each of five
rates, 0.0001 to 0.01, which chooses its rate; the networks compared have other seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from benchmarks import timing
from torch import Tensor, nn

from stiefel_init.lab.data import load
from stiefel_init.lab.report.tables import wrapped
from stiefel_init.lab.study.significance import compared, welch
from stiefel_init.lab.train.problem import ACCURACY
from stiefel_init.torch import initialize_

from .kit import spread

UNITS, DEPTH, BATCH = 64, 100, 128
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
TUNING_SEED = 1000
"""Of the network that chooses a rate; those compared have other seeds."""
RECORD = "residual-rivals-cpu"
PLAIN = "plain: "
"""What the name of an initialization begins with where it is of a network without skips."""
STARTS = (
    *(PLAIN + start for start in ("ours", "permutation", "looks-linear", "he")),
    *("ours", "torch", "xavier", "fixup", "skip-init"),
)


class Skip(nn.Module):
    """A residual block of two layers, without normalization."""

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
        self.blocks = nn.Sequential(*(Skip() for _ in range(DEPTH // 2)))
        self.head = nn.Linear(UNITS, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.blocks(F.relu(self.stem(x)))))


def plain() -> nn.Sequential:
    """A perceptron without skips."""
    inner = [layer for _ in range(DEPTH) for layer in (nn.Linear(UNITS, UNITS), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, UNITS), nn.ReLU(), *inner, nn.Linear(UNITS, 10))


def train(start: str, rate: float, seed: int, epochs: int) -> float:
    """The test accuracy in per cent; 10, that of guessing, for a network that diverged."""
    data = load("digits")
    x, y = torch.from_numpy(data.x).float() / data.scale, torch.from_numpy(data.y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    rows, test = order[: -len(x) // 5], order[-len(x) // 5 :]
    torch.manual_seed(seed)  # of torch's own initialization
    make: Callable[[], nn.Module] = plain if start.startswith(PLAIN) else Residual
    model, start = make(), start.removeprefix(PLAIN)
    looks = start in ("ours", "skip-init", "fixup")  # at the flow of a model
    if start != "torch":
        initialize_(model, None if start == "ours" else start, seed=seed, inputs=x[rows[:BATCH]] if looks else None)
    adam, shuffle = torch.optim.Adam(model.parameters(), lr=rate), torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for batch in torch.randperm(len(rows), generator=shuffle).split(BATCH):
            adam.zero_grad()
            F.cross_entropy(model(x[rows[batch]]), y[rows[batch]]).backward()
            adam.step()
    with torch.no_grad():
        outputs = model(x[test])
    return 100 * float((outputs.argmax(1) == y[test]).double().mean()) if bool(outputs.isfinite().all()) else 10.0


def part() -> list[str]:
    """Its part of docs/baselines.md."""
    record = timing.kept(RECORD)
    scores = {row["start"]: np.array(row["scores"]) for row in record["rows"]}
    judged = dict(zip(scores, compared(list(scores.values()), ACCURACY)))
    worse = {start for start, each in judged.items() if each.p is not None and each.p < 0.05}
    best = [
        max((s for s in scores if s.startswith(PLAIN) == skipless), key=lambda s: float(scores[s].mean()))
        for skipless in (True, False)
    ]
    p = welch(scores[best[0]], scores[best[1]])
    told = ", ".join(f"{start} {spread(scores[start])}{' †' if start in worse else ''}" for start in STARTS)
    shown = "their means differ" if p is not None and p < 0.05 else "their means are not shown to differ"
    return wrapped(
        f"Perceptrons of {DEPTH} layers with equal parameters, one layer after the other ({PLAIN.strip(': ')}) or in "
        f"residual blocks of two, on digits ({record['seeds']} seeds, {record['epochs']} epochs, each at its best of "
        f"{len(RATES)} rates; `python -m paper.studies.residual --write`), test accuracy in per cent: {told}. †: shown "
        f"to be worse than the best (Welch's test, p < 0.05, by Holm). The best without skips, "
        f"{best[0].removeprefix(PLAIN)}, and the best with skips, {best[1]}: {shown} (p = {p:.2g})."
    )


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    if options.seeds < 2 or options.epochs < 1:
        parser.error(f"--seeds {options.seeds} --epochs {options.epochs}; give two seeds and one epoch at least.")
    rows = []
    for start in STARTS:
        tried = {rate: round(train(start, rate, TUNING_SEED, options.epochs), 2) for rate in RATES}
        rate = max(RATES, key=lambda rate: tried[rate])
        scores = [round(train(start, rate, seed, options.epochs), 2) for seed in range(options.seeds)]
        rows.append({"start": start, "rate": rate, "tried": tried, "scores": scores})
        print(rows[-1], flush=True)
    if options.write:
        record = {"machine": timing.machine("cpu"), "epochs": options.epochs, "seeds": options.seeds, "rows": rows}
        timing.write(RECORD, record)


if __name__ == "__main__":
    main()
