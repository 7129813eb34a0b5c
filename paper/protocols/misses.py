"""The published numbers that disagree with ours: chance, another rate or form, the epoch reported, or none.

Uses records alone. Some have no best epoch, so for them the question of the epoch stays open where the published number
is the better one; where it is the worse one, a best epoch cannot be the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from stiefel_init.lab.data import CATALOG
from stiefel_init.lab.report.tables import Table, wrapped
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..tables.compare import COLLAPSED_WITHIN, Comparison, setting
from ..tables.table import PaperTable

CHANCE, SEEN, UNSEEN, RATE, EPOCH, OPEN, NONE = (
    "chance", "collapse", "unseen collapse", "another rate or form", "best epoch", "open", "unexplained",
)  # fmt: skip
MEANING = {
    CHANCE: "by itself no further out than the furthest of so many runs of ours would be (p ≥ 0.05 / judged numbers); "
    "all together they are more than chance makes if the count above says so",
    SEEN: "one of the two collapsed and the other did not, and our seeds do both; p is that of their side",
    UNSEEN: "the same, but none of our seeds is on their side; p is what the rule of succession leaves for it",
    RATE: "networks on record that differ only in the rate, or in the form of Lee's initialization, agree with it",
    EPOCH: "our best epoch agrees with it",
    OPEN: "it is better than ours and alive: the best epoch could be the reason, but our records do not have it",
    NONE: "none of these",
}


@dataclass(frozen=True)
class Miss:
    """A published number that disagrees with ours."""

    comparison: Comparison
    reason: str
    p: float
    """Of one more run of ours being as far out; of a collapse, that of its side."""
    rates: bool = True
    """Whether there are networks at another rate, or of another form, to look at."""

    def row(self) -> list[str]:
        """A line of the table."""
        c = self.comparison
        ours = f"{c.mean:.2f} ± {c.std:.2f}"
        p = f"{self.p:.3f}" if self.p >= 0.001 else "< 0.001"
        return [setting(c.published), str(c.published.scheme), f"{c.published.value:.2f}", ours, p, self.reason]


def one_run(comparison: Comparison) -> float:
    """p of one more run of ours, or one more mean, being as far from ours as the published number (two-sided)."""
    n, distance = len(comparison.scores), abs(comparison.difference)
    if comparison.published.std is not None:
        return float(2 * stats.norm.sf(comparison.standard_errors))
    if comparison.std == 0:
        return 1.0 if distance < 0.005 else 0.0
    return float(2 * stats.t.sf(distance / (comparison.std * math.sqrt(1 + 1 / n)), n - 1))


Settings = Mapping[Cell, Sequence[Record]]
"""The records of each setting: of all seeds."""


def by_setting(records: Mapping[Cell, Record]) -> Settings:
    """Records by what their networks share but for the seed."""
    found: dict[Cell, list[Record]] = {}
    for record in records.values():
        found.setdefault(record.cell.setting, []).append(record)
    return found


def misses(table: PaperTable, evidence: Sequence[Record], settings: Settings) -> list[Miss]:
    """The numbers of a table that disagree, each with the first reason that holds."""
    compared = [comparison for comparison in table.compare(evidence) if comparison.judged]
    return [_miss(table, one, settings, len(compared)) for one in compared if not one.agrees]


def _miss(table: PaperTable, comparison: Comparison, settings: Settings, judged: int) -> Miss:
    number, p = comparison.published, one_run(comparison)
    floor = CATALOG[number.dataset].floor or 0.0
    theirs, ours = (x <= floor + COLLAPSED_WITHIN for x in (np.array([number.value]), comparison.scores))
    if (ours != theirs[0]).any():
        same = int((ours == theirs[0]).sum())
        return Miss(comparison, SEEN if same else UNSEEN, (same + 1) / (len(ours) + 2))
    cell = table.cell(
        number.dataset, str(number.scheme), number.depth, activation=number.activation, shots=number.shots,
        alpha=number.alpha,
    )  # fmt: skip
    if p >= 0.05 / judged:
        return Miss(comparison, CHANCE, p)
    others = _others(cell, settings)
    if any(Comparison(number, scores).agrees for scores in others):
        return Miss(comparison, RATE, p)
    best = [record.best for record in settings.get(cell.setting, ()) if record.best is not None]
    if len(best) > 1:
        return Miss(comparison, EPOCH if Comparison(number, np.array(best)).agrees else NONE, p, bool(others))
    return Miss(comparison, OPEN if number.value > comparison.mean else NONE, p, bool(others))


def _others(cell: Cell, settings: Settings) -> list[np.ndarray]:
    """Scores of networks that differ in the rate, or are Lee's in another form; two seeds or more of each."""
    lee = str(cell.scheme).startswith("lee")
    found = []
    for other, records in settings.items():
        form = str(other.scheme).startswith("lee") if lee else other.scheme == cell.scheme
        if form and other != cell.setting and replace(other, scheme=cell.scheme, rate=cell.rate) == cell.setting:
            found.append(np.array([record.score for record in records]))
    return [scores for scores in found if len(scores) > 1]


