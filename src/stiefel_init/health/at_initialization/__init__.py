"""The rules about one batch through a network, in the order of the verdict: importing this registers them."""

from ..rule import AT_INITIALIZATION, register
from . import ends, gradient, setup, signal, units

register(AT_INITIALIZATION, *setup.RULES, *signal.RULES, *gradient.RULES, *units.RULES, *ends.RULES, *units.LAST_RULES)
