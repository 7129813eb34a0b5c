"""What `diagnose` and `watch` say of the catalogue's programs.

    python -m paper.faults.score [--half choose|score] [--look 1|2|3|4|5] [--write] [NAME …]

A fault is *found* where something is reported that its repaired twin does not have; *named* where what is reported
states its cause, by `STATES`: a consequence does not count. It is *repaired* where it is named and what to do is what
its repair did, by the twin; or, where the report says to call `initialize_`, where the broken program trains after that
call. A *false alarm* is anything that is reported of a twin: a finding or a warning at initialization, or an event in
training. Each with most of the seeds. Two processes, two minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import multiprocessing
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from stiefel_init import StiefelError
from stiefel_init.torch import diagnose, initialize_, watch

from . import FAULTS
from .catalogue import SEEDS, Fault, Program, half

RECORD = Path(__file__).parents[2] / "benchmarks" / "records" / "faults-cpu.json"
WORDS = ("found", "named", "repaired", "alarm")
FIRST_LOOK = RECORD.with_name("faults-first-look.json")
"""The first run of the second half, before anything was changed for what it showed."""
SECOND_LOOK = RECORD.with_name("faults-second-look.json")
"""The first run of what the second half got later, when `diagnose` had learned to try before it blames."""
THIRD_LOOK = RECORD.with_name("faults-third-look.json")
"""The first run of the faults that were written without a look at the rules; rules were chosen with them since."""
FOURTH_LOOK = RECORD.with_name("faults-fourth-look.json")
FIFTH_LOOK = RECORD.with_name("faults-fifth-look.json")
"""The first runs of those that were written after that, again without a look at the rules."""
EVERY = 5  # steps between samples: the programs are short


def _states() -> dict[str, tuple[str, ...]]:
    with Path(__file__).with_name("states.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["report"]: tuple(each["cause"] for each in rows if each["report"] == row["report"]) for row in rows}


STATES = _states()
"""What a report of each kind says the cause is: `states.csv`."""
SAID = {
    "weights are all zero": "are all zero",
    "no skip connection": "without a skip connection or a normalization",
    "branches are added up": "branches are added up without a normalization",
}
"""What sentences of the verdict say beside the findings' kinds."""


class Reports(NamedTuple):
    """What was reported of a program: kinds with what is called their cause, and what to do."""

    kinds: frozenset[str]
    advice: str
    """The first."""
    score: float


def reports(program: Program) -> Reports:
    """Diagnose a program, then watch it train."""
    kinds, advice = [], []
    try:
        diagnosis = diagnose(
            program.model, program.inputs, program.targets, loss=program.loss, optimizer=program.optimizer
        )
        findings = (*diagnosis.findings, *diagnosis.warnings)
        kinds = [f"{finding.kind}/{finding.cause}" for finding in findings]
        kinds += [kind for kind, words in SAID.items() if any(words in line for line in diagnosis.verdict)]
        advice = [finding.advice for finding in findings]
    except StiefelError as error:
        kinds = ["inputs are not finite"] if "non-finite" in str(error) else [f"refused: {error}"]
    with watch(program.model, every=EVERY, report=lambda event: None) as watched:
        score = program.train(lambda step, loss: watched.step(loss))
        told = [event for event in (*watched.events, *watched.open) if not event.recovered]
        kinds += [event.kind for event in told]
        kinds += (
            ["inputs are not finite"] if any("the inputs are not finite" in event.sentence for event in told) else []
        )
        advice += [event.advice for event in told]
    return Reports(frozenset(kinds), next(iter(advice), ""), score)


def stated(report: str) -> tuple[str, ...]:
    """The causes that a report states: by its kind, and by its kind together with what it calls the cause."""
    return STATES.get(report.partition("/")[0], ()) + STATES.get(report, ())


def _is_repaired(fault: Fault, seed: int, broken: Reports, twin: Reports, named: bool) -> bool:
    if "initialize_(model" not in broken.advice:
        return named
    program = fault.make(False, seed)
    initialize_(program.model, seed=seed)
    return program.train(None) > fault.margin * twin.score


def examine(name: str, seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """A fault's row."""
    fault = FAULTS[name]
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the programs are faulty
        for seed in seeds:
            broken, twin = (reports(fault.make(repaired, seed)) for repaired in (False, True))
            said = broken.kinds - twin.kinds
            named = any(fault.cause in stated(kind) for kind in said)
            repaired = _is_repaired(fault, seed, broken, twin, named)
            rows.append((sorted(said), sorted(twin.kinds), bool(said), named, repaired, bool(twin.kinds)))
    said_of, twins, *answers = zip(*rows)
    words = {word: 2 * sum(each) > len(rows) for word, each in zip(WORDS, answers)}
    return {"name": name, "half": half(name), "said": list(said_of), "twin": list(twins), **words}


def _quietly() -> None:
    torch.set_num_threads(1)
    logging.getLogger("stiefel_init.watch").setLevel(logging.CRITICAL)


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """ "40 of 50 (80 %)" for each of the words."""
    counts = [sum(row[word] for row in rows) for word in WORDS]
    return [f"{count} of {len(rows)} ({count / max(len(rows), 1):.0%})" for count in counts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; all without a name")
    parser.add_argument("--half", choices=("choose", "score"), help="one half of the catalogue")
    parser.add_argument("--look", type=int, choices=range(1, 6), help="one set; the fifth is the fresh one")
    parser.add_argument("--write", action="store_true", help=f"keep the rows in {RECORD.name}")
    options = parser.parse_args()
    names = options.names or [
        name
        for name, fault in FAULTS.items()
        if options.half in (None, half(name)) and options.look in (None, fault.look)
    ]
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"no fault is called {unknown[0]!r}; python -m paper.faults lists them")
    rows = []
    with multiprocessing.get_context("fork").Pool(2, _quietly) as pool:
        for number, row in enumerate(pool.imap(examine, names), 1):
            rows.append(row)
            marks = "".join(word[0] if row[word] else "-" for word in WORDS)
            print(f"{number}/{len(names)} {marks} {row['name']}: {', '.join(row['said'][0])}", flush=True)
    for part in ("choose", "score"):
        if chosen := [row for row in rows if row["half"] == part]:
            print(
                part, *(f"{a} {b}" for a, b in zip(("found", "named", "repaired", "alarms"), summary(chosen))), sep=", "
            )
    if options.write:
        RECORD.write_text(json.dumps(rows, separators=(",", ":")).replace("},{", "},\n{") + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
