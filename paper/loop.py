"""Experiments made of runs, each a line of a table: those of the zoo, and of studies that train networks of users."""

from __future__ import annotations

import argparse
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import torch
from torch import Tensor, nn

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import prepare
from stiefel_init.lab.progress import progress
from stiefel_init.lab.train.modules import OfTorch, Slot
from stiefel_init.lab.train.record import environment
from stiefel_init.lab.train.runner import pick_device

from .experiment import STOPPED, Experiment, Options
from .results import Results, note_environment, write_table


class OfRuns(Experiment):
    """An experiment made of runs of its own, a line of a table each; rerun, it goes on where it was stopped."""

    kind: ClassVar[type[Any]]
    """A run: a named tuple of words and numbers, which are the first columns of the table."""
    engine: ClassVar[str] = "loop"

    @abstractmethod
    def wanted(self, options: Options, done: Mapping[Any, Mapping[str, Any]]) -> list[Any]:
        """The runs that can be begun now, the most important first; asked again as runs end."""

    @abstractmethod
    def train(
        self, runs: Sequence[Any], options: Options, device: torch.device, tell: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """Train runs side by side, and tell how much is done, of one for each; what their lines have besides."""

    def together(self, left: list[Any], options: Options, device: torch.device) -> list[Any]:
        """Those of the runs that are trained side by side now."""
        return left[:1]

    def table_of(self, options: Options, device: torch.device) -> str:
        """The name of the table."""
        return self.label(options.quick)

    def read(self, rows: Iterable[Mapping[str, Any]]) -> dict[Any, Mapping[str, Any]]:
        """The lines of a table by their runs.

        Raises:
            StiefelError: for a damaged line, which is named.
        """
        kinds, found = get_type_hints(self.kind), dict[Any, Mapping[str, Any]]()
        for number, row in enumerate(rows, 2):
            try:
                found[self.kind(*(of(row[name]) for name, of in kinds.items()))] = row
            except (KeyError, TypeError, ValueError) as error:
                told = f"the table of {self.name}, line {number}, is damaged ({error}); restore or remove the file."
                raise StiefelError(told) from error
        return found

    def evidence(self, results: Results) -> Any:
        """The lines on record by their runs."""
        return self.read(results.table(self.name)) or None

    def run(self, options: Options) -> None:
        """Train what is left, and note each run as it ends; after `minutes` none is begun."""
        device, begun = pick_device(options.device), time.monotonic()
        label, out = self.table_of(options, device), prepare(options.out)
        done = self.read(Results(out).table(label, str))

        def left() -> list[Any]:
            return [run for run in self.wanted(options, done) if run not in done]

        with progress(len(left()), label) as advance:
            while waiting := left():
                if options.minutes is not None and time.monotonic() - begun > 60 * options.minutes:
                    print(STOPPED.format(options.minutes))
                    break
                runs, started = self.together(waiting, options, device), time.monotonic()
                found = self.train(runs, options, device, advance)
                seconds = time.monotonic() - started
                each = {"seconds": round(seconds / len(runs), 1)}
                done |= {run: {**run._asdict(), **more, **each} for run, more in zip(runs, found)}
                write_table([*done.values()], out / f"{label}.csv")
                note_environment(out, label, environment(device, self.engine), seconds, len(runs), add=True)
        self.present(self.read(Results(out).table(label)), options)


class Batched(Slot):
    """A slot that learns from batch after batch: from `places`, a row for each step."""

    def __init__(
        self, model: nn.Module, places: Tensor, loss: Callable[[nn.Module, Tensor], Tensor], groups: Any, stepper: Any,
        clip: float | None = None,
    ) -> None:  # fmt: skip
        self.places, self.place = places, torch.zeros(1, dtype=torch.long, device=places.device)

        def following(model: nn.Module) -> Tensor:
            rows = self.places.index_select(0, self.place)[0]
            self.place += 1
            return loss(model, rows)

        super().__init__(model, following, groups, stepper, clip=clip, counters=[self.place])


def fused(kind: Callable[..., torch.optim.Optimizer], **words: Any) -> Callable[[list[dict[str, Any]]], OfTorch]:
    """An optimizer of torch for a slot."""

    def made(groups: list[dict[str, Any]]) -> OfTorch:
        lr = groups[0]["lr"]
        return OfTorch(kind(groups, lr=lr, fused=True, capturable=lr.is_cuda, **words))

    return made


def command(
    make: Callable[..., Experiment], name: str, about: str | None, more: Mapping[str, Any],
    out: str = "stiefel-init-results",
) -> None:  # fmt: skip
    """Run an experiment from the command line, with `more` than `reproduce` offers: what `make` takes."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=about)
    for option, words in more.items():
        parser.add_argument(option, **words)
    for option, kind in {"--seeds": int, "--data": Path, "--minutes": float}.items():
        parser.add_argument(option, type=kind)
    parser.add_argument("--at-once", dest="stack", type=int)
    parser.add_argument("--out", type=Path, default=Path(out))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true")
    words = vars(parser.parse_args())
    given = {field.name: words.pop(field.name) for field in fields(Options) if field.name in words}
    try:
        make(**words).run(Options(**given))
    except StiefelError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
