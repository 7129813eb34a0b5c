"""PyTorch: the initializers, in place, and `sample` for whole batches."""

from ._sample import sample
from ._schemes import SCHEMES, he_, lee_, orthogonal_, random_, stiefel_, xavier_

__all__ = ["SCHEMES", "he_", "lee_", "orthogonal_", "random_", "sample", "stiefel_", "xavier_"]
