"""What bounds the fused engine's `propagate`, as NVIDIA's Nsight Compute sees it: 132 networks of depth 100.

    ncu --clock-control none -k regex:propagate -s 1 -c 1 --section SpeedOfLight --section ComputeWorkloadAnalysis \\
        python benchmarks/profile_engine.py --precision float32 > float32.txt
    python benchmarks/profile_engine.py --read float32.txt tf32.txt --device "NVIDIA H200" --write

The first command profiles one launch, the second keeps its figures; the files are named by precision.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Literal

from _timing import write_record

FIGURES = {
    "milliseconds": r"Duration\s+ms\s+([\d.]+)",
    "first-level cache and shared memory": r"L1/TEX Cache Throughput\s+%\s+([\d.]+)",
    "second-level cache": r"L2 Cache Throughput\s+%\s+([\d.]+)",
    "memory": r"DRAM Throughput\s+%\s+([\d.]+)",
    "tensor cores": r"Tensor is the highest-utilized pipeline \(([\d.]+)%\)",
    "instruction issue": r"Issue Slots Busy\s+%\s+([\d.]+)",
}
"""Milliseconds of the launch, then per cent of what the card can do."""


def launch(precision: Literal["float32", "tf32"]) -> None:
    """A few steps of a stack, for the profiler to look at."""
    import torch
    from engine import task, trainer

    trainer(132, 100, task(), "cuda", "fused", precision).first_steps(3)
    torch.cuda.synchronize()


def read(path: Path) -> dict[str, float]:
    """The figures in what the profiler printed."""
    text = path.read_text(encoding="utf-8", errors="replace")
    found = {}
    for name, pattern in FIGURES.items():
        match = re.search(pattern, text)
        if match is None:
            raise SystemExit(f"{path} has no {name!r}; was it written by the command in this script's docstring?")
        found[name] = float(match[1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--read", type=Path, nargs="+", metavar="FILE", help="what the profiler printed")
    parser.add_argument("--device", help="with --read: the card's name")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    if options.read is None:
        launch(options.precision)
        return
    if options.device is None:
        parser.error("--read needs --device, the name of the card that was profiled.")
    record: dict[str, Any] = {
        "machine": {"device": options.device},
        "launches": {path.stem: read(path) for path in options.read},
    }
    print(record)
    if options.write:
        print(f"wrote {write_record('profile-cuda', record)}")


if __name__ == "__main__":
    main()
