"""Write docs/performance.md, docs/architectures.md and the README's figures, from benchmarks/records/ and results/.

python benchmarks/summary.py [--check]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from architectures import NETWORKS, RECORD, better, starts
from scipy import stats

from stiefel_init.lab.paper.protocol import SCHEMES
from stiefel_init.lab.paper.table1 import Table1
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.results import Results

HERE = Path(__file__).parent
PEER_BATCHES = {"orthogonal_ loop": "a loop of `orthogonal_`", "jax vmap": "JAX's under `jax.vmap`"}
PEERS = ("stiefel_", "orthogonal_", "algorithm 1", "algorithm 2", "jax", "keras", "ortho_group", "matmul")
PAGE = HERE.parent / "docs" / "performance.md"
ARCHITECTURES = HERE.parent / "docs" / "architectures.md"
NETWORK_NAMES = {
    "vit": "vision transformer", "gpt": "GPT", "rnn": "ReLU RNN", "lstm": "LSTM", "gru": "GRU",
    "resnet20": "ResNet-20", "resnet20 without normalization": "ResNet-20 without normalization",
    **{f"cnn{depth}": f"plain CNN of {depth} layers" for depth in (8, 20, 50, 100)},
}  # fmt: skip
UNITS = {+1: "%", -1: "nats"}  # accuracy: more is better; loss: less is
MARGINS = {+1: 0.5, -1: 0.02}
AT_CHANCE = 15.0  # percent, with ten classes
README = HERE.parent / "README.md"


def record(name: str) -> dict[str, Any] | None:
    path = HERE / "records" / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    return Table("", header, rows).markdown()


def milliseconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


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
            f"Geometric mean of the speedups: {one['geometric_mean']:.2f}× `orthogonal_`, "
            f"{one['geometric_mean_algorithm2']:.2f}× algorithm 2. Extra memory is in units of the result.", "",
        ]  # fmt: skip
        for batch in one["batches"]:
            shape = "×".join(map(str, batch["shape"]))
            ours = batch["milliseconds"]["sample"]
            rest = ", ".join(
                f"{value / ours:.3g}× as fast as {PEER_BATCHES[name]}"
                for name, value in batch["milliseconds"].items()
                if name != "sample"
            )
            lines.append(f"- {batch['count']:,} matrices of {shape} in one call: {milliseconds(ours)} ms, {rest}.")
        lines.append("")
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
        f"`theory.propagate` through {one['propagate']['layers']:,} layers takes {min(times.values()):.0f} to "
        f"{max(times.values()):.0f} ms, by scheme.", "",
    ]  # fmt: skip


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


def page() -> str:
    lines = [
        "# Performance", "",
        "Made by `make docs` from the records under `benchmarks/records/`. Machines are noisy, so ratios compare times",
        "from one run; the same scripts measure yours.", "",
        *sampler(), *engine(), *profile(), *equivalence(), *models(), *diagnosis(), *alternatives(),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


class Comparison(NamedTuple):
    """Ours against one other start; differences are positive where ours is better."""

    difference: float
    low: float
    high: float
    p: float


def welch(ours: list[float], theirs: list[float]) -> Comparison:
    """The difference of means, its 95 % interval, and Welch's p-value."""
    parts = [statistics.variance(scores) / len(scores) for scores in (ours, theirs)]
    difference, error = statistics.mean(ours) - statistics.mean(theirs), math.sqrt(sum(parts))
    if not error:
        return Comparison(difference, difference, difference, float(not difference))
    freedom = sum(parts) ** 2 / sum(part**2 / (len(s) - 1) for part, s in zip(parts, (ours, theirs)))
    reach = stats.t.ppf(0.975, freedom) * error
    p = 2 * stats.t.sf(abs(difference) / error, freedom)
    return Comparison(difference, difference - reach, difference + reach, float(p))


def holm(tests: dict[Any, Comparison]) -> dict[Any, Comparison]:
    """The same with Holm's p-values."""
    adjusted, least = {}, 0.0
    for place, key in enumerate(sorted(tests, key=lambda key: tests[key].p)):
        least = max(least, min(1.0, (len(tests) - place) * tests[key].p))
        adjusted[key] = tests[key]._replace(p=least)
    return {key: adjusted[key] for key in tests}


