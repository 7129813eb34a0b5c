"""The rules about one batch through a network, in the order of the verdict: importing this registers them."""

from ..rule import AT_INITIALIZATION, register
from . import ends, gradient, outputs, setup, signal, trial, units

register(
    AT_INITIALIZATION, *outputs.OUTPUTS, *setup.RULES, *signal.RULES, *gradient.RULES, *units.RULES, *ends.RULES,
    *units.LAST_RULES, *trial.RULES,
)  # fmt: skip
