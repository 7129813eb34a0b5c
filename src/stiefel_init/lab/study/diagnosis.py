"""Diagnoses for the command line: the initializations side by side, or the user's own model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.errors import StiefelError, meant
from ...torch import Diagnosis, diagnose, initialize_
from ...torch.diagnosis.copies import trained_on
from ...torch.diagnosis.diagnose import default_loss
from ..data import names
from ..data.user import Columns, user_data
from ..files import prepare, write_whole
from ..plugins import built, load_named
from ..report import plots
from ..report.page import Chart, Line, Panel, screen_colour
from ..report.tables import Table
from ..train.cell import Cell
from ..train.network import module
from ..train.problem import Problems
from .plan import schemes_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = 256
IDLE = 0.97  # of the loss of the best one answer to everything: a network that has more left has learned nothing


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs to diagnose with: the first training rows of a data set, or noise."""

    name: str
    inputs: Tensor
    targets: Tensor | None  # None for noise; the loss is then the squared distance to noise
    outputs: int
    image: tuple[int, ...] | None = None  # the shape of one input as an image, where it has one


def batch(data: str, columns: Columns | None = None, directory: Path | None = None) -> Batch:
    """The batch that `--data` names: a data set, a file, or noise of a shape.

    >>> batch("digits").inputs.shape, batch("3x8x8").inputs.shape
    (torch.Size([256, 64]), torch.Size([256, 3, 8, 8]))
    """
    try:
        shape = [int(part) for part in data.lower().replace("×", "x").split("x")]
    except ValueError:
        shape = []
    datasets = {} if shape else user_data(data, columns or Columns())
    if datasets or data in names():
        (name,) = datasets or (data,)
        problem = Problems(datasets, directory)(Cell(name))
        inputs = torch.from_numpy(problem.features[:ROWS].astype(np.float32)) / problem.scale
        targets = torch.from_numpy(problem.targets[:ROWS])
        targets = targets if problem.loss == "cross_entropy" else targets.float()
        return Batch(data, inputs, targets, problem.outputs, problem.image)
    if not shape or min(shape) < 1:
        choices = ", ".join(names())
        raise StiefelError(
            f"data={data!r} is not known; choose one of {choices}, or a shape such as 3x32x32{meant(data, names())}."
        )
    try:
        noise = torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(0))
    except (RuntimeError, MemoryError):
        raise StiefelError(
            f"data={data!r}: {ROWS} inputs of that shape do not fit in memory; give a smaller shape."
        ) from None
    return Batch(f"noise {data}", noise, None, 10)


def network(depth: int, width: int, activation: str, inputs: int, outputs: int) -> nn.Sequential:
    """The paper's plain network, its layers named `1`, `2`, …, `output`."""
    result = nn.Sequential()
    for number in range(1, depth + 1):
        result.add_module(f"{number}", nn.Linear(inputs, width))
        result.add_module(f"{number}_{activation}", module(activation, depth))
        inputs = width
    result.add_module("output", nn.Linear(inputs, outputs))
    return result


def of_schemes(
    schemes: str, depth: int, width: int, activation: str, batch: Batch, seed: int = 0
) -> dict[str, Diagnosis]:
    """The diagnosis of each of `schemes`, comma-separated or `all`.

    One that is healthy, but learns nothing of the batch in 60 steps at 0.001/√depth, has the losses of that `trial`.
    """
    inputs = batch.inputs.flatten(1)
    diagnoses = {}
    for scheme in schemes_of(schemes):
        model = network(depth, width, activation, inputs.shape[1], batch.outputs)
        initialize_(model, scheme, seed=seed, inputs=inputs if scheme.calibrates else None)
        found = _diagnose(model, inputs, batch)
        if found.healthy and found.fit and found.fit.constant_loss and batch.targets is not None:
            adam = torch.optim.Adam(model.parameters(), 1e-3 / math.sqrt(depth))
            losses = tuple(value for value, _ in trained_on(model, inputs, batch.targets, default_loss, [adam]))
            if not losses[-1] < IDLE * found.fit.constant_loss:
                found = replace(found, trial=losses)
        diagnoses[str(scheme)] = found
    return diagnoses


def _diagnose(model: nn.Module, inputs: Tensor, batch: Batch) -> Diagnosis:
    if batch.targets is None:
        return diagnose(model, inputs, inputs, loss=_to_noise)
    return diagnose(model, inputs, batch.targets)


def _to_noise(outputs: Any, _: Any) -> Tensor:
    if not isinstance(outputs, Tensor):
        raise TypeError(f"the model returns a {type(outputs).__name__}, not a tensor")
    return nn.functional.mse_loss(outputs, torch.randn_like(outputs))


