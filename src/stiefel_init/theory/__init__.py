"""The paper's analysis as code: what happens to signal and gradient, layer by layer, before a network is trained.

It needs only NumPy and SciPy. `docs/theory.md` has the derivations, the assumptions and their errors on real data.
"""

from .bounds import FAVOURED_ALPHA, alignment_optimum, berry_esseen_bound, max_entry_bound, shift_for_alpha
from .moments import ACTIVATIONS, activation_moments, activations, rectified_moments, register_activation, slope_moments
from .propagation import FiniteWidth, Propagation, finite_width, propagate
from .tailored import tailored_slope

__all__ = [
    "ACTIVATIONS", "FAVOURED_ALPHA", "FiniteWidth", "Propagation", "activation_moments", "activations",
    "alignment_optimum", "berry_esseen_bound", "finite_width", "max_entry_bound", "propagate", "rectified_moments",
    "register_activation", "shift_for_alpha", "slope_moments", "tailored_slope",
]  # fmt: skip
