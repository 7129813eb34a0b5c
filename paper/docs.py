"""The generated pages of the docs: all of `results.md`, and the marked part of others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import prepare, write_whole
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.page import write_page
from stiefel_init.lab.report.tables import Table, plain

from .experiment import Experiment
from .results import Results
from .tables.compare import Comparison
from .tables.protocol import SCHEMES
from .tables.table import PaperTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

START, END = "<!-- evidence -->\n", "<!-- end -->"
DPI = 110


def write(out: Path, results: Results, experiments: Iterable[Experiment]) -> list[Path]:
    """Write results.md and its pictures into `out`, and fill in the other pages there; returns the paths."""
    found = _evidence(results, experiments)
    text, pictures = _results(results, found)
    written = [write_whole(prepare(out) / "results.md", text)]
    for experiment, evidence in found.items():
        if evidence is None:
            continue
        page = out / f"{experiment.page}.md"
        if experiment.page not in (None, "results") and page.exists():
            pictures |= experiment.pictures(evidence)
            written.append(_fill(page, experiment.section(evidence)))
        asides = {out / f"{name}.md": lines for name, lines in experiment.asides(evidence).items()}
        written += [_fill(page, lines) for page, lines in asides.items() if page.exists()]
    return written + [plots.save(figure, out / f"{name}.png", DPI) for name, figure in pictures.items()]


def _fill(page: Path, lines: Sequence[str]) -> Path:
    """Write lines between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(START)
    if END not in rest:
        raise StiefelError(f"{page} lacks the marks {START.strip()} and {END} to write between; restore them.")
    text = "\n".join(lines)
    return write_whole(page, f"{before}{START}{text}\n{END}{rest.partition(END)[2]}")


def write_html(out: Path, results: Results, experiments: Iterable[Experiment]) -> Path:
    """The report as one self-contained page, results.html."""
    needed = [e for e in experiments if e.page == "results" or type(e).claims is not Experiment.claims]
    text, pictures = _results(results, _evidence(results, needed))
    title, _, body = text.partition("\n")
    drawn = {f"{name}.png": figure for name, figure in pictures.items()}
    return write_page(prepare(out) / "results.html", title.removeprefix("# "), body, drawn)


def _evidence(results: Results, experiments: Iterable[Experiment]) -> dict[Experiment, Any]:
    return {experiment: experiment.evidence(results) for experiment in experiments}


def _results(results: Results, found: dict[Experiment, Any]) -> tuple[str, dict[str, Figure]]:
    """The text of results.md, and its pictures by name."""
    here = {e: evidence for e, evidence in found.items() if e.page == "results" and evidence is not None}
    if not here:
        raise StiefelError(f"{results.place} holds no results of the paper; run an experiment with `reproduce` first.")
    claims = [
        [claim.claim, f"**{claim.verdict}**", claim.evidence]
        for experiment, evidence in found.items()
        for claim in experiment.claims(evidence)
    ]
    tables = {e: e.compare(evidence) for e, evidence in here.items() if isinstance(e, PaperTable)}
    lines = [
        "# The paper, re-run",
        "",
        "Do not edit: `stiefel-init report` computes every number here from the records under `results/`.",
        "`stiefel-init compare` prints each published number beside ours; `stiefel-init reproduce NAME` reruns one.",
        "",
        *_what_was_run(results.environments),
        "## The claims",
        "",
        *Table("", ["claim", "verdict", "evidence"], claims).markdown(),
        "",
        "The comparison of schemes has a confound: the paper trains Lee's initialization at a fixed rate of 0.001 and",
        "all others at 0.001/√depth, and so do we. Where Lee falls behind with depth, the rate may be the cause rather",
        "than the initialization; the study of [members](members.md) compares them at equal rates.",
        "",
        "A published number in tables 1, 2 and 5 is a single run; it *agrees* if it lies in the 95 % prediction",
        "interval for one more run of ours. Those in table 3 are means of 50; they agree within 3 combined standard",
        "errors.",
        "",
        *_agreement(tables),
        "",
        *_furthest(tables),
        "",
    ]
    pictures: dict[str, Figure] = {}
    for experiment, evidence in here.items():
        lines += experiment.section(evidence)
        pictures |= experiment.pictures(evidence)
    return "\n".join(lines).rstrip() + "\n", pictures


def _what_was_run(environments: dict[str, Any]) -> list[str]:
    if not environments:
        return []
    rows = []
    for name, entry in environments.items():
        counts: dict[str, int] = {}
        for environment in entry["environments"]:
            device = str(environment["device"])
            counts[device] = counts.get(device, 0) + environment["networks"]
        devices = " and ".join(f"{name} ({count:,})" if len(counts) > 1 else name for name, count in counts.items())
        engines = ", ".join(dict.fromkeys(str(environment["engine"]) for environment in entry["environments"]))
        networks, seconds = f"{entry['networks']:,}", f"{entry['seconds']:,.0f} s"
        rows.append([plain(name), networks, plain(devices), plain(engines), seconds])
    notes = [f"{plain(name)}: {plain(entry['note'])}" for name, entry in environments.items() if "note" in entry]
    table = Table("", ["experiment", "networks", "device", "engine", "training time"], rows)
    return ["## What was run", "", *table.markdown(), "", *notes, *([""] if notes else [])]


def _agreement(tables: dict[PaperTable, list[Comparison]]) -> list[str]:
    rows = []
    for table, numbers in tables.items():
        cells = [f"{table.name}: agree"]
        for scheme in (*SCHEMES, None):
            judged = [number for number in numbers if number.judged and scheme in (None, number.published.scheme)]
            cells.append(f"{sum(number.agrees for number in judged)} of {len(judged)}" if judged else "—")
        rows.append(cells)
    return Table("", ["", *SCHEMES, "all"], rows).markdown() if rows else []


def _furthest(tables: dict[PaperTable, list[Comparison]]) -> list[str]:
    """How far the numbers for `stiefel` are from ours."""
    numbers = {table.name: _of_stiefel(found) for table, found in tables.items()}
    lines = []
    if deep := numbers.get("table1"):
        worst = max(deep, key=lambda c: abs(c.difference))
        near = sum(abs(c.difference) <= 0.6 for c in deep)
        lines.append(
            f"Of table 1's {len(deep)} numbers for `stiefel`, {near} are within 0.6 points of our mean; the largest "
            f"difference ({worst.published.dataset}, depth {worst.published.depth}) is {worst.difference:+.2f}."
        )
    if few := numbers.get("table3"):
        near = sum(c.standard_errors <= 3 for c in few)
        lines.append(
            f"Of table 3's {len(few)}, {near} are within 3 combined standard errors; the largest difference is "
            f"{max(c.standard_errors for c in few):.1f} of them."
        )
    return lines


def _of_stiefel(found: Sequence[Comparison]) -> list[Comparison]:
    return [number for number in found if number.published.scheme == "stiefel"]
