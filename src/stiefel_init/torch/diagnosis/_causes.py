"""Why a rule found something, and what to do about it: `explain`.

What grows or fades over the layers may start at one of them, in the inputs, in the activation, in the weights of all
layers, or in a training that went wrong. These are asked in turn; the first that holds is the cause.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from ...core.activations import DYING, HALVING
from ...schemes.level import gain, level
from ._evidence import SQUASHING, Evidence
from ._layer import Layer
from ._rules import OF_INPUTS, OF_TARGETS, RULES

BIAS = 10.0  # biases this many times larger than what the weights make of the input decide what a unit does
OUTPUT = 10.0  # outputs this large, and this many times larger than the targets, are not the targets' fault
HEAD = 10.0  # an output layer whose weights are this many times larger than the others' makes the loss huge by itself
SCALE = 100.0  # weights this many times larger or smaller than those of the other layers
EVEN = 0.1  # biases that differ by less than this share of their mean were set, not learned
MOVED = 1.0  # no start has biases this large in half of its layers; training that diverged has
LOW = -1.0  # inputs with mean/std below this keep most ReLU units off
DEEP = {**dict.fromkeys(HALVING, 20), **dict.fromkeys(SQUASHING, 1)}  # layers up to which a start can make up for it
ENOUGH = 0.97  # of the gain that makes up for an activation
KERNELS = frozenset({"Conv1d", "Conv2d", "Conv3d"})
MEMBERS = frozenset({"stiefel", "lee"})

INITIALIZE = "call stiefel_init.torch.initialize_(model), which preserves the size of signal and gradient"
RESIDUAL = "add residual connections, x + f(x), around every one or two layers"
BRANCHES = "call stiefel_init.torch.initialize_(model), which scales residual branches"
NORMALIZE = "put a normalization, torch.nn.LayerNorm, in front of the first layer of every block"
OF_LOSS = ("loss is huge", "targets are small")
EXPLODING = ("signal explodes", "loss is huge", "gradient explodes", "not finite")
TARGETS = "standardize the targets: y = (y - y.mean()) / y.std(), and undo it on the outputs"
STANDARDIZE = (
    "standardize the inputs, each feature by itself and in float64: x = x.double(); "
    "x = ((x - x.mean(0)) / (x.std(0) + 1e-12)).float(), with the training data's mean and std"
)


class Cause(NamedTuple):
    """What is behind a finding."""

    kind: str
    """`"weights"`, `"biases"`, `"inputs"`, `"activation"`, `"depth"`, `"time steps"`, `"targets"` or `"training"`."""
    sentence: str
    """Why; empty where the finding says it."""
    advice: str
    """What to do; empty where nothing is known to help."""
    layer: Layer | None = None
    """The one layer that it is about."""


def explain(evidence: Evidence, kind: str) -> Cause:
    """The cause of what the rule `kind` found."""
    if kind in _OWN:
        return _OWN[kind](evidence)
    if kind in OF_INPUTS:
        return _low_inputs(evidence) or Cause("inputs", "", STANDARDIZE)
    for ask in _QUESTIONS:
        cause = ask(evidence)
        if cause is not None:
            return cause
    if kind in OF_LOSS and (head := _head(evidence)) is not None:
        return head
    if kind in OF_TARGETS and _is_output_large(evidence):
        return _activation(evidence) or _weights(evidence, "loss is huge")
    if kind in OF_TARGETS:
        return Cause("targets", "", TARGETS)
    if kind == "activations are idle":
        return Cause("activation", "", "")  # training may bend them yet
    return _activation(evidence) or _weights(evidence, kind)


def _layer_again(layer: Layer) -> str:
    return f'initialize it: stiefel_init.torch.initialize_(model.get_submodule("{layer.layer}"), "stiefel")'


def _zeros(evidence: Evidence) -> Cause | None:
    layer = evidence.zeros
    if layer is None:
        return None
    return Cause("weights", f"The weights of {layer.named} are all zero.", _layer_again(layer), layer)


def incoming(evidence: Evidence, at: int) -> float:
    """What the weights of the layer `at` make of the size of its input, about."""
    layer = evidence.layers[at]
    before = evidence.layers[at - 1].size if at else (evidence.inputs.size if evidence.inputs is not None else math.inf)
    return before * (layer.row_norm if layer.row_norm is not None else math.inf)


def _bias_size(layer: Layer) -> float:
    return math.hypot(layer.bias_mean or 0.0, layer.bias_std or 0.0)


def _biases(evidence: Evidence) -> Cause | None:
    """One layer whose biases are far larger than what reaches it."""
    for at, layer in enumerate(evidence.layers):
        if layer.bias_mean is None or layer.bias_std is None or (at == 0 and _is_raised(layer, evidence)):
            continue
        others = [_bias_size(row) for row in evidence.layers if row is not layer]
        if _bias_size(layer) > BIAS * max(incoming(evidence, at), MOVED / BIAS, *others, 0.0):
            return _outweigh(layer)
    return None


def _is_raised(first: Layer, evidence: Evidence) -> bool:
    """Whether the biases of the first layer do what those of `initialize_` do: raise all units before smooth layers."""
    count = sum(layer.activation == first.activation for layer in evidence.layers)
    return 0 < (first.bias_mean or 0.0) <= 1.5 * level(first.activation, count)


def _outweigh(layer: Layer) -> Cause:
    return Cause(
        "biases",
        f"The biases of {layer.named} ({layer.bias_mean:.3g} ± {layer.bias_std:.2g}) outweigh its input.",
        f'set them to zero: torch.nn.init.zeros_(model.get_submodule("{layer.layer}").bias)',
        layer,
    )


def _silencing(evidence: Evidence) -> Cause | None:
    """Biases that keep all units of a layer off that would fire without; in several layers, equal ones.

    Unequal ones in several layers are what a training that diverged leaves.
    """
    off = next((layer for layer in evidence.layers if _is_silenced(layer)), None)
    if off is None:
        return None
    alike = [layer for layer in evidence.layers if 2 * _bias_size(layer) > _bias_size(off)]
    if len(alike) == 1:
        return _outweigh(off)
    if any((layer.bias_std or 0.0) > EVEN * abs(layer.bias_mean or 0.0) for layer in alike):
        return None
    return Cause(
        "biases",
        f"The biases of {len(alike)} layers, {off.bias_mean:.3g} in {off.named}, outweigh their inputs.",
        'set them to zero: for name, bias in model.named_parameters(): "bias" in name and torch.nn.init.zeros_(bias)',
    )


def _is_silenced(layer: Layer) -> bool:
    """Whether no unit fires, and some would without the biases."""
    if layer.activation not in DYING or layer.dead != layer.units or layer.bias_mean is None:
        return False
    return layer.bias_mean < 0 < layer.pre_mean - layer.bias_mean + layer.pre_std


def _one_layer(evidence: Evidence) -> Cause | None:
    """One layer whose weights are of another scale than those of all others."""
    rows = [layer for layer in evidence.layers if layer.row_norm and not layer.zero_weights]
    if len(rows) < 3:
        return None
    # In logarithms: of two other layers, one of which is at fault, neither is the usual one.
    sizes = [math.log(layer.row_norm or 1.0) for layer in rows]
    apart = [size - statistics.median(sizes[:at] + sizes[at + 1 :]) for at, size in enumerate(sizes)]
    at = max(range(len(rows)), key=lambda place: abs(apart[place]))
    if not abs(apart[at]) >= math.log(SCALE):  # also where weights are not finite
        return None
    factor = math.exp(min(abs(apart[at]), 700.0))
    size = f"{factor:,.0f} times {'larger' if apart[at] > 0 else 'smaller'}"
    sentence = f"The weights of {rows[at].named} are {size} than those of the other layers."
    return Cause("weights", sentence, _layer_again(rows[at]), rows[at])


def _is_output_large(evidence: Evidence) -> bool:
    """Whether outputs and targets differ because the outputs are large, and not because the targets are odd."""
    fit = evidence.fit
    if fit is None or fit.output_mean is None or fit.target_mean is None:
        return False
    size = math.hypot(fit.output_mean, fit.output_std or 0.0)
    return size > OUTPUT * max(1.0, math.hypot(fit.target_mean, fit.target_std or 0.0))


def _head(evidence: Evidence) -> Cause | None:
    """An output layer whose weights are larger than those of the other layers, behind activations of a usual size."""
    *rows, last = [layer for layer in evidence.layers if not layer.zero_weights] or evidence.layers
    norms = [layer.row_norm for layer in rows if layer.row_norm]
    if not norms or not last.row_norm or last.row_norm < HEAD * statistics.median(norms):
        return None
    factor = last.row_norm / statistics.median(norms)
    sentence = (
        f"The weights of {last.named}, the output, are {factor:,.0f} times larger than those of the other layers."
    )
    return Cause("weights", sentence, _layer_again(last), last)


def _inputs(evidence: Evidence) -> Cause | None:
    """Inputs of a scale that networks do not start for."""
    if any(RULES[kind].finds(evidence) is not None for kind in OF_INPUTS):
        return Cause("inputs", "", STANDARDIZE)
    return None


def _low_inputs(evidence: Evidence) -> Cause | None:
    """Inputs so far below zero that ReLU units behind positive row sums stay off."""
    first = evidence.hidden[0]
    if evidence.inputs is None or not evidence.inputs.std or first.dead is None:
        return None
    if evidence.inputs.mean > LOW * evidence.inputs.std or 2 * first.dead < first.units:
        return None
    return Cause(
        "inputs",
        f"The inputs' mean is {-evidence.inputs.mean / evidence.inputs.std:.1f} stds below zero, which keeps "
        f"{first.dead} of the {first.units} units of {first.named} off.",
        "shift the inputs: x = x - x.mean() + 2 * x.std(), with the training data's mean and std",
    )


def training() -> Cause:
    """A training that went wrong."""
    return Cause(
        "training",
        "The training diverged.",
        "go back to a checkpoint, or start again with stiefel_init.torch.initialize_(model), and train with a learning "
        "rate ten times lower",
    )


def _diverged(evidence: Evidence) -> Cause | None:
    """Biases no start has, in half of the layers."""
    sizes = [
        math.hypot(layer.bias_mean, layer.bias_std or 0.0) for layer in evidence.layers if layer.bias_mean is not None
    ]
    if len(sizes) < 2 or (middle := statistics.median_low(sizes)) < MOVED:
        return None
    return training()._replace(
        sentence=f"The training diverged: half of the layers have biases of size {middle:.2g} or more, as no start has."
    )


def _activation(evidence: Evidence) -> Cause | None:
    """An activation that takes too much of a small signal in each layer, that deep."""
    first = evidence.layers[0]
    for name in (*SQUASHING, *HALVING):
        count = sum(layer.activation == name for layer in evidence.layers)
        sentence = (
            f"{name.capitalize()} {'quarters' if name in SQUASHING else 'halves'} small signals, here {count} times."
        )
        wanted = level(name, count) if first.kind == "Linear" and first.bias_mean is not None else 0.0
        if wanted and (first.bias_mean or 0.0) < wanted / 2:
            advice = "call stiefel_init.torch.initialize_(model), which raises the signal to where they pass it on"
            return Cause("activation", sentence, _not_for_trained(evidence, advice))
        if first.kind in KERNELS and level(name, count) and _loses(evidence, name):
            advice = "call stiefel_init.torch.initialize_(model), whose kernels make up for it"
            return Cause("activation", sentence, _not_for_trained(evidence, advice))
        if count > DEEP[name]:
            advice = "replace it with torch.nn.ReLU() and call stiefel_init.torch.initialize_(model); or " + RESIDUAL
            return Cause("activation", sentence, advice)
    return None


def _loses(evidence: Evidence, activation: str) -> bool:
    """Whether most kernels between two of an activation are too small for what it takes of a signal.

    A unit's weights have the norm `row_norm` as the layer maps an image that is the same everywhere, √places times that
    of the kernel.
    """
    norms = [
        layer.row_norm / math.sqrt(int(layer.shape.rpartition("×")[2]) / before.units)
        for before, layer in pairwise(evidence.layers)
        if layer.kind in KERNELS and before.activation == layer.activation == activation and layer.row_norm is not None
    ]
    return bool(norms) and statistics.median(norms) < ENOUGH * gain(activation)


def _not_for_trained(evidence: Evidence, advice: str) -> str:
    if evidence.fit is None or evidence.fit.constant_loss is None:
        return advice + " (and draws new weights: not for a network you have trained)"
    return advice


def _weights(evidence: Evidence, kind: str) -> Cause:
    """The weights of all layers, or where those are good, the depth."""
    inner = [layer for layer in evidence.layers[1:-1] if layer.scheme is not None] or [
        layer for layer in evidence.layers if layer.scheme is not None
    ]
    if inner and sum(layer.scheme in MEMBERS for layer in inner) * 2 > len(inner):
        return Cause("depth", "", f"{BRANCHES}; or {NORMALIZE}" if kind in EXPLODING else RESIDUAL)
    return Cause("weights", "", _not_for_trained(evidence, INITIALIZE))


def _common_output(evidence: Evidence) -> Cause | None:
    """A single output that adds up all units, so that an offset moves all of them together."""
    if RULES["output is common"].finds(evidence) is None:
        return None
    last = evidence.layers[-1]
    return Cause(
        "weights",
        f"The output of {last.named} adds up its inputs, so that targets with another mean move all units together.",
        "call stiefel_init.torch.initialize_(model), which makes it read how its inputs differ",
        last,
    )


def _apart(evidence: Evidence) -> Cause:
    return _inputs(evidence) or Cause(
        "weights", "", "call stiefel_init.torch.initialize_(model), which sets them apart"
    )


def _bend(evidence: Evidence) -> Cause:
    return Cause("activation", "", "put an activation, such as torch.nn.ReLU(), between the layers")


def _steps(evidence: Evidence) -> Cause:
    """A recurrent layer that forgets: gates that stay open, or weights that carry on."""
    worst = min(
        (layer for layer in evidence.layers if layer.first_step is not None), key=lambda layer: layer.first_step or 0.0
    )
    gate, gates = {"LSTM": ("forget gate", 4), "GRU": ("update gate", 3)}.get(worst.kind, ("", 0))
    if not gate:
        if worst.scheme in MEMBERS:
            return Cause("time steps", "", "", worst)  # gated layers did not do better where this was tried
        advice = "call stiefel_init.torch.initialize_(model), whose recurrent weights preserve the state"
        return Cause("time steps", "", advice, worst)
    opened = math.log(worst.steps or 2)
    code = (
        f'for name, bias in model.get_submodule("{worst.layer}").named_parameters(): '
        f'"bias_ih" in name and bias.data.chunk({gates})[1].fill_({opened:.2f})'
    )
    return Cause("time steps", "", f"open the {gate} for {worst.steps} steps: {code}", worst)


_QUESTIONS: tuple[Callable[[Evidence], Cause | None], ...] = (
    _zeros, _biases, _silencing, _one_layer, _low_inputs, _inputs, _diverged, _common_output,
)  # fmt: skip
_OWN: dict[str, Callable[[Evidence], Cause]] = {
    "steps are forgotten": _steps, "gates forget": _steps, "gates are closed": _steps, "units are equal": _apart,
    "units are alike": _apart, "network is linear": _bend,
}  # fmt: skip
