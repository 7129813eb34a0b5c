"""What the tests of the laboratory share: the command line as a user has it, small data, and records made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from paper import experiment
from paper import registry as experiments
from paper.__main__ import app as maintainers
from paper.experiment import Trained
from paper.tables.protocol import IMAGES

from stiefel_init.lab import cli
from stiefel_init.lab.data import Dataset
from stiefel_init.lab.train import problem
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.runner import run
from stiefel_init.schemes import Scheme, Source, forget, register

ROOT = Path(__file__).parents[2]
"""The source tree."""
MINE = {
    "mine": Dataset(
        "mine", "classification", np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3, 3, train_rows=48
    )
}
"""A data set of a user's own."""
RNG = np.random.default_rng(0)
Y = np.arange(100) % 3
X = (RNG.integers(0, 120, (100, 3, 8, 8)) + 60 * (np.arange(8) % 3 == Y[:, None])[:, None, None, :]).astype(np.uint8)
SETS = {
    "pictures": Dataset("pictures", "classification", X.reshape(100, -1), Y, 3, 255.0, 80, image=(3, 8, 8)),
    "numbers": Dataset("numbers", "regression", RNG.normal(size=(60, 4)), RNG.normal(size=60), None, train_rows=48),
}
"""What small modules learn from."""
TINY = ("--scheme", "stiefel,he", "--depth", "2,3", "--width", "8", "--seeds", "2", "--epochs", "2", "--device", "cpu")
"""Options of `stiefel-init train` for eight networks that are trained in no time."""
MADE: dict[str, Any] = {"device": "none", "engine": "by hand"}
"""Where records made by hand come from."""


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def stiefel_init(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """The command line, in an empty directory, with no data but what scikit-learn carries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STIEFEL_INIT_DATA", raising=False)
    monkeypatch.setenv("STIEFEL_INIT_CACHE", str(tmp_path / ".cache"))

    return partial(_called, capsys, cli.main)


@pytest.fixture
def maintain(stiefel_init: Cli, capsys: pytest.CaptureFixture[str]) -> Cli:
    """`python -m paper`, in the same directory."""
    return partial(_called, capsys, partial(cli.main, program=maintainers, name="python -m paper"))


def _called(capsys: pytest.CaptureFixture[str], main: Callable[[list[str]], None], *words: object) -> Done:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    code = end.value.code
    return Done(code if isinstance(code, int) else 0, *capsys.readouterr())


def refused(done: Done, *words: str) -> None:
    """Bad input: exit code 2, and one sentence on stderr."""
    assert done.code == 2
    assert done.out == ""
    assert re.fullmatch(r"error: [^\n]+[.]\n", done.err), done.err
    for word in words:
        assert word in done.err


@pytest.fixture
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the image sets: 40 training and 20 test images of 784 pixels, ten classes."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 10
    x = np.clip(rng.normal(50, 40, (60, 784)) + 120 * (np.arange(784) % 10 == y[:, None]), 0, 255).astype(np.uint8)

    def load(name: str, directory: Path | None = None) -> Dataset:
        assert name in IMAGES
        return Dataset(name, "classification", x, y, 10, 255.0, 40)

    monkeypatch.setattr(problem, "load", load)
    monkeypatch.setattr(experiment, "load", load)


def csv_of(path: Path, rows: int = 60) -> Path:
    """A table of a user's customers: three features, a class to predict and a quantity."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    frame = pd.DataFrame({"age": x[:, 0], "height": x[:, 1], "town": np.where(x[:, 2] > 0, "Ulm", "Bern")})
    frame["churn"] = np.where(x[:, 0] + x[:, 1] > 0, "yes", "no")
    frame["price"] = 3 * x[:, 0] + x[:, 2]
    frame.to_csv(path, index=False)
    return path


def small_cells(count: int, **options: Any) -> list[Cell]:
    """Networks that are trained in no time."""
    return [Cell("mine", depth=2, width=5, seed=seed, epochs=2, batch=16, **options) for seed in range(count)]


def small_network(**options: Any) -> Cell:
    """A small plain convolutional network, or another module, that is trained in no time."""
    small: dict[str, Any] = {"network": "cnn", "depth": 5, "width": 4, "epochs": 2, "batch": 16, "rate": 0.01}
    return Cell(options.pop("dataset", "pictures"), options.pop("scheme", "he"), **small | options)


def train_small(out: Path, count: int = 4, most: int = 2, warn: Callable[[str], None] | None = None) -> list[Record]:
    """Train so many of them, `most` at once."""
    told: dict[str, Any] = {} if warn is None else {"warn": warn}
    return run(small_cells(count), out=out, device="cpu", datasets=MINE, most=most, **told)


def timeless(found: Iterable[Record]) -> list[Record]:
    """The records but for how long they took, and for the source, which may be another while one works on it."""
    unknown = {"commit": None, "source": None}
    return [replace(one, seconds=0.0, environment={**one.environment, **unknown}) for one in found]


def keys_in(folder: Path) -> list[str]:
    """The cells of all lines of all record files, as any reader would find them."""
    found = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(Cell.from_dict(values).key for values in found)


def file_names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def own_scheme() -> Iterator[str]:
    """A scheme of a user's own, registered as `plain-mine`, for the time of a test."""

    @register
    @dataclass(frozen=True)
    class PlainMine(Scheme):
        name = "plain-mine"
        entrywise = True
        std: float = 0.1

        def draw(self, source: Source) -> Any:
            return self.std * source.normals(source.m, source.n)

    yield PlainMine.name
    forget(PlainMine.name)


def trained() -> Iterator[Trained]:
    """All experiments that are made of networks."""
    return (one for one in experiments.experiments().values() if isinstance(one, Trained))


def record(cell: Cell, score: float | None, **options: Any) -> Record:
    """What became of a network, by hand; without a score, it diverged."""
    metric = problem.RMSE if cell.dataset == "diabetes" else problem.ACCURACY
    return Record(cell, metric, metric.worst if score is None else score, **{"environment": MADE} | options)
