"""The scores of a study in one table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..train.record import Record
from ..train.task import Metric
from .tables import Table

_SETTINGS = {"activation": "{}", "depth": "depth {}", "shots": "{}-shot", "alpha": "α {:g}"}


def summary(records: Sequence[Record], title: str = "") -> Table:
    """The score of each scheme in each setting, mean ± standard deviation over seeds.

    Args:
        records: Records of one data set. Rows are named by what varies: activation, depth, shots, α.
        title: The table's title.

    Returns:
        One row per setting, one column per scheme.

    >>> from stiefel_init.lab import Cell, run
    >>> print(*summary(run([Cell("digits", "lee", 1, epochs=1)], device="cpu")).header)
    depth lee
    """
    schemes = list(dict.fromkeys(record.cell.scheme for record in records))
    names = [name for name in _SETTINGS if name == "depth" or len({getattr(r.cell, name) for r in records}) > 1]
    settings: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        settings.setdefault(tuple(getattr(record.cell, name) for name in names), []).append(record)
    rows = []
    for setting, here in settings.items():
        parts = [_SETTINGS[name].format(value) for name, value in zip(names, setting) if value is not None]
        row = [str(setting[0]) if len(names) == 1 else ", ".join(parts)]
        row += [_cell([record for record in here if record.cell.scheme == scheme]) for scheme in schemes]
        rows.append(row)
    return Table(title, ["depth" if len(names) == 1 else "setting", *map(str, schemes)], rows)


def score_text(score: float | None, metric: Metric) -> str:
    """A score as tables show it: accuracies to a tenth of a percent, errors to four digits.

    >>> from stiefel_init.lab.train.task import ACCURACY, RMSE
    >>> score_text(97.123, ACCURACY), score_text(1234567.8, RMSE), score_text(0.00123456, RMSE)
    ('97.1', '1,234,568', '0.001235')
    """
    if score is None or not math.isfinite(score):
        return "—"
    if not metric.less_is_better:
        return f"{score:.1f}"
    if score and not 1e-4 <= abs(score) < 1e9:
        return f"{score:.3e}"
    return f"{score:,.{max(0, 3 - math.floor(math.log10(abs(score))))}f}" if score else "0"


def _cell(records: Sequence[Record]) -> str:
    finite = np.array([record.score for record in records if math.isfinite(record.score)])
    lost = sum(record.diverged is not None for record in records)
    text = "—" if not len(finite) else score_text(float(finite.mean()), records[0].metric)
    if len(finite) > 1:
        text += f" ± {score_text(float(finite.std(ddof=1)), records[0].metric)}"
    return text + (f" ({lost} diverged)" if lost else "")
