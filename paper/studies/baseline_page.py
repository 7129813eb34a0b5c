"""The page of the study of baselines: where one wins comes first; then the picture, the tables, and each baseline."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table, wrapped

from ..experiment import titled
from ..tables.protocol import IMAGES
from .baselines import (
    BASELINES,
    DEPTHS,
    EPOCHS,
    EVERY,
    FAST,
    MINE,
    NAMES,
    OURS,
    Baselines,
    Duel,
    duels,
    is_fast,
    over_depths,
)
from .kit import MISSING, WORKS, Data, Setting, Tuned, spread, top_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
WORDS = wrapped(
    f"Our initializations are {', '.join(OURS)}; `recipe` is what `initialize_(model)` does. *fast ends*: the first "
    "and the last layer learn √depth times as fast as the others, by a warm-up and a cosine to zero; every baseline "
    "gets the same. Where it does not say so, all layers have one constant rate. Our best in a setting is the one that "
    "did best among the networks that chose the rates, not among those compared; the best baseline is the best of "
    "those compared."
)
VERDICTS = wrapped(
    "*wins*, *loses*: the baseline's mean is shown to be above or below that of our best, both trained in the same way "
    "(Welch's test, p < 0.05 by Holm for all comparisons). *not shown*: neither is. *open*: too few networks. The "
    "numbers count data sets. Under *What was wanted* each line is a question of its own, asked before the study, so "
    "that Holm's correction is for its own comparisons; that was decided after the records were seen, and the table "
    "below has the stricter one."
)


def page(found: Tuned[str], pictures: Sequence[str], tables: Sequence[Table], study: Baselines) -> list[str]:
    """Lines of Markdown."""
    results = duels(found)
    goals, counts, leading = tables
    lines = [*_wins(results, over_depths(found)), "", _not_run(found, study), ""]
    lines += ["## What was wanted", "", *goals.markdown(), ""] if goals.rows else []
    lines += ["## Which initialization, at which depth", "", *pictures, *WORDS, *_too_fast(found), ""]
    lines += [*leading.markdown(), "", "## Verdicts", "", *VERDICTS, "", *counts.markdown(), "", "## Each baseline", ""]
    for name in BASELINES:
        lines += _section(found, name, [duel for duel in results if duel.baseline in (name, name + FAST)])
    lines += ["## All numbers", ""]
    for data in found.data:
        lines += [f"### On {data}", "", *titled(numbers(found, data))]
    return lines


def _too_fast(found: Tuned[str]) -> list[str]:
    """Where a chosen rate was too high: the tuning networks did well, some of the compared ones did not.

    Only on all images, where seeds are tested on the same ones: elsewhere scores vary as much at any rate.
    """
    risky = []
    for (setting, name), scores in found.scores.items():
        if setting.dataset not in IMAGES or setting.shots is not None:
            continue
        reached = max(found.tuned[setting, name].values())
        fell = int((scores < reached - TOO_FAST).sum())
        if fell and reached > 0 and reached >= top_of(found.tuned, setting) - TOO_FAST:
            risky.append(f"{name} ({setting}: {fell} of {len(scores)})")
    if not risky:
        return []
    return [
        "", "A rate that one or two networks chose in a third of the epochs can be too high for all of them. On all",
        f"images some ended {TOO_FAST} points or more below what chose their rate, though that was within {TOO_FAST}",
        f"points of the best: {'; '.join(risky)}. A lower rate would suit these better than their numbers here say.",
    ]  # fmt: skip


def _wins(results: Sequence[Duel], pooled: Sequence[Duel]) -> list[str]:
    won = [duel for duel in results if duel.verdict == "wins"]
    over = [each for each in pooled if each.verdict == "wins"]
    lines = []
    if won:
        lines += ["**Where a baseline wins:**", ""]
        for name in dict.fromkeys(duel.baseline for duel in won):
            where = "; ".join(f"{d.where} ({d.gain:+.1f} over {d.ours})" for d in won if d.baseline == name)
            lines.append(f"- {name}: {where}")
        lines.append("")
    if over:
        lines += ["**Where a baseline wins with all depths taken together** (mean difference to our best):", ""]
        for name in dict.fromkeys(each.baseline for each in over):
            where = "; ".join(f"{each.where} ({each.gain:+.1f})" for each in over if each.baseline == name)
            lines.append(f"- {name}: {where}")
        lines += [
            "", "Differences are taken seed by seed, since networks of one seed have the same data, and averaged over",
            "depths; Student's test, p < 0.05 by Holm for all baselines and data.", "",
        ]  # fmt: skip
    ahead = sum(duel.gain > 0 for duel in results)
    if not won:
        lines += ["**In no single setting is a baseline shown to win.**"]
    return [*lines, f"A baseline has a higher mean than our best in {ahead} of {len(results)} comparisons."]


def _not_run(found: Tuned[str], study: Baselines) -> str:
    settings = study.all_settings(False)
    if found.quick:
        return (
            f"These are the records of `stiefel-init reproduce baselines --quick`: digits alone, {len(found.settings)} "
            f"settings, {found.seeds()} seeds each. The full study ({len(settings)} settings on MNIST, Fashion-MNIST, "
            f"digits and tabular data, depths {', '.join(f'{depth:,}' for depth in DEPTHS)}, {study.seeds} seeds"
            ") was not run, so nothing is said about them here; with so few seeds only the largest differences show."
        )
    missing = [str(setting) for setting in settings if setting not in found.settings]
    epochs = ", ".join(f"{name} {count}" for name, count in EPOCHS.items())
    text = f"{len(found.settings)} settings, {found.seeds()} seeds each; epochs: {epochs}, tables 100; "
    text += "few-shot 100 steps."
    if " to " in found.seeds():
        text += " What reached less than half of the best score at every rate was compared with few seeds."
    return text + (f" Not run: {'; '.join(missing)}." if missing else " All of the study was run.")


def _section(found: Tuned[str], name: str, results: Sequence[Duel]) -> list[str]:
    described = inspect.cleandoc(type(EVERY[name].scheme).__doc__ or "").partition(">>>")[0].strip()
    formula, *rest = described.split("\n\n")
    lines = [f"### {name}", "", formula, ""]
    lines += [line for part in rest for line in (part, "")]
    lines += [f"Needs: {NEEDS.get(name, NOTHING)}.", ""]
    if not results:
        return [*lines, "Result: not run.", ""]
    lines += ["Result, with the verdict and the difference to our best initialization:", ""]
    for each in dict.fromkeys(duel.baseline for duel in results):
        lines += ["With fast ends:", ""] if is_fast(each) else []
        lines += [*_of_baseline(found, each, results).markdown(), ""]
    return [*lines, _prefer(found, results), ""]


def _prefer(found: Tuned[str], results: Sequence[Duel]) -> str:
    """When to prefer it, from the records alone."""
    won = [_place(duel) for duel in results if duel.verdict == "wins"]
    if won:
        return f"When to prefer it: {'; '.join(won)}."
    open_ = [duel for duel in results if duel.verdict in ("not shown", "open")]
    if not open_:
        return "When to prefer it: no evidence in its favour here."
    told = ["When to prefer it: nowhere by these records."]
    ahead = [_place(duel) for duel in open_ if duel.gain > 0]
    if ahead:
        where = "; ".join(ahead) if len(ahead) <= LISTED else f"{len(ahead)} of {len(results)} settings"
        told.append(f"Its mean is ahead of ours, though that is not shown, on: {where}.")
    if len(open_) > len(ahead):
        told.append(f"It is behind, though that is not shown, in {len(open_) - len(ahead)} of {len(results)} settings.")
    top = [_place(duel) for duel in results if duel.baseline == _first(found, duel)]
    if top:
        told.append(f"It has the highest mean of all initializations on: {'; '.join(top)}.")
    return " ".join(told)


def _place(duel: Duel) -> str:
    return str(duel.where) + (FAST if is_fast(duel.baseline) else "")


def _first(found: Tuned[str], duel: Duel) -> str:
    """The initialization with the highest mean among those that were trained in the same way."""
    scores = {
        name: float(values.mean())
        for name, values in found.of(duel.where).items()
        if is_fast(name) == is_fast(duel.baseline)
    }
    return max(scores, key=lambda name: scores[name])


def wanted(found: Tuned[str]) -> Table:
    """The study's targets: at 1,000 layers ahead of every baseline, at 100 not worse, and as wide a range of rates."""
    rows: list[list[str]] = []
    for (whose, ours), fast in product(
        (("our best initialization", None), ("`initialize_(model)`", "recipe")), (False, True)
    ):
        here = [duel for duel in duels(found, ours, apart=True) if is_fast(duel.baseline) == fast]
        who = whose + FAST * fast
        if deepest := [duel for duel in here if duel.where == Setting("mnist", 1000)]:
            rows.append([f"{who}: ahead of every baseline, mnist, 1,000 layers", *_ahead(found, deepest)])
        for dataset in IMAGES:
            if at := [duel for duel in here if duel.where == Setting(dataset, 100)]:
                won, where = any(duel.verdict == "wins" for duel in at), f"{dataset}, 100 layers"
                rows.append([f"{who}: no baseline wins, {where}", _told(found, _best(at)), _reached(not won)])
                rows.append([f"{who}: rates as wide as any baseline's, {where}", *_as_wide(found, at)])
    return Table("what was wanted", ["", "found", ""], rows)


