"""A user's own study: a grid of cells from the options of the command line, and its page."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from ..._errors import StiefelError
from ...schemes import Scheme, get
from ...theory import ACTIVATIONS
from ..data import Dataset, from_csv, names
from ..paper.protocol import SCHEMES
from ..progress import counted
from ..report import plots
from ..report.page import write_page
from ..report.summary import summary
from ..train.cell import Cell, OptimizerName, PrecisionName
from ..train.record import Record

MOST = 1_000_000
"""Networks of one study."""


def own_data(dataset: str, target: str | None) -> dict[str, Dataset]:
    """A CSV file as a data set, named by its content; nothing for the laboratory's own sets."""
    path = Path(dataset)
    if dataset in names():
        if target is not None:
            raise StiefelError(f"--target {target} is for CSV files; {dataset} has its own target.")
        return {}
    if not path.suffix and not path.exists():
        return {}  # an unknown name: loading it says which are known
    if not path.is_file():
        raise StiefelError(f"--dataset {dataset} does not exist; give a CSV file, or one of {', '.join(names())}.")
    if target is None:
        raise StiefelError(f"--dataset {dataset} is a file; name the column to predict with --target.")
    content = hashlib.blake2b(path.read_bytes() + target.encode(), digest_size=4).hexdigest()
    return {f"{path.name}@{content}": from_csv(path, target)}


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
    optimizer: OptimizerName,
    shots: int | None,
    alpha: float | None,
    precision: PrecisionName,
) -> list[Cell]:
    """The cells of a study; lists are comma-separated, `all` stands for the paper's schemes or activations."""
    if seeds < 1:
        raise StiefelError(f"seeds={seeds} is not a number of networks; give 1 or more.")
    if batch < 0:
        raise StiefelError(f"batch={batch} is negative; give the batch size, or 0 for full batch.")
    if not 0 < lr < math.inf:
        raise StiefelError(f"lr={lr} is not a learning rate; give a positive number.")
    settings = list(
        itertools.product(
            listed("activation", activations, ACTIVATIONS), _numbers("depth", depths), schemes_of(schemes)
        )
    )
    if len(settings) * seeds > MOST:
        raise StiefelError(f"That would be {len(settings) * seeds:,} networks; a study takes at most {MOST:,}.")
    return [
        Cell(
            dataset, scheme, depth, width, activation, seed, epochs, batch or None, lr / math.sqrt(max(depth, 1)),
            optimizer, shots, alpha, precision,
        )
        for activation, depth, scheme in settings
        for seed in range(seeds)
    ]  # fmt: skip


def schemes_of(text: str) -> list[Scheme]:
    """The schemes of a comma-separated list; `all` stands for the paper's six.

    >>> [str(scheme) for scheme in schemes_of("stiefel, rotation 0.03")]
    ['stiefel', 'rotation 0.03']
    """
    return list(dict.fromkeys(get(name) for name in listed("scheme", text, SCHEMES)))


def listed(what: str, text: str, every: Sequence[str]) -> list[str]:
    """The names of a comma-separated list."""
    names = list(every) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise StiefelError(f"{what}={text!r} is empty; write for example {every[0]},{every[2]}, or all.")
    return list(dict.fromkeys(names))


def _numbers(name: str, text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise StiefelError(f"{name}={text!r} is not a list of whole numbers; write for example 5,10,50.") from None


def page(records: Sequence[Record], out: Path) -> Path:
    """The study as one page, index.html: the table and the learning curves."""
    first, metric = records[0].cell, records[0].metric
    label = f"{metric.label[0].upper()}{metric.label[1:]}"
    table = summary(records).marked(min if metric.less_is_better else max)
    title = f"{first.dataset}: {counted(len(records), 'network')}"
    lines = [f"## {label} after {first.epochs} epochs, mean ± standard deviation over seeds", "", *table.markdown(), ""]
    pictures = {}
    for activation in dict.fromkeys(record.cell.activation for record in records):
        chosen = [record for record in records if record.cell.activation == activation]
        pictures[activation] = plots.learning_curves(chosen)
        lines += [f"## Learning curves, {activation}", "", f"![{label} against the epoch]({activation})", ""]
    batch = first.batch or "all rows"
    lines += [f"Plain networks with hidden layers of {first.width} units; {first.optimizer}, batch size {batch}."]
    return write_page(out / "index.html", title, "\n".join(lines), pictures)
