"""`stiefel-init compare`: every published number for which there are records."""

from __future__ import annotations

from stiefel_init.core.errors import StiefelError, unknown
from stiefel_init.lab.report.tables import Table

from ..experiment import registered
from ..results import Results
from .table import PaperTable

NO_ANSWER = "No record matches a published number; run the experiment without --quick first."


def comparisons(name: str | None, results: Results) -> list[Table]:
    """The table of that name, or all of them.

    Raises:
        StiefelError: for an unknown name, or if no record matches a number.
    """
    tables = {table.name: table for table in registered().values() if isinstance(table, PaperTable)}
    if name is not None and name not in tables:
        raise unknown("name", name, tables)
    compared = [
        table.comparison(records)
        for table in (tables.values() if name is None else (tables[name],))
        if (records := table.evidence(results)) is not None
    ]
    if not compared:
        raise StiefelError(NO_ANSWER)
    return compared
