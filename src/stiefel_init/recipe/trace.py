"""What feeds what: the layers of a model and the signals between them.

Each framework has its ways to see what a model computes; all of them tell a `Flow` of one call after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..core.activations import RECTIFIERS, SATURATING
from ..core.activations import short as short_name
from ..core.errors import StiefelError

Size = tuple[tuple[str, float], ...]
UNIT: Size = (("", 1.0),)
FEW = 4
"""Layers whose signals meet at a layer inside a branch: those of q, k and v, or of two that are multiplied."""
INPUT = ""  # the origin of what the model is given


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Short names, as in `core.activations`.
LAYERS = _words(
    "linear bilinear conv1d conv2d conv3d convtranspose1d convtranspose2d convtranspose3d matmul rmatmul mm bmm addmm "
    "baddbmm einsum multiheadattentionforward embedding embeddingbag lstm gru rnntanh rnnrelu lstmcell grucell "
    "rnntanhcell rnnrelucell"
)
BATCH: Literal["batch"] = "batch"
"""Of a normalization that takes off what a channel has in common over a batch or an image."""
Norm = Literal["", "batch", "layer"]
_NORMS: dict[str, Norm] = {
    **dict.fromkeys(_words("batchnorm syncbatchnorm groupnorm instancenorm"), BATCH),
    **dict.fromkeys(_words("layernorm rmsnorm normalize localresponsenorm rsqrt"), "layer"),
}


def norm_of(classes: Iterable[str]) -> Norm:
    """What kind normalization layers of these names are: `BATCH`, if any is."""
    names = [name.lower() for name in classes]
    per_channel = any(kind in name for kind in ("batchnorm", "groupnorm", "instancenorm") for name in names)
    return BATCH if per_channel else "layer" if names else ""


_SUMS = _words("add radd iadd")
_FACTORS = _words("mul rmul imul multiply")
_PARTS = _words("cat concat concatenate")
_MERGES = _SUMS | _FACTORS | _PARTS | _words("sub rsub isub stack addcmul where")
_RESHAPES = _words("reshape view flatten unflatten")
_PRODUCTS = _words("matmul mm bmm baddbmm scaleddotproductattention")
ATTENDED = "attended"
"""What stands between the two layers of `MultiheadAttention`."""
ACTIVATIONS = RECTIFIERS | SATURATING | {"scaleddotproductattention"}


@dataclass(frozen=True)
class Signal:
    """A tensor on its way from the layers that made it."""

    origins: frozenset[str]
    """The names of the weights it comes from; `INPUT` for what the model was given."""
    normalized: Norm = ""
    """The kind of the last normalization since the layer."""
    merged: bool = False
    """Whether branches have come together, as in a residual connection."""
    activation: str = ""
    """The last one since the layer."""
    on_tokens: bool = False
    """Whether its last axis is the token axis, and not that of channels."""
    size: Size = field(default=(), compare=False)
    """Embeddings that it is a sum of, and what each is multiplied by; `UNIT` behind a normalization."""
    parts: tuple[Signal, ...] = field(default=(), compare=False)
    """What was put side by side in it."""


class Flow:
    """The layers of a model: what each weight reads, what becomes of its outputs, and what the model returns."""

    def __init__(self) -> None:
        self.reads: dict[str, Signal] = {}
        self.next: dict[str, str] = {}
        """The activation between a layer and the next."""
        self.normalized: dict[str, Norm] = {}
        """The layers with a normalization before that, and its kind."""
        self.turned: set[str] = set()
        """The layers on the token axis after which the axis of channels comes back."""
        self.opaque = False
        """Whether the inside of a part was not seen."""
        self.sums: list[list[Signal]] = []
        """What was added up."""
        self.gated: set[str] = set()
        """The layers whose outputs multiply those of others."""
        self.altered: set[str] = set()
        """The weights that something was done to before a layer used them, as by a mask."""
        self.returned: list[Signal] = []

    def call(
        self,
        name: str,
        signals: list[Signal],
        weights: Iterable[str],
        *,
        turns: bool = False,
        factor: float = 1.0,
    ) -> Signal | None:
        """A function or module is called; the signal that comes out, None if it is none.

        Args:
            name: Of the function.
            signals: What it is given.
            weights: The names of the weights it uses.
            turns: Whether it puts another axis last.
            factor: The number that it multiplies by, where that is known.
        """
        short = short_name(name)
        weights = tuple(weights)
        if weights and signals and short in LAYERS:
            joined = join(signals)
            first = [weight for weight in weights if not weight.endswith("out_proj.weight")]
            if short == "multiheadattentionforward" and 0 < len(first) < len(weights):  # two layers in one call
                self._reads(first, joined)
                weights = tuple(weight for weight in weights if weight not in first)
                joined = Signal(frozenset(first), activation=ATTENDED)
            convolves = short.startswith("conv")
            if convolves:  # over the axis of channels, wherever that is
                joined = replace(joined, on_tokens=False)
            self._reads(weights, joined)
            size: Size = ((weights[0], 1.0),) if short.startswith("embedding") else ()
            return Signal(
                frozenset(weights), on_tokens=convolves or (joined.on_tokens and short == "linear"), size=size
            )
        if not signals:
            return None
        joined = join(signals)
        if (kind := _NORMS.get(short.rstrip("123d"))) is not None:
            if not joined.activation:
                self.normalized = dict.fromkeys(joined.origins, kind) | self.normalized
            on_tokens = joined.on_tokens and kind == BATCH  # of others the last axis is that of channels
            return replace(joined, normalized=kind, on_tokens=on_tokens, size=UNIT)
        if short in ACTIVATIONS:
            if not joined.activation:
                self.next.update(dict.fromkeys(sorted(joined.origins.difference(self.next)), short))
            return Signal(joined.origins, joined.normalized, joined.merged, short, joined.on_tokens)
        if short in _RESHAPES:
            return replace(joined, on_tokens=False)
        if short in _PRODUCTS:
            return replace(joined, on_tokens=signals[-1].on_tokens)
        if short in _MERGES and len({signal.origins for signal in signals}) > 1:
            if short in _SUMS:
                self.sums.append(signals)
                joined = replace(joined, size=tuple(each for signal in signals for each in signal.size))
            if short in _FACTORS:
                self.gated.update(*(signal.origins for signal in signals if len(signal.origins) <= FEW))
            return replace(joined, merged=True, parts=tuple(signals) if short in _PARTS else ())
        if short in _FACTORS and factor != 1:
            return replace(joined, size=tuple((name, times * factor) for name, times in joined.size))
        if not turns:
            return joined
        if joined.on_tokens:
            self.turned |= joined.origins
        return replace(joined, on_tokens=not joined.on_tokens)

    def _reads(self, weights: Iterable[str], signal: Signal) -> None:
        for weight in weights:
            known = self.reads.get(weight)
            self.reads[weight] = signal if known is None else join([known, signal])


def join(signals: list[Signal]) -> Signal:
    first, *others = signals
    for other in others:
        if other != first:
            normalized = [each.size for each in (first, other) if each.normalized]
            first = Signal(
                first.origins | other.origins,
                first.normalized or other.normalized,
                first.merged or other.merged,
                first.activation or other.activation,
                first.on_tokens or other.on_tokens,
                size=next(iter(normalized or [first.size or other.size])),
            )
    return first


SIDES = (32, 28, 8, 64, 224)
"""Of images that networks are made for, to guess inputs with."""


def shapes_of(leaves: Iterable[Any]) -> str:
    """The shapes of example inputs, for messages."""
    words = (str(tuple(leaf.shape)) if hasattr(leaf, "shape") else type(leaf).__name__ for leaf in leaves)
    return ", ".join(words) or "()"


def not_finite(shapes: str) -> StiefelError:
    return StiefelError(f"inputs={shapes} have entries that are not finite; give examples without.")


def does_not_run(shapes: str, why: str, give: str) -> StiefelError:
    return StiefelError(f"the model does not run on inputs={shapes} ({why}); give {give}.")


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and named arguments of a model.

    Any mapping is keywords, as a tokenizer returns them. A named tuple, such as a packed sequence, is one argument.
    """
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if type(inputs) in (tuple, list) else (inputs,)), {}
