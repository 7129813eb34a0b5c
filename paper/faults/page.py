"""docs/faults.md, its picture and its table, from the records of `paper.faults.score`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tools import drawings

from stiefel_init.lab.report.tables import Table, wrapped

from . import FAULTS
from .score import FIFTH_LOOK, FIRST_LOOK, FOURTH_LOOK, RECORD, SECOND_LOOK, THIRD_LOOK, WORDS, summary

Rows = list[dict[str, Any]]
SHOWN = ("found", "named", "repaired", "false alarms on the repaired twins")


def read() -> dict[str, Rows]:
    """The rows of each set, the one that nobody had looked at last."""
    rows = [(row, FAULTS[row["name"]].look) for row in json.loads(RECORD.read_text())]
    return {
        "known to the rules": [row for row, look in rows if look < 3 and row["half"] == "choose"],
        "the other half": [row for row, look in rows if look < 3 and row["half"] == "score"],
        "two sets studied since": [row for row, look in rows if look in (3, 4)],
        "a fresh set": json.loads(FIFTH_LOOK.read_text()),
    }


def picture() -> str:
    """Docs/faults.svg: how many of each set."""
    groups = {
        shown: {
            f"{name} ({len(rows)})": 100 * sum(row[word] for row in rows) / len(rows) for name, rows in read().items()
        }
        for word, shown in zip(WORDS, SHOWN)
    }
    return drawings.bars(groups, "Of reported faults, how many are found, named and repaired, by set.")


def every() -> tuple[list[str], list[list[str]]]:
    """All faults with what is said of them: docs/tables/faults.csv."""
    listed = []
    for name, rows in read().items():
        for row in rows:
            fault = FAULTS[row["name"]]
            marks = ["yes" if row[word] else "no" for word in WORDS]
            listed.append([fault.name, fault.cause, _said(row), *marks, name, fault.source])
    return ["fault", "cause", "what is said", "found", "named", "repaired", "false alarm", "set", "source"], listed


def _said(row: Mapping[str, Any]) -> str:
    return ", ".join(dict.fromkeys(kind.partition("/")[0] for kind in row["said"][0]))


def _causes(rows: Sequence[Mapping[str, Any]], missed: bool) -> str:
    """Of faults that nothing is said of, or of those found by a consequence."""
    chosen = [row for row in rows if (not row["found"] if missed else row["found"] and not row["named"])]
    return "; ".join(sorted({FAULTS[row["name"]].cause for row in chosen}))


def page() -> list[str]:
    """docs/faults.md."""
    sets = read()
    fresh = sets["a fresh set"]
    known = [row for rows in sets.values() if rows is not fresh for row in rows]
    looks = [[row for row in json.loads(FIRST_LOOK.read_text()) if row["half"] == "score"]]
    looks += [json.loads(record.read_text()) for record in (SECOND_LOOK, THIRD_LOOK, FOURTH_LOOK)]
    before = "; ".join(
        ", ".join(f"{word} {count}" for word, count in zip(("", *WORDS[1:]), summary(rows))).strip() for rows in looks
    )
    found, named, repaired, alarms = summary(fresh)
    table = Table("", ["", "faults", *SHOWN], [[name, str(len(rows)), *summary(rows)] for name, rows in sets.items()])
    return [
        "# Faults that other people reported", "",
        "![Of reported faults, how many `diagnose` and `watch` find, name and repair](faults.svg)", "",
        *wrapped(f"**What to expect of your bug**: of faults that nobody had in view when the rules were written, "
                 f"something is reported of {found}, often a consequence: the cause is named for {named}, and the "
                 f"advice repairs {repaired}. False alarms: {alarms}."), "",
        "**What to do**: give `diagnose(model, inputs, targets, loss=…, optimizer=…)` all that you have, and `watch`",
        "the training. Where nothing is reported, look at the task itself: which label belongs to which input, what",
        "the loss compares, which step of a sequence is read.", "",
        *table.markdown(), "",
        "*Found*: something is reported that the twin does not have. *Named*: the true cause is stated; a consequence",
        "does not count. *Repaired*: what to do is what repaired it, or the call of `initialize_` that the report",
        "advises trains the broken program. *False alarm*: any finding, warning or event on a twin. Each with two of",
        "three seeds at least.", "",
        "## What is missed", "",
        *wrapped(f"Of the fresh set: {_causes(fresh, True)}."), "",
        *wrapped(f"Of the others: {_causes(known, True)}."), "",
        *wrapped(f"Found by a consequence alone, in the fresh set: {_causes(fresh, False)}."), "",
        "## How it was done", "",
        *wrapped(f"{len(known) + len(fresh)} faults from public issue trackers, forums and published collections are "
                 "re-created as small programs, each with its repaired twin (`python -m paper.faults` lists them). "
                 "[All of them](tables/faults.csv), with their sources and what is said of each. The fresh set was "
                 "written by someone who had not seen the rules, and run once when all rules stood; which of the known "
                 "causes each fault has was written down after the run. One of its false alarms led to a correction "
                 "since."), "",
        *wrapped("The other sets are not untouched: rules were added for what was missed, and corrected for false "
                 f"alarms. When they were fresh, these were found, in turn: {before}. A hash of its name puts a fault "
                 "of the first two into one half or the other. Nearly a hundred programs that train well "
                 "(`tests/torch/healthy.py`) must stay without any report."), "",
        "For comparison, on collections of their own: DeepFD has a recall of 55 %, DEFault detects 94 % and diagnoses",
        "63 %, TrainCheck detects 18 of 20. The collections differ, so the figures do not rank the tools.",
    ]  # fmt: skip