def verdict(network: str, test: Comparison) -> str:
    if test.p < 0.05:
        return "better" if test.difference > 0 else "worse"
    return "not worse" if test.low > -MARGINS[better(network)] else "undecided"


class Start(NamedTuple):
    """What came of one start of a network."""

    rate: float
    edge: str
    """Whether that is the largest or smallest rate that was tried."""
    scores: list[float]


def runs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


@lru_cache
def trained() -> dict[str, dict[str, Start]]:
    """By network and start: the best rate of seed 0, and the scores of the fresh seeds."""
    rows = runs()
    found: dict[str, dict[str, Start]] = {}
    for network in NETWORKS:
        for start in starts(network):
            mine = [r for r in rows if (r["network"], r["start"]) == (network, start) and math.isfinite(r["score"])]
            tried = {r["rate"]: r["score"] for r in mine if r["seed"] == 0}
            if not tried:
                continue
            best = max(tried, key=lambda rate: better(network) * tried[rate])
            edge = {max(tried): ", the largest", min(tried): ", the smallest"}.get(best, "") if len(tried) > 1 else ""
            fresh = {r["seed"]: r["score"] for r in mine if r["rate"] == best and r["seed"] > 0}
            if len(fresh) > 1:
                found.setdefault(network, {})[start] = Start(best, edge, [fresh[seed] for seed in sorted(fresh)])
    return {network: found[network] for network in found if "ours" in found[network] and len(found[network]) > 1}


@lru_cache
def comparisons() -> dict[tuple[str, str], Comparison]:
    """Ours against every other start of every network, with Holm's p-values over all of them."""
    tests = {}
    for network, each in trained().items():
        ours, sign = each["ours"].scores, better(network)
        for start, other in each.items():
            if start != "ours":
                tests[network, start] = welch([sign * x for x in ours], [sign * x for x in other.scores])
    return holm(tests)


def verdicts(network: str) -> dict[str, str]:
    return {start: verdict(network, test) for (one, start), test in comparisons().items() if one == network}


def figure(network: str, value: float) -> str:
    return f"{value:.1f} %" if better(network) > 0 else f"{value:.2f} nats"


def next_best(network: str) -> tuple[str, float]:
    """The best of the other starts, and its mean."""
    means = {start: statistics.mean(one.scores) for start, one in trained()[network].items() if start != "ours"}
    return max(means.items(), key=lambda item: better(network) * item[1])


def listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def against(network: str) -> str:
    """What is said of a network: its figure and the verdicts on all other starts."""
    groups: dict[str, list[str]] = {}
    for start, word in verdicts(network).items():
        groups.setdefault(word, []).append(start)
    other, mean = next_best(network)
    ours = figure(network, statistics.mean(trained()[network]["ours"].scores))
    everyone = "any other start" if set(groups) == {"not worse"} else "every other start"
    said = [
        f"{word} {'against' if word == 'undecided' else 'than'} {listed(groups[word]) if len(groups) > 1 else everyone}"
        for word in ("better", "worse", "not worse", "undecided")
        if word in groups
    ]
    return f"{NETWORK_NAMES[network]}: {ours}, the next best ({other}) {figure(network, mean)}; {'; '.join(said)}."


