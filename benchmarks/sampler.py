"""Time to draw one matrix, and a batch of them, against every peer, in one run.

The floor is one plain matmul of the same size; a Haar frame costs at least two thirds of its arithmetic.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from typing import Any

import torch

import stiefel_init
from stiefel_init.torch import sample, stiefel_

from . import timing
from .timing import Record, Ways

SHAPES = [(64, 64), (64, 784), (512, 512), (1024, 1024), (1024, 4096), (2048, 2048), (4096, 4096)]
BATCHES = [(100, 64, 64), (1000, 64, 64), (1000, 16, 16), (100, 64, 784)]
PEERS = ("stiefel_", "orthogonal_", "algorithm 1", "algorithm 2", "jax", "keras", "ortho_group", "matmul")
SHOWN, TIMES = ("64×64", "1024×1024", "4096×4096"), "× orthogonal_"
"""On the page; all shapes are in docs/tables/draws.csv."""
PEER_BATCHES = {"orthogonal_ loop": "a loop of `orthogonal_`", "jax vmap": "JAX's under `jax.vmap`"}


def contenders(m: int, n: int, device: str) -> Ways:
    """Every way to draw one float32 matrix of this shape on this device."""
    w = torch.empty(m, n, device=device)
    a, b = torch.randn(m, n, device=device), torch.randn(n, n, device=device)
    return {
        "stiefel_": lambda: stiefel_(w),
        "orthogonal_": lambda: torch.nn.init.orthogonal_(w),
        "algorithm 1": lambda: stiefel_(w, method="algorithm1"),
        "algorithm 2": lambda: stiefel_(w, method="algorithm2"),
        "matmul": lambda: a @ b,
    }


def jax_draw(m: int, n: int) -> Any:
    """A draw of JAX's by a key."""
    import jax

    return lambda key: jax.nn.initializers.orthogonal()(key, (m, n))


def other_libraries(m: int, n: int, device: str) -> Ways:
    """The peers with thread pools of their own, timed apart from torch's."""
    import jax
    import keras
    from scipy.stats import ortho_group

    keys, draw, layer = iter(jax.random.split(jax.random.key(0), 100_000)), jax.jit(jax_draw(m, n)), keras.initializers
    ways: Ways = {"jax": lambda: draw(next(keys)).block_until_ready(), "keras": lambda: layer.Orthogonal()((m, n))}
    return ways | ({"ortho_group": lambda: ortho_group.rvs(n)} if device == "cpu" and m == n <= 512 else {})


def batch_contenders(count: int, m: int, n: int, device: str) -> Ways:
    """`count` matrices: in one call here, in a loop there."""
    import jax

    w = torch.empty(m, n, device=device)
    draw, keys = jax.jit(jax.vmap(jax_draw(m, n))), jax.random.split(jax.random.key(0), count)
    return {
        "sample": lambda: sample(m, n, batch=count, device=device),
        "orthogonal_ loop": lambda: [torch.nn.init.orthogonal_(w) for _ in range(count)],
        "jax vmap": lambda: draw(keys).block_until_ready(),
    }


def peak_memory(m: int, n: int, device: str) -> float:
    """Peak memory beyond the result while it is made, in units of the result."""
    if device == "cuda":
        sample(m, n, device=device)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = sample(m, n, device=device)
        return (torch.cuda.max_memory_allocated() - before) / out.nbytes - 1
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiled:
        out = sample(m, n)
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak / out.nbytes - 1


def measure(device: str) -> Iterator[Record]:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave torch its memory on a GPU
    synchronize = timing.waiting(device)
    record: Record = {"machine": timing.machine(device), "dtype": "float32", "matrices": [], "batches": []}
    for m, n in [*SHAPES, *([(8192, 8192)] if device == "cuda" else [])]:
        seconds = timing.in_turns(contenders(m, n, device), synchronize=synchronize, rounds=5 if m >= 2048 else 15)
        seconds |= timing.in_turns(other_libraries(m, n, device), rounds=3)
        result = stiefel_init.check(sample(m, n, dtype=torch.float32, device=device))
        record["matrices"].append(
            {
                "shape": [m, n],
                "milliseconds": timing.in_milliseconds({peer: seconds[peer] for peer in PEERS if peer in seconds}),
                "speedup": seconds["orthogonal_"] / seconds["stiefel_"],
                "speedup_algorithm2": seconds["algorithm 2"] / seconds["stiefel_"],
                "orthogonality_error": result.orthogonality_error,
                "alignment_error": result.alignment_error,
                "extra_memory": peak_memory(m, n, device),
            }
        )
    for mean, speedup in (("geometric_mean", "speedup"), ("geometric_mean_algorithm2", "speedup_algorithm2")):
        record[mean] = statistics.geometric_mean(row[speedup] for row in record["matrices"])
    for count, m, n in BATCHES:
        seconds = timing.in_turns(batch_contenders(count, m, n, device), synchronize=synchronize, rounds=5)
        record["batches"].append({"count": count, "shape": [m, n], "milliseconds": timing.in_milliseconds(seconds)})
    yield record


def listed(record: Record) -> timing.Listed:
    """All that was measured of single matrices."""
    peers = [peer for peer in PEERS if any(peer in row["milliseconds"] for row in record["matrices"])]
    rows = [
        [
            "×".join(map(str, row["shape"])),
            *(timing.short(row["milliseconds"].get(peer)) for peer in peers),
            f"{row['speedup']:.2f}", f"{row['speedup_algorithm2']:.2f}",
            f"{row['orthogonality_error']:.0e}", f"{row['alignment_error']:.0e}", f"{row['extra_memory']:.1f}",
        ]
        for row in record["matrices"]
    ]  # fmt: skip
    return ["shape", *peers, TIMES, "× algorithm 2", "max |WWᵀ-I|", "alignment error", "extra memory"], rows


def tables(record: Record) -> list[str]:
    header, rows = listed(record)
    shown = ["shape", "stiefel_", "orthogonal_", "jax", TIMES, "× algorithm 2"]
    places = [header.index(column) for column in shown]
    lines = [
        f"{timing.where(record)}:", "",
        *timing.markdown(shown, [[row[place] for place in places] for row in rows if row[0] in SHOWN]),
        f"Geometric mean of the speedups of all {len(rows)} shapes: {record['geometric_mean']:.2f}× `orthogonal_`, "
        f"{record['geometric_mean_algorithm2']:.2f}× algorithm 2.", "",
    ]  # fmt: skip
    batch = record["batches"][0]
    shape, times = "×".join(map(str, batch["shape"])), dict(batch["milliseconds"])
    ours = times.pop("sample")
    rest = ", ".join(f"{timing.short(value / ours)}× as fast as {PEER_BATCHES[name]}" for name, value in times.items())
    return [*lines, f"{batch['count']:,} matrices of {shape} in one call: {timing.short(ours)} ms, {rest}.", ""]


def times() -> dict[str, dict[str, float]]:
    """How many times as fast as `orthogonal_`, by device and shape."""
    return {
        timing.where(record): {
            "×".join(map(str, row["shape"])): row["speedup"]
            for row in record["matrices"]
            if "×".join(map(str, row["shape"])) in SHOWN
        }
        for record in timing.on_devices("sampler")
    }
