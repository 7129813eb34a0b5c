"""Weight matrices with PyTorch: `sample` and `draw_`, and the paper's initializations in place."""

from .in_place import draw_, he_, lee_, orthogonal_, random_, sample, stiefel_, xavier_

__all__ = ["draw_", "he_", "lee_", "orthogonal_", "random_", "sample", "stiefel_", "xavier_"]
