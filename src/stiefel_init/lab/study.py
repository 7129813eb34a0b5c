"""A user's own study: a grid of cells from the options of the command line, a forecast of it, and its summary."""

from __future__ import annotations

import hashlib
import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .._errors import StiefelError
from . import records as keep
from .cells import ACTIVATIONS, VARIANTS, Cell, initialization, initializations
from .data import NAMES, Dataset, from_csv
from .engine import Stack
from .progress import counted, duration
from .runner import pick_device, plan, work
from .tasks import Tasks

MOST = 1_000_000
"""Networks of one study."""


def own_data(dataset: str, target: str | None) -> dict[str, Dataset]:
    """A CSV file as a data set, under a name that tells its content; nothing for the laboratory's own sets."""
    path = Path(dataset)
    if dataset in NAMES:
        if target is not None:
            raise StiefelError(f"--target {target} is for CSV files; {dataset} knows its own.")
        return {}
    if not path.suffix and not path.exists():
        return {}  # an unknown name: loading it says which are known
    if not path.is_file():
        raise StiefelError(f"--dataset {dataset} is not there; give a CSV file, or one of {', '.join(NAMES)}.")
    if target is None:
        raise StiefelError(f"--dataset {dataset} is a file; say with --target which column to predict.")
    found = from_csv(path, target)
    content = hashlib.blake2b(path.read_bytes() + target.encode(), digest_size=4).hexdigest()
    return {f"{path.name}@{content}": found}


def grid(
    *,
    dataset: str,
    schemes: str,
    depths: str,
    width: int,
    activations: str,
    seeds: int,
    epochs: int,
    batch: int,
    lr: float,
    optimizer: str,
    shots: int | None,
    alpha: float | None,
    precision: str,
) -> list[Cell]:
    """The cells of a study; lists are comma-separated, and `all` stands for every scheme or activation.

    Members of the set stand beside the schemes by name.
    """
    if seeds < 1:
        raise StiefelError(f"seeds={seeds} is not a number of networks; give 1 or more.")
    if batch < 0:
        raise StiefelError(f"batch={batch} is negative; give the rows of a mini-batch, or 0 for all at once.")
    if not 0 < lr < math.inf:
        raise StiefelError(f"lr={lr} is not a learning rate; give a positive number.")
    settings = list(
        itertools.product(
            _names("activation", activations, ACTIVATIONS),
            _numbers("depth", depths),
            initializations(schemes),
        )
    )
    if len(settings) * seeds > MOST:
        raise StiefelError(f"That would be {len(settings) * seeds:,} networks; a study takes at most {MOST:,}.")
    return [
        Cell(
            dataset, "stiefel" if scheme in VARIANTS else scheme, depth, width, activation, seed, epochs, batch or None,
            lr / math.sqrt(max(depth, 1)), optimizer, shots, alpha, VARIANTS.get(scheme), precision,
        )
        for activation, depth, scheme in settings
        for seed in range(seeds)
    ]  # fmt: skip


def _names(what: str, text: str, every: Sequence[str]) -> list[str]:
    names = list(every) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise StiefelError(f"{what}={text!r} names none; write for example {every[0]},{every[2]}, or all.")
    return list(dict.fromkeys(names))


