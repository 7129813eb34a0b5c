"""Where samples go besides memory: JSON Lines, an HTML page, TensorBoard, Weights & Biases.

A `Sink` takes every sample and the events it brought by `write`, until the training ends with `close`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import StiefelError
from ...health.judge import Event
from ...health.rows import ROW_COLUMNS, Sample, median

SUMMARIZED = ("post_std", "alpha", "active", "dead", "saturated", "distinct", "gradient", "weight_gradient", "update",
              "norm", "singular", "distance")  # fmt: skip
_SHARE = 20  # the page is written at most this share of the time
Events = Sequence[Event]


class Sink(NamedTuple):
    name: str
    write: Callable[[Sample, Events], None]
    close: Callable[[], None]


def _plain(value: Any) -> Any:
    """JSON has no word for what is not finite."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if float("-inf") < value < float("inf") else str(value)
    return value


def _lines(path: Path) -> Sink:
    """A line for each sample, on disk as soon as it is there; a file that exists is continued."""
    file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the training runs
    if file.tell() and not path.read_bytes().endswith(b"\n"):
        file.write("\n")  # a killed training left half a line

    def write(sample: Sample, events: Events) -> None:
        rows = [zip(ROW_COLUMNS, row) for row in sample.rows]
        layers = [{name: _plain(value) for name, value in row if value is not None} for row in rows]
        line = {"step": sample.step, "loss": _plain(sample.loss), "rate": _plain(sample.rate),
                "events": [event._asdict() for event in events], "layers": layers}  # fmt: skip
        file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        file.flush()

    return Sink("JSON Lines", write, file.close)


def replace(path: Path, text: str) -> None:
    """Write a file so that a browser never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _page(path: Path, render: Callable[[bool], str]) -> Sink:
    """An HTML file that can be opened while the training runs."""
    path.touch()
    due = 0.0

    def write(sample: Sample, events: Events) -> None:
        nonlocal due
        begin = time.monotonic()
        if events or begin >= due:
            replace(path, render(True))
            due = time.monotonic() + _SHARE * (time.monotonic() - begin)

    return Sink("Page", write, lambda: replace(path, render(False)))


def summary(sample: Sample) -> dict[str, float]:
    """The loss, and of each quantity the least, median and largest over the layers."""
    values = {} if sample.loss is None else {"watch/loss": sample.loss}
    for column in SUMMARIZED:
        numbers = [value for row in sample.rows if (value := getattr(row, column)) is not None]
        middle = median(numbers)
        if middle is not None:
            of = {"min": min(numbers), "median": middle, "max": max(numbers)}
            values |= {f"watch/{column}/{name}": value for name, value in of.items()}
    return values


def _tensorboard(writer: Any) -> Sink:
    """Scalars over the steps, and events as text; the writer stays the user's to close."""

    def write(sample: Sample, events: Events) -> None:
        for name, value in summary(sample).items():
            writer.add_scalar(name, value, sample.step)
        if events:
            writer.add_text("watch/events", "\n\n".join(map(str, events)), sample.step)

    return Sink("TensorBoard", write, writer.flush)


def _weights_and_biases(run: Any) -> Sink:
    """The same over the metric `watch/step`; the run stays the user's to finish."""
    run.define_metric("watch/step")
    run.define_metric("watch/*", step_metric="watch/step")

    def write(sample: Sample, events: Events) -> None:
        told = {"watch/events": "\n".join(map(str, events))} if events else {}
        run.log({"watch/step": sample.step, **summary(sample), **told})

    return Sink("Weights & Biases", write, lambda: None)


def sink_of(target: Any, render: Callable[[bool], str]) -> Sink:
    """The sink for what a user gave: a path, a `SummaryWriter` or a run."""
    if isinstance(target, str | os.PathLike):
        path = Path(target)
        if path.suffix not in (".jsonl", ".html"):
            raise StiefelError(
                f"to={str(target)!r} ends in neither .html nor .jsonl; name the file by what it is to be."
            )
        try:
            return _lines(path) if path.suffix == ".jsonl" else _page(path, render)
        except OSError as error:
            raise StiefelError(f"{path} cannot be written ({error.strerror}); choose another place.") from None
    if hasattr(target, "add_scalar"):
        return _tensorboard(target)
    if hasattr(target, "define_metric"):
        return _weights_and_biases(target)
    raise StiefelError(
        f"to has a {type(target).__name__}; give a path that ends in .html or .jsonl, a SummaryWriter of TensorBoard, "
        "or a run of Weights & Biases."
    )
