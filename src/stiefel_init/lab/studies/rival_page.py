"""The page of the study of rivals: where a rival wins comes first; then the picture, the tables, and each rival."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from ..report.tables import Table
from . import rival_findings as study
from .rival_cells import DEPTHS, RIVALS, STARTS, Rival, settings
from .rival_findings import Duel, Found

NEEDS = {
    "looks-linear": "the layer's role (first, hidden, last), even widths and ReLU",
    "tat": "its own activation, tailored to the depth, and inputs of mean square 1",
    "lsuv": "a batch of inputs",
    "tanh-init": "tanh",
    "gpt-2": "residual branches, to be more than N(0, 0.02²)",
    "mup √2": "the last layer, and its learning rates to be μP in training too",
}


def page(found: Found, pictures: Sequence[str], tables: Sequence[Table], seeds: int) -> list[str]:
    """Lines of Markdown; the full study has so many `seeds`."""
    duels = study.duels(found)
    lines = [*_wins(duels), "", *_not_run(found, seeds), "", *pictures, "## Verdicts", ""]
    for number, table in enumerate(tables):
        if number:
            lines += [f"**{table.title[0].upper()}{table.title[1:]}**", ""]
        else:
            lines += [
                "*wins*, *loses*: the rival's mean is shown to be above or below that of our best start (Welch's test,",
                "p < 0.05 shared by all comparisons). *not shown*: neither is. In brackets: the difference of means.",
                "",
            ]
        lines += [*table.markdown(), ""]
    lines += ["## Each rival", ""]
    for rival in RIVALS:
        lines += _rival(found, rival, [duel for duel in duels if duel[1] == rival.name])
    return lines


def _wins(results: Sequence[Duel]) -> list[str]:
    won = [duel for duel in results if duel[4] == "wins"]
    if not won:
        ahead = sum(duel[3] > 0 for duel in results)
        return [
            f"**No rival is shown to win.** A rival has a higher mean than our best start in {ahead} of {len(results)} "
            "comparisons."
        ]
    names = dict.fromkeys(duel[1] for duel in won)
    lines = ["**Where a rival wins:**", ""]
    for name in names:
        where = "; ".join(f"{d[0]} ({d[3]:+.1f} over {d[2]})" for d in won if d[1] == name)
        lines.append(f"- {name}: {where}")
    return lines


def _not_run(found: Found, full: int) -> list[str]:
    counts = [len(values) for values in found.scores.values()]
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    if found.quick:
        return [
            f"These are the records of `stiefel-init reproduce rivals --quick`: digits alone, {len(found.settings)} "
            f"settings, {seeds} seeds each. The full study ({len(settings(False))} settings on MNIST, Fashion-MNIST, "
            f"digits and tabular data, depths {', '.join(f'{depth:,}' for depth in DEPTHS)}, {full} seeds"
            ") was not run, so nothing is said about them here."
        ]
    missing = [str(setting) for setting in settings(False) if setting not in found.settings]
    text = f"{len(found.settings)} settings, {seeds} seeds each."
    return [text + (f" Not run: {'; '.join(missing)}." if missing else " All of the study was run.")]


def _rival(found: Found, rival: Rival, results: Sequence[Duel]) -> list[str]:
    described = inspect.cleandoc(type(rival.scheme).__doc__ or "").partition(">>>")[0].strip()
    formula, *rest = described.split("\n\n")
    lines = [f"### {rival.name}", "", formula, ""]
    lines += [line for part in rest for line in (part, "")]
    if rival.name in NEEDS:
        lines += [f"Needs: {NEEDS[rival.name]}.", ""]
    if not results:
        return [*lines, "Not run.", ""]
    told = "; ".join(f"{d[0]}: {study.score(found, d[0], rival.name)} ({d[4]}, {d[3]:+.1f} to {d[2]})" for d in results)
    return [*lines, f"Result: {told}.", "", _prefer(found, rival, results), ""]


def _prefer(found: Found, rival: Rival, results: Sequence[Duel]) -> str:
    """When to prefer it, from the records alone."""
    won = [str(duel[0]) for duel in results if duel[4] == "wins"]
    if won:
        return f"Prefer it for: {'; '.join(won)}."
    level = [str(duel[0]) for duel in results if duel[4] in ("not shown", "open")]
    if not level:
        return "Nothing here speaks for it."
    top = [
        str(s)
        for s in found.settings
        if max(found.of(s), key=lambda name: float(found.of(s)[name].mean())) == rival.name
    ]
    best = f" It has the highest mean of all {len(STARTS)} starts on: {'; '.join(top)}." if top else ""
    return f"Not shown to differ from ours on: {'; '.join(level)}.{best}"
