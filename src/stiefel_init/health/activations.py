"""The activations that `diagnose` and `watch` recognise, by the names of their functions in PyTorch."""

from __future__ import annotations

from ..schemes.level import level

ACTIVATIONS = frozenset([
    "relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid",
    "tanh", "softplus", "softsign", "hardtanh", "hardswish", "hardsigmoid", "logsigmoid", "threshold",
])  # fmt: skip
DYING = frozenset({"relu", "relu6"})
"""Those whose unit is dead when nothing above 0 comes in."""
BOUNDS: dict[str, tuple[float, float]] = {
    "sigmoid": (0, 1), "hardsigmoid": (0, 1), "tanh": (-1, 1), "hardtanh": (-1, 1), "softsign": (-1, 1),
}  # fmt: skip
SQUASHING = tuple(name for name, (low, _) in BOUNDS.items() if low == 0)
"""Slope 1/4 at 0: small signals are quartered by each layer."""
HALVING = tuple(sorted(name for name in ACTIVATIONS if level(name, 1000)))
"""Slope 1/2 at 0: small signals are halved by each layer, unless their common level is high enough."""