def advice() -> list[str]:
    """Should I use this? In sentences, from the verdicts."""
    leads = {
        "yes": "**Yes**, for these: better than every other start.",
        "some": "**It can help** these: better than some other start, not found worse than any.",
        "same": "**It makes no difference** to these: every 95 % interval of a difference lies within the margin.",
        "open": "**These runs cannot tell** for these: no difference was established, but one larger than the margin "
        "is possible.",
        "no": "**No**, for these: worse than some other start.",
    }
    kinds: dict[str, list[str]] = {kind: [] for kind in leads}
    for network in trained():
        words, margin = set(verdicts(network).values()), MARGINS[better(network)]
        mine = [test for (one, _), test in comparisons().items() if one == network]
        within = all(-margin < test.low and test.high < margin for test in mine)
        kinds[
            "no" if "worse" in words
            else "yes" if words == {"better"}
            else "some" if "better" in words
            else "same" if within
            else "open"
        ].append(network)  # fmt: skip
    lines = []
    for kind, networks in kinds.items():
        if networks:
            lines += [leads[kind], "", *(f"- {against(network)}" for network in networks), ""]
    if not kinds["no"]:
        lines += ["In none of these networks was it found worse than another start.", ""]
    plain: dict[str, list[str]] = {}
    for network in trained():
        if "torch" in trained()[network]:
            plain.setdefault(verdicts(network)["torch"], []).append(NETWORK_NAMES[network])
    said = [f"{word}: {listed(plain[word])}" for word in ("better", "not worse", "undecided", "worse") if word in plain]
    return [*lines, f"Against PyTorch's own start, that is, doing nothing: {'; '.join(said)}.", ""]


def architecture(network: str) -> list[str]:
    """The table of one network."""
    words, unit, rows = verdicts(network), UNITS[better(network)], []
    digits = 2 if better(network) > 0 else 3
    for start, one in trained()[network].items():
        lost = sum(score < AT_CHANCE for score in one.scores) if better(network) > 0 else 0
        note = f" ({lost} of {len(one.scores)} did not learn)" if lost else ""
        mean, deviation = statistics.mean(one.scores), statistics.stdev(one.scores)
        row = [start, f"{one.rate:g}{one.edge}", f"{mean:.{digits}f} ± {deviation:.{digits}f}{note}"]
        if start == "ours":
            rows.append([*row, "", "", ""])
            continue
        test = comparisons()[network, start]
        between = f"{test.difference:+.{digits}f} [{test.low:+.{digits}f}, {test.high:+.{digits}f}]"
        rows.append([*row, between, f"{test.p:.2g}", words[start]])
    name = NETWORK_NAMES[network]
    header = ["start", "best rate", unit, "ours is better by", "p", "ours is"]
    return [f"## {name[0].upper()}{name[1:]}", "", *table(header, rows), ""]


def architectures() -> str:
    """The page of whole networks."""
    cards = ", ".join(sorted({row["device"] for row in runs()}))
    counts = sorted({len(one.scores) for each in trained().values() for one in each.values()})
    seeds = "–".join(map(str, counts))
    rates = sorted({len(NETWORKS[network][1]) for network in trained()})
    epochs = sorted({f"{NETWORKS[network][2]:g}" for network in trained() if network != "gpt"})
    length = [f"{'–'.join(epochs)} epochs"] if epochs else []
    length += [f"{NETWORKS['gpt'][2]:g} steps of the GPT"] if "gpt" in trained() else []
    missing = [NETWORK_NAMES[network] for network in NETWORKS if network not in trained()]
    ends = sum(bool(one.edge) for each in trained().values() for one in each.values())
    starts_run = sum(map(len, trained().values()))
    lines = [
        "# Whole networks: which start trains better?", "",
        "Networks as users write them, trained from `initialize_(model)` (`ours`) and from other starts. Made by",
        "`make docs` from `benchmarks/records/architectures.jsonl`, sentences and verdicts too.", "",
        "## Should I use this?", "",
        f"These runs show early training only: {' and '.join(length)}, {seeds} fresh seeds, "
        f"{'–'.join(map(str, rates))} learning rates.", "",
        *advice(),
        "## How it was measured", "",
        f"`python benchmarks/architectures.py --data DIR`; {cards}. CNNs, ResNets and the vision transformer learn",
        "Fashion-MNIST (the plain CNNs at 14 × 14 pixels), recurrent networks read MNIST row by row, the GPT reads the",
        "bytes of Python's own library. AdamW, a short warm-up, a cosine schedule; no augmentation.", "",
        "- Each start gets the rate that was best with seed 0 and is run again with fresh seeds. The tables have those",
        f"  alone: mean ± standard deviation. For {ends} of the {starts_run} starts the best rate was the largest or",
        "  smallest tried, so a better one may lie outside.",
        "- Rates were chosen by the test score, and the recipe was designed on networks and data like these. Fresh",
        "  seeds do not undo that.",
        "- Starts: `torch`, PyTorch's own; `he`, `xavier`, `orthogonal` (times √2) and `paper` (uniform members of the",
        "  set, at the centre of kernels) in every layer; `gpt-2`, GPT-2's own; `identity`, by Le, Jaitly and Hinton.",
        f"- `better`, `worse`: p < 0.05 by Welch's t-test, Holm-corrected over all {len(comparisons())} comparisons of "
        "this page.",
        f"- `not worse`: no such difference, and the 95 % interval (not corrected) excludes that ours is worse by "
        f"{MARGINS[1]:g} points",
        f"  of accuracy, or {MARGINS[-1]:g} nats. `undecided`: all else.", "",
    ]  # fmt: skip
    if missing:
        lines += [f"Not run yet: {listed(missing)}.", ""]
    for network in trained():
        lines += architecture(network)
    return "\n".join(lines).rstrip() + "\n"


