"""The rows of a sample, from what was measured of each layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from ...core.activations import DYING
from ...health.rows import Row
from ..observe.observer import Seen
from .weights import Structure, moved


class Measures(NamedTuple):
    """What was measured, by module, by the id of a weight, or by the id of a `Seen`."""

    gradients: dict[nn.Module, float]
    used: dict[int, float]
    moves: Mapping[int, Sequence[float]]
    saturated: dict[nn.Module, float]
    sizes: Mapping[nn.Module, Sequence[float]]
    distances: dict[nn.Module, float]
    biases: Mapping[nn.Module, Sequence[float]]
    signals: Mapping[int, Sequence[float]]


def rows(structure: Structure, layers: Iterable[nn.Module], seen: Iterable[Seen], measures: Measures) -> Iterator[Row]:
    """A row for each of `layers`."""
    ran = {layer.module: layer for layer in seen}
    for module in layers:
        yield _row(structure, module, ran.get(module), measures)


def _row(structure: Structure, module: nn.Module, layer: Seen | None, known: Measures) -> Row:
    weights = structure.weights[module]
    used = [known.used[id(weight)] for weight in weights if id(weight) in known.used]
    update, inward = moved([known.moves[id(weight)] for weight in weights if id(weight) in known.moves])
    sizes = known.sizes.get(module)
    bias = known.biases.get(module, _UNKNOWN) if module in structure.biased else (None, None)
    signal: dict[str, Any] = {}
    if layer is not None and (facts := known.signals.get(id(layer))) is not None:
        mean, std, _, active, never, post_mean, post_std, spread, distinct = facts
        signal = {
            "activation": layer.activation,
            "units": layer.units,
            "samples": layer.samples,
            "mean": mean,
            "std": std,
            "alpha": mean / std if std > 0 else None,
            "active": None if layer.activation is None else active,
            "dead": never / layer.units if layer.activation in DYING else None,
            "saturated": _known(known.saturated.get(module)),
            "post_mean": post_mean,
            "post_std": post_std,
            "spread": spread,
            "distinct": distinct if layer.samples > 1 and distinct > 0 else None,
        }
    return Row(
        layer=structure.names[module],
        kind=type(module).__name__,
        gradient=known.gradients.get(module),
        weight_gradient=None if not used else used[0] if len(used) == 1 else math.hypot(*used),
        update=_known(update),
        inward=_known(inward),
        norm=None if sizes is None else sizes[0],
        singular=None if sizes is None else _known(sizes[1]),
        distance=_known(known.distances.get(module)),
        bias_mean=bias[0],
        bias_std=bias[1],
        trained=any(weight.requires_grad for weight in weights),
        **signal,
    )


_UNKNOWN = (math.nan, math.nan)


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value
