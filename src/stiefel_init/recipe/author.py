"""What the author of a model made of its weights: their size, and what was meant to be as it is.

The size is that of the entries, their root mean square. A seed has to give the same weights whatever the model held, so
that the sizes of the usual initializations are taken exactly, not as they happened to be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from .layers import Weight
from .roles import Roles

FEW = 4
"""Values that a vector repeats: those of the gates of a recurrent layer."""
CHANCE = 16.0
"""By how much more a rule may misfit a model than the best one, and be the one: four standard deviations."""
Default = Literal["uniform", "lecun", "glorot"]
DEFAULTS: dict[Default, int] = {"uniform": 0, "lecun": 2, "glorot": 6}
"""The rule by which a framework draws layers, of PyTorch, of Flax and of Keras: its place among the usual sizes."""
SMALL, TINY = 0.1, 0.02
"""Heads below this part of a unit matrix, and a quarter of the other layers', are small on purpose; and any layer
but the last of a branch."""


def follows_pattern(values: np.ndarray) -> bool:
    """Whether entries follow a pattern, as no random ones do: a matrix of mostly zeros, a vector of few values.

    Of a kernel the part that is used counts: a matrix at its centre alone is how some initializations begin.

    >>> follows_pattern(np.eye(4)), follows_pattern(np.array([0.0, 0.0, 1.0, 1.0])), follows_pattern(np.arange(4.0))
    (True, True, False)
    """
    if values.ndim > 1:
        axes = range(values.ndim if values.ndim > 2 else 0)
        used = [np.any(values, axis=tuple({*axes} - {axis})).sum() for axis in axes]
        return bool(0 < np.count_nonzero(values) < (math.prod(used) if used else values.size) / 2)
    return values.size > 1 and len(np.unique(values)) <= min(FEW, values.size // 2)


def settled(weights: Mapping[str, Weight], default: Default = "uniform") -> dict[str, Weight]:
    """Each weight with the size that its author meant: the usual one for its shape from which it cannot be told apart.

    A small layer cannot be told apart from several; the first that fits the whole model then counts, beginning with the
    `default` of the framework.
    """
    usual = {name: _usual(weight) for name, weight in weights.items() if weight.size and 0 not in weight.shape}
    if not usual:
        return {name: weight._replace(size=None) for name, weight in weights.items()}
    misfits = _misfits([weights[name] for name in usual], list(usual.values()))
    fits, own = (misfits <= misfits.min() + CHANCE).tolist(), DEFAULTS[default]
    order = sorted(range(len(fits)), key=lambda rule: (not fits[rule], rule != own))
    sizes = {name: _nearest(weights[name], [squares[rule] for rule in order]) for name, squares in usual.items()}
    return {name: weight._replace(size=sizes.get(name)) for name, weight in weights.items()}


def _fans(weight: Weight) -> tuple[int, int]:
    places = math.prod(weight.shape[2:])
    fans = weight.shape[1] * places, weight.shape[0] * places
    return (fans[1], fans[0]) if weight.layer.transposed else fans


def _usual(weight: Weight) -> list[float]:
    """The squares of the usual sizes, one for each rule that frameworks and authors have."""
    fan_in, fan_out = _fans(weight)
    return [
        *(part / fan for part in (1 / 3, 1, 2) for fan in (fan_in, fan_out)),
        2 / (fan_in + fan_out),
        *(part / max(weight.shape[0], fan_in) for part in (1, 2)),
        0.02**2,
    ]


def _misfits(weights: list[Weight], squares: list[list[float]]) -> np.ndarray:
    """How far the sizes are in all from those of each rule, in squares of their standard deviations.

    Each as far as another rule might be at work.
    """
    sizes, entries = np.array([(weight.size, math.prod(weight.shape)) for weight in weights], float).T[..., None]
    return np.minimum(entries / 2 * np.log(sizes**2 / squares) ** 2, 16.0).sum(0)


def usual_bias(weight: Weight) -> float | None:
    """Likewise of the biases of its layer; None where they are zero, or not known."""
    if not weight.bias:
        return None
    return _near(weight.bias, [1 / (3 * weight.matrices.n)], [0.5, 2.0], weight.matrices.m)


def _nearest(weight: Weight, usual: list[float]) -> float:
    assert weight.size
    return _near(weight.size, usual, [1 / (2 * _fans(weight)[0])], math.prod(weight.shape))


def _near(size: float, usual: list[float], own: list[float], entries: int) -> float:
    """The size that it is exactly, of those with these squares, the recipe's `own` among them; or the first of the
    usual ones from which so many entries do not differ; else two digits.
    """
    noise = 8 / math.sqrt(2 * entries)  # of a square, four standard deviations
    exact = [square for square in [*usual, *own] if abs(size**2 / square - 1) < 1e-4]
    near = [square for square in usual if abs(size**2 / square - 1) < noise]
    return math.sqrt([*exact, *near][0]) if exact or near else float(f"{size:.2g}")


def meant(weights: Iterable[Weight], roles: Roles) -> dict[str, str]:
    """The weights that are to stay as their author made them, and why."""
    known = [weight for weight in weights if weight.size is not None]
    if not any(weight.size for weight in known):
        return {}  # a model of zeros alone is not meant to stay so
    units = sorted(_of_unit(weight) for weight in known if weight.size and not roles[weight.name].head)
    others = units[len(units) // 2] / 4 if units else 0.0
    left: dict[str, str] = {}
    for weight in known:
        role = roles[weight.name]
        if weight.size == 0 and 0 not in weight.shape:
            left[weight.name] = "zero, as its author made it"
        elif weight.patterned:
            left[weight.name] = "mostly zeros, as its author made it"
        elif weight.size and not role.ends_branch and _of_unit(weight) < min(SMALL if role.head else TINY, others):
            left[weight.name] = "small, as its author made it"
        elif role.altered:
            left[weight.name] = "its layer does something to it before it is used"
        elif role.at_sine:
            left[weight.name] = "made for sines by its author"
    return left


def _of_unit(weight: Weight) -> float:
    """The size beside that of a semi-orthogonal matrix."""
    assert weight.size is not None
    return weight.size * math.sqrt(max(weight.shape[0], math.prod(weight.shape[1:])))
