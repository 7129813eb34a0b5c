"""stiefel-init: weight initialization on the Stiefel manifold for deep ReLU networks.

The core, with NumPy and SciPy alone: draw a member of Õ(m,n), or from any other scheme; check membership; the set's
structure. `stiefel_init.schemes` holds the initializations, `.theory` the analysis, `.torch`, `.jax`, `.keras` and
`.sklearn` the frameworks, `.lab` the experiments.
"""

from ._check import Membership, check
from ._errors import StiefelError
from ._sample import draw, sample
from ._structure import cholesky_factor, complement

__version__ = "0.2.0"
__all__ = ["Membership", "StiefelError", "check", "cholesky_factor", "complement", "draw", "sample"]
