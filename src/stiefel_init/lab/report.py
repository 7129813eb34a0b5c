"""The report: what our records say of the paper, as one Markdown file with its pictures, made from them alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from . import members, pictures, results
from .cells import ACTIVATIONS, SCHEMES
from .claims import Claim, Scores, judge
from .compare import ERRORS, Comparison, compare
from .experiments import ALPHAS, DEPTHS, IMAGES, SHOTS, TABULAR_WIDTH
from .page import Page
from .paper import Published, published
from .records import Record, prepare

TABLES = ("table1", "table2", "table3", "table5")


def write(out: Path, directory: Path | None = None) -> list[Path]:
    """Write results.md and its pictures into `out`; the paths of what was written, the text first."""
    place = directory or results.folder()
    records = results.load(place)
    environment = json.loads((place / "environment.json").read_text()) if (place / "environment.json").exists() else {}
    study, plane = results.read_study(place / "figure1.csv") if (place / "figure1.csv").exists() else (None, None)
    signals = results.read_rows(place / "signal.csv") if (place / "signal.csv").exists() else []
    claims = judge(records, study, signals, _benchmarks())
    prepare(out)
    drawn = {"table1": _save(pictures.over_depth(_of(records, "table1"), IMAGES), out / "results-table1.png")}
    few = [r for r in records if r["experiment"] in ("table3", "figure3") and r["shots"] == 4]
    if few:
        figure = pictures.over_depth(few, IMAGES, "4-shot test accuracy (%)")
        drawn["figure3"] = _save(figure, out / "results-figure3.png")
    if study is not None:
        drawn["figure1"] = _save(pictures.alignment(study, plane), out / "results-figure1.png")
    if signals:
        drawn["signal"] = _save(pictures.survey(signals), out / "results-signal.png")
    text = "\n".join(_lines(records, environment, claims, {name: path.name for name, path in drawn.items()})) + "\n"
    path = out / "results.md"
    path.write_text(text, encoding="utf-8")
    return [path, *drawn.values()]


def write_members(page: Path, out: Path, directory: Path | None = None) -> list[Path]:
    """Put the study of members into the page between its marks, and draw its picture; both go into `out`."""
    shared = "table1", "table3"  # whose networks the study shares
    records = [r for r in results.load(directory) if r["experiment"].startswith("members") or r["experiment"] in shared]
    text = page.read_text(encoding="utf-8")
    lines = []
    drawn = []
    for dataset in dict.fromkeys(r["dataset"] for r in records if r["alpha"] is None):
        usual = [r for r in members.compared(records) if r["dataset"] == dataset and members.times(r) == 1]
        if len({r["depth"] for r in usual}) > 1:
            drawn.append(_save(pictures.members(usual), out / f"members-{dataset}.png"))
            lines += [f"![Accuracy over depth, {dataset}]({drawn[-1].name})", ""]
    ways = (directory or results.folder()) / "members-curves.csv"
    if ways.exists():
        rows = results.read_rows(ways)
        drawn.append(_save(pictures.member_learning(rows), out / "members-learning.png"))
        lines += [f"![Accuracy by epoch, by data set and depth]({drawn[-1].name})", ""]
        drawn.append(_save(pictures.member_curves(rows), out / "members-curves.png"))
        lines += [f"![Accuracy by epoch, a thousand layers and more]({drawn[-1].name})", ""]
    for title, header, body in members.everything(records):
        lines += [f"**{title[0].upper()}{title[1:]}**", "", *_table(header, body), ""]
    start, end = text.index("<!-- evidence -->") + len("<!-- evidence -->\n"), text.index("<!-- end -->")
    path = out / page.name
    path.write_text(text[:start] + "\n".join(lines) + text[end:], encoding="utf-8")
    return [path, *drawn]


def write_html(out: Path, directory: Path | None = None) -> Path:
    """The report as one self-contained page, results.html."""
    with TemporaryDirectory() as folder:
        text, *_ = write(Path(folder), directory)
        page = Page("The paper, re-run")
        page.markdown(text.read_text(encoding="utf-8"), Path(folder))
    prepare(out)
    return page.write(out / "results.html")


def _lines(
    records: Sequence[Record], environment: dict[str, Any], claims: Sequence[Claim], drawn: dict[str, str]
) -> list[str]:
    comparisons = {table: compare(table, records) for table in TABLES}
    lines = [
        "# The paper, re-run",
        "",
        "Every number here is computed from the records under `results/` by `stiefel-init report`; do not edit it.",
        "`stiefel-init compare` prints each published number beside ours, `stiefel-init reproduce NAME` runs it again.",
        "",
        "## What was run",
        "",
        *_table(["experiment", "networks", "device", "engine", "time of training"], _runs(environment)),
        "",
        *(f"{name}: {one['note']}" for name, one in environment.items() if "note" in one),
        *([""] if any("note" in one for one in environment.values()) else []),
        "## The claims",
        "",
        *_table(["claim", "verdict", "evidence"], [[c.claim, f"**{c.verdict}**", c.evidence] for c in claims]),
        "",
        "Beside the comparison of schemes stands one confound: the paper trains Lee's initialization at the fixed rate",
        "0.001 and every other one at 0.001/√depth, and so do these runs. Where Lee falls behind with depth, the rate",
        "may be the reason, not the initialization; the study of [members](members.md) sets them side by side at equal",
        "rates.",
        "",
        "A published number of tables 1, 2 and 5 is one run; it *agrees* if it lies in the 95 % interval in which one",
        "more run of ours would fall. Those of table 3 are means of 50; they agree within 3 combined standard errors.",
        "",
        *_table(["", *SCHEMES, "all"], _agreement(comparisons)),
        "",
        *_furthest(comparisons),
        "",
        "## Table 1: depth",
        "",
        "Test accuracy (%), mean of our seeds, in brackets the published number.",
        "",
        f"![Accuracy over depth]({drawn['table1']})",
        "",
    ]
    scores = Scores(records)
    theirs = {_key(one): one for table in TABLES for one in published(table)}
    lines += _grid(
        ["data set", "depth"],
        [([d, str(depth)], {"table": "table1", "dataset": d, "depth": depth}) for d in IMAGES for depth in DEPTHS],
        scores,
        theirs,
    )
    lines += ["", "## Table 2: activations", ""]
    rows = [
        ([d, a, str(depth)], {"table": "table2", "dataset": d, "depth": depth, "activation": a})
        for d in IMAGES
        for a in ACTIVATIONS
        for depth in (50, 100)
    ]
    lines += [
        "With the direct form of Lee's initialization. The ReLU networks are those of table 1, but for Lee.",
        f"{len(comparisons['table2'])} of the {len(published('table2'))} published numbers are answered, "
        f"{sum(one.judged for one in comparisons['table2'])} of them by two seeds or more.", "",
        *_grid(["data set", "activation", "depth"], rows, scores, theirs),
    ]  # fmt: skip
    lines += ["", "## Table 3 and figure 3: few shots", "", "Mean of 50 repeats, in brackets the published mean.", ""]
    if "figure3" in drawn:
        lines += [f"![4-shot accuracy over depth]({drawn['figure3']})", ""]
    lines += _grid(
        ["data set", "shots", "depth"],
        [
            ([d, str(k), str(depth)], {"table": "table3", "dataset": d, "depth": depth, "shots": k})
            for d in IMAGES
            for k in SHOTS
            for depth in (10, 50, 100)
        ],
        scores,
        theirs,
    )
    lines += ["", "## Table 5: tabular data", "", "Accuracy (%); for diabetes the root mean squared error.", ""]
    lines += _grid(
        ["data set", "depth", "α"],
        [
            ([d, str(depth), f"{a:g}"], {"table": "table5", "dataset": d, "depth": depth, "alpha": a})
            for d in TABULAR_WIDTH
            for depth in (50, 100)
            for a in ALPHAS
        ],
        scores,
        theirs,
    )
    if "figure1" in drawn:
        lines += [
            "", "## Figure 1: alignment and accuracy", "",
            "Each dot is one orthogonal 64×64 middle layer, its accuracy the mean of 100 one-shot trainings. The",
            "members of the set, which have the largest alignment there is, are marked.", "",
            f"![Alignment against accuracy]({drawn['figure1']})",
        ]  # fmt: skip
    if "signal" in drawn:
        lines += [
            "", "## Signal and gradient at initialization", "",
            "Ten networks of depth 100 and each scheme; 256 images. Lines: what `theory.propagate` predicts from the",
            "mean and the standard deviation of the pixels. Dots: measured.", "",
            f"![Signal and gradient]({drawn['signal']})",
        ]  # fmt: skip
    return lines


def _runs(environment: dict[str, Any]) -> list[list[str]]:
    rows = []
    for name, one in environment.items():
        machines = one["environments"]
        counts: dict[str, int] = {}
        for m in machines:
            counts[m["device"]] = counts.get(m["device"], 0) + m["networks"]
        devices = " and ".join(f"{name} ({count:,})" if len(counts) > 1 else name for name, count in counts.items())
        engines = ", ".join(dict.fromkeys(m["engine"] for m in machines))
        rows.append([name, f"{one['networks']:,}", devices, engines, f"{one['seconds']:,.0f} s"])
    return rows


def _agreement(comparisons: dict[str, list[Comparison]]) -> list[list[str]]:
    rows = []
    for table, found in comparisons.items():
        cells = [f"{table}: agree"]
        for scheme in (*SCHEMES, None):
            chosen = [one for one in found if one.judged and scheme in (None, one.published.scheme)]
            cells.append(f"{sum(one.agrees for one in chosen)} of {len(chosen)}" if chosen else "—")
        rows.append(cells)
    return rows


def _furthest(comparisons: dict[str, list[Comparison]]) -> list[str]:
    one = [c for c in comparisons["table1"] if c.published.scheme == "stiefel"]
    few = [c for c in comparisons["table3"] if c.published.scheme == "stiefel"]
    lines = []
    if one:
        worst = max(one, key=lambda c: abs(c.difference))
        near = sum(abs(c.difference) <= 0.6 for c in one)
        lines.append(
            f"Of table 1's {len(one)} numbers for `stiefel`, {near} are within 0.6 points of our mean; the furthest "
            f"({worst.published.dataset}, depth {worst.published.depth}) differs by {worst.difference:+.2f}."
        )
    if few:
        near = sum(c.standard_errors <= 3 for c in few)
        lines.append(
            f"Of table 3's {len(few)}, {near} are within 3 combined standard errors; the furthest is at "
            f"{max(c.standard_errors for c in few):.1f}."
        )
    return lines


def _grid(
    names: list[str], rows: Sequence[tuple[list[str], dict[str, Any]]], scores: Scores, theirs: dict[Any, Published]
) -> list[str]:
    """One line per row, one column per scheme: our mean, the published number in brackets; the best of ours is bold."""
    lines = []
    for labels, setting in rows:
        less_is_better = setting["dataset"] in ERRORS
        means: list[float | None] = []
        texts = []
        for scheme in SCHEMES:
            values = _values(scores, setting, scheme)
            one = theirs.get(_key_of(setting, scheme))
            mean = float(values.mean()) if len(values) else None
            means.append(mean)
            texts.append((f"{mean:.2f}" if mean is not None else "—", f" ({one.value:.2f})" if one else ""))
        known = [m for m in means if m is not None]
        best = (min if less_is_better else max)(known) if len(known) > 1 else None
        cells = [
            f"**{ours}**{brackets}" if mean is not None and mean == best else ours + brackets
            for mean, (ours, brackets) in zip(means, texts)
        ]
        lines.append([*labels, *cells])
    return _table([*names, *SCHEMES], lines)


def _values(scores: Scores, setting: dict[str, Any], scheme: str) -> np.ndarray:
    experiment = setting["table"]
    options = {name: setting[name] for name in ("shots", "alpha", "activation") if name in setting}
    if experiment == "table2" and setting["activation"] == "relu" and scheme != "lee":
        experiment = "table1"
    return scores(experiment, setting["dataset"], scheme, setting["depth"], **options)


def _key(one: Published) -> tuple[Any, ...]:
    return one.table, one.dataset, one.scheme, one.depth, one.activation, one.shots, one.alpha


def _key_of(setting: dict[str, Any], scheme: str) -> tuple[Any, ...]:
    return (
        setting["table"], setting["dataset"], scheme, setting["depth"], setting.get("activation", "relu"),
        setting.get("shots"), setting.get("alpha"),
    )  # fmt: skip


def _of(records: Sequence[Record], experiment: str) -> list[Record]:
    return [r for r in records if r["experiment"] == experiment]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(row)} |" for row in rows)]


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def _benchmarks() -> list[dict[str, Any]]:
    """The sampler's benchmark records, where the source tree is at hand."""
    folder = Path(__file__).parents[3] / "benchmarks" / "records"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("sampler-*.json"))]