def _reached(yes: bool) -> str:
    return "reached" if yes else "not reached"


def _best(results: Sequence[Duel]) -> Duel:
    """The one with the best baseline."""
    return max(results, key=lambda duel: duel.gain)


def _score(found: Tuned[str], setting: Setting, name: str) -> str:
    return spread(found.scores.get((setting, name)))


def _told(found: Tuned[str], duel: Duel) -> str:
    ours, theirs = (_score(found, duel.where, name) for name in (duel.ours, duel.baseline))
    return f"{duel.ours} {ours}, best baseline {duel.baseline} {theirs} ({duel.verdict})"


def _ahead(found: Tuned[str], results: Sequence[Duel]) -> tuple[str, str]:
    behind = [duel.baseline for duel in results if duel.verdict != "loses"]
    rest = f"; not shown against {', '.join(behind)}" if behind else ""
    return _told(found, _best(results)) + rest, _reached(not behind)


def _as_wide(found: Tuned[str], results: Sequence[Duel]) -> tuple[str, str]:
    setting, mine = results[0].where, results[0].ours
    widths = {duel.baseline: found.working(setting, duel.baseline) or 0.0 for duel in results}
    widest = max(widths, key=lambda name: widths[name])
    told = f"{mine} {found.working_text(setting, mine)}, widest baseline {widest} {found.working_text(setting, widest)}"
    return told, _reached((found.working(setting, mine) or 0.0) >= widths[widest])


