"""Which start the published records support for plain networks of a depth: `of_depth`, from the table beside this file.

`on_record.csv` is what `python -m paper advice` prints from the records under results/; nobody writes it by hand.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from .roles import Roles

FILE = "on_record.csv"
MARGIN = 0.5
"""Points of accuracy: what is behind by less is as good."""
FAR = math.sqrt(10.0)
"""A depth is not spoken of if the nearest on record is this many times deeper or shallower."""
DEFAULT = ("recipe", "rotation 0.03")
"""What `initialize_` does, and what comes closest to it in the records of studies that did not try it."""
USUAL = "he"


Plain = Literal["MLP", "CNN"]
WORDS: dict[Plain, str] = {"MLP": "ReLU networks", "CNN": "CNNs"}
"""Networks without skips, and how sentences call them."""


class Known(NamedTuple):
    """The networks of a start at its best rate."""

    study: str
    network: Plain
    data: str
    layers: int
    start: str
    ends: str
    """`"fast"` where the first and the last layer learned √depth times as fast as the others, else `"one rate"`."""
    mean: float
    """Of the test accuracy, in percent."""
    deviation: float
    networks: int


class Support(NamedTuple):
    """What the records say about a depth."""

    layers: int
    """The nearest depth on record."""
    start: str
    """The start that is least behind the best on any data; the default if it is as good."""
    sentence: str
    """That start and the usual one, in numbers."""
    ends: str
    """What fast ends add, in numbers; empty if that is less than `MARGIN`, or not on record."""


_KINDS: dict[str, Callable[[str], Any]] = {"layers": int, "mean": float, "deviation": float, "networks": int}


@cache
def known() -> tuple[Known, ...]:
    """The table."""
    text = files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    rows = (
        {field: _KINDS.get(field, str)(value) for field, value in row.items()}
        for row in csv.DictReader(text.splitlines())
    )
    return tuple(Known(**row) for row in rows)


Means = Mapping[str, float]
"""Data set → mean."""


@cache
def of_depth(layers: int, network: Plain = "MLP") -> Support | None:
    """What is known of plain networks of so many hidden layers; None if nothing near was tried."""
    near = _nearest(network, layers, "one rate")
    if near is None:
        return None
    plain = {study: means for study in _studies() if (means := _means(study, network, near, "one rate"))}
    study = max(plain, key=lambda name: len(plain[name]))  # the one that compared most starts; of equal ones, the first
    start = _best(plain[study])
    against = f", {USUAL} {_numbers(plain[study][USUAL])}" if USUAL in plain[study] and start != USUAL else ""
    sentence = (
        f"On record for plain {WORDS[network]} of {near:,} layers, each start at its best rate: {_call(start)} reaches "
        f"{_told(plain[study][start])}{against} (study {study})."
    )
    return Support(near, start, sentence, _ends(network, layers))


def _nearest(network: Plain, layers: int, ends: str) -> int | None:
    """The depth on record that is nearest; None if it is far."""
    depths = {row.layers for row in known() if (row.network, row.ends) == (network, ends)}
    near = min(depths, key=lambda depth: (abs(math.log(depth / layers)), depth), default=None)
    return near if near is not None and near / FAR < layers < near * FAR else None


def _studies() -> list[str]:
    return list(dict.fromkeys(row.study for row in known()))


def _means(study: str, network: Plain, layers: int | None, ends: str) -> dict[str, Means]:
    """The starts of a study that were tried on all of its data at a depth."""
    found: dict[str, dict[str, float]] = {}
    for row in known():
        if (row.study, row.network, row.layers, row.ends) == (study, network, layers, ends):
            found.setdefault(row.start, {})[row.data] = row.mean
    most = max(map(len, found.values()), default=0)
    return {start: means for start, means in found.items() if len(means) == most}


def _best(means: Mapping[str, Means]) -> str:
    """The start that is least behind the best on any data; the default if it is as good."""
    top = {data: max(of[data] for of in means.values()) for data in next(iter(means.values()))}
    behind = {start: max(top[data] - mean for data, mean in of.items()) for start, of in means.items()}
    as_good = [start for start in DEFAULT if behind.get(start, math.inf) <= MARGIN]
    return as_good[0] if as_good else min(behind, key=lambda start: behind[start])


def _ends(network: Plain, layers: int) -> str:
    """The best start with fast ends, of the first study that tried them, against the same at one rate."""
    near = _nearest(network, layers, "fast")
    for study in _studies() if near is not None else ():
        fast, slow = (_means(study, network, near, ends) for ends in ("fast", "one rate"))
        start = _best(fast) if fast else ""
        before = {data: slow[start][data] for data in fast.get(start, ()) if data in slow.get(start, ())}
        if before and min(fast[start][data] - mean for data, mean in before.items()) >= MARGIN:
            return (
                "Give the first and the last layer √depth times the learning rate of the others, and all a cosine "
                f"schedule: {_call(start)} then reaches {_told(fast[start])}, with one constant rate "
                f"{_numbers(before)} ({near:,} layers, study {study})."
            )
    return ""


def note(weights: Mapping[str, tuple[int, ...]], roles: Roles) -> str:
    """What to add to the plan of the default recipe: advice on the longest chain of linear layers with ReLU.

    Args:
        weights: The shapes of the model's weights, by name.
        roles: What is known of them.
    """
    chains = [
        chain
        for name, chain in roles.chains.items()
        if len(weights.get(name, ())) == 2 and roles.next.get(name) == "relu"
    ]
    found = of_depth(max(chains) + 1) if chains else None  # the first layer, which reads the input, is none of them
    if found is None:
        return ""
    return " ".join(part for part in ("" if found.start in DEFAULT else found.sentence, found.ends) if part)


def _call(start: str) -> str:
    return "initialize_(model)" if start == DEFAULT[0] else f'initialize_(model, "{start}")'


def _told(means: Means) -> str:
    return " and ".join(f"{mean:.1f} % on {data}" for data, mean in means.items())


def _numbers(means: Means) -> str:
    return " and ".join(f"{mean:.1f} %" for mean in means.values())