def of_own_model(place: str, batch: Batch) -> Diagnosis:
    """The diagnosis of the model at `place`, FILE.py:NAME; images are passed flat or, if that fails, as images."""
    model = built(load_named(place), place)
    parameter = next(model.parameters(), None)
    if parameter is not None:
        model = model.cpu()
    inputs = batch.inputs if parameter is None else batch.inputs.to(parameter.dtype)
    try:
        return _diagnose(model, inputs, batch)
    except StiefelError:
        if batch.image is None:
            raise
        try:
            return _diagnose(model, inputs.unflatten(1, batch.image), batch)
        except StiefelError as error:
            raise StiefelError(f"as rows and as images of shape {batch.image}: {error}") from None


def comparison(diagnoses: Mapping[str, Diagnosis], title: str = "") -> Table:
    """For each scheme, the statistics of the last hidden layer, and the verdict."""
    header = ["scheme", "active", "dead", "distinct", "std last/first", "gradient first/last", "verdict"]
    rows = []
    for name, diagnosis in diagnoses.items():
        hidden = _hidden(diagnosis)
        first, last = hidden[0], hidden[-1]
        dead = None if last.dead is None else sum(layer.dead or 0 for layer in hidden)
        warnings = ", ".join(warning.kind for warning in diagnosis.warnings)
        word = "learns nothing in 60 steps" if diagnosis.trial else "healthy"
        verdict = f"{word}; warning: {warnings}" if warnings else word
        rows.append([
            name, _shown(last.active, ".3f"), _shown(dead, ".1%", sum(layer.units for layer in hidden)),
            _shown(last.distinct, ".1f"), _shown(last.post_std, ".2g", first.post_std),
            _shown(first.gradient, ".2g", last.gradient),
            verdict if diagnosis.healthy else ", ".join(finding.kind for finding in diagnosis.findings),
        ])  # fmt: skip
    return Table(title, header, rows)


def _hidden(diagnosis: Diagnosis) -> Sequence[Any]:
    """The hidden layers: those with an activation, or, where none is recognised, all but the output."""
    return [layer for layer in diagnosis.layers if layer.activation is not None] or diagnosis.layers[:-1]


def _shown(value: float | None, form: str, whole: float | None = 1) -> str:
    return "—" if value is None or not whole else f"{value / whole:{form}}"


def write(diagnoses: Mapping[str, Diagnosis], out: Path) -> list[Path]:
    """The picture and the numbers, as files in `out`."""
    picture, table = prepare(out) / "diagnosis.png", out / "diagnosis.json"
    figure = next(iter(diagnoses.values())).plot() if len(diagnoses) == 1 else _picture(diagnoses)
    plots.save(figure, picture)
    write_whole(table, json.dumps(numbers(diagnoses), ensure_ascii=False, indent=1) + "\n")
    return [picture, table]


def numbers(diagnoses: Mapping[str, Diagnosis]) -> dict[str, Any]:
    """The diagnoses as JSON values."""
    return {name: json.loads(diagnosis.to_json()) for name, diagnosis in diagnoses.items()}


_PANELS = (
    ("post_std", "std of the activations", True),
    ("active", "share of units that fire", False),
    ("distinct", "distinct units", True),
    ("gradient", "gradient norm", True),
)
"""Statistics of a layer, what they are, and whether their axis is logarithmic."""


def _over_layers(diagnosis: Diagnosis, statistic: str) -> np.ndarray:
    return np.array([getattr(layer, statistic) or math.nan for layer in _hidden(diagnosis)], float)


def chart(diagnoses: Mapping[str, Diagnosis]) -> Chart:
    """The signal over the layers, one line for each scheme, for a page."""
    panels = []
    for statistic, title, logarithmic in _PANELS:
        values = {scheme: _over_layers(diagnosis, statistic) for scheme, diagnosis in diagnoses.items()}
        lines = [Line(name, screen_colour(name), range(1, len(y) + 1), y) for name, y in values.items()]
        panels.append(Panel(title, "layer", title, lines, log_y=logarithmic))
    return Chart("The signal before training, layer by layer", panels)


def _picture(diagnoses: Mapping[str, Diagnosis]) -> Figure:
    """The same as a picture."""
    drawn, axes = plots.figure(4, size=(3.6, 3.2))
    for axis, panel in zip(axes[0], chart(diagnoses).panels):
        for line in panel.lines:
            axis.plot(line.x, line.y, color=plots.colour(line.name), label=line.name, linewidth=1.8)
        axis.set(title=panel.title, xlabel="layer", **({"yscale": "log"} if panel.log_y else {"ylim": (0, 1.03)}))
    plots.legend(drawn, axes[0, -1])
    return drawn
