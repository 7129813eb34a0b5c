"""Write the generated pages of docs/, the README's figures and the table behind the advice of `initialize_` and
`diagnose`, from benchmarks/records/ and results/.

python benchmarks/summary.py [--check]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from diagnosis_page import ACCURACY, DIAGNOSE, accuracy, rules
from family_page import families
from heads import heads
from paper.results import Results
from paper.studies.architectures import Architectures, line
from paper.studies.members import Members
from paper.studies.on_record import text as on_record
from residual_page import RIVALS, residual
from scale_page import SCALE, scale
from watch_page import WATCH, watched

from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.recipe.advice import FILE as ON_RECORD
from stiefel_init.recipe.advice import known, of_depth

HERE = Path(__file__).parent
PEER_BATCHES = {"orthogonal_ loop": "a loop of `orthogonal_`", "jax vmap": "JAX's under `jax.vmap`"}
PEERS = ("stiefel_", "orthogonal_", "algorithm 1", "algorithm 2", "jax", "keras", "ortho_group", "matmul")
PAGE = HERE.parent / "docs" / "performance.md"
README = HERE.parent / "README.md"
ADVICE = HERE.parent / "src" / "stiefel_init" / "recipe" / ON_RECORD


def record(name: str) -> dict[str, Any] | None:
    path = HERE / "records" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    return Table("", header, rows).markdown()


def short(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def machine(one: dict[str, Any]) -> str:
    m = one["machine"]
    threads = f"{m.get('threads')} thread{'s' if m.get('threads') != 1 else ''}"
    return f"{m['device']}, {threads}" if "H200" not in m["device"] else m["device"]


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
                *(short(row["milliseconds"].get(peer)) for peer in peers),
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
            f"Geometric mean of the speedups: {one['geometric_mean']:.2f}× `orthogonal_`, "
            f"{one['geometric_mean_algorithm2']:.2f}× algorithm 2. Extra memory is in units of the result.", "",
        ]  # fmt: skip
        for batch in one["batches"]:
            shape = "×".join(map(str, batch["shape"]))
            ours = batch["milliseconds"]["sample"]
            rest = ", ".join(
                f"{short(value / ours)}× as fast as {PEER_BATCHES[name]}"
                for name, value in batch["milliseconds"].items()
                if name != "sample"
            )
            lines.append(f"- {batch['count']:,} matrices of {shape} in one call: {short(ours)} ms, {rest}.")
        lines.append("")
    return lines


def floors() -> list[str]:
    """How much faster any sampler could be."""
    lines = [
        "## What the machine allows", "",
        "`python benchmarks/floors.py --write`; float32, milliseconds, the least of 15 rounds. The floor is what a",
        "draw's numbers, its operations and the writing of its result take at least, at the rates of large arrays in",
        "the same run. Small products reach a fraction of these, so the real limits are lower.", "",
    ]  # fmt: skip
    for device in ("cpu", "cuda"):
        one = record(f"floors-{device}")
        if one is None:
            continue
        rates = one["rates"]
        lines += [
            f"{machine(one)}: {rates['normals'] / 1e6:,.0f} million normals/s, "
            f"{rates['operations'] / 1e9:,.0f} Gflop/s, {rates['bytes'] / 1e9:,.0f} GB/s, "
            f"{1e6 * rates['call']:.1f} µs a call.", "",
            *table(
                ["", "ours", "orthogonal_", "floor", "times as fast", "wanted", "at most"],
                [
                    [
                        row["what"], *(short(row[name]) for name in ("ours", "orthogonal_", "floor")),
                        f"{row['orthogonal_'] / row['ours']:.2f}", f"{row['wanted']:g}",
                        f"{row['orthogonal_'] / row['floor']:.1f}",
                    ]
                    for row in one["rows"]
                ],
            ), "", *parts(one["rows"]),
        ]  # fmt: skip
    return lines if len(lines) > 6 else []


def parts(rows: list[dict[str, Any]]) -> list[str]:
    """What draws are made of, at least, as far as that was measured."""
    measured = [row for row in rows if "parts" in row]
    if not measured:
        return []
    names = list(dict.fromkeys(name for row in measured for name in row["parts"]))
    lines = [
        "What no such draw can do without, each part measured in the same turns at the sizes that it has: the numbers,",
        "from PyTorch's generator, which is serial, or from a seed's streams; products and solves, in memory that is",
        "there already; as many calls as ours, that do nothing; to read what each parameter is, and to write them all.",
        "",
    ]
    made = []
    for row in measured:
        total = sum(row["parts"].values())
        made.append(
            [
                row["what"], *(short(row["parts"][name]) if name in row["parts"] else "" for name in names),
                short(total), f"{row['orthogonal_'] / row['ours']:.2f}", f"{row['wanted']:g}",
                f"{row['orthogonal_'] / total:.2f}",
            ]
        )  # fmt: skip
    lines += [*table(["", *names, "sum", "times as fast", "wanted", "at most"], made), ""]
    single = [row for row in measured if "×" in row["what"] and " " not in row["what"]]
    if single:
        mean, most = (
            math.exp(sum(math.log(row["orthogonal_"] / of(row)) for row in single) / len(single))
            for of in (lambda row: row["ours"], lambda row: sum(row["parts"].values()))
        )
        lines += [
            f"Geometric mean over the {len(single)} single matrices: {mean:.2f} times as fast, at most {most:.2f}.", ""
        ]  # fmt: skip
    return lines


def engine() -> list[str]:
    lines = [
        "## Training", "",
        "`python benchmarks/engine.py --write`; 784 → 64 × depth → 10, batch size 256, Adam, milliseconds per step and",
        "network. The float32 rate is that of matmuls outside the tensor cores; tf32 may exceed it. [How the engines",
        "work](engine.md).", "",
    ]  # fmt: skip
    for device in ("cpu", "cuda"):
        one = record(f"engine-{device}")
        if one is None:
            continue
        rows = [
            [
                str(row["depth"]), row["way"], f"{row['milliseconds']:.4g}",
                f"{row['speedup']:.0f}" if row["speedup"] and row["speedup"] >= 10 else f"{row['speedup']:.2f}"
                if row["speedup"] else "—",
                f"{row['flops_share']:.0%}", f"{row['memory_share']:.0%}" if row["memory_share"] else "—",
                f"{row['peak_memory'] / 2**30:.2f} GiB" if row["peak_memory"] else "—",
            ]
            for row in sorted(one["steps"], key=lambda row: row["depth"])
        ]  # fmt: skip
        header = ["depth", "way, networks at once", "ms", "× plain loop", "of float32 rate", "of bandwidth", "memory"]
        lines += [f"{machine(one)}:", "", *table(header, rows), ""]
        if "few_shot_seconds" in one:
            lines += [
                f"Few-shot: 300 networks of depth 100, 100 steps each, and a test on 10,000 images: "
                f"{one['few_shot_seconds']:.2f} s.", "",
            ]  # fmt: skip
    return lines


def profile() -> list[str]:
    one = record("profile-cuda")
    if one is None:
        return []
    names = list(next(iter(one["launches"].values())))
    rows = [
        [precision, f"{launch['milliseconds']:.2f}", *(f"{launch[name]:.0f}%" for name in names[1:])]
        for precision, launch in one["launches"].items()
    ]
    return [
        "How busy one launch of the fused engine's `propagate` keeps the card, for 132 networks of depth 100, measured",
        f"by Nsight Compute (`benchmarks/profile_engine.py`); {machine(one)}. The kernel has changed since, but not",
        "its products:", "",
        *table(["", "ms", *names[1:]], rows), "",
    ]  # fmt: skip


def equivalence() -> list[str]:
    lines = []
    one = record("equivalence")
    if one is not None:
        lines += [
            "Do the engines train equally well? `python benchmarks/equivalence.py --write`: MNIST, "
            f"{one['seeds']} seeds, {one['epochs']} epochs;",
            f"{machine(one)}. Test accuracy (%) by engine, and p-values of Welch's and the Kolmogorov–Smirnov test:",
            "",
        ]  # fmt: skip
        ways = list(dict.fromkeys(test["way"] for test in one["tests"]))
        rows = []
        for cell in dict.fromkeys(test["cell"] for test in one["tests"]):
            tests = {test["way"]: test for test in one["tests"] if test["cell"] == cell}
            row = [cell, f"{tests[ways[0]]['graph']:.2f}"]
            for way in ways:
                test = tests[way]
                row += [f"{test['other']:.2f}", f"{test['welch']:.2f}, {test['ks']:.2f}"]
            rows.append(row)
        header = ["", "graph", *(name for way in ways for name in (way, "p"))]
        lines += [*table(header, rows), "", *_least(one["tests"])]
    one = record("equivalence-published")
    if one is not None:
        rows = [
            [
                test["cell"], f"{test['graph']:.2f}", f"{test['other']:.2f}", f"{test['welch']:.3f}",
                f"{test['ks']:.3f}", f"{test['largest_difference']:.2f}",
            ]
            for test in one["tests"]
        ]  # fmt: skip
        header = [
            "",
            "graph engine, CPU",
            "fused engine, H200",
            "p, Welch",
            "p, Kolmogorov–Smirnov",
            "largest difference",
        ]
        lines += [
            "And with few shots, cell by cell? `python benchmarks/equivalence.py --published --write`: 4-shot",
            f"networks on MNIST, {one['seeds']} seeds, 100 steps; the same cells in both engines. Test accuracy (%):",
            "",
            *table(header, rows), "", *_least(one["tests"]),
        ]  # fmt: skip
    return lines


def _least(tests: list[dict[str, Any]]) -> list[str]:
    count = 2 * len(tests)
    least = min(min(test["welch"], test["ks"]) for test in tests)
    return [
        f"The smallest of the {count} p-values is {least:.3f}; if the engines were equal, one of {count} would fall "
        f"below {0.05 / count:.4f} one time in twenty.", "",
    ]  # fmt: skip


def models() -> list[str]:
    lines = ["## Whole models", "", "`python benchmarks/initialize.py --write`.", ""]
    for device in ("cpu", "cuda"):
        one = record(f"initialize-{device}")
        if one is None:
            continue
        rows = [[name, what, f"{value:,.4g}"] for name, row in one["rows"].items() for what, value in row.items()]
        lines += [f"{machine(one)}:", "", *table(["what", "figure", "value"], rows), ""]
    real = record("real_models-cuda")
    if real is not None:
        names = ["parameters", "drawn", "constant", "left alone", "tied"]
        rows = [
            [
                name, *(f"{row[key]:,}" for key in names), f"{row['init s']:.2f}",
                "yes" if not row["unaccounted"] else ", ".join(row["unaccounted"]), "yes" if row["finite"] else "no",
            ]
            for name, row in real["models"].items() if "parameters" in row
        ]  # fmt: skip
        lines += [
            "Real models from timm and transformers, `python benchmarks/real_models.py --write`; "
            f"{machine(real)}:", "",
            *table(["model", *names, "seconds", "all accounted for", "output and gradient finite"], rows), "",
        ]  # fmt: skip
    return lines


def deepest() -> list[str]:
    one = record("deepest")
    if one is None:
        return []
    rows = [
        [f"{row['depth']:,}", row["start"], ", ".join(f"{score:.1f}" for score in curve), f"{row['seconds']:.0f}"]
        for row in one["rows"]
        for curve in row["curves"]
    ]
    return [
        "## The deepest networks", "",
        "`python benchmarks/deepest.py --device cuda --data DIR --write`: plain CNNs, 3 × 3 kernels of 32 channels,",
        f"without shortcuts or normalization, on Fashion-MNIST at 14 × 14 pixels; {one['steps']} steps on "
        f"{one['batch']} images.",
        f"Accuracy on {one['test']:,} test images at six looks. {one['device']}; seconds count the building, too.",
        "", *table(["layers", "start", "accuracy (%)", "seconds"], rows), "",
    ]  # fmt: skip


def diagnosis() -> list[str]:
    one = record("diagnose-cpu")
    if one is None:
        return []
    rows = [
        [str(row["depth"]), *(f"{ms:.1f}" for ms in row["milliseconds"].values()), f"{row['ratio']:.1f}"]
        for row in one["diagnose"]
    ]
    times = one["propagate"]["milliseconds"]
    return [
        "## Diagnosis", "",
        f"`python benchmarks/diagnose.py --write`; {machine(one)}. Plain networks {one['width']} wide, "
        f"{one['batch']} inputs; milliseconds:", "",
        *table(["layers", *one["diagnose"][0]["milliseconds"], "ratio"], rows), "",
        *_apart(one["diagnose"]),
        f"`theory.propagate` through {one['propagate']['layers']:,} layers takes {min(times.values()):.0f} to "
        f"{max(times.values()):.0f} ms, by scheme.", "",
    ]  # fmt: skip


def _apart(rows: list[dict[str, Any]]) -> list[str]:
    """What the parts of a diagnosis take by themselves."""
    lines = []
    for row in rows:
        if (parts := row.get("parts")) is not None:
            sums = " + ".join(f"{ms:.1f} {name}" for name, ms in parts.items())
            least = sum(parts.values())
            text = (
                f"Its parts at {row['depth']} layers, each by itself in a loop, where caches and threads are warm: "
                f"{sums} = {least:.1f} ms, {least / parts['its own pass']:.1f} passes. That is about the least that it "
                "could take."
            )
            lines += [*wrapped(text), ""]
    return lines


def alternatives() -> list[str]:
    lines = []
    for dataset in ("digits", "mnist", "fashion-mnist"):
        one = record(f"alternatives-{dataset}-cpu")
        if one is None:
            continue
        rows = [
            [
                str(row["depth"]), row["network"],
                f"{statistics.mean(row['scores']):.1f} ± {statistics.stdev(row['scores']):.1f}", f"{row['rate']:g}",
                f"{row['milliseconds']:.1f}", f"{row['kept_bytes'] / 2**20:.1f} MiB",
            ]
            for row in one["rows"]
        ]  # fmt: skip
        header = ["depth", "network", "test accuracy (%)", "best rate", "ms per step", "kept for the backward pass"]
        lines += [
            f"{dataset}, {one['epochs']} epochs, {len(one['rows'][0]['scores'])} seeds, the best of three rates (in "
            f"units of 0.001/√depth); {machine(one)}:", "", *table(header, rows), "",
        ]  # fmt: skip
    if lines:
        lines = ["## What you would use instead", "", "`python benchmarks/alternatives.py --write`.", "", *lines]
    return lines


def forecasts() -> list[str]:
    one = record("forecasts-cpu")
    if one is None:
        return []
    rows = [
        [row["study"], f"`stiefel-init {row['command']}`", *(f"{row[k]:.0f}" for k in ("forecast", "real")),
         f"{row['ratio']:.2f}"]
        for row in one["rows"]
    ]  # fmt: skip
    speeds = [[str(s["depth"]), f"{s['training']:.1f}", f"{s['testing']:.1f}"] for s in one["by_row"]]
    held = sum(1 / 1.5 <= row["ratio"] <= 1.5 for row in one["rows"])
    return [
        "## Forecasts", "",
        "What `--dry-run` says, and how long the study takes; `python benchmarks/forecasts.py --write`, seconds, each",
        f"command as a process of its own. {held} of {len(rows)} are within a factor of 1.5.", "",
        f"{machine(one)}:", "",
        *table(["study", "command", "forecast", "real", "real / forecast"], rows), "",
        "Microseconds of a row and a network on MNIST, in a stack of six with batches of 256:", "",
        *table(["depth", "training", "testing"], speeds), "",
    ]  # fmt: skip


def startup() -> list[str]:
    one = record("startup")
    if one is None:
        return []
    return [
        "## The first line", "",
        "`python benchmarks/startup.py --write`; seconds, each command as a process of its own.", "",
        f"{machine(one)}:", "",
        *table(["command", "seconds"], [[f"`{name}`", f"{value:.2f}"] for name, value in one["seconds"].items()]), "",
    ]  # fmt: skip


def page() -> str:
    lines = [
        "# Performance", "",
        "Made by `make docs` from the records under `benchmarks/records/`. Machines are noisy, so ratios compare times",
        "from one run; the same scripts measure yours.", "",
        *sampler(), *floors(), *engine(), *profile(), *equivalence(), *models(), *deepest(), *diagnosis(),
        *alternatives(), *forecasts(), *startup(),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


def readme(results: Results) -> str:
    """The README with its figures."""
    found = Members().evidence(results)
    columns = {
        "rotation 0.03": "rotation 0.03 (ours)", "permutation": "permutation (ours)",
        "stiefel": "uniform (the paper's)",
        "lee": "lee", "he": "he", f"orthogonal {math.sqrt(2)}": "orthogonal × √2", "orthogonal": "orthogonal",
    }  # fmt: skip
    rows = []
    for dataset in ("mnist", "fashion-mnist"):
        for depth in (10, 100, 1000):
            best = [r for r in found.at_best(dataset) if r.cell.depth == depth]
            means = [[r.score for r in best if str(r.cell.scheme) == scheme] for scheme in columns]
            rows.append([f"{dataset}, {depth:,} layers", *(f"{statistics.mean(scores):.1f}" for scores in means)])
    seeds = {r.cell.seed for r in found.at_best("mnist") if r.cell.depth == 100}
    lines = [
        f"Test accuracy (%) of plain networks, each start at its best of five rates, mean of {len(seeds)} seeds "
        "([members](docs/members.md)):", "",
        *table(["", *columns.values()], rows), "",
    ]  # fmt: skip
    if (verdicts := Architectures().evidence(results)) is not None:
        lines.append(line(verdicts))
    text = README.read_text()
    start = text.index("-->", text.index("<!-- figures")) + 4
    return text[:start] + "\n".join(lines) + "\n" + text[text.index("<!-- end -->") :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say whether the pages are current, and write nothing")
    check = parser.parse_args().check
    results = Results()
    renew(ADVICE, on_record(results), check=check)  # first: what is on record is cited
    known.cache_clear()
    pages = (
        (PAGE, page()),
        (ACCURACY, accuracy()),
        (DIAGNOSE, cited(families(rules()))),
        (SCALE, scale()),
        (WATCH, watched()),
        (RIVALS, heads(residual())),
    )
    for path, text in (*pages, (README, readme(results))):
        renew(path, text, check=check)


def renew(path: Path, text: str, *, check: bool) -> None:
    """Write a file, or say that it is not current."""
    if not check:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.name}")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        sys.exit(f"{path.name} is not current; run `make docs`.")


def cited(text: str) -> str:
    """The page with what `diagnose` says of its network of 50 layers, by the records of today."""
    found = of_depth(50)
    return text if found is None else re.sub(r"(?m)On record for plain .*$", found.sentence, text)


if __name__ == "__main__":
    main()
