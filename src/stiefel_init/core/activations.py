"""The activations that models are read by, in one table: what each does to a signal.

Flows, rules and diagnosis take their sets of names from it. `theory.moments` has the exact moments of a few of them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Activation(NamedTuple):
    """What is known of an activation, under its name in `torch.nn.functional`."""

    kind: Literal["rectifier", "saturating"]
    """A rectifier takes about half of a random signal's power; what saturates, or makes an output, does not."""
    of_units: bool = True
    """Whether it acts on each unit by itself, so that a layer's statistics are taken behind it."""
    dies: bool = False
    """Whether a unit is dead when nothing above 0 comes in."""
    halves: bool = False
    """Whether its slope at 0 is ½, so that small signals halve with each layer."""
    bounds: tuple[float, float] | None = None
    """Of its values, where it saturates at both."""


def _alike(names: str, activation: Activation) -> dict[str, Activation]:
    return dict.fromkeys(names.split(), activation)


TABLE: dict[str, Activation] = {
    **_alike("relu relu6", Activation("rectifier", dies=True)),
    **_alike("gelu silu mish hardswish", Activation("rectifier", halves=True)),
    **_alike("leaky_relu prelu rrelu elu celu selu softplus threshold", Activation("rectifier")),
    **_alike("max_pool1d max_pool2d max_pool3d adaptive_max_pool2d", Activation("rectifier", of_units=False)),
    **_alike("clamp clamp_min maximum square glu", Activation("rectifier", of_units=False)),
    **_alike("sigmoid hardsigmoid", Activation("saturating", bounds=(0, 1))),
    **_alike("tanh hardtanh softsign", Activation("saturating", bounds=(-1, 1))),
    **_alike("logsigmoid", Activation("saturating")),
    **_alike("softmax log_softmax exp sin cos", Activation("saturating", of_units=False)),
}


def short(name: str) -> str:
    """A name without underscores and in lower case: functions, methods and modules are then called the same."""
    return name.replace("_", "").lower()


RECTIFIERS = frozenset(short(name) for name, activation in TABLE.items() if activation.kind == "rectifier")
"""Short names."""
SATURATING = frozenset(short(name) for name, activation in TABLE.items() if activation.kind == "saturating")
OF_UNITS = frozenset(name for name, activation in TABLE.items() if activation.of_units)
"""Names in `torch.nn.functional`."""
DYING = frozenset(name for name, activation in TABLE.items() if activation.dies)
HALVING = tuple(sorted(name for name, activation in TABLE.items() if activation.halves))
BOUNDS = {name: activation.bounds for name, activation in TABLE.items() if activation.bounds is not None}
SQUASHING = tuple(name for name, (low, _) in BOUNDS.items() if low == 0)
"""Slope ¼ at 0: small signals are quartered by each layer."""
