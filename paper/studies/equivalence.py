"""Do the engines train equally well? MNIST, depths 50 and 100, six schemes, ten seeds: test accuracies compared.

    python -m paper.studies.equivalence [--data DIR] [--seeds 10] [--epochs 10] [--write]

The graph engine in float32 is the reference; the fused engine, on a GPU, is compared with it in its default precision
and in tf32. For each depth and scheme: Welch's t-test and the Kolmogorov–Smirnov test of the two samples of accuracies.
With twelve pairs, the smallest p-value of two equal engines falls below 0.05/12 = 0.004 once in twenty runs.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
from benchmarks import timing
from scipy import stats

from stiefel_init.lab.report.tables import wrapped
from stiefel_init.lab.study.significance import welch
from stiefel_init.lab.train.cell import Cell, PrecisionName
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import EngineName

from ..tables.protocol import SCHEMES

DEPTHS = (50, 100)
WAYS: dict[str, tuple[EngineName, PrecisionName]] = {
    "graph": ("graph", "float32"), "fused": ("fused", "float32"), "fused tf32": ("fused", "tf32"),
}  # fmt: skip


def trained(way: str, seeds: int, epochs: int, data: Path | None) -> dict[str, list[float]]:
    """Test accuracies of an engine, by depth and scheme."""
    engine, precision = WAYS[way]
    cells = [
        Cell("mnist", scheme, depth, seed=seed, epochs=epochs, rate=1e-3 / depth**0.5, precision=precision)
        for depth, scheme, seed in product(DEPTHS, SCHEMES, range(seeds))
    ]
    found: dict[str, list[float]] = {}
    for record in run(cells, device="cuda", directory=data, engine=engine, title=way):
        found.setdefault(f"depth {record.cell.depth}, {record.cell.scheme}", []).append(record.score)
    return found


def tested(way: str, cell: str, reference: list[float], other: list[float]) -> timing.Record:
    """Whether two samples of accuracies differ."""
    return {
        "way": way, "cell": cell, "graph": np.mean(reference), "other": np.mean(other),
        "welch": welch(np.array(reference), np.array(other)), "ks": float(stats.ks_2samp(reference, other).pvalue),
    }  # fmt: skip


def part() -> list[str]:
    """Its part of docs/performance.md."""
    record = timing.kept("equivalence")
    tests = record["tests"]
    apart = max(tests, key=lambda test: abs(test["graph"] - test["other"]))
    least, count = min(min(test["welch"], test["ks"]) for test in tests), 2 * len(tests)
    told = (
        "Do the engines train equally well? `python -m paper.studies.equivalence --write`: MNIST, depths "
        f"{' and '.join(map(str, DEPTHS))}, {len(SCHEMES)} schemes, {record['seeds']} seeds, {record['epochs']} "
        f"epochs, {timing.where(record)}. Test accuracies of the fused engine in float32 and in tf32 against those of "
        f"the graph engine, by Welch's and the Kolmogorov–Smirnov test: the smallest of {count} p-values is "
        f"{least:.3f}; of equal engines, one of {count} would fall below {0.05 / count:.4f} one time in twenty. The "
        f"means furthest apart: {apart['cell']}, {apart['way']}, {apart['other']:.2f} % instead of "
        f"{apart['graph']:.2f} %."
    )
    return wrapped(told)


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    found = {way: trained(way, options.seeds, options.epochs, options.data) for way in WAYS}
    tests = [
        tested(way, cell, graph, found[way][cell]) for way in list(WAYS)[1:] for cell, graph in found["graph"].items()
    ]
    print(*tests, sep="\n")
    if options.write:
        record = {"machine": timing.machine("cuda"), "seeds": options.seeds, "epochs": options.epochs}
        timing.write("equivalence", record | {"scores": found, "tests": tests})


if __name__ == "__main__":
    main()
