"""One architecture at several sizes: how deep its initialization carries, `check_depths`; and what first steps change
in networks of several widths or depths, `check_widths`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...core import validate
from ...core.errors import StiefelError
from ...health.rows import Evidence
from ..initialize import initialize_
from ..inputs import arguments, check_module
from ..observe import plots
from ..observe.observer import first_tensor
from ..observe.report import Rows
from ..observe.weights import weight_layers
from ..rates import param_groups
from .diagnose import Loss, diagnose, loss_of
from .diagnosis import Diagnosis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Start = Callable[[nn.Module], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The last hidden layer of a network of one depth and start."""

    start: str
    depth: int
    std: float  # of what leaves its activation
    spread: float  # how far apart different inputs still are, as `Layer.spread`
    active: float | None  # the fraction of pre-activations above 0
    distinct: float | None  # effectively distinct units
    gradient: float | None  # the gradient's norm at the first layer over that at the last; None without targets
    finding: str  # the first finding of `diagnose`; empty if the network is healthy


@dataclass(frozen=True, eq=False, repr=False)
class Depths(Rows):
    """What `check_depths` measured. It prints as a table; `plot()` is the picture."""

    points: tuple[Point, ...]
    """A point for each start and depth."""

    def __repr__(self) -> str:
        starts, depths = (_distinct(self.points, name) for name in ("start", "depth"))
        return f"<Depths: {starts} at depths {depths}>"

    def __str__(self) -> str:
        return self._printed([{**row, "finding": row["finding"] or "healthy"} for row in self.records()])

    def plot(self) -> Figure:
        """Plot the statistics of the last hidden layer over the depth, a line for each start.

        Flat lines are what to look for. Crosses mark networks that `diagnose` calls sick.

        Returns:
            A matplotlib figure, made without pyplot: a notebook shows it, `plot().savefig(path)` writes it.

        Raises:
            StiefelError: if matplotlib is not installed.
        """
        return plots().of_depths(self.points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What the first steps changed in a network of one size."""

    rates: str
    size: int
    first: float  # of what the first layer says on the batch: the change over what it was, as norms
    hidden: float  # of what the last layer before the output says
    output: float  # the root mean square of the change of the output
    loss: float  # after the steps, over what it was; a network that learns is below 1


@dataclass(frozen=True, eq=False, repr=False)
class Widths(Rows):
    """What `check_widths` measured. It prints as a table; `plot()` is the picture."""

    changes: tuple[Change, ...]
    over: str
    """What the sizes are: `"width"`, or `"depth"`."""

    def __repr__(self) -> str:
        rates, sizes = (_distinct(self.changes, name) for name in ("rates", "size"))
        return f"<Widths: {rates} at {self.over}s {sizes}>"

    def __str__(self) -> str:
        return self._printed(self.records(), size=self.over)

    def plot(self) -> Figure:
        """Plot the changes over the size, a line for each way to choose the rates.

        Flat lines are what to look for: one number for the learning rate then suits every size.

        Returns:
            A matplotlib figure, made without pyplot.

        Raises:
            StiefelError: if matplotlib is not installed.
        """
        return plots().of_widths(self.changes, self.over)


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
    chosen = _sizes("depths", depths)
    by_name = starts_of(starts, seed)
    with torch.random.fork_rng():
        points = [
            _point(name, depth, diagnose(_built(make, depth, start, seed), inputs, targets, loss=loss))
            for name, start in by_name.items()
            for depth in chosen
        ]
    return Depths(tuple(points))


Optimize = Callable[[nn.Module], torch.optim.Optimizer]


def check_widths(
    make: Callable[[int], nn.Module],
    inputs: Any,
    targets: Any,
    *,
    widths: Iterable[int] | None = None,
    depths: Iterable[int] | None = None,
    lr: float = 1e-3,
    steps: int = 3,
    rates: Mapping[str, Optimize] | None = None,
    start: str | Start = "best",
    loss: Loss | None = None,
    seed: int = 0,
) -> Widths:
    """Train networks of several widths, or depths, for a few steps on one batch: what does that change?

    The coordinate check that muP users know, over depths too. Where the lines are flat, a learning rate that was found
    on a small network suits a large one.

    Args:
        make: `make(width)`, the network of that width; with `depths`, `make(depth)`.
        inputs: One batch, as for `diagnose`.
        targets: As for `diagnose`.
        widths: The widths to build; by default 32, 64, 128, 256.
        depths: The depths to build instead.
        lr: The learning rate.
        steps: How many steps are taken.
        rates: Ways to choose the rates, as functions from a model to its optimizer, by their names. By default
            `"param_groups"` and `"one rate"` for all layers, of Adam.
        start: As in `check_depths`.
        loss: As for `diagnose`.
        seed: Random seed, for building and for initializing.

    Returns:
        What changed, for each way and size, as table and picture.

    Raises:
        StiefelError: if sizes, steps or rates are none, a network cannot be used, or a loss is not finite.

    >>> def make(depth):
    ...     layers = [module for _ in range(depth) for module in (nn.Linear(16, 16), nn.ReLU())]
    ...     return nn.Sequential(*layers, nn.Linear(16, 4))
    >>> found = check_widths(make, torch.rand(64, 16), torch.arange(64) % 4, depths=(10, 100))
    >>> [(change.rates, change.size) for change in found.changes]
    [('param_groups', 10), ('param_groups', 100), ('one rate', 10), ('one rate', 100)]
    """
    if widths is not None and depths is not None:
        raise StiefelError("widths and depths are both given; give one of them, since make takes one number.")
    over = "width" if depths is None else "depth"
    given = widths if depths is None else depths
    sizes = _sizes(f"{over}s", (32, 64, 128, 256) if given is None else given)
    steps = validate.size("steps", steps)
    if steps < 1:
        raise StiefelError("steps=0 change nothing; give 1 or more.")
    if rates is None:
        rates = {
            "param_groups": lambda model: torch.optim.Adam(param_groups(model, lr, inputs=inputs)),
            "one rate": lambda model: torch.optim.Adam(model.parameters(), lr),
        }
    if not rates or not all(map(callable, rates.values())):
        raise StiefelError(f"rates={rates!r} choose nothing; give functions from a model to its optimizer, by names.")
    begin = start if callable(start) else starts_of([start], seed)[start]

    def changed(way: str, optimize: Optimize, size: int) -> Change:
        model = _built(make, size, begin, seed)
        layers = [module for _, module in weight_layers(model.named_modules())]
        if len(layers) < 2:
            raise StiefelError(f"make({size}) returned a network of {len(layers)} layers; it must have two or more.")
        optimizer = optimize(model)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise StiefelError(f"rates[{way!r}] returned a {type(optimizer).__name__}; it must return an optimizer.")
        said, losses = [], []
        for at in range(steps + 1):
            outputs, now = _run(model, layers, inputs)
            value = loss_of(loss, outputs, targets)
            if not bool(value.isfinite()):
                raise StiefelError(f"the loss of make({size}) is {value.item()} with rates {way!r}; give a smaller lr.")
            said.append(now)
            losses.append(value.item())
            if at < steps:
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
        (first, hidden, output), after = said[0], said[-1]
        return Change(
            rates=way, size=size, first=float((after[0] - first).norm() / first.norm()),
            hidden=float((after[1] - hidden).norm() / hidden.norm()),
            output=float((after[2] - output).square().mean().sqrt()), loss=losses[-1] / losses[0],
        )  # fmt: skip

    with torch.random.fork_rng(), torch.enable_grad():
        found = [changed(way, optimize, size) for way, optimize in rates.items() for size in sizes]
    return Widths(tuple(found), over)


def _run(model: nn.Module, layers: Sequence[nn.Module], inputs: Any) -> tuple[Any, list[torch.Tensor]]:
    """What the model returns; what its first layer, its last but one, and itself say."""
    seen: dict[nn.Module, torch.Tensor] = {}

    def see(module: nn.Module, given: Any, output: Any) -> None:
        if (tensor := first_tensor(output)) is not None:
            seen.setdefault(module, tensor.detach().double())

    positional, named = arguments(inputs)
    hooks = [layer.register_forward_hook(see) for layer in layers]
    try:
        outputs = model(*positional, **named)
    finally:
        for hook in hooks:
            hook.remove()
    called = [seen[layer] for layer in layers if layer in seen]
    final = first_tensor(outputs)
    return outputs, [called[0], called[-2], called[-1] if final is None else final.detach().double()]


def _sizes(what: str, sizes: Any) -> list[int]:
    chosen = list(sizes) if isinstance(sizes, Iterable) else []
    if not chosen or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in chosen):
        raise StiefelError(f"{what}={sizes!r} cannot be built; give whole numbers from 1 on, such as (10, 100, 1000).")
    return list(dict.fromkeys(chosen))


def starts_of(starts: Sequence[str] | Mapping[str, Start], seed: int) -> dict[str, Start]:
    """What starts a model, by its name."""

    def named(name: str) -> Start:
        recipe: Any = {"recipe": name} if name in ("best", "paper") else {"scheme": name}
        return lambda model: None if name == "built" else initialize_(model, **recipe, seed=seed)

    names = [starts] if isinstance(starts, str) else starts
    by_name = dict(starts) if isinstance(starts, Mapping) else {name: named(name) for name in names}
    if not by_name or not all(callable(start) for start in by_name.values()):
        raise StiefelError(f"starts={starts!r} start nothing; give names such as 'best', or functions by their names.")
    return by_name


def _built(make: Callable[[int], nn.Module], size: int, start: Start, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = make(size)
    check_module(model, f"make({size})")
    start(model)
    return model


def _point(start: str, depth: int, found: Diagnosis) -> Point:
    last = Evidence(found.layers).hidden[-1]
    first, end = found.layers[0].gradient, found.layers[-1].gradient
    return Point(
        start=start, depth=depth, std=last.post_std, spread=last.spread, active=last.active, distinct=last.distinct,
        gradient=first / end if first is not None and end else None,
        finding="" if found.healthy else found.findings[0].kind,
    )  # fmt: skip


def _distinct(rows: Sequence[Any], name: str) -> str:
    return ", ".join(dict.fromkeys(str(getattr(row, name)) for row in rows))