def _by_depth(title: str, found: Tuned[str], rows: Iterable[tuple[str, Callable[[int], str]]]) -> Table:
    """A row for each name, a column for each depth; rows without anything are left out."""
    depths = found.depths()
    made = [[name, *(text(depth) for depth in depths)] for name, text in rows]
    header = ["", *(f"{depth:,} layers" for depth in depths)]
    return Table(title, header, [row for row in made if any(text != MISSING for text in row[1:])])


def verdict_counts(found: Tuned[str]) -> Table:
    """Each baseline against the best of ours: a column for each depth, counted over the data."""
    counts = Counter((duel.baseline, duel.where.depth, duel.verdict) for duel in duels(found))

    def row(name: str) -> Callable[[int], str]:
        words = "wins", "open", "not shown", "loses"
        return lambda depth: ", ".join(f"{word} {n}" for word in words if (n := counts[name, depth, word])) or MISSING

    return _by_depth("verdicts against the best of ours", found, [(name, row(name)) for name in EVERY])


def leaders(found: Tuned[str]) -> Table:
    """Our best initialization and the best baseline, for data and depths; bold where one is shown to be ahead."""
    results = duels(found)

    def row(data: Data, fast: bool) -> Callable[[int], str]:
        here = [duel for duel in results if duel.where.data == data and is_fast(duel.baseline) == fast]
        return lambda depth: _leader(found, [duel for duel in here if duel.where.depth == depth])

    rows = [(str(data) + FAST * fast, row(data, fast)) for data, fast in product(found.data, (False, True))]
    return _by_depth("our best initialization, then the best baseline", found, rows)


def _leader(found: Tuned[str], results: Sequence[Duel]) -> str:
    if not results:
        return MISSING
    duel = _best(results)
    means = {name: _score(found, duel.where, name).partition(" ±")[0] for name in (duel.ours, duel.baseline)}
    ahead = {"loses": duel.ours, "wins": duel.baseline}.get(duel.verdict)
    texts = {name: f"{name.partition(',')[0]} {mean}" for name, mean in means.items()}
    return ", ".join(f"**{text}**" if name == ahead else text for name, text in texts.items())


def _of_baseline(found: Tuned[str], name: str, results: Sequence[Duel]) -> Table:
    """A baseline's scores, for data and depths, with the verdicts."""
    at = {duel.where: duel for duel in results if duel.baseline == name}

    def row(data: Data) -> Callable[[int], str]:
        def text(depth: int) -> str:
            duel = at.get(Setting(data.dataset, depth, data.shots))
            return (duel and f"{_score(found, duel.where, name)} ({duel.verdict}, {duel.gain:+.1f})") or MISSING

        return text

    return _by_depth("", found, [(str(data), row(data)) for data in found.data])


def _steps(found: Tuned[str], setting: Setting, name: str) -> str:
    """Only of initializations that end near the best: one that learns nothing is soon where it ends."""
    means = {other: float(values.mean()) for other, values in found.of(setting).items()}
    value = found.speed.get((setting, name), {}).get("steps")
    near = value is not None and name in means and means[name] >= WORKS * max(means.values())
    return f"{value:.0f}" if near else MISSING


