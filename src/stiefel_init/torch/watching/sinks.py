"""Where samples go besides memory: JSON Lines, an HTML page, TensorBoard, Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...core.errors import StiefelError
from ...health.judge import Event
from ...health.rows import Sample, median
from .history import content, plain

SUMMARIZED = ("post_std", "alpha", "active", "dead", "saturated", "distinct", "gradient", "weight_gradient", "update",
              "norm", "singular", "distance")  # fmt: skip
_SHARE = 20  # the page is written at most this share of the time


class Sink(Protocol):
    """Takes every sample, and the events it brought."""

    def write(self, sample: Sample, events: Sequence[Event]) -> None:
        """Take a sample."""

    def close(self) -> None:
        """The training ended."""


class JsonLines:
    """A line for each sample, on disk as soon as it is there; a file that exists is continued."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the training runs
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            self._file.write("\n")  # a killed training left half a line

    def write(self, sample: Sample, events: Sequence[Event]) -> None:
        """Append a line."""
        line = {
            "step": sample.step,
            "loss": plain(sample.loss),
            "rate": plain(sample.rate),
            "events": [event._asdict() for event in events],
            "layers": [content(row) for row in sample.rows],
        }
        self._file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Page:
    """An HTML file that can be opened while the training runs."""

    def __init__(self, path: Path, render: Callable[[bool], str]) -> None:
        self._path, self._render = path, render
        self._next = 0.0
        path.touch()

    def write(self, sample: Sample, events: Sequence[Event]) -> None:
        """Write it again, unless that would take more than a twentieth of the time."""
        begin = time.monotonic()
        if events or begin >= self._next:
            self._replace(self._render(True))
            end = time.monotonic()
            self._next = end + _SHARE * (end - begin)

    def close(self) -> None:
        """Write it for the last time."""
        self._replace(self._render(False))

    def _replace(self, text: str) -> None:
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self._path)  # a browser never sees half a page
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def summary(sample: Sample) -> dict[str, float]:
    """The loss, and of each quantity the least, median and largest over the layers."""
    values = {} if sample.loss is None else {"watch/loss": sample.loss}
    for column in SUMMARIZED:
        numbers = [value for row in sample.rows if (value := getattr(row, column)) is not None]
        middle = median(numbers)
        if middle is not None:
            values |= {f"watch/{column}/min": min(numbers), f"watch/{column}/median": middle,
                       f"watch/{column}/max": max(numbers)}  # fmt: skip
    return values


class TensorBoard:
    """Scalars over the steps, and events as text, for a `SummaryWriter`; it stays the user's to close."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, sample: Sample, events: Sequence[Event]) -> None:
        """Add the sample."""
        for name, value in summary(sample).items():
            self._writer.add_scalar(name, value, sample.step)
        if events:
            self._writer.add_text("watch/events", "\n\n".join(map(str, events)), sample.step)

    def close(self) -> None:
        """Flush the writer."""
        self._writer.flush()


class WeightsAndBiases:
    """The same for a run of Weights & Biases, over the metric `watch/step`."""

    def __init__(self, run: Any) -> None:
        self._run = run
        run.define_metric("watch/step")
        run.define_metric("watch/*", step_metric="watch/step")

    def write(self, sample: Sample, events: Sequence[Event]) -> None:
        """Log the sample."""
        values: dict[str, Any] = {"watch/step": sample.step, **summary(sample)}
        if events:
            values["watch/events"] = "\n".join(map(str, events))
        self._run.log(values)

    def close(self) -> None:
        """The run stays the user's to finish."""


def sink_of(target: Any, render: Callable[[bool], str]) -> Sink:
    """The sink for what a user gave: a path, a `SummaryWriter` or a run.

    Raises:
        StiefelError: if it is none of these, or the file cannot be opened.
    """
    if isinstance(target, str | os.PathLike):
        path = Path(target)
        kinds: dict[str, Callable[[], Sink]] = {
            ".jsonl": lambda: JsonLines(path),
            ".html": lambda: Page(path, render),
        }
        if path.suffix not in kinds:
            raise StiefelError(
                f"to={str(target)!r} ends in neither .html nor .jsonl; name the file by what it is to be."
            )
        try:
            return kinds[path.suffix]()
        except OSError as error:
            raise StiefelError(f"{path} cannot be written ({error.strerror}); choose another place.") from None
    if hasattr(target, "add_scalar"):
        return TensorBoard(target)
    if hasattr(target, "define_metric"):
        return WeightsAndBiases(target)
    raise StiefelError(
        f"to has a {type(target).__name__}; give a path that ends in .html or .jsonl, a SummaryWriter of TensorBoard, "
        "or a run of Weights & Biases."
    )
