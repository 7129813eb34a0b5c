"""`make docs`: the one writer of pages. All of some, as `results.md`, and the marked parts of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools import badges

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import prepare, write_whole
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.page import write_page
from stiefel_init.lab.report.tables import Table, plain
from stiefel_init.recipe.advice import FILE as ADVICE

from . import pages
from .experiment import Experiment
from .results import Results
from .studies import on_record
from .tables.compare import Comparison
from .tables.protocol import SCHEMES
from .tables.table import PaperTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
END = "<!-- end -->"
"""What follows <!-- NAME --> on a page, up to this, is made from records."""
Texts = dict[Path, str]
Pictures = dict[str, "Figure"]


def write(out: Path, results: Results, experiments: Iterable[Experiment]) -> list[Path]:
    """Write results.md and its pictures into `out`, and fill in the other pages there; returns the paths."""
    return _write(out, *_of_experiments(out, results, experiments))


def write_all(root: Path, results: Results, experiments: Iterable[Experiment], *, check: bool = False) -> list[Path]:
    """Write every page and picture under `root` that is made from records.

    Raises:
        StiefelError: with `check`, which writes nothing, if a page is not current; and if what the installed package
            cites is not what is on record, which no page can mend.
    """
    cited = root / "src" / "stiefel_init" / "recipe" / ADVICE
    if cited.read_text(encoding="utf-8") != on_record.text(results):
        raise StiefelError(f"{cited} is not what is on record; run `python -m paper advice > {cited}` first.")
    docs = root / "docs"
    texts, pictures = _of_experiments(docs, results, experiments)
    of_records(root, results, texts)
    if not check:
        return _write(docs, texts, pictures)
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if stale:
        raise StiefelError(f"{', '.join(map(str, stale))} is not current; run `make docs`.")
    return []


def _of_experiments(out: Path, results: Results, experiments: Iterable[Experiment]) -> tuple[Texts, Pictures]:
    """The pages in `out` that experiments have a part in, and all their pictures by name."""
    found = _evidence(results, experiments)
    text, pictures = _results(results, found)
    texts = {out / "results.md": text}
    for experiment, evidence in found.items():
        if evidence is None:
            continue
        page = out / f"{experiment.page}.md"
        if experiment.page not in (None, "results") and page.exists():
            pictures |= experiment.pictures(evidence)
            _fill(texts, page, {"evidence": experiment.section(evidence)})
        for name, lines in experiment.asides(evidence).items():
            if (aside := out / f"{name}.md").exists():
                _fill(texts, aside, {"evidence": lines})
    return texts, pictures


def of_records(root: Path, results: Results, texts: Texts) -> None:
    """Add what benchmarks and smaller studies have on the pages, the README's figures and the badges."""
    docs = root / "docs"
    for page, lines in pages.WHOLE.items():
        texts[docs / f"{page}.md"] = "\n".join(lines()).rstrip() + "\n"
    for page, parts in pages.PARTS.items():
        _fill(texts, docs / f"{page}.md", {mark: lines() for mark, lines in parts.items()})
    _fill(texts, root / "README.md", {"figures": pages.readme(results)})
    texts |= {docs / "badges" / name: text for name, text in badges.badges().items()}


def _fill(texts: Texts, page: Path, parts: Mapping[str, Sequence[str]]) -> None:
    """Put lines between the marks of a page."""
    text = texts.get(page) or page.read_text(encoding="utf-8")
    for name, lines in parts.items():
        mark = f"<!-- {name} -->"
        before, found, rest = text.partition(f"{mark}\n")
        if not found or END not in rest:
            raise StiefelError(f"{page} lacks the marks {mark} and {END} to write between; restore them.")
        text = "\n".join([f"{before}{mark}", *lines, f"{END}{rest.partition(END)[2]}"])
    texts[page] = text


def _write(out: Path, texts: Texts, pictures: Pictures) -> list[Path]:
    prepare(out)
    written = [write_whole(path, text) for path, text in texts.items()]
    return written + [plots.save(figure, out / f"{name}.png", DPI) for name, figure in pictures.items()]


def write_html(out: Path, results: Results, experiments: Iterable[Experiment]) -> Path:
    """The report as one self-contained page, results.html."""
    needed = [e for e in experiments if e.page == "results" or type(e).claims is not Experiment.claims]
    text, pictures = _results(results, _evidence(results, needed))
    title, _, body = text.partition("\n")
    drawn = {f"{name}.png": figure for name, figure in pictures.items()}
    return write_page(prepare(out) / "results.html", title.removeprefix("# "), body, drawn)


def _evidence(results: Results, experiments: Iterable[Experiment]) -> dict[Experiment, Any]:
    return {experiment: experiment.evidence(results) for experiment in experiments}


def _results(results: Results, found: dict[Experiment, Any]) -> tuple[str, Pictures]:
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
        "Do not edit: `make docs` computes every number here from the records under `results/`.",
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
    pictures: Pictures = {}
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
