"""What feeds what: the layers of a model and the signals between them.

Each framework has its ways to see what a model computes; all of them tell a `Flow` of one call after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.activations import RECTIFIERS, SATURATING
from ..core.activations import short as short_name

INPUT = ""  # the origin of what the model is given


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Short names, as in `core.activations`.
LAYERS = _words(
    "linear bilinear conv1d conv2d conv3d convtranspose1d convtranspose2d convtranspose3d matmul rmatmul mm bmm addmm "
    "baddbmm einsum multiheadattentionforward embedding embeddingbag lstm gru rnntanh rnnrelu lstmcell grucell "
    "rnntanhcell rnnrelucell"
)
_NORMS = _words("layernorm batchnorm syncbatchnorm groupnorm instancenorm rmsnorm normalize localresponsenorm rsqrt")
_SUMS = _words("add radd iadd")
_FACTORS = _words("mul rmul imul multiply")
_MERGES = _SUMS | _FACTORS | _words("sub rsub isub cat concat stack addcmul where")
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
    normalized: bool = False
    merged: bool = False
    """Whether branches have come together, as in a residual connection."""
    activation: str = ""
    """The last one since the layer."""
    on_tokens: bool = False
    """Whether its last axis is the token axis, and not that of channels."""
    gain: str = field(default="", compare=False)
    """The parameter that it was multiplied by last, if it is zero where that is: no layer or activation came since."""


class Flow:
    """The layers of a model: what each weight reads, what becomes of its outputs, and what the model returns."""

    def __init__(self) -> None:
        self.reads: dict[str, Signal] = {}
        self.next: dict[str, str] = {}
        """The activation between a layer and the next."""
        self.normalized: set[str] = set()
        """The layers with a normalization before that."""
        self.sums: list[list[Signal]] = []
        """What was added up."""
        self.returned: list[Signal] = []

    def call(
        self,
        name: str,
        signals: list[Signal],
        weights: Iterable[str],
        *,
        turns: bool = False,
        gains: Iterable[str] = (),
    ) -> Signal | None:
        """A function or module is called; the signal that comes out, None if it is none.

        Args:
            name: Of the function.
            signals: What it is given.
            weights: The names of the weights it uses.
            turns: Whether it puts another axis last.
            gains: The names of the parameters that it multiplies by.
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
            self._reads(weights, joined)
            return Signal(frozenset(weights), on_tokens=joined.on_tokens and short == "linear")
        if not signals:
            return None
        joined = join(signals)
        gain = next(iter(gains), "")
        if short.rstrip("123d") in _NORMS:
            if not joined.activation:
                self.normalized |= joined.origins
            return replace(joined, normalized=True, on_tokens=False, gain=gain)
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
            return replace(joined, merged=True, gain="")
        if short in _FACTORS and gain:
            return replace(joined, gain=gain)
        return replace(joined, on_tokens=not joined.on_tokens) if turns else joined

    def _reads(self, weights: Iterable[str], signal: Signal) -> None:
        for weight in weights:
            known = self.reads.get(weight)
            self.reads[weight] = signal if known is None else join([known, signal])


def join(signals: list[Signal]) -> Signal:
    first, *others = signals
    for other in others:
        if other != first:
            first = Signal(
                first.origins | other.origins,
                first.normalized or other.normalized,
                first.merged or other.merged,
                first.activation or other.activation,
                first.on_tokens or other.on_tokens,
            )
    return first


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example inputs as positional and named arguments of a model.

    Any mapping is keywords, as a tokenizer returns them. A named tuple, such as a packed sequence, is one argument.
    """
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if type(inputs) in (tuple, list) else (inputs,)), {}
