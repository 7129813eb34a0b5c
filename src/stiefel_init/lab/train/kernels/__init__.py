"""The fused engine's Triton kernels: a training step of many networks in one or two launches, however deep they are.

Start with README.md beside this file; then read `propagation`, which calls the phases in order.
"""

from .optimizer import update
from .propagation import propagate

__all__ = ["propagate", "update"]
