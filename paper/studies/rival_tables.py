"""The tables of the study of rivals: what was wanted, the verdicts, who is best where, and the numbers behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from stiefel_init.lab.report.tables import Table

from .rival_cells import MINE, NAMES
from .rival_findings import Duel, Found, Group, duels, is_fast
from .tuned import WORKS, Setting

Value = Callable[[Found, Setting, str], str]
VERDICTS = ("wins", "open", "not shown", "loses")
MISSING = "—"


def tables(found: Found) -> list[Table]:
    """What was wanted, the verdicts, and who is best where."""
    return [wanted(found), verdicts(found), leaders(found)]


def wanted(found: Found) -> Table:
    """The study's targets: at 1,000 layers ahead of every rival, at 100 not worse, and as wide a range of rates."""
    rows = []
    for whose, ours in (("our best start", None), ("`initialize_(model)`", "recipe")):
        results = duels(found, ours, apart=True)
        for fast in (False, True):
            way = ", fast ends" if fast else ""
            here = [duel for duel in results if is_fast(duel.rival) == fast]
            deepest = [duel for duel in here if duel.setting == Setting("mnist", 1000)]
            rows.append([f"{whose}{way}: ahead of every rival, mnist, 1,000 layers", *_ahead(found, deepest)])
            for dataset in ("mnist", "fashion-mnist"):
                at, where = [d for d in here if d.setting == Setting(dataset, 100)], f"{dataset}, 100 layers"
                rows.append([f"{whose}{way}: no rival wins, {where}", *_not_worse(found, at)])
                rows.append([f"{whose}{way}: rates as wide as any rival's, {where}", *_as_wide(found, at)])
    return Table("what was wanted", ["", "found", ""], [row for row in rows if row[2]])


def _best_rival(results: Sequence[Duel]) -> Duel:
    return max(results, key=lambda duel: duel.gain)


def _told(found: Found, duel: Duel) -> str:
    return (
        f"{duel.ours} {score(found, duel.setting, duel.ours)}, best rival {duel.rival} "
        f"{score(found, duel.setting, duel.rival)} ({duel.verdict})"
    )


def _ahead(found: Found, results: Sequence[Duel]) -> tuple[str, str]:
    if not results:
        return "", ""
    behind = [duel.rival for duel in results if duel.verdict != "loses"]
    rest = f"; not shown against {', '.join(behind)}" if behind else ""
    return _told(found, _best_rival(results)) + rest, "not reached" if behind else "reached"


def _not_worse(found: Found, results: Sequence[Duel]) -> tuple[str, str]:
    if not results:
        return "", ""
    won = any(duel.verdict == "wins" for duel in results)
    return _told(found, _best_rival(results)), "not reached" if won else "reached"


def _as_wide(found: Found, results: Sequence[Duel]) -> tuple[str, str]:
    if not results:
        return "", ""
    setting, mine = results[0].setting, results[0].ours
    widths = {duel.rival: found.working(setting, duel.rival) or 0.0 for duel in results}
    widest = max(widths, key=lambda rival: widths[rival])
    reached = (found.working(setting, mine) or 0.0) >= widths[widest]
    told = f"{mine} {working(found, setting, mine)}, widest rival {widest} {working(found, setting, widest)}"
    return told, "reached" if reached else "not reached"


def verdicts(found: Found) -> Table:
    """Each rival against the best of ours: a column for each depth, counted over the data."""
    results = duels(found)
    names = [name for name in NAMES if any(duel.rival == name for duel in results)]
    rows = []
    for name in names:
        of = [duel for duel in results if duel.rival == name]
        at = [Counter(duel.verdict for duel in of if duel.setting.depth == depth) for depth in found.depths]
        rows.append([name, *(", ".join(f"{word} {c[word]}" for word in VERDICTS if c[word]) or MISSING for c in at)])
    return Table("verdicts against the best of ours", _depths(found), rows)


