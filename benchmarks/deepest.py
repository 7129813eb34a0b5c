"""The deepest plain networks that train: convolutions of 1,000 to 10,000 layers from `initialize_` and a rival's start.

A few hundred steps at the rate 0.1 / depth, which is the best one at 20, 50, 100 and 1,000 layers in the study of
architectures. On a GPU the depths run side by side, in a process each; start NVIDIA's MPS, or they take turns. The
record is written anew whenever one has ended. It says where the time went: to read the images, to make the model and
to capture a step, to start the weights (`initialize_` is in there), to train with six tests.

    python benchmarks/deepest.py --device cuda --data DIR --write
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from paper.studies.architectures.catalogue import Network
from paper.studies.architectures.networks import PlainCNN
from paper.studies.architectures.problems import ACCURACY, images
from paper.studies.architectures.training import Job, Slot

RECORD = Path(__file__).parent / "records" / "deepest.json"
STARTS = ("ours", "looks-linear", "orthogonal", "he")


def run(depth: int, start: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train one network; its accuracy at six looks."""
    torch.set_num_threads(1)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True  # thousands of equal layers repay one trial of its algorithms
    begin, phases = time.perf_counter(), _Phases(device)
    problem = images("fashion-mnist", device, options.data, half=True)
    problem.test_x, problem.test_y = problem.test_x[: options.test], problem.test_y[: options.test]
    network = Network(
        f"cnn{depth}", "cnn", f"plain CNN of {depth:,} layers", partial(PlainCNN, depth),
        lambda *_: problem, ACCURACY, (0.1 / depth,), options.steps, batch=options.batch, slots=1,
    )  # fmt: skip
    phases.over("images")
    slot, curves = Slot(network, problem, device), []
    phases.over("model")
    for seed in range(options.seeds):
        slot.begin(Job(network.name, start, 0.1 / depth, seed))
        phases.over("start")
        while not slot.finished():
            if not slot.over:
                slot.advance()
            phases.over("train")  # waits for the device, as `finished` would have to
        curves.append(slot.result())
    seconds = time.perf_counter() - begin
    parts = ", ".join(f"{name} {took:.1f}" for name, took in phases.seconds.items())
    print(f"{depth:6,} layers, {start}: {curves} ({seconds:.0f} s: {parts})", flush=True)
    return {"depth": depth, "start": start, "curves": curves, "seconds": seconds, "phases": phases.seconds}


class _Phases:
    """Where the time goes: seconds by the name of a phase."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device, self._last = device, time.perf_counter()

    def over(self, name: str) -> None:
        """What went on since the last call was this phase."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def main() -> None:
    """Train, print, and write the record if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--depths", type=int, nargs="+", default=[2_000, 5_000, 10_000])
    parser.add_argument("--starts", nargs="+", default=["ours", "looks-linear"], choices=STARTS)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--test", type=int, default=2000, help="test images looked at, six times")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RECORD)
    parser.add_argument("--write", action="store_true", help="keep the record")
    options = parser.parse_args()
    cells = [(depth, start) for depth in sorted(options.depths, reverse=True) for start in options.starts]
    workers = 6 if options.device == "cuda" else 1
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    record: dict[str, Any] = {
        "device": name, "torch": torch.__version__, "steps": options.steps, "batch": options.batch,
        "test": options.test, "rows": [],
    }  # fmt: skip
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done in as_completed(pool.submit(run, depth, start, options) for depth, start in cells):
            record["rows"].append(done.result())
            record["rows"].sort(key=lambda row: (row["depth"], row["start"]))
            if options.write:
                options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
