"""PyTorch: whole models with `initialize_`, one weight with `stiefel_` and its like, and `diagnose`."""

from .auditing import Audit, audit
from .diagnosis import Diagnosis, diagnose
from .initialize import Plan, TailoredReLU, initialize_
from .sampling import draw_, he_, lee_, orthogonal_, random_, sample, stiefel_, xavier_

__all__ = [
    "Audit",
    "Diagnosis",
    "Plan",
    "TailoredReLU",
    "audit",
    "diagnose",
    "draw_",
    "he_",
    "initialize_",
    "lee_",
    "orthogonal_",
    "random_",
    "sample",
    "stiefel_",
    "xavier_",
]
