r"""How fast each layer of a model learns next to one number: `shares`, from a layer's role, its shape and the depth.

Every framework asks here; docs/learning-rate.md derives the rule and shows what was measured.

Note [one number]
    The number is the rate of the hidden layers of a network of `DEPTH` layers of `WIDTH` units: their multiplier is 1.
    Every other layer gets the rate at which a step changes what the network says about as much.
Note [width]
    A step of Adam changes all entries of a weight by about η, in the signs of one outer product: ‖ΔW‖ = η√(mn), where
    ‖W‖ = 1. Rates in proportion to 1/√(mn) so change every hidden layer by the same part of itself. Of gradient descent
    the step is the outer product of two signals, whose norms no layer changes, and Muon's has the norm η: of any size.
    What the last layer says moves by η for each of its inputs, and what the first one says by η for each input of the
    model, whatever its units.
Note [depth]
    The L layers of a chain near the identity all turn the signal alike, so that their changes add up to L of them. The
    stream of a residual network grows with its B branches, by √B, and B changes are √B of it.
Note [ends]
    No layer shares the work of the first and of the last one: each may change what the network says by as much as the
    `DEPTH` layers of the base do together, and nothing learns faster. Gradient descent gives them as much by itself.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal, NamedTuple, get_args

from ..core.errors import unknown
from .initialize import Adapter, Options, Ref, roles_of
from .layers import Layer, Shape, is_patches, matrices_of

Step = Literal["adam", "sgd", "muon"]
STEPS: tuple[Step, ...] = get_args(Step)
WIDTH, DEPTH = 64, 10
EMBEDDINGS = "embeddings"
MUON = 20
"""The rate of Muon, an angle, over that of the Adam beside it, as in `StiefelMuon`."""


class Share(NamedTuple):
    """How fast a parameter learns."""

    kind: str
    multiplier: float
    """Its rate over the one number, to four digits, so that equal layers are one group."""
    decays: bool = False
    """Whether weight decay is meant for it, which is for matrices."""
    turns: bool = False
    """Whether Muon is for it: a matrix between hidden layers."""

    @property
    def name(self) -> str:
        """Of the group of all that learn so."""
        return f"{self.kind} × {self.multiplier:g}"


def shares(adapter: Adapter[Ref], options: Options, step: str) -> dict[Hashable, Share]:
    """How fast each parameter learns, by its key, under an optimizer of the kind `step`.

    Raises:
        StiefelError: for an unknown optimizer or pattern.
    """
    if step not in STEPS:
        raise unknown("optimizer", step, STEPS)
    beside = 1 / MUON if step == "muon" else 1.0
    roles = roles_of(adapter, options)
    found: dict[Hashable, Share] = {}
    layers: dict[Hashable, tuple[Ref, Layer]] = {}
    for each in adapter.parameters:
        layer = None if "lora_" in each.name else adapter.layer(each)
        if layer is not None and layer.kind == "embedding":
            found[each.key] = Share(EMBEDDINGS, beside)
        elif layer is not None:
            layers.setdefault(each.key, (each, layer))
    hidden = sum(not (roles[each.stream].stem or roles[each.stream].head) for each, _ in layers.values())
    # What reads a token is its embedding, whichever layer comes first where nothing was traced.
    unseen = options.stem is None and not roles.traced and any(share.kind == EMBEDDINGS for share in found.values())
    guessed = hidden if adapter.normalized and not roles.traced else 0  # not traced: most such models are residual
    branches = roles.branches or guessed
    for key, (each, layer) in layers.items():
        role = roles[each.stream]
        reads_input = bool(role.stem) and not unseen
        end = "first layer" if reads_input else "last layer" if role.head else ""
        turns = step == "muon" and not end and len(each.shape) == 2
        of_depth = _of_depth(role.chain + 1, branches, hidden + 1)
        if end:  # Note [ends]
            of_depth = 1.0 if step == "sgd" else float(DEPTH)
        of_width = 1.0 if step == "sgd" or turns else _of_width(end, layer, each.canonical)
        kind = end or ("hidden kernels" if step == "muon" and not turns else "hidden layers")
        found[key] = Share(kind, _rounded(min(of_depth * of_width, DEPTH) * (1.0 if turns else beside)), True, turns)
        if (bias := adapter.bias_of(each)) is not None:
            found.setdefault(bias, Share("biases", _rounded(of_depth * beside)))
    return {each.key: found.get(each.key, Share("other parameters", beside)) for each in adapter.parameters}


def _of_depth(chain: int, branches: int, layers: int) -> float:
    """Note [depth]. Where there are no branches, layers with normalizations between them are a chain too."""
    if branches > chain:
        return math.sqrt(DEPTH / branches)
    return DEPTH / (chain if branches else layers)


def _of_width(end: str, layer: Layer, shape: Shape) -> float:
    """Note [width] and Note [ends]."""
    matrix = matrices_of(layer, shape, "flatten", entrywise=True)
    places = matrix.receptive if layer.kind == "convolution" and not is_patches(layer, shape) else 1
    inputs = max(1, matrix.n // places)
    if end:
        return 1.0 if end == "first layer" else min(1.0, WIDTH / inputs)
    return WIDTH / math.sqrt(max(1, matrix.m) * inputs)


def _rounded(multiplier: float) -> float:
    return float(f"{multiplier:.4g}")
