"""The deepest plain networks that train: convolutions of 1,000 to 10,000 layers from `initialize_` and a baseline's.

A few hundred steps at the rate 0.1 / depth, which is the best one at 20, 50, 100 and 1,000 layers in the study of
architectures. On a GPU the depths run side by side, in a process each; start NVIDIA's MPS, or they take turns. The
record is written anew whenever one has ended.

    python -m paper.studies.deepest --data DIR --write
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from benchmarks import timing

from .architectures.catalogue import Network
from .architectures.networks import PlainCNN
from .architectures.problems import ACCURACY, images
from .architectures.training import Job, Slot

RECORD = "deepest"
STEPS, BATCH, TEST = 300, 64, 2000
"""Steps, images of a step, and of each of the six tests."""
STARTS = ("ours", "looks-linear")


def run(depth: int, start: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one network; its accuracy at six looks."""
    torch.set_num_threads(1)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True  # thousands of equal layers repay one trial of its algorithms
    begin = time.perf_counter()
    problem = images("fashion-mnist", device, options.data, half=True)
    problem.test_x, problem.test_y = problem.test_x[:TEST], problem.test_y[:TEST]
    network = Network(
        f"cnn{depth}", "cnn", f"plain CNN of {depth:,} layers", partial(PlainCNN, depth),
        lambda *_: problem, ACCURACY, (0.1 / depth,), STEPS, batch=BATCH, slots=1,
    )  # fmt: skip
    slot = Slot(network, problem, device)
    slot.begin(Job(network.name, start, 0.1 / depth, 0))
    while not slot.finished():
        if not slot.over:
            slot.advance()
    row = {"depth": depth, "start": start, "curves": [slot.result()], "seconds": time.perf_counter() - begin}
    print(row, flush=True)
    return row


def section() -> list[str]:
    """Its part of docs/performance.md."""
    record = timing.kept(RECORD)
    rows = [
        [f"{row['depth']:,}", row["start"], ", ".join(f"{score:.1f}" for score in curve), f"{row['seconds']:.0f}"]
        for row in record["rows"]
        for curve in row["curves"]
    ]
    return [
        "## The deepest networks", "",
        "`python -m paper.studies.deepest --data DIR --write`: plain CNNs, 3 × 3 kernels of 32 channels,",
        f"without shortcuts or normalization, on Fashion-MNIST at 14 × 14 pixels; {record['steps']} steps on "
        f"{record['batch']} images.",
        f"Accuracy on {record['test']:,} test images at six looks. {record['device']}; "
        "seconds count the building, too.", "",
        *timing.markdown(["layers", "start", "accuracy (%)", "seconds"], rows),
    ]  # fmt: skip


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--depths", type=int, nargs="+", default=[2_000, 5_000, 10_000])
    options = parser.parse_args()
    cells = [(depth, start) for depth in sorted(options.depths, reverse=True) for start in STARTS]
    record: timing.Record = {
        "device": timing.machine(options.device)["device"], "torch": torch.__version__, "steps": STEPS,
        "batch": BATCH, "test": TEST, "rows": [],
    }  # fmt: skip
    with ProcessPoolExecutor(6 if options.device == "cuda" else 1, mp_context=get_context("spawn")) as pool:
        for done in as_completed(pool.submit(run, depth, start, options) for depth, start in cells):
            record["rows"].append(done.result())
            record["rows"].sort(key=lambda row: (row["depth"], row["start"]))
            if options.write:
                timing.write(RECORD, record)


if __name__ == "__main__":
    main()