def architectures_line() -> list[str]:
    """For the README: where ours beats every other start, and where nothing was found."""
    won, some, even, lost = (list[str]() for _ in range(4))
    for network in trained():
        words = set(verdicts(network).values())
        ours, other = statistics.mean(trained()[network]["ours"].scores), next_best(network)[1]
        said = f"{NETWORK_NAMES[network]} {figure(network, ours)} (next best {figure(network, other)})"
        if "worse" in words:
            lost.append(said)
        elif "better" in words:
            (won if words == {"better"} else some).append(said)
        else:
            even.append(NETWORK_NAMES[network])
    groups = {
        "better than every other start": won,
        "better than some": some,
        "worse than some": lost,
        "no difference established": even,
    }
    sentences = "; ".join(f"{what}: {', '.join(names)}" for what, names in groups.items() if names)
    return [f"Early training from `initialize_(model)`, {sentences} ([architectures](docs/architectures.md))."]


def readme() -> str:
    """The README with its figures."""
    one = Table1()
    scores = one.scores(one.evidence(Results(HERE.parent / "results")) or [])
    rows = []
    for dataset in ("mnist", "fashion-mnist"):
        for depth in (10, 50, 100):
            found = one.of_schemes(scores, dataset, depth)
            rows.append([f"{dataset}, {depth} layers", *(f"{values.mean():.1f}" for values in found.values())])
    seeds = len(scores(one.cell("mnist", "stiefel", 100)))
    lines = [
        f"Test accuracy (%) after 100 epochs, mean of {seeds} seeds, at the paper's learning rates, which differ for "
        "lee ([all results](docs/results.md)):", "",
        *table(["", *SCHEMES], rows), "",
    ]  # fmt: skip
    speeds = [
        f"{timed['geometric_mean']:.1f}× ({where})"
        for where, timed in (("CPU", record("sampler-cpu")), ("H200", record("sampler-cuda")))
        if timed
    ]
    steps = {(r["way"], r["depth"]): r for r in (record("engine-cuda") or {"steps": []})["steps"]}
    lines.append(f"Drawing a matrix: {' and '.join(speeds)} as fast as `torch.nn.init.orthogonal_`.")
    deep, coarse = (steps.get((f"fused engine{what}, 132", 100)) for what in ("", " tf32"))
    if deep and coarse:
        lines.append(
            f"Training a network of 100 layers takes {1e3 * deep['milliseconds']:.0f} µs a step on an H200, 132 "
            f"networks at once, and {1e3 * coarse['milliseconds']:.0f} µs in tf32: {deep['speedup']:.0f}× and "
            f"{coarse['speedup']:.0f}× as fast as the plain loop ([performance](docs/performance.md))."
        )
    lines += architectures_line()
    text = README.read_text()
    start = text.index("-->", text.index("<!-- figures")) + 4
    return text[:start] + "\n".join(lines) + "\n" + text[text.index("<!-- end -->") :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say whether the pages are current, and write nothing")
    check = parser.parse_args().check
    for path, text in ((PAGE, page()), (ARCHITECTURES, architectures()), (README, readme())):
        if not check:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.name}")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not current; run `make docs`.")


if __name__ == "__main__":
    main()
