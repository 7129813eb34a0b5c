"""Run the paper's experiments by name, and set the outcome beside the published numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .._errors import StiefelError, unknown
from . import experiments, members, pictures, results, study
from .alignment import MODES, embed
from .alignment import study as alignment_study
from .cells import Cell
from .compare import Comparison, compare
from .paper import TITLES, published
from .progress import progress
from .records import Record, prepare
from .runner import pick_device, run
from .signal import survey
from .tasks import Tasks

Show = Callable[..., None]  # (header, rows, title=…)
NO_ANSWER = "No record answers a published number; run the experiment without --quick first."
QUICK_NOTE = "A quick run: fewer seeds, depths and epochs than the paper, so its numbers are not comparable."


def reproduce(
    name: str,
    *,
    seeds: int | None,
    quick: bool,
    device: str,
    out: Path,
    data: Path | None,
    stack: int | None,
    dry_run: bool,
    show: Show,
) -> None:
    """Run one experiment, or all of them."""
    names = experiments.PAPER if name == "all" else (name,)
    if name != "all" and name not in experiments.NAMES:
        raise unknown("name", name, (*experiments.NAMES, "all"))
    pick_device(device)
    if dry_run:
        cells = [
            c for one in names if one in experiments.EXPERIMENTS for c in experiments.cells(one, seeds, quick=quick)
        ]
        if "members" in names and not quick:
            cells += experiments.member_rates()
            print("members: its networks at their best rates come on top; the rates are not known yet.")
        if cells:
            print(study.forecast(list(dict.fromkeys(cells)), device, {}, data, out, stack))
        for one in names:
            if one not in experiments.EXPERIMENTS:
                print(f"{one} is not made of cells; it would be drawn or studied anew.")
        return
    for one in names:
        if one == "figure1":
            _figure1(out, device, data, quick, show)
        elif one == "figure2":
            _figure2(out, quick)
        elif one == "signal":
            _signal(out, data, quick)
        else:
            options: dict[str, Any] = {"out": out, "device": device, "directory": data, "most": stack, "title": one}
            cells = experiments.cells(one, seeds, quick=quick)
            tuned = []
            if one == "members" and not quick:
                tuned = run(experiments.member_rates(), **options | {"title": "members, best rates"})
                cells = list(dict.fromkeys(cells + experiments.members_at(members.best_rates(tuned), seeds)))
            _show(one, tuned + run(cells, **options), out, quick, show)


def _show(name: str, records: Sequence[Record], out: Path, quick: bool, show: Show) -> None:
    label = f"{name}-quick" if quick else name
    if name == "members":
        for title, header, rows in members.everything(records):
            show(header, rows, title=f"{label}: {title}")
        if ways := members.curves(records):
            results.write_rows(ways, out / f"{label}-curves.csv")
            pictures.save(pictures.member_learning(ways), out / f"{label}-learning.png")
            pictures.save(pictures.member_curves(ways), out / f"{label}-curves.png")
            print(f"wrote {out / label}-curves.csv, {label}-curves.png and {label}-learning.png")
    elif name == "figure3":
        path = out / f"{label}.png"
        pictures.save(pictures.over_depth(records, experiments.IMAGES, "4-shot test accuracy (%)"), path)
        print(f"wrote {path}")
    elif quick:
        for dataset in dict.fromkeys(r["dataset"] for r in records):
            header, rows = study.summary([r for r in records if r["dataset"] == dataset])
            show(header, rows, title=f"{label}, {dataset}")
    else:
        header, rows = comparison_rows(compare(name, records))
        show(header, rows, title=f"{name}: {TITLES[name]}")
    if quick:
        print(QUICK_NOTE)


def _figure1(out: Path, device: str, data: Path | None, quick: bool, show: Show) -> None:
    label = "figure1-quick" if quick else "figure1"
    size: dict[str, Any] = (
        {"matrices": 200, "members": 20, "trials": 5} if quick else {"matrices": 5000, "members": 200, "trials": 100}
    )
    dataset = Tasks(directory=data).dataset("mnist")
    prepare(out)
    with progress(1.0, label) as advance:
        found = alignment_study(dataset, pick_device(device), progress=advance, **size)
    try:
        plane = embed(found.vectors)
    except ImportError:
        plane = None
        print("umap-learn is not installed, so figure 1's embedding is left out; pip install umap-learn to have it.")
    results.write_study(found, out / f"{label}.csv", plane)
    pictures.save(pictures.alignment(found, plane), out / f"{label}.png")
    theirs = published("figure1")[0].value
    rows = []
    for mode in MODES:
        r, low, high = found.correlation(mode)
        haar, member = found.accuracy[mode][~found.aligned].mean(), found.accuracy[mode][found.aligned].mean()
        rows.append([mode, f"{r:.4f}", f"{low:.4f} … {high:.4f}", f"{theirs:.4f}", f"{haar:.2f}", f"{member:.2f}"])
    header = ["outer layers and images", "r", "95 % interval", "published r", "accuracy, Haar", "accuracy, members"]
    show(header, rows, title=f"{label}: {size['matrices']:,} matrices, {size['trials']} one-shot trials each")
    print(f"wrote {out / label}.csv and .png")
    if quick:
        print(QUICK_NOTE)


def _figure2(out: Path, quick: bool) -> None:
    from .densities import draw

    path = prepare(out) / ("figure2-quick.png" if quick else "figure2.png")
    for line in draw(path, samples=100_000 if quick else 1_000_000):
        print(line)
    print(f"wrote {path}")


def _signal(out: Path, data: Path | None, quick: bool) -> None:
    label = "signal-quick" if quick else "signal"
    tasks = Tasks(directory=data)
    chosen = {name: tasks(Cell(name, "stiefel", 1)) for name in experiments.IMAGES}
    prepare(out)
    with progress(1.0, label) as advance:
        rows = survey(chosen, seeds=2 if quick else 10, progress=advance)
    results.write_rows(rows, out / f"{label}.csv")
    pictures.save(pictures.survey(rows), out / f"{label}.png")
    print(f"wrote {out / label}.csv and .png")


def comparison_rows(comparisons: Sequence[Comparison]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: each published number with ours."""
    if not comparisons:
        raise StiefelError(NO_ANSWER)
    rows = []
    for one in comparisons:
        p = one.published
        low, high = one.interval
        interval = f"{low:.2f} … {high:.2f}" if math.isfinite(low) and math.isfinite(high) else "—"
        theirs = f"{p.value:.2f}" + (f" ± {p.std:.2f}" if p.std is not None else "")
        rows.append(
            [
                setting(p), str(p.scheme), theirs, f"{one.mean:.2f}", interval, str(len(one.scores)),
                f"{one.difference:+.2f}", one.verdict,
            ]
        )  # fmt: skip
    return ["cell", "scheme", "published", "ours", "95 % interval", "seeds", "difference", "verdict"], rows


def setting(one: Any) -> str:
    """Which cell of its table a number is, but for the scheme."""
    parts = [one.dataset, f"depth {one.depth}"]
    if one.table == "table2":
        parts.append(one.activation)
    if one.shots is not None:
        parts.append(f"{one.shots}-shot")
    if one.alpha is not None:
        parts.append(f"α {one.alpha:g}")
    return ", ".join(parts)


def comparison_tables(name: str | None, directory: Path | None) -> list[tuple[str, list[str], list[list[str]]]]:
    """(title, header, rows) for each table that the records answer."""
    tables = ("table1", "table2", "table3", "table5")
    if name is not None and name not in tables:
        raise unknown("name", name, tables)
    records = results.load(directory)
    found = []
    for table in tables if name is None else (name,):
        comparisons = compare(table, records)
        if comparisons or name is not None:
            agree, judged = sum(one.agrees for one in comparisons), sum(one.judged for one in comparisons)
            title = f"{table}: {TITLES[table]}; {agree} of {judged} published numbers agree with ours"
            found.append((title, *comparison_rows(comparisons)))
    if not found:
        raise StiefelError(NO_ANSWER)
    return found