def _seconds(found: Tuned[str], setting: Setting, name: str) -> str:
    """Of a network, in a stack of many."""
    value = found.speed.get((setting, name), {}).get("seconds")
    return MISSING if value is None else f"{value:.2f}"


MEASURES: dict[str, Callable[[Tuned[str], Setting, str], str]] = {
    "test accuracy (%), or error of regressions, at the best rate": _score,
    "rates that work: the highest over the lowest": lambda found, *key: found.working_text(*key),
    "steps to 90 % of the final accuracy, of initializations that reach 90 % of the best": _steps,
    "seconds for a network": _seconds,
}


def numbers(found: Tuned[str], data: Data) -> list[Table]:
    """The measures of all initializations on some data, by depth; what nothing is known of is left out."""
    settings = [setting for setting in found.settings if setting.data == data]
    names = [name for name in EVERY if any((setting, name) in found.scores for setting in settings)]
    header = ["", *(f"{setting.depth:,} layers" for setting in settings)]
    made = []
    for title, value in MEASURES.items():
        texts = [[value(found, setting, name) for setting in settings] for name in names]
        if any(text != MISSING for row in texts for text in row):
            made.append(Table(title, header, [[_marked(name), *row] for name, row in zip(names, texts)]))
    return made


def _marked(name: str) -> str:
    return f"{name} (ours)" if name in MINE else name


SETS = 2
"""Data sets that are drawn: the first of the study, with all their rows."""
DARK = 12.0
"""Points behind the best from which on all is one colour."""


def over_depth(found: Tuned[str]) -> Figure:
    """A panel for each data set and way to train: mean accuracy of each initialization at each depth, ours first.

    The colour says how far one is behind the best of its depth in the same panel; the best is bold.
    """
    classes = [data for data in found.data if data.shots is None and _classes(found, data)][:SETS]
    panels = [
        (data, fast, depths) for data, fast in product(classes, (False, True)) if (depths := _drawn(found, data, fast))
    ]

    def mean(data: Data, depth: int, name: str) -> float:
        values = found.scores.get((Setting(data.dataset, depth), name))
        return np.nan if values is None else float(np.maximum(values, 0).mean())

    def rank(name: str) -> tuple[bool, float]:
        means = [mean(data, depth, name + FAST * fast) for data, fast, depths in panels for depth in depths]
        known = [value for value in means if not np.isnan(value)]
        return name not in MINE, -float(np.mean(known)) if known else 0.0

    names = sorted(NAMES, key=rank)
    size = (1.3 + 0.85 * max((len(depths) for *_, depths in panels), default=1), 1.4 + 0.27 * len(names))
    label = "Which initialization, at which depth: test accuracy"
    figure, axes = plots.figure(max(len(panels), 1), size=size, label=label)
    for place, (axis, (data, fast, depths)) in enumerate(zip(axes[0], panels)):
        _panel(axis, np.array([[mean(data, depth, name + FAST * fast) for depth in depths] for name in names]))
        axis.set_xticks(range(len(depths)), [f"{depth:,}" for depth in depths])
        axis.set(title=f"{data}{FAST * fast}", xlabel="layers")
        axis.set_yticks(range(len(names)), list(map(_marked, names)) if not place else [])
        for text, name in zip(axis.get_yticklabels(), names):
            text.set_fontweight("bold" if name in MINE else "normal")
    title = (
        "Mean test accuracy (%), each initialization at its best rate;\ndarker: further behind the best of its column"
    )
    figure.suptitle(title)
    return figure


def _classes(found: Tuned[str], data: Data) -> bool:
    """Whether it is a problem of classes: errors are below zero."""
    return all(values.max() > 0 for (where, _), values in found.scores.items() if where.dataset == data.dataset)


def _drawn(found: Tuned[str], data: Data, fast: bool) -> list[int]:
    return sorted({where.depth for where, name in found.scores if where.data == data and is_fast(name) == fast})


def _panel(axis: Axes, means: np.ndarray) -> None:
    best = np.nanmax(means, axis=0)
    axis.imshow(best - means, cmap="YlGnBu", vmin=0, vmax=DARK, aspect="auto")
    for (row, column), value in np.ndenumerate(means):
        if not np.isnan(value):
            axis.text(
                column, row, f"{value:.1f}", ha="center", va="center", fontsize=8,
                color="white" if best[column] - value > 0.6 * DARK else "black",
                fontweight="bold" if value == best[column] else "normal",
            )  # fmt: skip
    axis.grid(visible=False)
    axis.tick_params(length=0)
