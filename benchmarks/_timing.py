"""How the benchmarks measure: every contender in turn, in hot loops, round after round; the median round counts."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"


def in_turns(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    synchronize: Callable[[], Any] = lambda: None,
    rounds: int = 7,
    seconds: float = 0.05,
    clock: Callable[[], float] = time.perf_counter,
    pick: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Seconds per call of each contender. A round runs each for about `seconds`, one after the other."""
    loops = {}
    for name, run in contenders.items():
        run()
        synchronize()
        start = clock()
        run()
        synchronize()
        loops[name] = max(1, int(seconds / max(clock() - start, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            start = clock()
            for _ in range(loops[name]):
                run()
                synchronize()
            times[name].append((clock() - start) / loops[name])
    return {name: pick(values) for name, values in times.items()}


def machine(device: str) -> dict[str, Any]:
    """What the figures were measured on."""
    import numpy
    import torch

    import stiefel_init

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else cpu_name(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "stiefel_init": stiefel_init.__version__,
    }


def cpu_name() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_record(name: str, record: Mapping[str, Any]) -> Path:
    """Keep `record` as benchmarks/records/NAME.json, in a form that diffs."""
    path = RECORDS / f"{name}.json"
    RECORDS.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path
