"""`Protocol`: one hypothesis of how table 5 was made, the networks that test it, and the order in which to train them.

A training is read at several epochs, so that hypotheses about the reported epoch share their networks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stiefel_init.lab.data import Dataset, load
from stiefel_init.lab.data.formats import ADULT_NUMERIC
from stiefel_init.lab.train.cell import Cell

from ..tables.protocol import EPOCHS, TABULAR_WIDTH, rate
from ..tables.published import Published, published

Rates = Literal["stated", "all scaled", "all fixed"]
Encoding = Literal["sorted", "appearance", "one-hot"]
Form = Literal["lapack", "product", "direct"]
FIXED = 1e-3
SMALL = tuple(name for name in TABULAR_WIDTH if name != "adult")
DEPTHS = (50, 100)
BATCHES = (256, 32, 16, 64, 8)
"""The stated one first, then by what a first look made likely."""
_VARIANT = re.compile(r"(?P<base>[a-z]+)(-split(?P<split>\d+))?(-(?P<extra>standardized|appearance|one-hot))?")


@dataclass(frozen=True)
class Protocol:
    """One hypothesis; the defaults are what the paper states, and where it says nothing, what table 5 assumes.

    >>> print(Protocol(batch=32, split=42))
    batches of 32, split 42
    """

    batch: int = 256
    rates: Rates = "stated"
    """Stated: 0.001/√depth, but 0.001 for Lee."""
    split: int | None = None
    """The seed of one split for all networks; None for a split of its own for each seed."""
    epochs: int = EPOCHS
    best: bool = False
    """Whether the best epoch was reported, instead of the last."""
    standardized: bool = False
    """Whether Diabetes's targets are standardized for training."""
    encoding: Encoding = "sorted"
    """How Adult's categories become numbers."""
    lee: Form = "lapack"
    """The form of Lee's initialization; table 2 seems to use the direct one."""

    def __str__(self) -> str:
        parts = [f"batches of {self.batch}"]
        parts += [f"Lee {self.lee}"] if self.lee != "lapack" else []
        parts += [f"rates {self.rates}"] if self.rates != "stated" else []
        parts += [f"split {self.split}"] if self.split is not None else []
        parts += [f"{self.epochs} epochs"] if self.epochs != EPOCHS else []
        parts += ["best epoch"] if self.best else []
        parts += ["targets standardized"] if self.standardized else []
        parts += [f"Adult by {self.encoding}"] if self.encoding != "sorted" else []
        return ", ".join(parts)

    def dataset(self, name: str) -> str:
        """What the laboratory calls a data set under this protocol."""
        split = "" if self.split is None else f"-split{self.split}"
        extra = ""
        if name == "diabetes" and self.standardized:
            extra = "-standardized"
        if name == "adult" and self.encoding != "sorted":
            extra = f"-{self.encoding}"
        return f"{name}{split}{extra}"

    def rate(self, scheme: str, depth: int) -> float:
        """A network's learning rate."""
        if self.rates == "stated":
            return rate(scheme, depth)
        return FIXED if self.rates == "all fixed" else rate("", depth)

    def cell(self, number: Published, seed: int = 0) -> Cell:
        """The network behind a number."""
        return _setting(self, number).with_seed(seed)

    def concerns(self, dataset: str) -> bool:
        """Whether it says anything about a data set that it would not say without its encodings."""
        if self.standardized:
            return dataset == "diabetes"
        return self.encoding == "sorted" or dataset == "adult"

    def readings(self) -> list[Protocol]:
        """This training read after half its epochs and after all, at the last epoch and the best so far."""
        halves = (self.epochs // 2, self.epochs)
        return [replace(self, epochs=epochs, best=best) for epochs in halves for best in (False, True)]


@cache
def _setting(protocol: Protocol, number: Published) -> Cell:
    """The network behind a number, with seed 0."""
    scheme = str(number.scheme)
    drawn = f"lee {protocol.lee}" if scheme == "lee" else scheme
    return Cell(
        protocol.dataset(number.dataset), drawn, number.depth, TABULAR_WIDTH[number.dataset],
        epochs=max(protocol.epochs, EPOCHS), batch=protocol.batch, rate=protocol.rate(scheme, number.depth),
        alpha=number.alpha,
    )  # fmt: skip


STATED = Protocol()
EXPLAINING = Protocol(batch=32, split=42)
"""What the dead networks on Diabetes point to (`dead.py`)."""


@dataclass(frozen=True)
class Wave:
    """Trainings that are worth having together: these protocols, on these sets, at these depths."""

    protocols: Sequence[Protocol]
    datasets: Sequence[str]
    depths: Sequence[int] = DEPTHS

    def cells(self, seeds: int) -> list[Cell]:
        """Its networks."""
        wanted = [n for n in numbers() if n.dataset in self.datasets and n.depth in self.depths]
        return [
            protocol.cell(number, seed)
            for protocol, number, seed in product(self.protocols, wanted, range(seeds))
        ]  # fmt: skip


def _waves() -> tuple[Wave, ...]:
    by_batch = [replace(EXPLAINING, batch=batch) for batch in BATCHES]
    forms: list[Protocol] = [
        replace(EXPLAINING, batch=batch, lee=form) for batch in (32, 16) for form in ("product", "direct")
    ]
    rates: list[Protocol] = [
        replace(EXPLAINING, batch=batch, rates=rule) for batch in (32, 256) for rule in ("all scaled", "all fixed")
    ]
    splits = [replace(EXPLAINING, split=split) for split in (None, 0, 1)]
    longer = replace(EXPLAINING, batch=64, epochs=2 * EPOCHS)
    standardized = [replace(EXPLAINING, batch=batch, standardized=True) for batch in (32, 256)]
    appearance, one_hot = (replace(EXPLAINING, encoding=encoding) for encoding in ("appearance", "one-hot"))
    return (
        Wave([STATED, *by_batch[:4]], SMALL, (50,)),
        Wave([STATED, *by_batch, *forms], SMALL),
        Wave([*rates, *splits, longer], SMALL),
        Wave(standardized, ("diabetes",)),
        Wave([STATED, *by_batch[:4], *forms[:2], *rates[:2], appearance, one_hot], ("adult",)),
        Wave([by_batch[4]], ("adult",)),
    )


WAVES = _waves()
"""The most informative first, since a run may be stopped. Cells of one wave share stacks: on a GPU a step takes about
as long for hundreds of networks as for one, so a wave's time is its number of steps. Adult in batches of 8 has the
most."""
QUICK = Wave([replace(EXPLAINING, batch=batch) for batch in (256, 64, 32)], ("wine", "diabetes"), (50,))


def trainings() -> list[Protocol]:
    """All hypotheses that are trained."""
    return list(dict.fromkeys(protocol for wave in WAVES for protocol in wave.protocols))


@cache
def numbers() -> tuple[Published, ...]:
    """The 288 published numbers."""
    return published("table5")


def variant(name: str, directory: Path | None = None) -> Dataset:
    """The data set of a protocol, by the name that `Protocol.dataset` gave it.

    >>> variant("wine-split42").test_seed
    42
    """
    match = _VARIANT.fullmatch(name)
    parts: Mapping[str, Any] = match.groupdict() if match else {"base": name, "split": None, "extra": None}
    dataset = replace(load(parts["base"], directory=directory), name=name)
    if parts["split"] is not None:
        dataset = replace(dataset, test_seed=int(parts["split"]))
    if parts["extra"] == "standardized":
        return replace(dataset, standardize=True)
    if parts["extra"] is not None:
        return replace(dataset, x=_encoded(dataset.x, parts["extra"]))
    return dataset


def _encoded(x: np.ndarray, encoding: str) -> np.ndarray:
    """Adult with its categories, numbered by their sorted names, encoded another way."""
    columns = []
    for j in range(x.shape[1]):
        if j in ADULT_NUMERIC:
            columns.append(x[:, j : j + 1])
            continue
        _, first, codes = np.unique(x[:, j], return_index=True, return_inverse=True)
        if encoding == "one-hot":
            columns.append(np.eye(len(first))[codes])
        else:
            columns.append(np.argsort(np.argsort(first))[codes][:, None].astype(float))
    return np.hstack(columns)


def of_names(cells: Sequence[Cell], directory: Path | None = None) -> dict[str, Dataset]:
    """The data sets that cells name and `load` does not know."""
    return {name: variant(name, directory) for name in sorted({c.dataset for c in cells}) if "-" in name}
