"""The generated parts of docs/watch.md: the rules, and the records of `benchmarks/watch.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stiefel_init.health import IN_TRAINING as RULES
from stiefel_init.lab.report.tables import Table

HERE = Path(__file__).parent
WATCH = HERE.parent / "docs" / "watch.md"


def watched() -> str:
    """The page with its tables."""
    text = WATCH.read_text(encoding="utf-8")
    for name, lines in (("rules", rules()), ("accuracy", accuracy())):
        start = text.index("-->", text.index(f"<!-- {name}:")) + 4
        text = text[:start] + "\n".join(lines) + "\n" + text[text.index("<!-- end -->", start) :]
    return text


def rules() -> list[str]:
    """A row for each rule."""
    header = ["finding", "measured", "found above", "samples in a row", "where the limit comes from"]
    rows = [[r.kind, r.quantity, f"{r.threshold:,g}", str(r.lasting), r.source] for r in RULES.values()]
    return Table("", header, rows).markdown()


def record(name: str) -> dict[str, Any] | None:
    path = HERE / "records" / f"watch-{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def accuracy() -> list[str]:
    """Faults, false alarms and cost."""
    lines = ["`python benchmarks/watch.py --write`.", ""]
    if (faults := record("faults")) is not None:
        rows = faults["trainings"]
        names = list(dict.fromkeys(row["fault"] for row in rows))
        kinds = list(dict.fromkeys(row["architecture"] for row in rows))
        named, first = (sum(row[key] for row in rows) / len(rows) for key in ("named", "first"))
        lines += [
            f"{len(names)} ways to break a training were planted in {len(kinds)} small architectures, before the first",
            f"step or at step {faults['onset']}, and sampled every {faults['every']} steps. Of {len(rows)} trainings,",
            f"{named:.1%} were named rightly within two samples, with the layer where it is one layer's, and",
            f"{first:.1%} with the first line. A dash: it trains all the same.",
            "",
        ]
        if (fresh := record("faults-fresh")) is not None:
            others = fresh["trainings"]
            share = sum(row["named"] for row in others) / len(others)
            lines += [
                "Limits, and how hard some faults hit, were chosen with these trainings in view. Seeds that had no",
                f"part in that (`--fresh`): {share:.1%} of {len(others)} named; the faults are the same.",
                "",
            ]
        cells = {(row["fault"], row["architecture"]): row["named"] for row in rows}
        marks = {True: "named", False: "missed", None: "—"}
        table = [[name, *(marks[cells.get((name, kind))] for kind in kinds)] for name in names]
        lines += [*Table("", ["fault", *kinds], table).markdown(), ""]
    if (healthy := record("healthy")) is not None:
        runs = healthy["trainings"]
        learned = [run for run in runs if run["trained"]]
        wrong = [run for run in learned if run["events"]]
        lines += [
            f"{len(runs)} trainings without a fault, of random architecture, start, optimizer, rate and schedule,",
            f"took {healthy['steps']} steps each; {len(learned)} of them learned (the loss fell by a tenth or more).",
            f"Of these, {len(wrong)} brought an event: {len(wrong) / len(learned):.1%} false alarms.",
            "",
            *([] if record("healthy-fresh") else ["The limits were chosen with these trainings in view, too.", ""]),
            *(f"- {run['architecture']}, {run['optimizer']} at {run['rate']:g}: {run['events'][0]}" for run in wrong),
            *([""] if wrong else []),
        ]
    for device in ("cpu", "cuda"):
        if (cost := record(f"overhead-{device}")) is not None:
            lines += [f"Cost on {cost['machine']['device']}:", "", *_cost(cost), ""]
    return lines[:-1]


def _cost(cost: dict[str, Any]) -> list[str]:
    """A row for each model."""
    header = ["model", "a step, ms", f"every {cost['every']}th step sampled", "steps between", "turns"]
    rows = [
        [f"{name}, {one['words']}", f"{one['milliseconds']['step']:.1f}", f"{one['overhead']['watched']:+.1%}",
         f"{one['overhead']['idle']:+.1%}", str(one["rounds"])]
        for name, one in cost["models"].items()
    ]  # fmt: skip
    if any("memory" in one for one in cost["models"].values()):
        header += ["memory of a sampled step", "of a step between"]
        for row, one in zip(rows, cost["models"].values()):
            memory = one["memory"]
            for kind in ("sampled step", "step between"):
                row.append(f"{(memory[kind] - memory['plain step']) / memory['model']:+.1%} of the model's")
    return Table("", header, rows).markdown()
