"""Why a rule at initialization found something, and what to do about it.

What grows or fades over the layers may start at one of them, in the inputs, in the activation, in the weights of all
layers, or in a training that went wrong. `QUESTIONS` are asked in turn; the first that has an answer tells the cause.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from itertools import pairwise

from ...core.activations import DYING, HALVING, SQUASHING
from ...schemes.level import gain, level
from ..rows import Evidence, Layer
from ..rule import AT_INITIALIZATION, Cause, Measured

BIAS = 10.0  # biases this many times larger than what the weights make of the input decide what a unit does
OUTPUT = 10.0  # outputs this large, and this many times larger than the targets, are not the targets' fault
EMBEDDED = 0.5  # embeddings this large make large outputs where they are multiplied
HEAD = 10.0  # an output layer whose weights are this many times larger than the others' makes the loss huge by itself
SCALE = 100.0  # weights this many times larger or smaller than those of the other layers
EVEN = 0.1  # biases that differ by less than this share of their mean were set, not learned
MOVED = 1.0  # no initialization has biases this large in half of its layers; training that diverged has
LOW = -1.0  # inputs with mean/std below this keep most ReLU units off
DEEP = {**dict.fromkeys(SQUASHING, 1), **dict.fromkeys(HALVING, 20)}  # layers that an initialization can make up for
ENOUGH_GAIN = 0.97  # of the gain that makes up for an activation
LONG = 12  # layers in a row that neither a skip connection nor a normalization interrupts, or branches, are many
KERNELS = frozenset({"Conv1d", "Conv2d", "Conv3d"})
MEMBERS = frozenset({"stiefel", "lee"})

_CALL = "call stiefel_init.torch.initialize_(model)"
INITIALIZE = f"{_CALL}, which preserves the size of signal and gradient"
RESIDUAL = "add residual connections, x + f(x), around every one or two layers"
NORMALIZE = "put a normalization, torch.nn.LayerNorm, in front of the first layer of every block"
STANDARDIZE = Cause(
    "standardize the inputs, each feature by itself and in float64: x = x.double(); "
    "x = ((x - x.mean(0)) / (x.std(0) + 1e-12)).float(), with the training data's mean and std",
    "inputs",
)
TRAINING = Cause(
    "go back to a checkpoint, or start again with stiefel_init.torch.initialize_(model), and train with a learning "
    "rate ten times lower",
    "training",
    "The training diverged.",
)
Question = Callable[[Evidence], Cause | None]


def first(*questions: Question) -> Callable[[Evidence, Measured], Cause]:
    """The first answer; the last question always has one."""
    return lambda evidence, measured: next(cause for ask in questions if (cause := ask(evidence)) is not None)


def _initialized_again(layer: Layer) -> str:
    return f'initialize it: stiefel_init.torch.initialize_(model.get_submodule("{layer.layer}"), "stiefel")'


def _zeros(evidence: Evidence) -> Cause | None:
    layer = evidence.zeros
    if layer is None:
        return None
    return Cause(_initialized_again(layer), "weights", f"The weights of {layer.named} are all zero.", layer)


def _incoming(evidence: Evidence, at: int) -> float:
    """What the weights of the layer `at` make of the size of its input, about."""
    layer = evidence.layers[at]
    before = evidence.layers[at - 1].size if at else (evidence.inputs.size if evidence.inputs is not None else math.inf)
    return before * (layer.row_norm if layer.row_norm is not None else math.inf)


def _biases(evidence: Evidence) -> Cause | None:
    for at, layer in enumerate(evidence.layers):
        if layer.bias_mean is None or layer.bias_std is None or (at == 0 and _is_raised(layer, evidence)):
            continue
        others = [row.bias for row in evidence.layers if row is not layer]
        if layer.bias > BIAS * max(_incoming(evidence, at), MOVED / BIAS, *others, 0.0):
            return _outweigh(layer)
    return None


def _is_raised(first: Layer, evidence: Evidence) -> bool:
    """Whether the biases of the first layer do what those of `initialize_` do: raise all units before smooth layers."""
    count = sum(layer.activation == first.activation for layer in evidence.layers)
    return 0 < (first.bias_mean or 0.0) <= 1.5 * level(first.activation, count)


def _outweigh(layer: Layer) -> Cause:
    return Cause(
        f'set them to zero: torch.nn.init.zeros_(model.get_submodule("{layer.layer}").bias)',
        "biases",
        f"The biases of {layer.named} ({layer.bias_mean:.3g} ± {layer.bias_std:.2g}) outweigh its input.",
        layer,
    )


def _silencing(evidence: Evidence) -> Cause | None:
    """Biases that keep all units of a layer off that would fire without; in several layers, equal ones.

    Unequal ones in several layers are what a training that diverged leaves.
    """
    off = next((layer for layer in evidence.layers if _is_silenced(layer)), None)
    if off is None:
        return None
    alike = [layer for layer in evidence.layers if 2 * layer.bias > off.bias]
    if len(alike) == 1:
        return _outweigh(off)
    if any((layer.bias_std or 0.0) > EVEN * abs(layer.bias_mean or 0.0) for layer in alike):
        return None
    return Cause(
        'set them to zero: for name, bias in model.named_parameters(): "bias" in name and torch.nn.init.zeros_(bias)',
        "biases",
        f"The biases of {len(alike)} layers, {off.bias_mean:.3g} in {off.named}, outweigh their inputs.",
    )


def _is_silenced(layer: Layer) -> bool:
    if layer.activation not in DYING or layer.dead != layer.units or layer.bias_mean is None:
        return False
    return layer.bias_mean < 0 < layer.pre_mean - layer.bias_mean + layer.pre_std


def _one_layer(evidence: Evidence) -> Cause | None:
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
    return Cause(_initialized_again(rows[at]), "weights", sentence, rows[at])


def low_inputs(evidence: Evidence) -> Cause | None:
    """Inputs so far below zero that ReLU units behind positive row sums stay off."""
    layer = evidence.hidden[0]
    if evidence.inputs is None or not evidence.inputs.std or layer.dead is None:
        return None
    if evidence.inputs.mean > LOW * evidence.inputs.std or 2 * layer.dead < layer.units:
        return None
    return Cause(
        "shift the inputs: x = x - x.mean() + 2 * x.std(), with the training data's mean and std",
        "inputs",
        f"The inputs' mean is {-evidence.inputs.mean / evidence.inputs.std:.1f} stds below zero, which keeps "
        f"{layer.dead} of the {layer.units} units of {layer.named} off.",
    )


def inputs(evidence: Evidence) -> Cause | None:
    """Inputs of a scale that networks are not initialized for, as a rule about them finds."""
    about = (rule for rule in AT_INITIALIZATION.values() if rule.cause is of_inputs)
    return STANDARDIZE if any(rule.finds(evidence) is not None for rule in about) else None


def _diverged(evidence: Evidence) -> Cause | None:
    """Biases no initialization has, in half of the layers."""
    sizes = [layer.bias for layer in evidence.layers if layer.bias_mean is not None]
    if len(sizes) < 2 or (middle := statistics.median_low(sizes)) < MOVED:
        return None
    return TRAINING._replace(
        sentence=f"The training diverged: half of the layers have biases of size {middle:.2g} or more, as no start has."
    )


def _common_output(evidence: Evidence) -> Cause | None:
    """A single output that adds up all units, so that an offset moves all of them together."""
    if AT_INITIALIZATION["output is common"].finds(evidence) is None:
        return None
    last = evidence.layers[-1]
    return Cause(
        f"{_CALL}, which makes it read how its inputs differ",
        "weights",
        f"The output of {last.named} adds up its inputs, so that targets with another mean move all units together.",
        last,
    )


def _activation(evidence: Evidence) -> Cause | None:
    """An activation that takes too much of a small signal in each layer, that deep."""
    entry = evidence.layers[0]
    for name, deep in DEEP.items():
        count = sum(layer.activation == name for layer in evidence.layers)
        takes = "quarters" if name in SQUASHING else "halves"
        sentence = f"{name.capitalize()} {takes} small signals, here {count} times."
        wanted = level(name, count) if entry.kind == "Linear" and entry.bias_mean is not None else 0.0
        if wanted and (entry.bias_mean or 0.0) < wanted / 2:
            advice = f"{_CALL}, which raises the signal to where they pass it on"
            return Cause(_not_for_trained(evidence, advice), "activation", sentence)
        if entry.kind in KERNELS and level(name, count) and _loses(evidence, name):
            advice = f"{_CALL}, whose kernels make up for it"
            return Cause(_not_for_trained(evidence, advice), "activation", sentence)
        if count > deep:
            return Cause(f"replace it with torch.nn.ReLU() and {_CALL}; or {RESIDUAL}", "activation", sentence)
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
    return bool(norms) and statistics.median(norms) < ENOUGH_GAIN * gain(activation)


def _not_for_trained(evidence: Evidence, advice: str) -> str:
    if evidence.fit is None or evidence.fit.constant_loss is None:
        return advice + " (and draws new weights: not for a network you have trained)"
    return advice


def _all_layers(too_deep: str, growing: bool = False) -> Question:
    """The weights of all layers, or where those are good, the depth."""

    def weights(evidence: Evidence) -> Cause:
        inner = [layer for layer in evidence.layers[1:-1] if layer.scheme is not None] or [
            layer for layer in evidence.layers if layer.scheme is not None
        ]
        if inner and sum(layer.scheme in MEMBERS for layer in inner) * 2 > len(inner):
            return Cause(too_deep, "depth")
        setup, count = evidence.setup, len(evidence.hidden)
        if setup is None or setup.optimized is None or setup.normalizes or count < LONG:
            return Cause(_not_for_trained(evidence, INITIALIZE), "weights")
        if not growing and setup.blocks < count // 4:
            many = f"{count} layers follow each other without a skip connection or a normalization."
            return Cause(f"{_not_for_trained(evidence, INITIALIZE)}; or {RESIDUAL}", "weights", many)
        if growing and 2 * setup.blocks > count:
            many = (
                f"{setup.blocks} branches are added up without a normalization, each as large as what it is added to."
            )
            return Cause(_not_for_trained(evidence, too_deep), "weights", many)
        return Cause(_not_for_trained(evidence, INITIALIZE), "weights")

    return weights


_fading = _all_layers(RESIDUAL)
_growing = _all_layers(f"{_CALL}, which scales residual branches; or {NORMALIZE}", growing=True)


def _head(evidence: Evidence) -> Cause | None:
    """An output layer whose weights are larger than those of the other layers, behind activations of a usual size."""
    *rows, last = [layer for layer in evidence.layers if not layer.zero_weights] or evidence.layers
    norms = [layer.row_norm for layer in rows if layer.row_norm]
    if not norms or not last.row_norm or last.row_norm < HEAD * statistics.median(norms):
        return None
    factor = f"{last.row_norm / statistics.median(norms):,.0f} times"
    sentence = f"The weights of {last.named}, the output, are {factor} larger than those of the other layers."
    return Cause(_initialized_again(last), "weights", sentence, last)


def _embeddings(evidence: Evidence) -> Cause | None:
    """Embeddings that make the outputs wider than targets of a usual size."""
    fit, first = evidence.fit, evidence.layers[0]
    if fit is None or first.kind != "Embedding" or not 0.3 < (fit.target_std or 0.0) < 3 or first.post_std < EMBEDDED:
        return None
    return Cause(
        "draw the embeddings smaller: torch.nn.init.normal_(embedding.weight, std=0.1)", "weights",
        f"The embeddings of {first.named} have a size of {first.post_std:.2g}.", first,
    )  # fmt: skip


def _targets(evidence: Evidence) -> Cause | None:
    """Targets that are odd, unless outputs and targets differ because the outputs are large."""
    fit = evidence.fit
    if fit is not None and fit.output_mean is not None and fit.target_mean is not None:
        size = math.hypot(fit.output_mean, fit.output_std or 0.0)
        if size > OUTPUT * max(1.0, math.hypot(fit.target_mean, fit.target_std or 0.0)):
            return None
    return Cause("standardize the targets: y = (y - y.mean()) / y.std(), and undo it on the outputs", "targets")


QUESTIONS: tuple[Question, ...] = (
    _zeros, _biases, _silencing, _one_layer, low_inputs, inputs, _diverged, _common_output,
)  # fmt: skip
of_fading = first(*QUESTIONS, _activation, _fading)
"""The cause of what fades, repeats or is off."""
of_growing = first(*QUESTIONS, _activation, _growing)
of_loss = first(*QUESTIONS, _head, _activation, _growing)
of_targets = first(*QUESTIONS, _targets, _activation, _growing)
of_small_targets = first(*QUESTIONS, _head, _embeddings, _targets, _activation, _growing)
of_inputs = first(low_inputs, lambda evidence: STANDARDIZE)
of_idle = first(*QUESTIONS, lambda evidence: Cause("", "activation"))  # training may bend the activations yet
