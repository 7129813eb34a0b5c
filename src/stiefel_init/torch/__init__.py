"""PyTorch: whole models with `initialize_`, one weight with `stiefel_` and its like, `diagnose` and `watch`."""

from ..core.errors import missing

try:
    from .auditing import Audit, audit
    from .diagnosis import Depths, Diagnosis, check_depths, diagnose
    from .initialize import Plan, TailoredReLU, initialize_
    from .sampling import draw_, he_, lee_, orthogonal_, random_, sample, stiefel_, xavier_
    from .watching import Watch, watch
except ModuleNotFoundError as error:
    raise missing(error, "stiefel_init.torch", "torch", "torch") from None

__all__ = [
    "Audit",
    "Depths",
    "Diagnosis",
    "Plan",
    "TailoredReLU",
    "Watch",
    "audit",
    "check_depths",
    "diagnose",
    "draw_",
    "he_",
    "initialize_",
    "lee_",
    "orthogonal_",
    "random_",
    "sample",
    "stiefel_",
    "watch",
    "xavier_",
]
