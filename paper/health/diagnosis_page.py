"""docs/diagnosis-accuracy.md, from the record of the study of `diagnose`, and the rules in docs/diagnose.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from stiefel_init.health import AT_INITIALIZATION as RULES
from stiefel_init.lab.report.tables import Table

from .diagnosis import Row, read


def page() -> list[str]:
    """docs/diagnosis-accuracy.md."""
    record = read()
    rows = record["rows"]
    lines = [
        "# How often is `diagnose` right?",
        "",
        "Made by `make docs` from the record of `python -m paper.health.diagnosis --write`.",
        "",
        f"{len(rows)} small networks (plain, convolutional, residual, transformers, recurrent; on digits, breast",
        "cancer, a synthetic regression and a memory task) were diagnosed at the start, then trained for",
        f"{record['steps']} steps of Adam at the best of {len(record['rates'])} rates.",
        "A network's score is the share of the best constant output's loss that training removed. Against the best",
        "network of its task, architecture and depth, a network is *sick* below half of that score, *healthy* from 0.8",
        "of it on, and *slow* in between, where either verdict is accepted. Where that best score is below",
        f"{record['least']}, so that nothing of the kind learns, {record['least']} is taken instead.",
        "",
        "The rules were written and their thresholds set by hand with all networks in view but the fresh ones. A",
        "search that misses the fewest sick networks and calls a given share of the healthy ones sick chooses the",
        f"same thresholds if that share is {record['allowed']:.2%}; that share was fitted to them later. The fresh",
        "networks have other depths, seeds and mixtures, and were first looked at when all rules and thresholds stood.",
        "They are the third set that was drawn fresh, for the third version of the rules. The two before,",
        f"{_earlier(record)}, have been looked at since, and serve the thresholds.",
        "",
        *_summary(record["parts"]),
        "",
        "A planted fault counts if it made a network sick that was found; its cause is right if it is one of them.",
        "",
    ]
    for part, told in record["parts"].items():
        table = [[truth, *map(str, counts.values())] for truth, counts in told["confusion"].items()]
        header = ["in training", "called sick", "healthy, with a warning", "healthy"]
        lines += [f"{PARTS[part].capitalize()}:", "", *Table("", header, table).markdown(), ""]
    lines += [_notes(rows), "", "By architecture and by task, all networks:", ""]
    lines += [*_by(rows, "architecture"), "", *_by(rows, "task"), ""]
    lines += ["By planted fault:", "", *_faults(rows), ""]
    lines += ["What it gets wrong:", "", *_wrong(rows), ""]
    lines += [
        "The thresholds that these networks choose (of 1, 1.5, 2, 2.5, 3, 4, 5, 6 and 8 times the powers of ten, and",
        "the tenths), and those in use:",
        "",
        *_thresholds(record),
        "",
        "Other tasks, optimizers and more steps move these lines: plain gradient descent suffers from small gradients",
        "that Adam makes up for, and a network that is sick here may train with patience.",
    ]
    return lines


PARTS = {"chosen on": "used for the thresholds", "fresh": "fresh networks"}


def _earlier(record: Mapping[str, Any]) -> str:
    """What the versions before found on the networks that were fresh then."""
    shares = [(version["found"], version["false alarms"]) for version in record["earlier"]]
    return " and ".join(f"{found:.1%} found and {false:.1%} called sick" for found, false in shares)


def _summary(parts: dict[str, Any]) -> list[str]:
    table = [
        [
            PARTS[part],
            str(told["networks"]),
            f"{told['found']:.1%} of {told['sick']}",
            f"{told['false alarms']:.1%} of {told['healthy']}",
            f"{told['cause right']:.1%} of {told['planted']}",
        ]
        for part, told in parts.items()
    ]
    header = ["", "networks", "sick ones found", "healthy ones called sick", "causes of planted faults right"]
    return Table("", header, table).markdown()


def rules() -> list[str]:
    """The table of the rules in docs/diagnose.md."""
    limit = {math.inf: "—"}
    table = [
        [
            kind,
            rule.quantity,
            limit.get(rule.threshold, f"{rule.threshold:,g}"),
            limit.get(rule.warning, f"{rule.warning:,g}"),
            "—" if rule.threshold in limit else rule.source,
        ]
        for kind, rule in RULES.items()
    ]
    header = ["finding", "measured", "sick above", "warning above", "where the first limit comes from"]
    return Table("", header, table).markdown()


def _notes(rows: list[Row]) -> str:
    """What the numbers of the fresh networks are made of."""
    fresh = [row for row in rows if row["part"] == "fresh"]
    missed = [row for row in fresh if row["truth"] == "sick" and not row["findings"]]
    false = [row for row in fresh if row["truth"] == "healthy" and row["findings"]]
    warned = sum(bool(row["warnings"]) for row in missed)
    near = sum(row["share"] > 0.4 for row in missed)
    return (
        f"Of the {len(missed)} fresh networks that were missed, {warned} got a warning, and {near} reached more than "
        f"0.4 of the best score, where 0.5 is no longer sick; {len(false)} were called sick and trained. "
        "Training has to undo what a start does to the signal in every layer at once, so a network of few layers makes "
        "up for what keeps a deep one from training: three of the rules multiply by the number of layers. "
        "Targets that three directions of the inputs tell to 40 % or more are learned by networks that are sick "
        "elsewhere; for these, rules about small signals ask whether anything is left at all."
    )


def _by(rows: list[Row], key: str) -> list[str]:
    table = []
    for name in dict.fromkeys(row[key] for row in rows):
        of_name = [row for row in rows if row[key] == name]
        sick = [row for row in of_name if row["truth"] == "sick"]
        healthy = [row for row in of_name if row["truth"] == "healthy"]
        found = sum(bool(row["findings"]) for row in sick)
        false = sum(bool(row["findings"]) for row in healthy)
        table.append([name, str(len(of_name)), f"{found} of {len(sick)}", f"{false} of {len(healthy)}"])
    return Table("", [key, "networks", "sick ones found", "healthy ones called sick"], table).markdown()


def _faults(rows: list[Row]) -> list[str]:
    table = []
    for fault in dict.fromkeys(row["fault"] for row in rows if row["fault"]):
        of_fault = [row for row in rows if row["fault"] == fault]
        truths = Counter(row["truth"] for row in of_fault)
        said = Counter(cause for row in of_fault for cause in row["causes"] or ["—"])
        warned = Counter(kind for row in of_fault for kind in row["warnings"])
        causes = ", ".join(f"{cause} {count}" for cause, count in said.most_common())
        table.append(
            [
                fault,
                ", ".join(f"{truth} {truths[truth]}" for truth in ("sick", "slow", "healthy") if truths[truth]),
                causes,
                ", ".join(f"{kind} {count}" for kind, count in warned.most_common(3)) or "—",
            ]
        )
    return Table("", ["fault", "in training", "causes told", "warnings"], table).markdown()


def _wrong(rows: list[Row]) -> list[str]:
    table = [
        [
            " ".join(
                str(row[key]) for key in ("task", "architecture", "depth", "activation", "start", "fault")
            ).strip(),
            f"{row['truth']} ({row['share']:.2f})",
            ", ".join(row["findings"]) or "healthy",
        ]
        for row in rows
        if row["truth"] != "slow" and (row["truth"] == "sick") != bool(row["findings"])
    ]
    return Table("", ["network", "in training (share of the best)", "verdict"], table).markdown()


def _thresholds(record: dict[str, Any]) -> list[str]:
    table = [
        [kind, rule.quantity, f"{record['chosen'][kind]:g}", f"{rule.threshold:g}"]
        for kind, rule in RULES.items()
        if math.isfinite(rule.threshold) and rule.source == "study"
    ]
    return Table("", ["finding", "measured", "chosen", "in use"], table).markdown()