def _numbers(name: str, text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise StiefelError(f"{name}={text!r} is not a list of whole numbers; write for example 5,10,50.") from None


def forecast(
    cells: Sequence[Cell],
    device: str,
    datasets: Mapping[str, Dataset],
    directory: Path | None,
    out: Path,
    most: int | None = None,
    warn: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> str:
    """What running the cells would do, and about how long it would take, from a few real steps of each stack."""
    where = pick_device(device)
    keep.refuse_file(out)
    tasks = Tasks(datasets, directory)
    done = keep.finished(keep.read(out, warn, touch=False)) if out.is_dir() else set()
    stacks = plan(cells, tasks, where, done, most)
    left = sum(map(len, stacks))
    lines = [
        f"{counted(len(cells), 'network')}, {len(cells) - left} of them finished; "
        f"{left} to train on {where}, in {counted(len(stacks), 'stack')}."
    ]
    seconds = 0.0
    timed: dict[object, float] = {}
    for stack in stacks:
        sample = [_short(cell) for cell in stack]
        kind = sample[0].hidden, sample[0].activation, len(sample)
        if kind not in timed:
            timed[kind] = _seconds_per_work(sample, tasks, where)
        seconds += timed[kind] * sum(work(cell, tasks(cell)) for cell in stack)
    if stacks:
        lines.append(f"That is likely to take about {duration(seconds)}.")
    lines.append(f"Records would go to {out}. Nothing was run or written.")
    return "\n".join(lines)


def _short(cell: Cell) -> Cell:
    """A network whose steps take as long for its size, but that is quickly had: at most 100 layers, drawn simply."""
    width = cell.width if isinstance(cell.width, int) else cell.width[:100]
    return replace(cell, scheme="he", variant=None, depth=min(cell.depth, 100), width=width)


def _seconds_per_work(stack: Sequence[Cell], tasks: Tasks, device: object) -> float:
    """Time of a unit of work, from one warm-up and two timed steps of the stack itself."""
    import torch

    assert isinstance(device, torch.device)
    state = Stack(stack, [tasks(cell) for cell in stack], device, "auto")
    try:
        state.epochs.first_steps(1)
        start = time.perf_counter()
        state.epochs.first_steps(2)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / 2
    finally:
        state.close()
    per_row = sum(work(cell, tasks(cell)) / tasks(cell).size / cell.epochs for cell in stack)
    return seconds / (per_row * state.batch)


_SETTINGS = {"activation": "{}", "depth": "depth {}", "shots": "{}-shot", "alpha": "α {:g}"}


def summary(records: Sequence[keep.Record]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the score of each scheme in each setting, mean ± standard deviation over seeds.

    A row is named by what varies: activation, depth, shots, α.
    """
    schemes = list(dict.fromkeys(initialization(r) for r in records))
    names = [name for name in _SETTINGS if name == "depth" or len({r[name] for r in records}) > 1]
    rows = []
    for setting in dict.fromkeys(tuple(r[name] for name in names) for r in records):
        here = [r for r in records if tuple(r[name] for name in names) == setting]
        known = [(name, value) for name, value in zip(names, setting) if value is not None]
        alone = len(names) == 1
        row = [str(setting[0]) if alone else ", ".join(_SETTINGS[name].format(value) for name, value in known)]
        for scheme in schemes:
            own = [r for r in here if initialization(r) == scheme]
            finite = np.array([r["score"] for r in own if r["score"] is not None], float)
            lost = sum(r["diverged"] is not None for r in own)
            text = "—" if not len(finite) else f"{finite.mean():.1f}"
            if len(finite) > 1:
                text += f" ± {finite.std(ddof=1):.1f}"
            row.append(text + (f" ({lost} diverged)" if lost else ""))
        rows.append(row)
    return ["depth" if len(names) == 1 else "setting", *schemes], rows


def write_page(records: Sequence[keep.Record], out: Path, *, error: bool) -> Path:
    """The study as one page, index.html: the table and the learning curves, of an accuracy or of an error."""
    from . import pictures
    from .page import Page

    first = records[0]
    page = Page(f"{first['dataset']}: {counted(len(records), 'network')}")
    what = "Root mean squared error" if error else "Test accuracy (%)"
    page.heading(f"{what} after {first['epochs']} epochs, mean ± standard deviation over seeds")
    page.table(*summary(records), best=min if error else max)
    for activation in dict.fromkeys(r["activation"] for r in records):
        page.heading(f"Learning curves, {activation}")
        chosen = [r for r in records if r["activation"] == activation]
        page.picture(pictures.learning_curves(chosen, error=error), f"{what} against the epoch, {activation}")
    widths, optimizer, batch = first["width"], first["optimizer"], first["batch"] or "all rows"
    page.text(f"Plain networks, hidden layers of {widths} units; {optimizer}, batches of {batch}.", "note")
    return page.write(out / "index.html")
