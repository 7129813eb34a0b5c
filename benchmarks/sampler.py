"""Time to draw one matrix, and a batch of them, against every peer, in one run.

    python benchmarks/sampler.py [--device cpu|cuda] [--write]

The floor is one plain matmul of the same size; a Haar frame costs at least two thirds of its arithmetic.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave torch its memory on a GPU

import torch
from _timing import in_turns, machine, write_record

import stiefel_init
from stiefel_init.torch import sample, stiefel_

SHAPES = [(64, 64), (64, 784), (512, 512), (1024, 1024), (1024, 4096), (2048, 2048), (4096, 4096)]
PEERS = ["stiefel_", "orthogonal_", "algorithm 1", "algorithm 2", "jax", "keras", "ortho_group", "matmul"]


def contenders(m: int, n: int, device: str) -> dict[str, Callable[[], Any]]:
    """Every way to draw one float32 matrix of this shape on this device."""
    w = torch.empty(m, n, device=device)
    a, b = torch.randn(m, n, device=device), torch.randn(n, n, device=device)
    ways: dict[str, Callable[[], Any]] = {
        "stiefel_": lambda: stiefel_(w),
        "orthogonal_": lambda: torch.nn.init.orthogonal_(w),
        "algorithm 1": lambda: stiefel_(w, method="algorithm1"),
        "algorithm 2": lambda: stiefel_(w, method="algorithm2"),
        "matmul": lambda: a @ b,
    }
    return ways


def other_libraries(m: int, n: int, device: str) -> dict[str, Callable[[], Any]]:
    """The peers with thread pools of their own, timed apart from torch's."""
    ways: dict[str, Callable[[], Any]] = {}
    try:
        import jax

        keys = iter(jax.random.split(jax.random.key(0), 100_000))
        draw = jax.jit(lambda key: jax.nn.initializers.orthogonal()(key, (m, n)))
        ways["jax"] = lambda: draw(next(keys)).block_until_ready()
    except ImportError:
        pass
    try:
        import keras

        layer = keras.initializers.Orthogonal()
        ways["keras"] = lambda: layer((m, n))
    except ImportError:
        pass
    if device == "cpu" and m == n <= 512:
        from scipy.stats import ortho_group

        ways["ortho_group"] = lambda: ortho_group.rvs(n)
    return ways


def batch_contenders(count: int, m: int, n: int, device: str) -> dict[str, Callable[[], Any]]:
    """`count` matrices: in one call here, in a loop there."""
    w = torch.empty(m, n, device=device)
    ways: dict[str, Callable[[], Any]] = {
        "sample": lambda: sample(m, n, batch=count, device=device),
        "orthogonal_ loop": lambda: [torch.nn.init.orthogonal_(w) for _ in range(count)],
    }
    try:
        import jax

        draw = jax.jit(jax.vmap(lambda key: jax.nn.initializers.orthogonal()(key, (m, n))))
        keys = jax.random.split(jax.random.key(0), count)
        ways["jax vmap"] = lambda: draw(keys).block_until_ready()
    except ImportError:
        pass
    return ways


def peak_memory(m: int, n: int, device: str) -> float:
    """Peak memory beyond the result while it is made, in units of the result."""
    if device == "cuda":
        sample(m, n, device=device)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = sample(m, n, device=device)
        return (torch.cuda.max_memory_allocated() - before) / out.nbytes - 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as record:
        out = sample(m, n)
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak / out.nbytes - 1


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    device = options.device
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    shapes = [*SHAPES, (8192, 8192)] if device == "cuda" else SHAPES

    record: dict[str, Any] = {"machine": machine(device), "dtype": "float32", "matrices": [], "batches": []}
    print(f"{record['machine']['device']}, float32, milliseconds; x: times the speed of orthogonal_ / algorithm 2")
    print(f"{'shape':>10} " + " ".join(f"{peer:>11}" for peer in PEERS) + "      x     x2  orth.err  align.err  memory")
    for m, n in shapes:
        rounds = 5 if m >= 2048 else 15
        seconds = in_turns(contenders(m, n, device), synchronize=synchronize, rounds=rounds)
        seconds |= in_turns(other_libraries(m, n, device), rounds=3)
        result = stiefel_init.check(sample(m, n, dtype=torch.float32, device=device))
        row = {
            "shape": [m, n],
            "milliseconds": {peer: 1e3 * seconds[peer] for peer in PEERS if peer in seconds},
            "speedup": seconds["orthogonal_"] / seconds["stiefel_"],
            "speedup_algorithm2": seconds["algorithm 2"] / seconds["stiefel_"],
            "orthogonality_error": result.orthogonality_error,
            "alignment_error": result.alignment_error,
            "extra_memory": peak_memory(m, n, device),
        }
        record["matrices"].append(row)
        cells = " ".join(f"{1e3 * seconds[peer]:11.3f}" if peer in seconds else f"{'—':>11}" for peer in PEERS)
        print(
            f"{f'{m}×{n}':>10} {cells} {row['speedup']:6.2f} {row['speedup_algorithm2']:6.2f}  "
            f"{result.orthogonality_error:.1e}    {result.alignment_error:.1e}  {row['extra_memory']:6.2f}",
            flush=True,
        )
    rows = record["matrices"]
    record["geometric_mean"] = geometric_mean([row["speedup"] for row in rows])
    record["geometric_mean_algorithm2"] = geometric_mean([row["speedup_algorithm2"] for row in rows])
    print(f"geometric mean: {record['geometric_mean']:.2f} x orthogonal_, ", end="")
    print(f"{record['geometric_mean_algorithm2']:.2f} x algorithm 2")

    print("\nmatrices in one call, milliseconds")
    for count, m, n in ((100, 64, 64), (1000, 64, 64), (1000, 16, 16), (100, 64, 784)):
        seconds = in_turns(batch_contenders(count, m, n, device), synchronize=synchronize, rounds=5)
        record["batches"].append(
            {"count": count, "shape": [m, n], "milliseconds": {name: 1e3 * value for name, value in seconds.items()}}
        )
        ratios = ", ".join(
            f"{name} {1e3 * value:.3f} ({value / seconds['sample']:.1f}x)" for name, value in seconds.items()
        )
        print(f"{count} of {m}×{n}: {ratios}", flush=True)
    if options.write:
        print(f"wrote {write_record(f'sampler-{device}', record)}")


if __name__ == "__main__":
    main()
