"""stiefel-init: weight initialization on the Stiefel manifold for deep ReLU networks.

The core, with NumPy and SciPy alone: draw a member of Õ(m,n), check membership, and the set's structure.
`stiefel_init.torch` holds the PyTorch initializers.
"""

from ._check import Membership, check
from ._errors import StiefelError
from ._sample import sample
from ._structure import cholesky_factor, complement

__version__ = "0.1.0"
__all__ = ["Membership", "StiefelError", "check", "cholesky_factor", "complement", "sample"]