def leaders(found: Found) -> Table:
    """Our best start and the best rival, for data and depths; bold where one is shown to be ahead."""
    results = duels(found)
    rows = []
    for group in found.groups:
        for fast in (False, True):
            here = [d for d in results if (d.setting.dataset, d.setting.shots) == group and is_fast(d.rival) == fast]
            if here:
                cells = [_leader(found, [d for d in here if d.setting.depth == depth]) for depth in found.depths]
                rows.append([str(group) + (", fast ends" if fast else ""), *cells])
    return Table("our best start, then the best rival", _depths(found), rows)


def _leader(found: Found, results: Sequence[Duel]) -> str:
    if not results:
        return MISSING
    duel = _best_rival(results)
    names = [duel.ours, duel.rival]
    texts = [f"{name.partition(',')[0]} {_mean(found, duel.setting, name)}" for name in names]
    bold = {"loses": 0, "wins": 1}.get(duel.verdict)
    return ", ".join(f"**{text}**" if place == bold else text for place, text in enumerate(texts))


def _mean(found: Found, setting: Setting, name: str) -> str:
    mean = float(np.abs(found.scores[setting, name]).mean())
    return f"{mean:.1f}" if np.isfinite(mean) else "diverged"


def score(found: Found, setting: Setting, name: str) -> str:
    """Mean and standard deviation of a start in a setting."""
    values = found.scores.get((setting, name))
    if values is None:
        return MISSING
    mean = _mean(found, setting, name)
    return mean + (f" ± {values.std(ddof=1):.1f}" if len(values) > 1 and np.isfinite(values).all() else "")


def working(found: Found, setting: Setting, name: str) -> str:
    """The highest rate that works over the lowest."""
    if (setting, name) not in found.tuned:
        return MISSING
    width = found.working(setting, name)
    return "none" if width is None else f"× {width:g}"


def steps(found: Found, setting: Setting, name: str) -> str:
    """Only of starts that end near the best: one that learns nothing is soon where it ends."""
    means = {other: float(values.mean()) for other, values in found.of(setting).items()}
    value = found.learned(setting, name, "steps")
    near = value is not None and name in means and means[name] >= WORKS * max(means.values())
    return f"{value:.0f}" if near else MISSING


def seconds(found: Found, setting: Setting, name: str) -> str:
    """Of a network, in a stack of many."""
    value = found.learned(setting, name, "seconds")
    return MISSING if value is None else f"{value:.2f}"


MEASURES: tuple[tuple[str, Value], ...] = (
    ("test accuracy (%), or error of regressions, at the best rate", score),
    ("rates that work: the highest over the lowest", working),
    ("steps to 90 % of the final accuracy, of starts that reach 90 % of the best", steps),
    ("seconds for a network", seconds),
)


def numbers(found: Found, group: Group) -> list[Table]:
    """The measures of all starts on some data, by depth; those that nothing is known of are left out."""
    made = [_by_depth(found, group, *measure) for measure in MEASURES]
    return [table for table in made if any(cell != MISSING for row in table.rows for cell in row[1:])]


def _by_depth(found: Found, group: Group, title: str, value: Value) -> Table:
    depths = [setting.depth for setting in found.settings if (setting.dataset, setting.shots) == group]
    settings = [Setting(group.dataset, depth, group.shots) for depth in depths]
    names = [name for name in NAMES if any((setting, name) in found.scores for setting in settings)]
    rows = [[_own(name), *(value(found, setting, name) for setting in settings)] for name in names]
    return Table(title, ["", *(f"{depth:,} layers" for depth in depths)], rows)


def _own(name: str) -> str:
    return f"{name} (ours)" if name in MINE else name


def of_rival(found: Found, name: str, results: Sequence[Duel]) -> Table:
    """A rival's scores, for data and depths, with the verdicts."""
    rows = []
    for group in found.groups:
        at = {d.setting.depth: d for d in results if (d.setting.dataset, d.setting.shots, d.rival) == (*group, name)}
        if at:
            rows.append([str(group), *(_against(found, at.get(depth)) for depth in found.depths)])
    return Table("", _depths(found), rows)


def _against(found: Found, duel: Duel | None) -> str:
    if duel is None:
        return MISSING
    return f"{score(found, duel.setting, duel.rival)} ({duel.verdict}, {duel.gain:+.1f})"


def _depths(found: Found) -> list[str]:
    return ["", *(f"{depth:,} layers" for depth in found.depths)]
