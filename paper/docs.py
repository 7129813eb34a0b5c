"""`make docs`: the one writer of pages. All of some (`WHOLE`, results.md), and the marked parts of others (`PARTS`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import diagnose, engine, initialize, on_the_set, rates, sampler, startup, timing
from tools import badges, readme
from tools.drawings import bars

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import prepare, write_whole
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table

from . import audits, report
from .experiment import Experiment
from .faults import page as faults
from .health import diagnosis, watching
from .results import Results
from .tables.table import PaperTable
from .zoo import search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110
END = "<!-- end -->"
"""What follows <!-- NAME --> on a page, up to this, is made from records."""
Texts = dict[Path, str]
Pictures = dict[str, "Figure"]
Lines = Callable[[], list[str]]


MEASURED = {
    module.__name__.rpartition(".")[2]: partial(timing.tables, module.__name__.rpartition(".")[2], module.tables)
    for module in (sampler, engine, initialize, diagnose, startup)
}
ONCE = {"diagnose-parts": "diagnose-parts-cpu", "equivalence": "equivalence", "real-models": "real_models-cuda"}
FLOORS = ["", "ours", "orthogonal_", "times as fast", "at most"]
WHOLE: Mapping[str, Lines] = {"faults": faults.page}
"""Pages that are made as a whole."""
PARTS: Mapping[str, Mapping[str, Lines]] = {
    "audit": {"findings": audits.part},
    "baselines": {"residual": partial(timing.once, "residual-rivals-cpu")},
    "diagnosis-accuracy": {
        **diagnosis.PARTS, "watch": watching.accuracy, "families": partial(timing.once, "families-cpu"),
    },
    "learning-rate": {"cost": partial(timing.tables, "rates", rates.tables), "search": search.part},
    "on-the-set": {"steps": on_the_set.part},
    "performance": {
        **MEASURED, "floors": partial(timing.picked, "floors", FLOORS, (*sampler.SHOWN, "a network of 100 layers")),
        **{mark: partial(timing.once, name) for mark, name in ONCE.items()}, "watch": watching.overhead,
    },
    "scale": {"threads": partial(timing.once, "threads-cpu"), "measured": partial(timing.once, "scale-cpu")},
    "rules": {"initialization": diagnosis.rules, "training": watching.rules},
    "zoo": {"find-start": partial(search.part, whole=True)},
}  # fmt: skip
"""Page → mark → what stands behind it."""
FILES: Mapping[str, Callable[[], timing.Listed]] = {
    "audits": audits.every, "diagnosis-by-fault": diagnosis.by_fault, "diagnosis-wrong": diagnosis.wrong,
    "draws": partial(timing.every, "sampler", sampler.listed), "faults": faults.every,
    "training-steps": partial(timing.every, "engine", engine.listed),
    "whole-models": partial(timing.every, "initialize", initialize.listed),
}  # fmt: skip
"""Tables too long for a page: docs/tables/NAME.csv."""
PICTURES: Mapping[str, Callable[[], str]] = {
    "diagnosis-accuracy": diagnosis.picture, "faults": faults.picture,
    "performance": lambda: bars(
        sampler.times(), "How many times as fast as orthogonal_, by shape.", most=8, form="× {:.1f}", rest="c0"
    ),
}  # fmt: skip
"""Pictures of pages: docs/NAME.svg."""


def write(out: Path, results: Results, experiments: Iterable[Experiment]) -> list[Path]:
    """Write results.md and its pictures into `out`, and fill in the other pages there; returns the paths."""
    return _write(out, *_of_experiments(out, results, experiments))


def write_all(root: Path, results: Results, experiments: Iterable[Experiment], *, check: bool = False) -> list[Path]:
    """Write every page and picture under `root` that is made from records.

    Raises:
        StiefelError: with `check`, which writes nothing, if a page is not current.
    """
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
    found: dict[Experiment, Any] = {experiment: experiment.evidence(results) for experiment in experiments}
    text, pictures = report.page(results, found)
    texts = {out / "results.md": text}
    compared = [
        t for e, evidence in found.items() if isinstance(e, PaperTable) and evidence for t in e.tables(evidence)
    ]
    if compared:
        texts[out / "tables" / "compared.csv"] = _csv(
            ["table", "cell", "scheme", "published", "ours", "95 %", "seeds", "difference", "verdict"],
            ([t.title.partition(":")[0], *row] for t in compared for row in t.rows),
        )
    for experiment, evidence in found.items():
        page = out / f"{experiment.page}.md"
        if evidence is not None and experiment.page not in (None, "results") and page.exists():
            pictures |= experiment.pictures(evidence)
            if experiment.listed:
                texts[out / "tables" / f"{experiment.name}.csv"] = _csv(*_cells(experiment.tables(evidence)))
            _fill(texts, page, {"evidence": experiment.section(evidence)})
    return texts, pictures


def _cells(tables: Sequence[Table]) -> timing.Listed:
    """Tables as one; those of different columns with a row for each cell."""
    if len(headers := {tuple(t.header) for t in tables}) == 1:
        return ["table", *headers.pop()], [[t.title, *row] for t in tables for row in t.rows]
    cells = ([t.title, row[0], *cell] for t in tables for row in t.rows for cell in zip(t.header[1:], row[1:]))
    return ["table", "row", "column", "value"], list(cells)


def _csv(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def of_records(root: Path, results: Results, texts: Texts) -> None:
    """Add what benchmarks and smaller studies have on the pages, the README's figures and the badges."""
    docs = root / "docs"
    for page, lines in WHOLE.items():
        texts[docs / f"{page}.md"] = "\n".join(lines()).rstrip() + "\n"
    for page, parts in PARTS.items():
        _fill(texts, docs / f"{page}.md", {mark: lines() for mark, lines in parts.items()})
    texts |= {docs / "tables" / f"{name}.csv": _csv(*listed()) for name, listed in FILES.items()}
    texts |= {docs / f"{name}.svg": drawn() for name, drawn in PICTURES.items()}
    figures, drawn = readme.figures(results)
    _fill(texts, root / "README.md", {"figures": figures})
    texts |= {docs / "badges" / name: text for name, text in badges.badges().items()}
    texts |= {docs / f"{name}.svg": text for name, text in drawn.items()}


def _fill(texts: Texts, page: Path, parts: Mapping[str, Sequence[str]]) -> None:
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
    for folder in {path.parent for path in texts}:
        folder.mkdir(exist_ok=True)
    written = [write_whole(path, text) for path, text in texts.items()]
    return written + [plots.save(figure, out / f"{name}.png", DPI) for name, figure in pictures.items()]
