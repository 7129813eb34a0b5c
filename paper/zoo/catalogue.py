"""All entries of the zoo by name, and the two halves."""

from __future__ import annotations

from . import coordinates, generative, pictures, relations, sequences
from .entry import Entry, Half, half

ENTRIES: dict[str, Entry] = {
    entry.name: entry
    for family in (coordinates, pictures, sequences, generative, relations)
    for entry in family.ENTRIES
}


def entries(part: Half | None = None) -> dict[str, Entry]:
    """Those that can be built here, of one half if asked."""
    return {name: entry for name, entry in ENTRIES.items() if not entry.absent and (part is None or half(name) == part)}
