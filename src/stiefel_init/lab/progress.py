"""Progress of long work: a bar with the time left in a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import files

LINE_EVERY = 10.0  # seconds between plain lines
FORESEEN = 0.05
"""Share of the work after which plain lines say how much time is left: what starts up first would mislead."""


Advance = Callable[..., None]
"""(work, what=""): report how much work was done, and what is running now."""


@contextmanager
def progress(total: float, title: str) -> Iterator[Advance]:
    """Show how far `total` units of work have come, and the time left."""
    if not sys.stderr.isatty():
        yield _lines(total, title)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    left, console = TextColumn("left  {task.fields[what]}"), Console(stderr=True)
    with Progress(*columns, left, console=console, speed_estimate_period=600) as bar:
        task = bar.add_task(title, total=total, what="")
        yield lambda work, what="": bar.update(task, advance=work, what=what)


def _lines(total: float, title: str) -> Advance:
    start = last = time.monotonic()
    done = 0.0

    def advance(work: float, what: str = "") -> None:
        nonlocal done, last
        done += work
        now = time.monotonic()
        if now - last >= LINE_EVERY and done:
            last = now
            share = done / max(total, done)
            left = f", about {duration((now - start) * (1 - share) / share)} left" if share >= FORESEEN else ""
            place = f" ({what})" if what else ""
            print(f"{title}: {share:.0%}{left}{place}.", file=sys.stderr)

    return advance


def counted(number: int, what: str) -> str:
    """1 network, 2 networks."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(0.4), duration(75), duration(150), duration(180), duration(4000)
    ('1 s', '75 s', '2.5 min', '3 min', '67 min')
    """
    if seconds < 100:
        return f"{max(round(seconds), 1)} s"
    if seconds < 600:
        return f"{f'{seconds / 60:.1f}'.removesuffix('.0')} min"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def show_plan(networks: Mapping[str, Any] | None, others: Sequence[str], out: Path, *, as_json: bool = False) -> None:
    """Print what `--dry-run` asks for: networks, as `foresee` counts them, and what else would be run."""
    files.refuse_file(out)
    if as_json:
        print(json.dumps({"networks": networks, "others": list(others), "out": str(out)}, indent=1))
        return
    if networks is not None:
        print(
            f"{counted(networks['cells'], 'network')}, {networks['cells'] - networks['left']} of them finished; "
            f"{networks['left']} to train on {networks['device']}, in {counted(networks['stacks'], 'stack')}."
        )
    for name in others:
        print(f"{name} keeps no trained networks; it would be computed from scratch.")
    print(f"Records would go to {out}. Nothing was run or written.")
