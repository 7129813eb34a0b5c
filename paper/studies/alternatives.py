"""What a user would pick instead: the same depth and width with residual connections, with LayerNorm, with both.

    python -m paper.studies.alternatives [--dataset digits] [--data DIR] [--depths 30 100] [--seeds 5] [--epochs 20]
        [--write]

Width 64, batches of 256, Adam at each one's best of three rates: 1, 4 and 16 times 0.001/√depth, which a seed of its
own finds in a third of the epochs. The times of a step are taken in turns, all networks in one run. The alternatives
are initialized as He does; a residual layer is x + relu(Wx), LayerNorm stands before the ReLU, and with both a layer is
x + relu(W LayerNorm(x)) and the last one is normalized, as usual.
"""

from __future__ import annotations

import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks import timing
from torch import Tensor, nn

from stiefel_init.lab.data import Dataset, load
from stiefel_init.torch import initialize_

from .small_training import accuracy, at_best_rate, fit, step

DATASETS = ("digits", "mnist", "fashion-mnist")
WIDTH, BATCH = 64, 256
RATES = (1.0, 4.0, 16.0)
KINDS: dict[str, dict[str, Any]] = {
    "plain, uniform member": {"member": "uniform"},
    "plain, permutation": {"member": "permutation"},
    "plain, rotation 0.1": {"member": "rotation"},
    "plain, he": {},
    "residual, he": {"residual": True},
    "LayerNorm, he": {"normalized": True},
    "residual and LayerNorm, he": {"residual": True, "normalized": True},
}


class Layer(nn.Module):
    """One hidden layer."""

    def __init__(self, residual: bool, normalized: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH) if normalized else nn.Identity()
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        if self.residual:
            return x + torch.relu(self.linear(self.norm(x)))
        return torch.relu(self.norm(self.linear(x)))


def network(depth: int, inputs: int, seed: int, **kind: Any) -> nn.Module:
    residual, normalized = kind.get("residual", False), kind.get("normalized", False)
    first = [nn.Linear(inputs, WIDTH), nn.LayerNorm(WIDTH) if normalized and not residual else nn.Identity(), nn.ReLU()]
    last = [nn.LayerNorm(WIDTH) if normalized and residual else nn.Identity(), nn.Linear(WIDTH, 10)]
    model = nn.Sequential(*first, *(Layer(residual, normalized) for _ in range(depth - 1)), *last)
    if "member" in kind:
        initialize_(model, "stiefel", seed=seed, member=kind["member"], spread=0.1)
    else:
        initialize_(model, "he", seed=seed)
    return model


def rows_of(data: Dataset, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and classes for training, and for the test: the data set's own parts, or a fifth that the seed picks."""
    x, y = torch.from_numpy(data.x).float() / data.scale, torch.from_numpy(data.y)
    order = torch.arange(len(x))
    if data.train_rows is None:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    count = data.train_rows or len(x) - len(x) // 5
    return x[order[:count]], y[order[:count]], x[order[count:]], y[order[count:]]


def train(data: Dataset, depth: int, kind: dict[str, Any], times: float, seed: int, epochs: int) -> float:
    """The test accuracy in per cent, at so many times 0.001/√depth."""
    x, y, test_x, test_y = rows_of(data, seed)
    model, rate = network(depth, x.shape[1], seed, **kind), times * 1e-3 / math.sqrt(depth)
    return accuracy(fit(model, x, y, rate=rate, seed=seed, epochs=epochs, batch=BATCH), test_x, test_y)


def kept_bytes(data: Dataset, depth: int, kind: dict[str, Any]) -> int:
    """What is kept of a batch for the backward pass."""
    x, y, *_ = rows_of(data, 0)
    kept: list[int] = []

    def count(tensor: Tensor) -> Tensor:
        kept.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        nn.functional.cross_entropy(network(depth, x.shape[1], 0, **kind)(x[:BATCH]), y[:BATCH])
    return sum(kept)


def milliseconds(data: Dataset, depth: int) -> dict[str, float]:
    """Of one step of each kind, in turns."""
    x, y = torch.from_numpy(data.x[:BATCH]).float() / data.scale, torch.from_numpy(data.y[:BATCH])
    steps = {}
    for name, kind in KINDS.items():
        model = network(depth, x.shape[1], 0, **kind)
        steps[name] = partial(step, model, torch.optim.Adam(model.parameters(), lr=1e-6), x, y)
    return timing.in_milliseconds(timing.in_turns(steps, rounds=9))


def section() -> list[str]:
    """Its part of docs/performance.md."""
    lines = ["## What you would use instead", "", "`python -m paper.studies.alternatives --write`.", ""]
    header = ["depth", "network", "test accuracy (%)", "best rate", "ms per step", "kept for the backward pass"]
    for dataset in DATASETS:
        record = timing.kept(f"alternatives-{dataset}-cpu")
        rows = [
            [
                str(row["depth"]), row["network"],
                f"{statistics.mean(row['scores']):.1f} ± {statistics.stdev(row['scores']):.1f}", f"{row['rate']:g}",
                f"{row['milliseconds']:.1f}", f"{row['kept_bytes'] / 2**20:.1f} MiB",
            ]
            for row in record["rows"]
        ]  # fmt: skip
        lines += [
            f"{dataset}, {record['epochs']} epochs, {len(record['rows'][0]['scores'])} seeds, the best of three rates "
            f"(in units of 0.001/√depth); {timing.where(record)}:", "", *timing.markdown(header, rows),
        ]  # fmt: skip
    return lines


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--dataset", default="digits", choices=DATASETS)
    parser.add_argument("--data", type=Path, help="where the data sets lie")
    parser.add_argument("--depths", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    data, rows = load(options.dataset, directory=options.data), []
    for depth in options.depths:
        times = milliseconds(data, depth)
        for name, kind in KINDS.items():
            run, third = partial(train, data, depth, kind), -(-options.epochs // 3)
            _, best, scores = at_best_rate(run, RATES, options.seeds, options.epochs, third)
            row = {"depth": depth, "rate": best, "network": name, "scores": scores, "milliseconds": times[name]}
            rows.append({**row, "kept_bytes": kept_bytes(data, depth, kind)})
            print(rows[-1], flush=True)
    if options.write:
        record = {"machine": timing.machine("cpu"), "dataset": options.dataset, "epochs": options.epochs, "rows": rows}
        timing.write(f"alternatives-{options.dataset}-cpu", record)


if __name__ == "__main__":
    main()
