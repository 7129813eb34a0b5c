"""How deep a start carries: `check_depths`, which diagnoses one architecture at several depths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...core.errors import StiefelError
from ...core.text import columns
from ...health.rows import Evidence
from ..initialize import initialize_
from ..observe import frame, plots
from .diagnose import Loss, diagnose
from .diagnosis import Diagnosis, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Start = Callable[[nn.Module], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The last hidden layer of a network of one depth and start."""

    start: str
    depth: int
    std: float
    """Of what leaves its activation."""
    spread: float
    """How far apart different inputs still are, as `Layer.spread`."""
    active: float | None
    """The fraction of pre-activations above 0."""
    distinct: float | None
    """Effectively distinct units."""
    gradient: float | None
    """The gradient's norm at the first layer over that at the last; None without targets."""
    finding: str
    """The first finding of `diagnose`; empty if the network is healthy."""


@dataclass(frozen=True, eq=False, repr=False)
class Depths:
    """What `check_depths` measured. It prints as a table; `plot()` is the picture."""

    points: tuple[Point, ...]
    """A point for each start and depth."""

    def __len__(self) -> int:
        return len(self.points)

    def records(self) -> list[dict[str, Any]]:
        """The points as dicts.

        Returns:
            One dict for each point, with the fields of `Point`.
        """
        return [asdict(point) for point in self.points]

    @property
    def table(self) -> Any:
        """The points as a pandas DataFrame; where pandas is not installed, `records()`."""
        return frame(self.records(), tuple(column.name for column in fields(Point)))

    def __repr__(self) -> str:
        starts = dict.fromkeys(point.start for point in self.points)
        return f"<Depths: {', '.join(starts)} at depths {', '.join(map(str, self._depths))}>"

    def __str__(self) -> str:
        header = [field.name for field in fields(Point)]
        rows = [[text(value) for value in record.values()] for record in self.records()]
        return "\n".join(columns(header, [[*row[:-1], row[-1] or "healthy"] for row in rows], left=1))

    @property
    def _depths(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(point.depth for point in self.points))

    def plot(self) -> Figure:
        """Plot the statistics of the last hidden layer over the depth, a line for each start.

        Flat lines are what to look for. Crosses mark networks that `diagnose` calls sick.

        Returns:
            A matplotlib figure, made without pyplot: a notebook shows it, `plot().savefig(path)` writes it.

        Raises:
            StiefelError: if matplotlib is not installed.
        """
        return plots().of_depths(self.points)


def check_depths(
    make: Callable[[int], nn.Module],
    inputs: Any,
    targets: Any = None,
    *,
    depths: Iterable[int] = (10, 30, 100, 300, 1000),
    starts: Sequence[str] | Mapping[str, Start] = ("built", "best"),
    loss: Loss | None = None,
    seed: int = 0,
) -> Depths:
    """Build a network at several depths and measure its last hidden layer: a start that carries gives flat lines.

    The twin over depths of the coordinate check over widths that muP users know.

    Args:
        make: `make(depth)`, the network of that depth.
        inputs: One batch, as for `diagnose`.
        targets: Pass them to measure gradients.
        depths: The depths to build; each network is dropped before the next is built.
        starts: Names: `"built"` for the weights that `make` gives, `"best"` and `"paper"` for the recipes of
            `initialize_`, or one of its schemes. Or functions that initialize a model in place, by their names.
        loss: As for `diagnose`.
        seed: Random seed, for building and for initializing.

    Returns:
        A point for each start and depth, as table and picture.

    Raises:
        StiefelError: if depths or starts are empty or unknown, or `diagnose` refuses a network.

    >>> def make(depth):
    ...     layers = [module for _ in range(depth) for module in (nn.Linear(16, 16), nn.ReLU())]
    ...     return nn.Sequential(*layers, nn.Linear(16, 4))
    >>> found = check_depths(make, torch.rand(64, 16), torch.arange(64) % 4, depths=(5, 50))
    >>> [(point.start, point.depth, point.finding) for point in found.points]
    [('built', 5, ''), ('built', 50, 'signal dies'), ('best', 5, ''), ('best', 50, '')]
    """
    chosen = _depths(depths)
    by_name = _starts(starts, seed)
    with torch.random.fork_rng():
        points = [
            _point(name, depth, _diagnosed(make, depth, start, seed, inputs, targets, loss))
            for name, start in by_name.items()
            for depth in chosen
        ]
    return Depths(tuple(points))


def _depths(depths: Iterable[int]) -> list[int]:
    chosen = list(depths) if isinstance(depths, Iterable) else []
    if not chosen or any(isinstance(depth, bool) or not isinstance(depth, int) or depth < 1 for depth in chosen):
        raise StiefelError(f"depths={depths!r} cannot be built; give whole numbers from 1 on, such as (10, 100, 1000).")
    return list(dict.fromkeys(chosen))


def _starts(starts: Sequence[str] | Mapping[str, Start], seed: int) -> dict[str, Start]:
    if isinstance(starts, Mapping):
        by_name = dict(starts)
    else:
        names = [starts] if isinstance(starts, str) else list(starts)
        by_name = {name: _named(name, seed) for name in names}
    if not by_name or not all(callable(start) for start in by_name.values()):
        raise StiefelError(f"starts={starts!r} start nothing; give names such as 'best', or functions by their names.")
    return by_name


def _named(name: str, seed: int) -> Start:
    if name == "built":
        return lambda model: None
    if name == "best" or name == "paper":
        return lambda model: initialize_(model, recipe=name, seed=seed)  # type: ignore[arg-type]
    return lambda model: initialize_(model, name, seed=seed)


def _diagnosed(
    make: Callable[[int], nn.Module], depth: int, start: Start, seed: int, inputs: Any, targets: Any, loss: Loss | None
) -> Diagnosis:
    torch.manual_seed(seed)
    model = make(depth)
    if not isinstance(model, nn.Module):
        raise StiefelError(f"make({depth}) returned a {type(model).__name__}; it must return a torch.nn.Module.")
    start(model)
    return diagnose(model, inputs, targets, loss=loss)


def _point(start: str, depth: int, found: Diagnosis) -> Point:
    last = Evidence(found.layers).hidden[-1]
    first, end = found.layers[0].gradient, found.layers[-1].gradient
    return Point(
        start=start,
        depth=depth,
        std=last.post_std,
        spread=last.spread,
        active=last.active,
        distinct=last.distinct,
        gradient=first / end if first is not None and end else None,
        finding="" if found.healthy else found.findings[0].kind,
    )