def section(tables: Sequence[tuple[PaperTable, Sequence[Record]]], records: Mapping[Cell, Record]) -> list[str]:
    """Lines of Markdown: the counts, what they mean, and every number."""
    if not tables:
        return ["No records of the paper's tables: nothing is known.", ""]
    lines, rows, settings = [], [], by_setting(records)
    for table, evidence in tables:
        found = misses(table, evidence, settings)
        lost = sum(miss.reason in (OPEN, NONE) for miss in found)
        judged = [comparison for comparison in table.compare(evidence) if comparison.judged]
        varied = sum(comparison.std > 0 for comparison in judged)
        surplus = float(stats.binom.sf(len(found) - 1, varied, 0.05))
        unknown = sum(miss.reason == NONE and not miss.rates for miss in found)
        rows.append([len(judged), len(judged) - len(found), len(found) - lost, lost])
        counts = Counter(miss.reason for miss in found)
        parts = ", ".join(f"{counts[reason]} {reason}" for reason in MEANING if counts[reason])
        text = (
            f"**{table.title}.** {len(found)} of {len(judged)} numbers disagree; by chance alone {0.05 * varied:.0f} "
            f"of the {varied} whose seeds differ would, so many or more with p = {surplus:.2g}. Reasons: {parts}. "
        )
        if unknown:
            text += f"For {unknown} of the unexplained no networks at another rate are on record. "
        lines += [
            *wrapped(text + _lean(judged)),
            "",
            *Table(
                "", ["number", "scheme", "published", "ours", "p", "reason"], [miss.row() for miss in found]
            ).markdown(),
            "",
        ]
    names = [table.name for table, _ in tables]
    whole = [sum(column) for column in zip(*rows)]
    shown = [[name, *map(str, row)] for name, row in zip([*names, "all"], [*rows, whole])]
    summary = Table("", ["table", "numbers", "agree", "disagree for a reason below", "unexplained"], shown)
    head = f"{whole[1] + whole[2]} of {whole[0]} published numbers agree or have a reason:"
    return [
        head,
        "",
        *summary.markdown(),
        "",
        *lines,
        "What the reasons mean:",
        "",
        *(f"- *{reason}*: {text}." for reason, text in MEANING.items()),
        "",
    ]


def _lean(judged: Sequence[Comparison]) -> str:
    """Whether published numbers of living networks lie above ours, as best epochs would."""
    alive: dict[str, list[bool]] = {}
    for one in judged:
        floor = CATALOG[one.published.dataset].floor
        if floor is not None and not one.collapsed and one.published.value > floor + COLLAPSED_WITHIN:
            alive.setdefault(str(one.published.scheme), []).append(one.published.value > one.mean)
    if not alive:
        return ""
    every = [above for found in alive.values() for above in found]
    p = float(stats.binomtest(sum(every), len(every)).pvalue)
    texts = ", ".join(f"{scheme} {sum(above)} of {len(above)}" for scheme, above in alive.items())
    return (
        f"Where nothing collapsed, the published number is above our mean in {sum(every)} of {len(every)} cells (sign "
        f"test: p = {p:.2g}): {texts}. Reporting the best epoch would put nearly all above."
    )
