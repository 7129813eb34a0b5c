"""What a user would pick instead: the same depth and width with residual connections, with LayerNorm, with both.

    python benchmarks/alternatives.py [--dataset digits] [--data DIR] [--depths 30,100] [--seeds 5] [--epochs 20]
        [--times] [--write]

Width 64, batches of 256, Adam at each one's best of three rates: 1, 4 and 16 times 0.001/√depth, which a seed of its
own finds in a third of the epochs. The times of a step are taken in turns, all networks in one run; `--times` takes
them anew for what was recorded. The alternatives are initialized as He does; a residual layer is x + relu(Wx),
LayerNorm stands before the ReLU, and with both a layer is x + relu(W LayerNorm(x)) and the last one is normalized, as
usual. Each network is an ordinary nn.Module in an ordinary loop, so that times and memory are those that a user would
see.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from _timing import RECORDS, in_turns, machine, write_record
from paper.studies.members import TUNING_SEED
from torch import Tensor, nn

from stiefel_init.lab.data import Dataset, load
from stiefel_init.torch import initialize_

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


def step(model: nn.Module, adam: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    """As a user writes it."""
    adam.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    adam.step()


def train(
    data: Dataset, depth: int, seed: int, epochs: int, times_rate: float, kind: dict[str, Any]
) -> tuple[float, int]:
    """(test accuracy in per cent, bytes kept for the backward pass)."""
    x, y = torch.from_numpy(data.x).float() / data.scale, torch.from_numpy(data.y)
    order = torch.arange(len(x))
    if data.train_rows is None:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    count = data.train_rows or len(x) - len(x) // 5
    own, test = order[:count], order[count:]
    model = network(depth, x.shape[1], seed, **kind)
    adam = torch.optim.Adam(model.parameters(), lr=times_rate * 1e-3 / math.sqrt(depth))
    shuffle = torch.Generator().manual_seed(seed)
    kept = 0

    def count_bytes(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count_bytes, lambda tensor: tensor):
        nn.functional.cross_entropy(model(x[own[:BATCH]]), y[own[:BATCH]])
    for _ in range(epochs):
        for rows in own[torch.randperm(len(own), generator=shuffle)].split(BATCH):
            step(model, adam, x[rows], y[rows])
    with torch.no_grad():
        score = 100 * float((model(x[test]).argmax(1) == y[test]).double().mean())
    return score, kept


def milliseconds(data: Dataset, depth: int) -> dict[str, float]:
    """Of one step of each kind, in turns."""
    x, y = torch.from_numpy(data.x[:BATCH]).float() / data.scale, torch.from_numpy(data.y[:BATCH])
    steps = {}
    for name, kind in KINDS.items():
        model = network(depth, x.shape[1], 0, **kind)
        adam = torch.optim.Adam(model.parameters(), lr=1e-6)
        steps[name] = partial(step, model, adam, x, y)
    return {name: 1e3 * seconds for name, seconds in in_turns(steps, rounds=9).items()}


def take_times(data: Dataset, record: dict[str, Any]) -> None:
    """Put the times of a step into the rows of a record, and on what they were taken."""
    record["machine"] = machine("cpu")
    for depth in dict.fromkeys(row["depth"] for row in record["rows"]):
        found = milliseconds(data, depth)
        for row in record["rows"]:
            if row["depth"] == depth:
                row["milliseconds"] = found[row["network"]]
                print(f"depth {depth:>4}  {row['network']:<28}{row['milliseconds']:7.1f} ms a step")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits", choices=("digits", "mnist", "fashion-mnist"))
    parser.add_argument("--data", type=Path, help="where the data sets lie")
    parser.add_argument("--depths", default="30,100")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--times", action="store_true", help="time the recorded networks again")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    name_of_record = f"alternatives-{options.dataset}-cpu"
    data = load(options.dataset, directory=options.data)
    record: dict[str, Any] = {
        "machine": machine("cpu"), "dataset": options.dataset, "epochs": options.epochs, "rows": [],
    }  # fmt: skip
    if options.times:
        if not (RECORDS / f"{name_of_record}.json").exists():
            parser.error(f"--times, but there is no record of {options.dataset} yet; leave it out first.")
        record = json.loads((RECORDS / f"{name_of_record}.json").read_text())
    for depth in map(int, options.depths.split(",")) if not options.times else ():
        for name, kind in KINDS.items():
            third = -(-options.epochs // 3)
            tried = {rate: train(data, depth, TUNING_SEED, third, rate, kind)[0] for rate in RATES}
            best = max(RATES, key=lambda rate: tried[rate])
            runs = [train(data, depth, seed, options.epochs, best, kind) for seed in range(options.seeds)]
            scores = [run[0] for run in runs]
            row: dict[str, Any] = {
                "depth": depth, "rate": best, "network": name, "scores": [round(s, 2) for s in scores],
                "kept_bytes": runs[0][1],
            }  # fmt: skip
            record["rows"].append(row)
            print(
                f"depth {depth:>4}  {name:<28}{statistics.mean(scores):6.1f} % ± {statistics.stdev(scores):4.1f}"
                f" at rate {best:<4g}{row['kept_bytes'] / 2**20:8.1f} MiB kept",
                flush=True,
            )
    take_times(data, record)
    if options.write:
        write_record(name_of_record, record)


if __name__ == "__main__":
    main()
