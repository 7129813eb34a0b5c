"""What a user would pick instead: the same depth and width with residual connections, with LayerNorm, with both.

    python benchmarks/alternatives.py [--dataset digits] [--data DIR] [--depths 30,100] [--seeds 5] [--epochs 20]
        [--write]

Width 64, batches of 256, Adam at each one's best of three rates: 1, 4 and 16 times 0.001/√depth, which a seed of its
own finds in a third of the epochs. The alternatives are initialized as He does; a residual layer is x + relu(Wx),
LayerNorm stands before the ReLU, and with both a layer is x + relu(W LayerNorm(x)) and the last one is normalized, as
usual. Each network is an ordinary nn.Module in an ordinary loop, so that times and memory are those that a user would
see.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from _timing import machine, write_record
from torch import Tensor, nn

from stiefel_init.lab.data import Dataset, load
from stiefel_init.torch import initialize_

WIDTH, BATCH = 64, 256
RATES = (1.0, 4.0, 16.0)
TUNING_SEED = 1000
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
        initialize_(model, seed=seed, member=kind["member"], spread=0.1)
    else:
        initialize_(model, "he", seed=seed)
    return model


def train(
    data: Dataset, depth: int, seed: int, epochs: int, times_rate: float, kind: dict[str, Any]
) -> tuple[float, float, int]:
    """(test accuracy in per cent, milliseconds per step, bytes kept for the backward pass)."""
    x, y = torch.from_numpy(data.x).float() / data.scale, torch.from_numpy(data.y)
    order = torch.arange(len(x))
    if data.train_rows is None:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    rows = data.train_rows or len(x) - len(x) // 5
    own, test = order[:rows], order[rows:]
    model = network(depth, x.shape[1], seed, **kind)
    adam = torch.optim.Adam(model.parameters(), lr=times_rate * 1e-3 / math.sqrt(depth))
    shuffle = torch.Generator().manual_seed(seed)
    kept = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        nn.functional.cross_entropy(model(x[own[:BATCH]]), y[own[:BATCH]])
    times = []
    for _ in range(epochs):
        for rows in own[torch.randperm(len(own), generator=shuffle)].split(BATCH):
            start = time.perf_counter()
            adam.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            adam.step()
            times.append(time.perf_counter() - start)
    with torch.no_grad():
        score = 100 * float((model(x[test]).argmax(1) == y[test]).double().mean())
    return score, 1e3 * statistics.median(times), kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits", choices=("digits", "mnist", "fashion-mnist"))
    parser.add_argument("--data", type=Path, help="where the data sets lie")
    parser.add_argument("--depths", default="30,100")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    data = load(options.dataset, directory=options.data)
    record: dict[str, Any] = {
        "machine": machine("cpu"), "dataset": options.dataset, "epochs": options.epochs, "rows": [],
    }  # fmt: skip
    for depth in map(int, options.depths.split(",")):
        for name, kind in KINDS.items():
            third = -(-options.epochs // 3)
            tried = {rate: train(data, depth, TUNING_SEED, third, rate, kind)[0] for rate in RATES}
            best = max(RATES, key=lambda rate: tried[rate])
            runs = [train(data, depth, seed, options.epochs, best, kind) for seed in range(options.seeds)]
            scores = [run[0] for run in runs]
            row = {
                "depth": depth, "rate": best, "network": name, "scores": [round(s, 2) for s in scores],
                "milliseconds": statistics.median(run[1] for run in runs), "kept_bytes": runs[0][2],
            }  # fmt: skip
            record["rows"].append(row)
            print(
                f"depth {depth:>4}  {name:<28}{statistics.mean(scores):6.1f} % ± {statistics.stdev(scores):4.1f}"
                f" at rate {best:<4g}{row['milliseconds']:7.1f} ms a step {row['kept_bytes'] / 2**20:8.1f} MiB kept",
                flush=True,
            )
        if options.write:
            write_record(f"alternatives-{options.dataset}-cpu", record)


if __name__ == "__main__":
    main()
