"""Do the engines train equally well? MNIST, depths 50 and 100, six schemes, ten seeds: test accuracies compared.

    python -m paper.studies.equivalence [--data DIR] [--seeds 10] [--epochs 10] [--write]
    python -m paper.studies.equivalence --published [--data DIR] [--seeds 20] [--write]

The graph engine in float32 is the reference; the fused engine is compared with it in its default precision and in tf32.
For each depth and scheme: Welch's t-test and the Kolmogorov–Smirnov test of the two samples of accuracies. With twelve
pairs, the smallest p-value of two equal engines falls below 0.05/12 = 0.004 once in twenty runs.

With `--published` no GPU is needed: few-shot cells of table 3, which the fused engine trained on an H200 for
results/, are trained again here by the graph engine. They start from the same weights and see the same images, so
they are also compared cell by cell.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from benchmarks import timing
from scipy import stats

from stiefel_init.lab.train.cell import Cell, PrecisionName
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import EngineName

from ..results import Results
from ..tables.images import Table3
from ..tables.protocol import SCHEMES

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


def tested(way: str, cell: str, reference: list[float], other: list[float]) -> timing.Record:
    """Whether two samples of accuracies differ."""
    same = np.ptp(reference) == 0 and np.ptp(other) == 0 and reference[0] == other[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # networks at chance have nearly equal scores
        welch = 1.0 if same else float(stats.ttest_ind(reference, other, equal_var=False).pvalue)
    return {
        "way": way, "cell": cell, "graph": np.mean(reference), "other": np.mean(other), "welch": welch,
        "ks": float(stats.ks_2samp(reference, other).pvalue),
    }  # fmt: skip


def section() -> list[str]:
    """Its part of docs/performance.md."""
    record, few = timing.kept("equivalence"), timing.kept("equivalence-published")
    lines = [
        "Do the engines train equally well? `python -m paper.studies.equivalence --write`: MNIST, "
        f"{record['seeds']} seeds, {record['epochs']} epochs;",
        f"{timing.where(record)}. Test accuracy (%) by engine, and p-values of Welch's and the Kolmogorov–Smirnov "
        "test:",
        "",
    ]
    ways = list(dict.fromkeys(test["way"] for test in record["tests"]))
    rows = []
    for cell in dict.fromkeys(test["cell"] for test in record["tests"]):
        tests = {test["way"]: test for test in record["tests"] if test["cell"] == cell}
        pairs = [(f"{tests[way]['other']:.2f}", f"{tests[way]['welch']:.2f}, {tests[way]['ks']:.2f}") for way in ways]
        rows.append([cell, f"{tests[ways[0]]['graph']:.2f}", *(text for pair in pairs for text in pair)])
    header = ["", "graph", *(name for way in ways for name in (way, "p"))]
    lines += [*timing.markdown(header, rows), *_least(record["tests"])]
    rows = [
        [
            test["cell"], f"{test['graph']:.2f}", f"{test['other']:.2f}", f"{test['welch']:.3f}",
            f"{test['ks']:.3f}", f"{test['largest_difference']:.2f}",
        ]
        for test in few["tests"]
    ]  # fmt: skip
    header = ["", "graph engine, CPU", "fused engine, H200", "p, Welch", "p, Kolmogorov–Smirnov", "largest difference"]
    return [
        *lines,
        "And with few shots, cell by cell? `python -m paper.studies.equivalence --published --write`: 4-shot",
        f"networks on MNIST, {few['seeds']} seeds, 100 steps; the same cells in both engines. Test accuracy (%):", "",
        *timing.markdown(header, rows), *_least(few["tests"]),
    ]  # fmt: skip


def _least(tests: list[timing.Record]) -> list[str]:
    count = 2 * len(tests)
    least = min(min(test["welch"], test["ks"]) for test in tests)
    return [
        f"The smallest of the {count} p-values is {least:.3f}; if the engines were equal, one of {count} would fall "
        f"below {0.05 / count:.4f} one time in twenty.", "",
    ]  # fmt: skip


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--published", action="store_true", help="compare the published few-shot records with a CPU's")
    options = parser.parse_args()
    name, device, epochs = "equivalence", "cuda", options.epochs
    if options.published:
        name, device, epochs = "equivalence-published", "cpu", 100
        found = published(options.seeds, options.data)
    else:
        found = {way: scores(way, options.seeds, options.epochs, options.data) for way in WAYS}
    tests = []
    for way in list(found)[1:]:
        for cell, reference in found["graph"].items():
            tests.append(tested(way, cell, reference, found[way][cell]))
            if options.published:
                tests[-1]["largest_difference"] = float(np.abs(np.subtract(reference, found[way][cell])).max())
            print(tests[-1])
    print(*_least(tests))
    if options.write:
        record = {"machine": timing.machine(device), "seeds": options.seeds, "epochs": epochs}
        timing.write(name, {**record, "scores": found, "tests": tests})


if __name__ == "__main__":
    main()
