"""The page of the study of rivals: where a rival wins comes first; then the picture, the tables, and each rival."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from stiefel_init.lab.report.tables import Table

from ..tables.protocol import IMAGES
from . import rival_findings as study
from .rival_cells import DEPTHS, EPOCHS, FAST, MINE, RIVALS, STARTS, Rival, settings
from .rival_findings import Duel, Found, Pooled
from .rival_tables import numbers, of_rival
from .tuned import top

NOTHING = "nothing but a layer's shape and a seed"
NEEDS = {
    **dict.fromkeys(("zero", "idinit", "sinusoidal"), "nothing but a layer's shape"),
    "looks-linear": "the layer's role (first, hidden, last), even widths and ReLU",
    "tat": "its own activation, tailored to the depth, and inputs of mean square 1",
    "lsuv": "a batch of inputs",
    "tanh-init": "tanh",
    "gpt-2": "residual branches, to be more than N(0, 0.02²)",
    "mup √2": "the last layer, and its learning rates to be μP in training too",
}

TOO_FAST = 5
"""Points."""
LISTED = 6
"""Settings that are named; more are counted."""


def page(found: Found, pictures: Sequence[str], tables: Sequence[Table], seeds: int) -> list[str]:
    """Lines of Markdown; the full study has so many `seeds`."""
    duels = study.duels(found)
    wanted, verdicts, leaders = tables
    lines = [*_wins(duels, study.over_depths(found)), "", *_not_run(found, seeds), ""]
    lines += ["## What was wanted", "", *wanted.markdown(), ""] if wanted.rows else []
    lines += ["## Which start, at which depth", "", *pictures, *_words(), *_too_fast(found), ""]
    lines += [*leaders.markdown(), ""]
    lines += [
        "## Verdicts", "",
        "*wins*, *loses*: the rival's mean is shown to be above or below that of our best start, both trained in the",
        "same way (Welch's test, p < 0.05 by Holm for all comparisons). *not shown*: neither is. *open*: too few",
        "networks. The numbers count data sets. Under *What was wanted* each line is a question of its own, asked",
        "before the study, so that Holm's correction is for its own comparisons; that was decided after the records",
        "were seen, and the table below has the stricter one.",
        "", *verdicts.markdown(), "", "## Each rival", "",
    ]  # fmt: skip
    for rival in RIVALS:
        lines += _rival(found, rival, [d for d in duels if d.rival in (rival.name, rival.name + FAST)])
    lines += ["## All numbers", ""]
    for group in found.groups:
        lines += [f"### On {group}", ""]
        for table in numbers(found, group):
            lines += [f"**{table.title[0].upper()}{table.title[1:]}**", "", *table.markdown(), ""]
    return lines


def _words() -> list[str]:
    ours = ", ".join(rival.name for rival in STARTS if rival.name in MINE)
    return [
        f"Our starts are {ours}; `recipe` is what `initialize_(model)` does. *fast ends*: the first and the last layer",
        "learn √depth times as fast as the others, by a warm-up and a cosine to zero; every rival gets the same. Where",
        "it does not say so, all layers have one constant rate. Our best start in a setting is the one that did best",
        "among the networks that chose the rates, not among those compared; the best rival is the best of those",
        "compared.",
    ]


def _too_fast(found: Found) -> list[str]:
    """Where a chosen rate was too high: the tuning networks did well, some of the compared ones did not.

    Only on all images, where seeds are tested on the same ones: elsewhere scores vary as much at any rate.
    """
    risky = []
    for (setting, name), scores in found.scores.items():
        if setting.dataset not in IMAGES or setting.shots is not None:
            continue
        reached = max(found.tuned[setting, name].values())
        fell = int((scores < reached - TOO_FAST).sum())
        if fell and reached > 0 and reached >= top(found.tuned, setting) - TOO_FAST:
            risky.append(f"{name} ({setting}: {fell} of {len(scores)})")
    if not risky:
        return []
    return [
        "", "A rate that one or two networks chose in a third of the epochs can be too high for all of them. On all",
        f"images some ended {TOO_FAST} points or more below what chose their rate, though that was within {TOO_FAST}",
        f"points of the best: {'; '.join(risky)}. A lower rate would suit these starts better than their numbers here",
        "say.",
    ]  # fmt: skip


def _wins(results: Sequence[Duel], pooled: Sequence[Pooled]) -> list[str]:
    won = [duel for duel in results if duel.verdict == "wins"]
    over = [each for each in pooled if each.verdict == "wins"]
    lines = []
    if won:
        lines += ["**Where a rival wins:**", ""]
        for name in dict.fromkeys(duel.rival for duel in won):
            where = "; ".join(f"{d.setting} ({d.gain:+.1f} over {d.ours})" for d in won if d.rival == name)
            lines.append(f"- {name}: {where}")
        lines.append("")
    if over:
        lines += ["**Where a rival wins with all depths taken together** (mean difference to our best start):", ""]
        for name in dict.fromkeys(each.rival for each in over):
            where = "; ".join(f"{each.group} ({each.gain:+.1f})" for each in over if each.rival == name)
            lines.append(f"- {name}: {where}")
        lines += [
            "", "Differences are taken seed by seed, since networks of one seed have the same data, and averaged over",
            "depths; Student's test, p < 0.05 by Holm for all rivals and data.", "",
        ]  # fmt: skip
    ahead = sum(duel.gain > 0 for duel in results)
    if not won:
        lines += ["**In no single setting is a rival shown to win.**"]
    return [*lines, f"A rival has a higher mean than our best start in {ahead} of {len(results)} comparisons."]


def _not_run(found: Found, full: int) -> list[str]:
    counts = [len(values) for values in found.scores.values()]
    seeds = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    if found.quick:
        return [
            f"These are the records of `stiefel-init reproduce rivals --quick`: digits alone, {len(found.settings)} "
            f"settings, {seeds} seeds each. The full study ({len(settings(False))} settings on MNIST, Fashion-MNIST, "
            f"digits and tabular data, depths {', '.join(f'{depth:,}' for depth in DEPTHS)}, {full} seeds"
            ") was not run, so nothing is said about them here; with so few seeds only the largest differences show."
        ]
    missing = [str(setting) for setting in settings(False) if setting not in found.settings]
    epochs = ", ".join(f"{name} {count}" for name, count in EPOCHS.items())
    text = f"{len(found.settings)} settings, {seeds} seeds each; epochs: {epochs}, tables 100; few-shot 100 steps."
    if min(counts) != max(counts):
        text += " A start that reached less than half of the best score at every rate was compared with few seeds."
    return [text + (f" Not run: {'; '.join(missing)}." if missing else " All of the study was run.")]


def _rival(found: Found, rival: Rival, results: Sequence[Duel]) -> list[str]:
    described = inspect.cleandoc(type(rival.scheme).__doc__ or "").partition(">>>")[0].strip()
    formula, *rest = described.split("\n\n")
    lines = [f"### {rival.name}", "", formula, ""]
    lines += [line for part in rest for line in (part, "")]
    lines += [f"Needs: {NEEDS.get(rival.name, NOTHING)}.", ""]
    if not results:
        return [*lines, "Result: not run.", ""]
    lines += ["Result, with the verdict and the difference to our best start:", ""]
    for name in dict.fromkeys(duel.rival for duel in results):
        lines += ["With fast ends:", ""] if study.is_fast(name) else []
        lines += [*of_rival(found, name, results).markdown(), ""]
    return [*lines, _prefer(found, results), ""]


def _prefer(found: Found, results: Sequence[Duel]) -> str:
    """When to prefer it, from the records alone."""
    won = [_place(duel) for duel in results if duel.verdict == "wins"]
    if won:
        return f"When to prefer it: {'; '.join(won)}."
    open_ = [duel for duel in results if duel.verdict in ("not shown", "open")]
    if not open_:
        return "When to prefer it: nothing here speaks for it."
    told = ["When to prefer it: nowhere by these records."]
    ahead = [_place(duel) for duel in open_ if duel.gain > 0]
    if ahead:
        where = "; ".join(ahead) if len(ahead) <= LISTED else f"{len(ahead)} of {len(results)} settings"
        told.append(f"Its mean is ahead of ours, though that is not shown, on: {where}.")
    if len(open_) > len(ahead):
        told.append(f"It is behind, though that is not shown, in {len(open_) - len(ahead)} of {len(results)} settings.")
    top = [_place(duel) for duel in results if duel.rival == _first(found, duel)]
    if top:
        told.append(f"It has the highest mean of all starts on: {'; '.join(top)}.")
    return " ".join(told)


def _place(duel: Duel) -> str:
    return str(duel.setting) + (FAST if study.is_fast(duel.rival) else "")


def _first(found: Found, duel: Duel) -> str:
    """The start with the highest mean among those that were trained in the same way."""
    scores = {
        name: float(values.mean())
        for name, values in found.of(duel.setting).items()
        if study.is_fast(name) == study.is_fast(duel.rival)
    }
    return max(scores, key=lambda name: scores[name])
