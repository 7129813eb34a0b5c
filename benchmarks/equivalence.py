"""Do the engines train equally well? MNIST, depths 50 and 100, six schemes, ten seeds: test accuracies compared.

    python benchmarks/equivalence.py [--data DIR] [--seeds 10] [--epochs 10] [--write]
    python benchmarks/equivalence.py --published [--data DIR] [--seeds 20] [--write]

The graph engine in float32 is the reference; the fused engine is compared with it in its default precision and in tf32.
For each depth and scheme: Welch's t-test and the Kolmogorov–Smirnov test of the two samples of accuracies. With twelve
pairs, the smallest p-value of two equal engines falls below 0.05/12 = 0.004 once in twenty runs.

With `--published` no GPU is needed: few-shot cells of table 3, which the fused engine trained on an H200 for
results/, are trained again here by the graph engine. They start from the same weights and see the same images, so
they are also compared cell by cell.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _timing import machine, write_record
from paper.results import Results
from paper.tables.images import Table3
from paper.tables.protocol import SCHEMES
from scipy import stats

from stiefel_init.lab.train.cell import Cell, PrecisionName
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import EngineName

DEPTHS = (50, 100)
WAYS: dict[str, tuple[EngineName, PrecisionName]] = {
    "graph": ("graph", "float32"),
    "fused": ("fused", "float32"),
    "fused tf32": ("fused", "tf32"),
}


def scores(way: str, seeds: int, epochs: int, data: Path | None) -> dict[str, list[float]]:
    """Test accuracies by depth and scheme."""
    engine, precision = WAYS[way]
    cells = [
        Cell("mnist", scheme, depth, seed=seed, epochs=epochs, rate=1e-3 / depth**0.5, precision=precision)
        for depth in DEPTHS
        for scheme in SCHEMES
        for seed in range(seeds)
    ]
    found: dict[str, list[float]] = {}
    for record in run(cells, device="cuda", directory=data, engine=engine, title=way):
        found.setdefault(f"depth {record.cell.depth}, {record.cell.scheme}", []).append(record.score)
    return found


def published(seeds: int, data: Path | None) -> dict[str, dict[str, list[float]]]:
    """Test accuracies by depth and scheme, of 4-shot networks on MNIST: the graph engine's here, and the records'."""
    cells = [
        cell for cell in Table3().cells(seeds)
        if (cell.dataset, cell.shots) == ("mnist", 4) and cell.depth in DEPTHS
    ]  # fmt: skip
    theirs = Results().records
    found: dict[str, dict[str, list[float]]] = {"graph": {}, "fused": {}}
    for record in run(cells, device="cpu", directory=data, engine="graph", title="graph"):
        key = f"depth {record.cell.depth}, {record.cell.scheme}"
        found["graph"].setdefault(key, []).append(record.score)
        found["fused"].setdefault(key, []).append(theirs[record.cell].score)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    parser.add_argument("--published", action="store_true", help="compare the published few-shot records with a CPU's")
    options = parser.parse_args()
    if options.published:
        found = published(options.seeds, options.data)
    else:
        found = {way: scores(way, options.seeds, options.epochs, options.data) for way in WAYS}
    record: dict[str, Any] = {
        "machine": machine("cpu" if options.published else "cuda"), "seeds": options.seeds,
        "epochs": 100 if options.published else options.epochs, "scores": found, "tests": [],
    }  # fmt: skip
    for way in list(found)[1:]:
        print(f"\n{way} against graph: mean accuracies, Welch p, Kolmogorov–Smirnov p")
        for key, reference in found["graph"].items():
            other = found[way][key]
            same = np.ptp(reference) == 0 and np.ptp(other) == 0 and reference[0] == other[0]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # networks at chance have nearly equal scores
                welch = 1.0 if same else float(stats.ttest_ind(reference, other, equal_var=False).pvalue)
            smirnov = float(stats.ks_2samp(reference, other).pvalue)
            row = {
                "way": way,
                "cell": key,
                "graph": np.mean(reference),
                "other": np.mean(other),
                "welch": welch,
                "ks": smirnov,
            }
            if options.published:
                row["largest_difference"] = float(np.abs(np.subtract(reference, other)).max())
            record["tests"].append(row)
            apart = f"   {row['largest_difference']:.2f} at most" if options.published else ""
            print(f"  {key:<24}{row['graph']:8.2f}{row['other']:8.2f}   {welch:.3f}   {smirnov:.3f}{apart}")
        least = min(min(row["welch"], row["ks"]) for row in record["tests"] if row["way"] == way)
        print(f"  smallest p: {least:.4f} of {2 * len(found['graph'])} tests")
    if options.write:
        print(f"wrote {write_record('equivalence-published' if options.published else 'equivalence', record)}")


if __name__ == "__main__":
    main()
