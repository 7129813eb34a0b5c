"""The initializations, a module for each family, and the registry that everything else reads.

from stiefel_init import draw, schemes

schemes.names()                                  # all of them
draw("he", 64, 784, seed=0, name="0.weight")     # NumPy; the same weights in every framework
schemes.register(MyScheme)                       # your own: CONTRIBUTING.md
"""

from .base import (
    Distribution,
    Law,
    Position,
    Scheme,
    SchemeName,
    Source,
    Start,
    WholeModel,
    forget,
    get,
    names,
    register,
)
from .deterministic import IDInit, Lee, Sinusoidal, TanhInit, ZerO
from .entrywise import GPT2, He, MuP, Offsets, Random, ScaledHe, TorchDefault, TruncatedNormal, Uniform, Xavier, Zeros
from .on_set import Blend, Centred, Identity, Permutation, Rotation, Stiefel
from .orthogonal import TAT, DeltaOrthogonal, LooksLinear, Orthogonal
from .recipe import Lifted, Raised, Recipe
from .residual import LSUV, Fixup, SkipInit

__all__ = [
    "GPT2", "LSUV", "TAT", "Blend", "Centred", "DeltaOrthogonal", "Distribution", "Fixup", "He", "IDInit",
    "Identity", "Law", "Lee", "Lifted", "LooksLinear", "MuP", "Offsets", "Orthogonal", "Permutation", "Position",
    "Raised", "Random", "Recipe", "Rotation", "ScaledHe", "Scheme", "SchemeName", "Sinusoidal", "SkipInit",
    "Source", "Start", "Stiefel", "TanhInit", "TorchDefault", "TruncatedNormal", "Uniform", "WholeModel", "Xavier",
    "ZerO", "Zeros", "forget", "get", "names", "register",
]  # fmt: skip
