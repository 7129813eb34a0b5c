"""What the study of rivals costs on a GPU, stage by stage, reckoned from the record of the engine; nothing is trained.

    python benchmarks/rival_plan.py [--record engine-cuda] [--seeds 10] [--check]

A step of a stack takes as long as the record says for so many networks of that depth, between the measured ones by
straight lines; layers narrower than 64 are taken for 64 wide. Added are the tests, by what the record says of the
graph engine, the start of a stack, and the compilation of a kernel for each new shape. Starts that fail at every rate
get fewer seeds: the plan is shown without failures, and with those that are to be expected. With --check, the same is
reckoned for published studies, beside the seconds that they took.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Container, Iterable, Sequence

import numpy as np
from _timing import RECORDS
from paper.registry import experiments
from paper.results import Results
from paper.studies.baselines import FAST, Baselines
from paper.studies.kit import DEEP

from stiefel_init.lab.progress import duration
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.cell import Cell, split_evenly
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.runner import grouped
from stiefel_init.lab.train.task import ACCURACY, Task, Tasks
from stiefel_init.lab.train.training import test_epochs

MOST = 1056
"""Networks of a stack, as the runner has it."""
COMPILE, START = 4.0, 0.3
"""Seconds for a kernel of a new shape, and for what a stack begins with; measured on no card, but on the safe side."""
LAUNCH = 1.5e-5
"""Seconds of a small operation, at least."""
WIDEST = 528
"""Networks of the graph engine that keep a card busy: forward passes of tests take a third of its steps."""


FAILING = ("he", "xavier", "torch", "truncated-normal", "gpt-2", "mup √2", "orthogonal √2")
"""Starts that are expected to fail in deep networks: of independent entries, or without the ones direction."""


class Engine:
    """The seconds of a step, by the record."""

    def __init__(self, record: str) -> None:
        rows = json.loads((RECORDS / f"{record}.json").read_text())["steps"]
        self.known: dict[str, dict[int, dict[int, float]]] = {"fused": {}, "graph": {}}
        for row in rows:
            kind, _, count = str(row["way"]).partition(" engine, ")
            if kind in self.known and count.isdigit():
                whole = row["milliseconds"] * int(count) / 1e3
                self.known[kind].setdefault(row["depth"], {})[int(count)] = whole

    def step(self, kind: str, depth: int, count: int) -> float:
        """Of a stack of so many networks of 64 units, batches of 256."""
        depths = sorted(self.known[kind])
        values = [self._of(self.known[kind][each], count) for each in depths]
        if depth > depths[-1]:
            return values[-1] * depth / depths[-1]
        return float(np.interp(depth, depths, values))

    @staticmethod
    def _of(known: dict[int, float], count: int) -> float:
        counts = sorted(known)
        if count > counts[-1]:
            return known[counts[-1]] * count / counts[-1]
        return float(np.interp(count, counts, [known[each] for each in counts]))


def seconds(stack: Sequence[Cell], tasks: Tasks, engine: Engine) -> float:
    """Of a stack, but for compilation."""
    cell, task, count = stack[0], tasks(stack[0]), len(stack)
    batch = min(cell.batch or task.size, task.size)
    steps = math.ceil(task.size / batch) * cell.epochs
    full = engine.step("fused", cell.depth, count)
    least = engine.step("fused", cell.depth, 1)
    # A step waits for its layers, however small; beyond that it is in proportion to the rows.
    step = least + max(full - least, 0.0) * min(1.0, batch / 256)
    forward = engine.step("graph", 100, WIDEST) / WIDEST * count * cell.depth / 100 / 3
    chunks = sum(math.ceil(len(t.test_features) / 2048) for t in _tests(stack, tasks))
    test = forward * len(task.test_features) / 256 + chunks * cell.depth * 2 * LAUNCH
    return START + steps * step + len(test_epochs(cell)) * test


def _tests(stack: Sequence[Cell], tasks: Tasks) -> Iterable[Task]:
    return {id(task.test_features): task for task in map(tasks, stack)}.values()


def cost(cells: Sequence[Cell], tasks: Tasks, engine: Engine, compiled: set[object]) -> tuple[float, int]:
    """Seconds of some cells, and how many stacks they make; notes the shapes that are compiled by then."""
    total, stacks = 0.0, 0
    for group in grouped(list(dict.fromkeys(cells)), tasks):
        for stack in split_evenly(group, MOST):
            cell, task = stack[0], tasks(stack[0])
            rows = min(64, max(16, 1 << (min(cell.batch or task.size, task.size) - 1).bit_length()))
            slope = cell.depth if cell.activation == "tat" else 0
            shape = cell.hidden[0], task.inputs, task.outputs, cell.activation, slope, rows, len(stack) > 66
            total += seconds(stack, tasks, engine) + COMPILE * (shape not in compiled)
            compiled.add(shape)
            stacks += 1
    return total, stacks


def _assumed(cell: Cell, failing: Container[str]) -> float:
    """The score that a network which chooses a rate is taken to have."""
    return 10.0 if cell.depth >= DEEP and Baselines().contender(cell).removesuffix(FAST) in failing else 90.0


def plan(engine: Engine, seeds: int, tasks: Tasks, failing: Container[str] = ()) -> Table:
    """The stages of the study, in their order."""
    rows, total, compiled, known = [], 0.0, set[object](), dict[Cell, Record]()
    for number, (stage, search) in enumerate(zip(Baselines.stages[False], Baselines().searches(False)), 1):
        chosen = list(search.tuning)
        known |= {cell: Record(cell, ACCURACY, _assumed(cell, failing)) for cell in chosen}
        compared = search.compared(seeds, known)
        spent = [cost(part, tasks, engine, compiled) for part in (chosen, compared)]
        total += sum(each for each, _ in spent)
        settings = [setting for part in stage for setting in part.settings]
        data = ", ".join(dict.fromkeys(s.dataset + (f" ({s.shots} per class)" if s.shots else "") for s in settings))
        depths = ", ".join(f"{d:,}" for d in dict.fromkeys(s.depth for s in settings))
        ways = "fast ends too" if any(name.endswith(FAST) for grid in stage for name in grid.contenders) else "one rate"
        networks, stacks = f"{len(chosen):,} + {len(compared):,}", f"{spent[0][1]} + {spent[1][1]}"
        each = f"{spent[0][0]:.0f} + {spent[1][0]:.0f}"
        rows.append([str(number), data, depths, ways, networks, stacks, each, f"{total:.0f}"])
    header = ["stage", "data", "depths", "trained", "networks", "stacks", "seconds", "seconds so far"]
    return Table("choosing rates + comparing", header, rows)


def check(engine: Engine) -> Table:
    """Published studies: reckoned, and what they took."""
    results, tasks, rows = Results(), Tasks(), []
    for name in ("table1", "table2", "table3", "on-the-set"):
        records = experiments()[name].evidence(results) if name != "on-the-set" else None
        cells = [r.cell for r in records] if records else [c for c in results.records if c.seed >= 3000]
        found, stacks = cost(cells, tasks, engine, set())
        took = results.environments[name]["seconds"]
        rows.append([name, str(len(cells)), str(stacks), f"{found:.0f}", f"{took:.0f}", f"{found / took:.2f}"])
    return Table("reckoned and measured", ["study", "networks", "stacks", "reckoned (s)", "took (s)", "ratio"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", default="engine-cuda", help="of the engine, under benchmarks/records")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--check", action="store_true", help="reckon published studies, too")
    options = parser.parse_args()
    engine = Engine(options.record)
    for failing in ((), FAILING):
        table = plan(engine, options.seeds, Tasks(), failing)
        table.show()
        words = f"{', '.join(failing)} fail from {DEEP} layers on" if failing else "all starts learn everywhere"
        print(f"About {duration(float(table.rows[-1][-1]))} in all, if {words}.")
    if options.check:
        check(engine).show()


if __name__ == "__main__":
    main()
