"""Text tables, for objects that print themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHOWN = 24  # a longer table prints the first and last 12 rows


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | None = None) -> Iterable[str]:
    """The lines of a table: the first `left` columns (all, if None) left-aligned, the others right-aligned."""
    half = SHOWN // 2
    kept = rows if left is None or len(rows) <= SHOWN else [*rows[:half], ["…"] * len(header), *rows[-half:]]
    sizes = [max(map(len, column)) for column in zip(header, *kept)]
    for line in (header, *kept):
        cells = (
            cell.ljust(size) if left is None or place < left else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(line, sizes))
        )
        yield "  ".join(cells).rstrip()
