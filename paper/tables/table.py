"""`PaperTable`, the base of the paper's tables; all of them compared; and the test of a claim."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from stiefel_init.core.errors import StiefelError, unknown
from stiefel_init.lab.report.tables import Table, summary
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record

from ..experiment import QUICK_NOTE, Experiment, Options, Trained, Verdict, held
from ..results import Results
from ..verdicts import greater_p
from .compare import Comparison, comparison_table
from .protocol import SCHEMES
from .published import TITLES, Published, published


class PaperTable(Trained):
    """A table of published numbers, each the score of one network or the mean of several."""

    of_paper = True
    numbers: ClassVar[str | None] = None
    """The table of the paper with its numbers, if it has another name."""

    @abstractmethod
    def cell(
        self, dataset: str, scheme: str, depth: int, *, activation: str = "relu", shots: int | None = None,
        alpha: float | None = None,
    ) -> Cell:  # fmt: skip
        """The network behind a number, with seed 0."""

    def quick(self, cell: Cell) -> Cell | None:
        """A short form of a network for the quick version; None to leave it out."""
        return cell

    def cells(self, seeds: int, *, quick: bool = False, records: Mapping[Cell, Record] | None = None) -> list[Cell]:
        settings = dict.fromkeys(self._of(number) for number in self.published())
        if quick:
            settings = dict.fromkeys(short for cell in settings if (short := self.quick(cell)) is not None)
        return [cell.with_seed(seed) for cell in settings for seed in range(seeds)]

    def published(self) -> tuple[Published, ...]:
        return published(self.numbers or self.name)

    def _of(self, number: Published) -> Cell:
        return self.cell(
            number.dataset, str(number.scheme), number.depth, activation=number.activation, shots=number.shots,
            alpha=number.alpha,
        )  # fmt: skip

    def compare(self, records: Sequence[Record]) -> list[Comparison]:
        """Every published number for which there are records."""
        scores = Scores(records)
        pairs = ((number, scores(self._of(number))) for number in self.published())
        return [Comparison(number, values) for number, values in pairs if len(values)]

    def of_schemes(self, scores: Scores, dataset: str, depth: int, **setting: Any) -> dict[str, np.ndarray]:
        """The scores of every scheme in a row of the table."""
        return {scheme: scores(self.cell(dataset, scheme, depth, **setting)) for scheme in SCHEMES}

    def tables(self, evidence: Sequence[Record]) -> list[Table]:
        """Every published number beside ours."""
        numbers = self.compare(evidence)
        agree, judged = sum(number.agrees for number in numbers), sum(number.judged for number in numbers)
        title = f"{self.name}: {TITLES[self.numbers or self.name]}"
        return [comparison_table(f"{title}; {agree} of {judged} published numbers agree with ours", numbers)]

    def show(self, records: list[Record], options: Options) -> None:
        if not options.quick:
            self.present(records, options)
            return
        for dataset in dict.fromkeys(record.cell.dataset for record in records):
            chosen = [record for record in records if record.cell.dataset == dataset]
            summary(chosen, title=f"{self.label(True)}, {dataset}").show()
        print(QUICK_NOTE)

    def section(self, evidence: Sequence[Record]) -> list[str]:
        """None: results.md begins with its pictures, and has one table for all of the paper's."""
        return []


class Scores:
    """Of a cell the scores of all seeds of its setting; none if it was not run."""

    def __init__(self, records: Sequence[Record] | None) -> None:
        self._found: dict[Cell, list[float]] = {}
        for record in records or ():
            self._found.setdefault(record.cell.setting, []).append(record.score)

    def __call__(self, cell: Cell) -> np.ndarray:
        return np.array(self._found.get(cell.setting, []), float)


NO_ANSWER = "No record matches a published number; run the experiment without --quick first."


def comparisons(name: str | None, experiments: Iterable[Experiment], results: Results) -> list[Table]:
    """The table of that name, or all of them.

    Raises:
        StiefelError: for an unknown name, or if no record matches a number.
    """
    tables = {table.name: table for table in experiments if isinstance(table, PaperTable)}
    if name is not None and name not in tables:
        raise unknown("name", name, tables)
    compared = [
        shown
        for table in (tables.values() if name is None else (tables[name],))
        if (records := table.evidence(results)) is not None
        for shown in table.tables(records)
    ]
    if not compared:
        raise StiefelError(NO_ANSWER)
    return compared


def best_in_every_row(settings: Iterable[tuple[str, Mapping[str, np.ndarray]]]) -> tuple[Verdict, str]:
    """Whether `stiefel` is the best in every row, given as (name, scores of each scheme), and the evidence.

    Rows without two seeds of each are left out. A difference to the best other counts as shown if Welch's one-sided
    test has p < 0.05/rows, so that chance does not decide a claim made of many comparisons.
    """
    rows = []
    for name, scores in settings:
        if all(len(values) > 1 for values in scores.values()):
            other = max((s for s in scores if s != "stiefel"), key=lambda s: scores[s].mean())
            rows.append((name, other, scores["stiefel"], scores[other]))
    if not rows:
        return "not tested", "No records."
    level = 0.05 / len(rows)
    best = [row for row in rows if row[2].mean() > row[3].mean()]
    clear = sum(greater_p(row[2], row[3]) < level for row in best)
    text = (
        f"stiefel has the highest mean in {len(best)} of {len(rows)} rows, significantly (p < {level:.4f}) in {clear}."
    )
    lost = (f"{n}: {o} {b.mean():.2f}, stiefel {a.mean():.2f}" for n, o, a, b in rows if a.mean() <= b.mean())
    if len(best) < len(rows):
        text += f" Not best: {'; '.join(lost)}."
    return held(len(best) == len(rows), bool(best)), text
