"""`stiefel-init compare`: every published number that records answer."""

from __future__ import annotations

from ..._errors import StiefelError, unknown
from ..experiment import registered
from ..report.tables import Table
from ..results import Results
from .table import PaperTable

NO_ANSWER = "No record answers a published number; run the experiment without --quick first."


def comparisons(name: str | None, results: Results) -> list[Table]:
    """The table of that name, or all of them.

    Raises:
        StiefelError: for an unknown name, and where no record answers a number.
    """
    tables = {one.name: one for one in registered().values() if isinstance(one, PaperTable)}
    if name is not None and name not in tables:
        raise unknown("name", name, tables)
    found = [
        one.comparison(records)
        for one in (tables.values() if name is None else (tables[name],))
        if (records := one.evidence(results)) is not None
    ]
    if not found:
        raise StiefelError(NO_ANSWER)
    return found
