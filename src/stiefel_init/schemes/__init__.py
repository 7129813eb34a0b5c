"""The initializations, one small module each, and the registry that everything else reads.

from stiefel_init import draw, schemes

schemes.names()                                  # all of them
draw("he", 64, 784, seed=0, name="0.weight")     # NumPy; the same weights in every framework
schemes.register(MyScheme)                       # your own: CONTRIBUTING.md
"""

from ._scheme import Law, Scheme, SchemeName, forget, get, names, register
from ._source import Source
from .blend import Blend
from .centred import Centred
from .he import He
from .identity import Identity
from .lee import Lee
from .offsets import Offsets
from .orthogonal import Orthogonal
from .permutation import Permutation
from .random import Random
from .rotation import Rotation
from .stiefel import Stiefel
from .xavier import Xavier

__all__ = [
    "Blend",
    "Centred",
    "He",
    "Identity",
    "Law",
    "Lee",
    "Offsets",
    "Orthogonal",
    "Permutation",
    "Random",
    "Rotation",
    "Scheme",
    "SchemeName",
    "Source",
    "Stiefel",
    "Xavier",
    "forget",
    "get",
    "names",
    "register",
]
