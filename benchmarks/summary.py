"""Write docs/performance.md, and the README's figures, from the records under benchmarks/records/ and results/.

python benchmarks/summary.py [--check]
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEER_BATCHES = {"orthogonal_ loop": "a loop of `orthogonal_`", "jax vmap": "`jax.vmap` of JAX's"}
PEERS = ("stiefel_", "orthogonal_", "algorithm 1", "algorithm 2", "jax", "keras", "ortho_group", "matmul")
PAGE = HERE.parent / "docs" / "performance.md"
README = HERE.parent / "README.md"
SCHEMES = ("stiefel", "lee", "he", "xavier", "orthogonal", "random")


def record(name: str) -> dict[str, Any] | None:
    path = HERE / "records" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(row)} |" for row in rows)]


def milliseconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def machine(one: dict[str, Any]) -> str:
    m = one["machine"]
    return f"{m['device']}, {m['threads']} threads" if "H200" not in m["device"] else m["device"]


def sampler() -> list[str]:
    lines = [
        "## Drawing a matrix",
        "",
        "`python benchmarks/sampler.py --write`; float32, milliseconds, one run each.",
        "",
    ]
    for device in ("cpu", "cuda"):
        one = record(f"sampler-{device}")
        if one is None:
            continue
        peers = [peer for peer in PEERS if any(peer in row["milliseconds"] for row in one["matrices"])]
        rows = [
            [
                "×".join(map(str, row["shape"])),
                *(milliseconds(row["milliseconds"].get(peer)) for peer in peers),
                f"{row['speedup']:.2f}", f"{row['speedup_algorithm2']:.2f}",
                f"{row['orthogonality_error']:.0e}", f"{row['alignment_error']:.0e}", f"{row['extra_memory']:.1f}",
            ]
            for row in one["matrices"]
        ]  # fmt: skip
        header = [
            "shape",
            *peers,
            "× orthogonal_",
            "× algorithm 2",
            "max \\|WWᵀ-I\\|",
            "alignment error",
            "extra memory",
        ]
        lines += [f"{machine(one)}:", "", *table(header, rows), ""]
        lines += [
            f"Geometric means: {one['geometric_mean']:.2f} × `orthogonal_`, {one['geometric_mean_algorithm2']:.2f} × "
            "algorithm 2. Extra memory is in units of the result.", "",
        ]  # fmt: skip
        for batch in one["batches"]:
            shape = "×".join(map(str, batch["shape"]))
            ours = batch["milliseconds"]["sample"]
            rest = ", ".join(
                f"{value / ours:.3g} × faster than {PEER_BATCHES[name]}"
                for name, value in batch["milliseconds"].items()
                if name != "sample"
            )
            lines.append(f"Drawing a matrix, against `torch.nn.init.orthogonal_`: {', '.join(speeds)} as fast.")
    deep = [r for r in fused if r["depth"] == 100]
    if deep:
        lines.append(
            f"A training step of a network of 100 layers takes {1e3 * deep[0]['milliseconds']:.0f} µs on an H200, 132 "
            f"networks at once: {deep[0]['speedup']:.0f} × the plain loop ([performance](docs/performance.md))."
        )
    text = README.read_text()
    start = text.index("-->", text.index("<!-- figures")) + 4
    return text[:start] + "\n".join(lines) + "\n" + text[text.index("<!-- end -->") :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say whether the page is current, and write nothing")
    check = parser.parse_args().check
    for path, text in ((PAGE, page()), (README, readme())):
        if not check:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.name}")
        elif path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not current; run `make docs`.")


if __name__ == "__main__":
    main()
