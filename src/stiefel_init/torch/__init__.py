"""PyTorch: whole models with `initialize_`, one weight with `stiefel_` and its like, `diagnose` and `watch`."""

from ..core.errors import missing

try:
    from .auditing import Audit, audit
    from .building import assert_initialized
    from .diagnosis import Depths, Diagnosis, Widths, check_depths, check_widths, diagnose
    from .initialize import Plan, TailoredReLU, initialize_
    from .learning import can_learn
    from .rates import param_groups
    from .sampling import draw_, he_, lee_, orthogonal_, random_, sample, stiefel_, xavier_
    from .trial import Trials, find_start
    from .watching import Watch, watch
except ModuleNotFoundError as error:
    raise missing(error, "stiefel_init.torch", "torch", "torch") from None

__all__ = [
    "Audit",
    "Depths",
    "Diagnosis",
    "Plan",
    "TailoredReLU",
    "Trials",
    "Watch",
    "Widths",
    "assert_initialized",
    "audit",
    "can_learn",
    "check_depths",
    "check_widths",
    "diagnose",
    "draw_",
    "find_start",
    "he_",
    "initialize_",
    "lee_",
    "orthogonal_",
    "param_groups",
    "random_",
    "sample",
    "stiefel_",
    "watch",
    "xavier_",
]
