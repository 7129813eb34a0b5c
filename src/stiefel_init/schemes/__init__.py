"""The initializations, one small module each, and the registry that everything else reads.

from stiefel_init import draw, schemes

schemes.names()                                  # all of them
draw("he", 64, 784, seed=0, name="0.weight")     # NumPy; the same weights in every framework
schemes.register(MyScheme)                       # your own: CONTRIBUTING.md
"""

from ._position import Position
from ._scheme import Law, Scheme, SchemeName, Start, forget, get, names, register
from ._source import Source
from .blend import Blend
from .centred import Centred
from .delta_orthogonal import DeltaOrthogonal
from .fixup import Fixup
from .gpt2 import GPT2
from .he import He
from .identity import Identity
from .idinit import IDInit
from .lee import Lee
from .looks_linear import LooksLinear
from .lsuv import LSUV
from .meta_init import MetaInit
from .mimetic import Mimetic, MimeticFactor
from .mup import MuP
from .offsets import Offsets
from .orthogonal import Orthogonal
from .permutation import Permutation
from .random import Random
from .recipe import Lifted, Raised, Recipe
from .rotation import Rotation
from .scaled_he import ScaledHe
from .sinusoidal import Sinusoidal
from .skip_init import SkipInit
from .stiefel import Stiefel
from .t_fixup import ScaledTable, ScaledXavier, TFixup
from .tanh_init import TanhInit
from .tat import TAT
from .torch_default import TorchDefault
from .truncated import TruncatedNormal
from .uniform import Uniform
from .xavier import Xavier
from .zero import ZerO
from .zeros import Zeros

__all__ = [
    "GPT2",
    "LSUV",
    "TAT",
    "Blend",
    "Centred",
    "DeltaOrthogonal",
    "Fixup",
    "He",
    "IDInit",
    "Identity",
    "Law",
    "Lee",
    "Lifted",
    "LooksLinear",
    "MetaInit",
    "Mimetic",
    "MimeticFactor",
    "MuP",
    "Offsets",
    "Orthogonal",
    "Permutation",
    "Position",
    "Raised",
    "Random",
    "Recipe",
    "Rotation",
    "ScaledHe",
    "ScaledTable",
    "ScaledXavier",
    "Scheme",
    "SchemeName",
    "Sinusoidal",
    "SkipInit",
    "Source",
    "Start",
    "Stiefel",
    "TFixup",
    "TanhInit",
    "TorchDefault",
    "TruncatedNormal",
    "Uniform",
    "Xavier",
    "ZerO",
    "Zeros",
    "forget",
    "get",
    "names",
    "register",
]
