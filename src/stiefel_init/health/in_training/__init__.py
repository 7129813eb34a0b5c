"""The rules about the steps of a training, in the order of the lines: importing this registers them.

Each measures one number of a sample and of what came before. A rule opens when its number exceeds its threshold, and
closes when it is below half of it. Rules about the signal and the gradient are those at initialization; the others
compare a step with earlier ones, which a single batch cannot.
"""

from ..rule import IN_TRAINING, register
from .breaking import BREAKING_RULES
from .layers import INPUT_RULES, SIGNAL_RULES, UNIT_RULES
from .loop import LOOP_RULES
from .steps import GRADIENT_RULES, LOSS_RULES, STEP_RULES, WEIGHT_RULES

register(
    IN_TRAINING, *BREAKING_RULES, *GRADIENT_RULES, *INPUT_RULES, *WEIGHT_RULES, *UNIT_RULES, *LOOP_RULES, *STEP_RULES,
    *SIGNAL_RULES, *LOSS_RULES,
)  # fmt: skip
