"""Does `diagnose` tell which networks train? docs/diagnosis-accuracy.md, and the rules in docs/rules.md.

A network's score is the share of the best constant output's loss that 200 steps of Adam remove, at the best of three
rates. It is held against the best score of any network of its task, architecture and depth: below half of it the
network is sick, from 0.8 of it on healthy; in between it is slow, and either verdict is accepted. Where the best score
of a kind is below 0.25, that is taken instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from benchmarks import timing
from benchmarks.timing import markdown
from tools.drawings import bars

from stiefel_init.health import AT_INITIALIZATION as RULES
from stiefel_init.lab.report.tables import wrapped

from .trainability import FAULTS, FRESH, Row

RECORD = "diagnosis-cpu"
SICK, HEALTHY, LEAST = 0.5, 0.8, 0.25
TRUTHS = "sick", "slow", "healthy"
PARTS_OF = {"chosen on": "used for the thresholds", "fresh": "fresh networks"}
ALLOWED = 0.0125
"""Of the healthy networks, called sick. At this share the search agrees with the thresholds in use, which were set by
hand; set after the fresh networks had been looked at. With 2 % it would loosen two of them."""
SHARES = (*(round(0.1 * k, 1) for k in range(1, 10)), 0.95, 0.99)
POWERS = tuple(digit * 10.0**power for power in range(22) for digit in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8))


def read() -> dict[str, Any]:
    record = timing.kept(RECORD)
    columns, rules = record.pop("columns"), record.pop("rules")
    record["rows"] = [dict(zip(columns, values, strict=True)) for values in record["rows"]]
    for row in record["rows"]:
        row["measured"] = {kind: value for kind, value in zip(rules, row["measured"]) if value is not None}
    return record


def write(record: Mapping[str, Any]) -> None:
    """Keep the record as small as it can be read: a line of values for each network, which `columns` names; what the
    rules measured is a list in the order of `rules`, null where one does not apply."""
    rows = judged(record["rows"])
    rules = list(dict.fromkeys(kind for row in rows for kind in row["measured"]))
    chosen = choose([row for row in rows if row["part"] == "chosen on"], {k: r.threshold for k, r in RULES.items()})
    values = [[*({**row, "measured": [row["measured"].get(kind) for kind in rules]}).values()] for row in rows]
    head = {**record, "chosen": chosen, "columns": list(rows[0]), "rules": rules}
    timing.write(RECORD, {**head, "rows": values}, "rows")


def judged(rows: Sequence[Row]) -> list[Row]:
    """The rows with `share`, their score over the best of their kind, `truth`, and `part`, one of `PARTS_OF`."""
    best: dict[tuple[str, str, int], float] = {}
    for row in rows:
        if row["fault"] != "trained":  # which has had more steps
            best[_kind(row)] = max(best.get(_kind(row), LEAST), row["score"])
    result = []
    for row in rows:
        share = min(1.0, row["score"] / best.get(_kind(row), LEAST))
        truth = "sick" if share < SICK else "healthy" if share >= HEALTHY else "slow"
        part = "fresh" if row["seed"] == FRESH else "chosen on"
        result.append({**row, "share": round(share, 4), "truth": truth, "part": part})
    return result


def _kind(row: Row) -> tuple[str, str, int]:
    return row["task"], row["architecture"], row["depth"]


def choose(rows: Sequence[Row], thresholds: Mapping[str, float]) -> dict[str, float]:
    """The thresholds that miss the fewest sick networks and call at most `ALLOWED` of the healthy ones sick.

    They are moved one after the other and all over again, from the given ones and from the loosest. A threshold stays
    where no other is better; of equally good ones the middle is taken. Only rules whose threshold is from the study are
    moved; those with an infinite one only warn.
    """
    kinds = [kind for kind, limit in thresholds.items() if math.isfinite(limit)]
    measured = np.array([[row["measured"].get(kind, 0.0) for kind in kinds] for row in rows])
    learned = np.array([row["learned"] for row in rows])
    sick, healthy = (np.array([row["truth"] == truth for row in rows]) for truth in ("sick", "healthy"))

    def cost(limits: np.ndarray) -> tuple[float, int]:
        called = ~learned & (measured > limits).any(1)
        false = int((healthy & called).sum())
        return int((sick & ~called).sum()) + 10 * max(0.0, false - ALLOWED * healthy.sum()), false

    given = np.array([thresholds[kind] for kind in kinds])
    free = [at for at, kind in enumerate(kinds) if RULES[kind].source == "study"]
    candidates = {at: SHARES if given[at] < 1 else POWERS for at in free}
    loosest = given.copy()
    loosest[free] = [candidates[at][-1] for at in free]
    ends = []
    for limits in (given, loosest):
        for _ in range(6):
            before = limits.copy()
            for at in free:
                costs = {limit: cost(np.where(np.arange(len(kinds)) == at, limit, limits)) for limit in candidates[at]}
                good = [limit for limit in costs if costs[limit] == min(costs.values())]
                limits[at] = limits[at] if limits[at] in good else good[len(good) // 2]
            if (limits == before).all():
                break
        ends.append(limits)
    return dict(zip(kinds, map(float, sorted(ends, key=cost)[0])))


# Pages.


def _parts() -> dict[str, list[Row]]:
    rows = read()["rows"]
    return {words: [row for row in rows if row["part"] == part] for part, words in PARTS_OF.items()}


def measured() -> list[str]:
    """How many networks there are, and how they were trained."""
    record = read()
    earlier = " and ".join(f"{one['found']:.1%} found and {one['false alarms']:.1%} called sick"
                           for one in record["earlier"])  # fmt: skip
    return wrapped(
        f"{len(record['rows'])} networks, {record['steps']} steps of Adam at the best of {len(record['rates'])} rates. "
        f"Where the best score of a kind is below {record['least']}, so that nothing of the kind learns, "
        f"{record['least']} is taken instead. The search for thresholds chooses those in use if it may call "
        f"{record['allowed']:.2%} of the healthy ones sick; that share was fitted to them later. What earlier versions "
        f"of the rules said of networks that were fresh then: {earlier}."
    )


def _rates() -> dict[str, list[str]]:
    """Of the networks that the thresholds were chosen with and of fresh ones: found, called sick, causes right."""
    return {words: [*_found(some, "{:.1%} of {}"), _causes(some)] for words, some in _parts().items()}


def picture() -> str:
    """Docs/diagnosis-accuracy.svg."""
    shown = "sick networks found", "healthy ones called sick", "causes of planted faults right"
    rates = _rates()
    groups = {name: {words: float(each[row].partition("%")[0]) for words, each in rates.items()}
              for row, name in enumerate(shown)}  # fmt: skip
    return bars(groups, "How often diagnose is right about small networks.", form="{:.1f} %")


def counts() -> list[str]:
    """How many sick ones are found, and what is said of each."""
    parts = _parts()
    rows = [[words, str(len(parts[words])), *rates] for words, rates in _rates().items()]
    columns = ["", "networks", "sick ones found", "healthy ones called sick", "causes of planted faults right"]
    lines = markdown(columns, rows)
    header = ["fresh networks, in training", "called sick", "healthy, with a warning", "healthy"]
    fresh = parts["fresh networks"]
    said = Counter((row["truth"], _verdict(row)) for row in fresh)
    lines += markdown(header, [[t, *(str(said[t, verdict]) for verdict in header[1:])] for t in TRUTHS])
    missed = [row for row in fresh if row["truth"] == "sick" and not row["findings"]]
    return lines + wrapped(
        f"Of the {len(missed)} fresh networks that were missed, {sum(bool(row['warnings']) for row in missed)} got a "
        f"warning, and {sum(row['share'] > 0.4 for row in missed)} reached more than 0.4 of the best score, where 0.5 "
        f"is no longer sick. In all, {len(wrong()[1])} networks are judged wrongly."
    )


def groups() -> list[str]:
    """By architecture."""
    return _by(read()["rows"], "architecture")[:-1]


def wrong() -> timing.Listed:
    """All networks that are judged wrongly."""
    names = ("task", "architecture", "depth", "activation", "start", "fault")
    table = [
        [*(str(row[name]) for name in names), row["truth"], f"{row['share']:.2f}",
         ", ".join(row["findings"]) or "healthy"]
        for row in read()["rows"]
        if row["truth"] != "slow" and (row["truth"] == "sick") != bool(row["findings"])
    ]  # fmt: skip
    return [*names, "in training", "share of the best", "verdict"], table


PARTS = {"measured": measured, "counts": counts, "groups": groups}
"""Of docs/diagnosis-accuracy.md."""


def rules() -> list[str]:
    """The table of the rules in docs/rules.md."""

    def limit(value: float) -> str:
        return "—" if math.isinf(value) else f"{value:,g}"

    header = ["finding", "measured", "sick above", "warning above", "where the first limit comes from"]
    return markdown(header, [
        [kind, rule.quantity, limit(rule.threshold), limit(rule.warning),
         "—" if math.isinf(rule.threshold) else rule.source]
        for kind, rule in RULES.items()
    ])[:-1]  # fmt: skip


def _verdict(row: Row) -> str:
    return "called sick" if row["findings"] else "healthy, with a warning" if row["warnings"] else "healthy"


def _found(rows: Sequence[Row], form: str) -> list[str]:
    """Of sick ones those that are found, and of healthy ones those that are called sick."""
    texts = []
    for truth in ("sick", "healthy"):
        called = [bool(row["findings"]) for row in rows if row["truth"] == truth]
        texts.append(form.format(sum(called) / len(called) if "%" in form else sum(called), len(called)))
    return texts


def _causes(rows: Sequence[Row]) -> str:
    right = [
        FAULTS[row["fault"]][0] in row["causes"]
        for row in rows
        if row["fault"] not in ("", "trained") and row["truth"] == "sick" and row["findings"]
    ]
    return f"{sum(right) / len(right):.1%} of {len(right)}"


def _by(rows: list[Row], key: str) -> list[str]:
    groups = {name: [row for row in rows if row[key] == name] for name in dict.fromkeys(row[key] for row in rows)}
    table = [[name, str(len(some)), *_found(some, "{} of {}")] for name, some in groups.items()]
    return markdown([key, "networks", "sick ones found", "healthy ones called sick"], table)


def by_fault() -> timing.Listed:
    """What became of each planted fault, and what was said of it."""

    def counted(names: Iterable[str], most: int | None = None) -> str:
        return ", ".join(f"{name} {count}" for name, count in Counter(names).most_common(most)) or "—"

    rows = read()["rows"]
    table = []
    for fault in dict.fromkeys(row["fault"] for row in rows if row["fault"]):
        some = [row for row in rows if row["fault"] == fault]
        truths = Counter(row["truth"] for row in some)
        told = ", ".join(f"{truth} {truths[truth]}" for truth in TRUTHS if truths[truth])
        causes = counted(cause for row in some for cause in row["causes"] or ["—"])
        table.append([fault, told, causes, counted((kind for row in some for kind in row["warnings"]), 3)])
    return ["fault", "in training", "causes told", "warnings"], table
