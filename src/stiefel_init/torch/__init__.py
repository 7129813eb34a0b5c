"""PyTorch: whole models with `initialize_`, the initializers, in place, and `sample` for whole batches; `diagnose`."""

from ._diagnose import diagnose
from ._diagnosis import Diagnosis
from ._initialize import initialize_
from ._plan import Plan
from ._sample import sample
from ._schemes import SCHEMES, he_, lee_, orthogonal_, random_, stiefel_, xavier_

__all__ = [
    "SCHEMES",
    "Diagnosis",
    "Plan",
    "diagnose",
    "he_",
    "initialize_",
    "lee_",
    "orthogonal_",
    "random_",
    "sample",
    "stiefel_",
    "xavier_",
]
