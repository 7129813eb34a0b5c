"""Rules about how a training is put together: outputs against loss and targets, model against optimizer, modes.

They are facts rather than measures: the loss's graph says what it reads, and the optimizer what it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from ..rows import Evidence
from ..rule import CHOICE, DEFINITION, NEVER, Cause, Measured, Rule
from ..setup import DISTANCES, LOGITS, SUMS, Setup, Targets
from ..wording import percent, times

MOVED = 1e-4  # an output that moves by less than this share of the outputs' size does so by rounding
RARE = 0.9  # the share of one class from which on a network does well by naming it always
ENOUGH = 16  # examples needed to judge targets
OUTSIDE = 0.02  # the share of targets that an activation may miss

Fact = Callable[[Setup], float | None]


def _fact(
    kind: str, holds: Fact, quantity: str, sentence: Callable[[Setup, float], str],
    advice: str | Callable[[Setup], str], about: str, *, threshold: float = 0.5, warning: float = NEVER,
    hides: Sequence[str] = (), source: str = DEFINITION, harmless: bool = False, alone: bool = False,
) -> Rule[Evidence]:  # fmt: skip
    """A rule about the setup; `about` is the cause's kind. What may be `harmless` is silent where a copy learns."""

    def measure(evidence: Evidence, limit: float) -> Measured | None:
        value = None if evidence.setup is None else holds(evidence.setup)
        return None if value is None else Measured(float(value))

    def text(evidence: Evidence, measured: Measured) -> str:
        assert evidence.setup is not None
        return sentence(evidence.setup, measured.value)

    def cause(evidence: Evidence, measured: Measured) -> Cause:
        assert evidence.setup is not None
        return Cause(advice if isinstance(advice, str) else advice(evidence.setup), about)

    return Rule(
        kind, measure, threshold, warning, quantity, text, cause, source, hides=tuple(hides), alone=alone,
        holds_anyway=not harmless,
    )  # fmt: skip


def _named(names: Sequence[str]) -> str:
    """ "0.weight, 0.bias and 4 more"."""
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


# Outputs against loss and targets.


def _as_logits(setup: Setup) -> bool:
    return setup.loss in LOGITS and bool({"softmax", "sigmoid", "hardsigmoid"} & set(setup.before_loss[-1:]))


def _not_logarithms(setup: Setup) -> bool:
    return setup.loss == "nll_loss" and setup.before_loss[-1:] in ((), ("softmax",), ("sigmoid",), ("relu",))


def _over_one(setup: Setup) -> bool:
    return any(op.shape[op.dim] == 1 for op in setup.softmaxes if op.dim is not None and op.shape)


def _wrong_axis(setup: Setup) -> bool:
    examples = setup.targets.shape[:1] if setup.targets is not None else ()
    for op in setup.softmaxes:
        over_steps = setup.targets is not None and (op.shape, op.shape[:2]) == (setup.outputs, setup.targets.shape)
        over_steps = over_steps and len(op.shape) == 3 and op.dim == 1
        over_examples = op.dim == 0 and op.shape[:1] == examples
        if len(op.shape) > 1 and (over_examples or (over_steps and op.name == "Softmax")):
            return True
    return False


def _together(setup: Setup) -> bool:
    targets = setup.targets
    soft = any(op.shape[op.dim or 0] > 1 for op in setup.softmaxes if op.shape)
    return soft and targets is not None and targets.several and targets.shape == setup.outputs


def _broadcast(setup: Setup) -> bool:
    if setup.outputs is None or setup.targets is None or setup.outputs == setup.targets.shape:
        return False
    numbers = max(math.prod(setup.outputs), math.prod(setup.targets.shape))
    return setup.compared > numbers and (setup.blind or setup.loss in DISTANCES)


def _unreachable(setup: Setup) -> float | None:
    targets = setup.targets
    if targets is None or targets.whole or setup.loss not in DISTANCES:
        return None
    outside: dict[str, Callable[[Targets], float]] = {
        "relu": lambda t: t.negative, "softplus": lambda t: t.negative, "exp": lambda t: t.negative,
        "sigmoid": lambda t: t.negative + t.above, "softmax": lambda t: t.negative + t.above,
        "hardsigmoid": lambda t: t.negative + t.above, "tanh": lambda t: t.beyond, "hardtanh": lambda t: t.beyond,
    }  # fmt: skip
    acts = [act for act in setup.acts if act in outside]
    return outside[acts[-1]](targets) if acts else None


def _bounded(setup: Setup) -> float | None:
    """The least loss that scores between -1 and 1 can have, over that of a guess."""
    if setup.loss not in LOGITS or not (setup.cosines or {"tanh", "hardtanh"} & set(setup.before_loss[-1:])):
        return None
    classes, apart = (setup.outputs or (2,))[-1], 2
    if setup.loss != "cross_entropy":
        classes, apart = 2, 1
    return math.log1p((classes - 1) * math.exp(-apart)) / math.log(classes) if classes > 1 else None


def _misses(setup: Setup) -> float | None:
    if setup.contrary is None or setup.loss not in ("cross_entropy", "nll_loss") or setup.contrary[1] <= 0:
        return None
    return setup.contrary[0] / setup.contrary[1]


def _out_of_range(setup: Setup) -> float | None:
    targets = setup.targets
    if targets is None or not setup.loss.startswith("binary"):
        return None
    return targets.negative + targets.above


def _padding(setup: Setup) -> bool:
    targets, head = setup.targets, setup.head
    if targets is None or targets.padding is None or head is None or setup.loss != "cross_entropy" or head.weights:
        return False
    return head.ignored != targets.padding


def _ignored(setup: Setup) -> bool:
    """A class of a plain classification that the loss leaves out."""
    targets, head = setup.targets, setup.head
    if targets is None or head is None or head.ignored is None or len(targets.shape) != 1 or not targets.whole:
        return False
    return targets.low <= head.ignored <= targets.high


def _rare(setup: Setup) -> float | None:
    targets = setup.targets
    classes = targets is not None and (targets.whole or setup.loss.startswith("binary")) and targets.distinct > 1
    if targets is None or not classes or math.prod(targets.shape[1:]) > 1 or math.prod(targets.shape) < ENOUGH:
        return None
    if setup.loss not in (*LOGITS, "nll_loss", "binary_cross_entropy"):
        return None
    weights = setup.head.weights if setup.head is not None else ()
    if len(weights) >= len(targets.counts) > 1:  # what each class weighs in the loss
        mass = [count * weight for count, weight in zip(targets.counts, weights)]
        share = max(mass) / sum(mass) if sum(mass) > 0 else 0.0
        return 1.0 if share > max(targets.majority, 0.6) else share  # weights that make it worse are meant otherwise
    return targets.majority


def _one_class(setup: Setup) -> bool:
    targets = setup.targets
    return targets is not None and targets.distinct == 1 and math.prod(targets.shape) >= ENOUGH


def _logarithm(setup: Setup) -> bool:
    acts = setup.acts
    return any(first in ("softmax", "sigmoid", "relu") and second == "log" for first, second in pairwise(acts)) and (
        not any(op.name in ("ClampMin", "Clamp", "Add") for op in setup.tail)
    )


def _summed(setup: Setup) -> bool:
    head = setup.head
    total = head is not None and head.reduction == SUMS
    last = setup.tail[-1].name if setup.tail else ""
    total = total or (head is None and last == "Sum" and setup.loss in DISTANCES)
    return total and setup.examples >= 8 and setup.optimizer in ("", "SGD")


def _dropped_outputs(setup: Setup) -> bool:
    return (
        setup.zeros > 0.2 and "relu" not in setup.acts and setup.dropout > 0 and "Mul" in {o.name for o in setup.tail}
    )


def _bound_of(setup: Setup) -> str:
    ends = [act for act in setup.acts if act in ("relu", "sigmoid", "tanh", "softmax", "softplus", "exp", "hardtanh")]
    return ends[-1] if ends else "activation"


def _peak(setup: Setup) -> float | None:
    return max((op.peak for op in setup.softmaxes if op.peak is not None and op.reader not in _ENDS), default=None)


def _from_one(setup: Setup) -> bool:
    targets = setup.targets
    if targets is None or len(targets.counts) < 3 or targets.counts[0] or setup.outputs is None:
        return False
    return sum(targets.counts) >= 5 * len(targets.counts) and setup.loss in ("cross_entropy", "nll_loss")


_ENDS = ("", "LogSoftmax", "Log", "NllLoss", "Sub", "Mean", "MseLoss", "BinaryCrossEntropy")
_PROBABILITY = "leave out the softmax or sigmoid at the end of the model: this loss applies its own"
OUTPUTS = (
    _fact(
        "probabilities as logits", _as_logits, "softmax or sigmoid in front of a loss of logits",
        lambda s, v: f"The model ends in {s.before_loss[-1]}, and {s.loss} takes scores and applies its own.",
        _PROBABILITY, "loss",
    ),
    _fact(
        "no log-probabilities", _not_logarithms, "nll_loss without a logarithm before it",
        lambda s, v: f"nll_loss takes log-probabilities, and gets {s.before_loss[-1] if s.before_loss else 'scores'}.",
        "use torch.nn.functional.cross_entropy on the scores, or log_softmax at the end of the model", "loss",
        hides=("loss is huge",),
    ),
    _fact(
        "softmax over one", _over_one, "softmax over a dimension of length 1",
        lambda s, v: "A softmax over one unit is always 1.",
        "use a sigmoid with binary_cross_entropy_with_logits for one unit, or two units", "loss",
        hides=("probabilities as logits", "gradient vanishes", "gradient is gone", "signal dies"),
    ),
    _fact(
        "softmax over the wrong axis", _wrong_axis, "softmax over the examples or the steps",
        lambda s, v: "A softmax runs over the examples or the steps, not over the classes.",
        "give softmax the dimension of the classes, dim=-1; before a loss of logits leave it out", "loss",
        hides=("examples mix", "probabilities as logits"),
    ),
    _fact(
        "softmax for several labels", _together, "softmax, and targets with several ones in a row",
        lambda s, v: "Examples have several labels at once, and a softmax lets them exclude each other.",
        "use binary_cross_entropy_with_logits on the scores, without a softmax", "loss",
        hides=("probabilities as logits",),
    ),
    _fact(
        "outputs and targets broadcast", _broadcast, "numbers compared / numbers there are",
        lambda s, v: f"Outputs of shape {s.outputs} and targets of shape {s.targets.shape if s.targets else ()} are "
        "compared each with each: the loss does not depend on which target belongs to which output.",
        "give both one shape: outputs.squeeze(-1), or targets.unsqueeze(-1)", "loss",
    ),
    _fact(
        "targets out of reach", _unreachable, "share of targets beyond the last activation's range",
        lambda s, v: f"The last activation, {_bound_of(s)}, cannot reach {percent(v)} of the targets "
        f"({s.targets.low if s.targets else 0:.3g} to {s.targets.high if s.targets else 0:.3g}).",
        "leave out the activation at the end, or scale the targets into its range", "targets", threshold=OUTSIDE,
        hides=("targets are offset", "targets are large", "level is off"),
    ),
    _fact(
        "scores are rectified", lambda s: s.loss in LOGITS and s.before_loss[-1:] == ("relu",),
        "relu in front of a loss of logits",
        lambda s, v: f"The scores pass a relu before {s.loss}, which cuts off all that are below 0.",
        "leave out the activation after the last layer", "loss",
    ),
    _fact(
        "scores are bounded", _bounded, "share of a guess's cross-entropy that bounded scores cannot go below",
        lambda s, v: f"The scores end in {_bound_of(s) if s.before_loss else 'a cosine'} and stay between -1 and 1: "
        f"{s.loss} keeps {percent(v)} of what a guess costs, or more.",
        "leave out the activation after the last layer; multiply cosines by 10 or more", "loss", threshold=0.2,
    ),
    _fact(
        "outputs miss their targets", _misses, "loss of outputs that name the targets' classes / of outputs of zero",
        lambda s, v: f"Outputs that name each target's class have {times(v, 1)} the loss of outputs of zero: it pairs "
        "outputs with the targets of others, or has the wrong sign.",
        "look at what view, reshape and transpose do to outputs and targets before the loss, and at its sign", "loss",
        threshold=1.0,
    ),
    _fact(
        "targets out of range", _out_of_range, "share of targets outside 0 … 1, for a binary cross-entropy",
        lambda s, v: f"{s.loss} takes targets from 0 to 1, and {percent(v)} of them are outside "
        f"({s.targets.low if s.targets else 0:.3g} to {s.targets.high if s.targets else 0:.3g}).",
        "map the targets to 0 and 1", "targets", threshold=0.0, hides=("loss is huge",),
    ),
    _fact(
        "padding counts", _padding, "padded targets that the loss does not leave out",
        lambda s, v: f"The targets are padded with {s.targets.padding if s.targets else 0:.0f}, which the loss counts.",
        lambda s: f"give the loss ignore_index={s.targets.padding if s.targets else 0:.0f}", "loss",
        hides=("one class is rare",),
    ),
    _fact(
        "a class is ignored", _ignored, "a class that occurs and equals ignore_index",
        lambda s, v: f"The loss leaves out class {s.head.ignored if s.head else 0}, which occurs among the targets.",
        "leave out ignore_index", "loss",
    ),
    _fact(
        "one class is rare", _rare, "share of the most frequent class",
        lambda s, v: f"One class makes {percent(v)} of the loss's targets, by number and weight: naming it always "
        "does that well.",
        "weight the classes in the loss, or draw them equally often; judge by a score that counts both", "targets",
        threshold=RARE, source=CHOICE,
    ),
    _fact(
        "targets are all equal", _one_class, "distinct targets",
        lambda s, v: "All targets of the batch are equal.", "shuffle the data: shuffle=True; or look at the labels",
        "targets", hides=("one class is rare",),
    ),
    _fact(
        "logarithm of zero", _logarithm, "log of a softmax, sigmoid or relu",
        lambda s, v: f"The loss takes the logarithm of a {s.acts[0]}, which can be 0.",
        "use log_softmax, or a loss of logits", "loss",
    ),
    _fact(
        "loss is a sum", _summed, "reduction='sum' with plain gradient descent",
        lambda s, v: f"The loss is a sum over {s.examples} examples, so that steps are as many times larger.",
        "take the mean: reduction='mean'; or divide the learning rate by the batch size", "loss", harmless=True,
    ),
    _fact(
        "arguments are swapped", lambda s: any(op.swapped for op in s.tail), "a gradient by the loss's second argument",
        lambda s, v: "The loss gets the targets first and the outputs second.", "swap them: loss(outputs, targets)",
        "loss",
    ),
    _fact(
        "softmax in a hidden layer",
        lambda s: any(op.reader in ("Addmm", "Mm") for op in s.softmaxes if op.name == "Softmax"),
        "a softmax that a linear layer reads",
        lambda s, v: "A linear layer reads a softmax, whose outputs are small and nearly equal.",
        "use a ReLU between layers; a softmax belongs at the end, or into attention", "architecture",
    ),
    _fact(
        "attention is saturated", _peak, "mean of the largest weight of a softmax inside the model",
        lambda s, v: f"A softmax inside the model gives {percent(v)} to one of its inputs before training.",
        "divide the scores by the square root of the keys' size, or make queries and keys smaller", "architecture",
        threshold=0.9, source=CHOICE,
    ),
    _fact(
        "labels start at one", _from_one, "class 0 does not occur",
        lambda s, v: "The classes start at 1: class 0 does not occur.", "subtract 1 from the labels", "targets",
    ),
    _fact(
        "outputs are dropped", _dropped_outputs, "share of outputs that are 0, behind a dropout",
        lambda s, v: f"Dropout follows the last layer: {percent(s.zeros)} of the outputs are 0.",
        "leave out the dropout after the last layer", "architecture",
    ),
    _fact(
        "outputs are normalized", lambda s: "BatchNorm" in s.last and s.loss in DISTANCES,
        "batch normalization after the last layer, and a distance",
        lambda s, v: "A batch normalization follows the last layer: outputs have its mean and size in every batch.",
        "leave out the normalization after the last layer", "architecture",
    ),
)  # fmt: skip


# Model against optimizer.


def _unseen(setup: Setup) -> bool:
    return bool(setup.hidden) or (setup.unregistered > 0 and setup.optimized is not None and setup.stale == 0)


OPTIMIZER = (
    _fact(
        "layers are not registered", _unseen, "modules in lists, or tensors that are no parameters",
        lambda s, v: f"{_named(s.hidden)} {'is' if len(s.hidden) == 1 else 'are'} in a list or dict, where "
        "model.parameters() does not see them." if s.hidden else
        f"{s.unregistered} tensors with a gradient are not among model.parameters().",
        "keep layers in torch.nn.ModuleList or ModuleDict, tensors as torch.nn.Parameter, and make the optimizer after "
        "that", "optimizer", hides=("parameters are not optimized", "gradient is cut off"),
    ),
    _fact(
        "optimizer holds other parameters", lambda s: s.optimized is not None and s.stale > 0,
        "the optimizer's parameters that are not the model's",
        lambda s, v: f"{s.stale} of the optimizer's parameters do not belong to the model"
        + (", and none of the model's are in it." if s.optimized == 0 else "."),
        "make the optimizer from model.parameters(), after the model is complete and on its device", "optimizer",
        hides=("parameters are not optimized",),
    ),
    _fact(
        "parameters are not optimized", lambda s: len(s.unoptimized) > 0, "parameters with a gradient and no optimizer",
        lambda s, v: f"{len(s.unoptimized)} of {s.parameters} parameters get a gradient and are not in the optimizer: "
        f"{_named(s.unoptimized)}.",
        "give the optimizer model.parameters(); or freeze them with requires_grad_(False) if that is meant",
        "optimizer",
    ),
    _fact(
        "everything is frozen", lambda s: s.parameters > 0 and len(s.frozen) == s.parameters,
        "parameters that require no gradient",
        lambda s, v: "No parameter requires a gradient, so nothing can be learned.",
        "call model.requires_grad_(True)", "optimizer",
    ),
    _fact(
        "gradient is cut off", lambda s: len(s.unreached) > 0 and len(s.frozen) < s.parameters,
        "parameters of layers that ran and get no gradient",
        lambda s, v: f"{len(s.unreached)} parameters of layers that ran get no gradient: {_named(s.unreached)}.",
        "look for .detach(), .data, .item(), .numpy(), torch.tensor(…) or torch.no_grad() behind them", "optimizer",
    ),
    _fact(
        "frozen layers are untrained",
        lambda s: len(s.fresh) > 0 and s.parameters <= 2 * len(s.frozen) < 2 * s.parameters,
        "frozen weights with the distribution of an initialization, if half of the parameters are frozen",
        lambda s, v: f"{len(s.fresh)} frozen weights are as an initialization draws them: {_named(s.fresh)}.",
        "train them: requires_grad_(True) before you make the optimizer; or load what they were trained to",
        "optimizer", hides=("layers are partly frozen",), harmless=True,
    ),
    _fact(
        "layers are partly frozen", lambda s: s.last_frozen and len(s.frozen) < s.parameters,
        "1 if the last weight requires no gradient, and others do",
        lambda s, v: f"{len(s.frozen)} of {s.parameters} parameters are frozen, the last layer's too: "
        f"{_named(s.frozen)}.",
        "if that is not meant, call model.requires_grad_(True) before you make the optimizer", "optimizer",
        threshold=NEVER, warning=0.5, harmless=True,
    ),
    _fact(
        "one layer stands several times", lambda s: s.repeated[1] > 1, "places of one module in a container",
        lambda s, v: f"{s.repeated[0]} holds one layer {s.repeated[1]} times, with one set of weights.",
        "make each layer anew: [make() for _ in range(n)], not [layer] * n", "architecture",
    ),
)  # fmt: skip


# Modes, and mixing.


def _steps_needed(setup: Setup) -> float | None:
    """Unless a schedule has lowered the rate for the start, or no step can help."""
    gain = setup.gain
    return None if gain is None or gain <= 0 or setup.warms_up else 1 / gain


MODES = (
    _fact(
        "model is in evaluation mode", lambda s: s.optimized is not None and len(s.evaluating) > 0,
        "dropout and batch normalization in evaluation mode",
        lambda s, v: f"{_named(s.evaluating)} {'is' if len(s.evaluating) == 1 else 'are'} in evaluation mode.",
        "call model.train() before training", "mode",
    ),
    _fact(
        "dropout stays on", lambda s: s.drops, "dropout that drops in evaluation mode",
        lambda s, v: "Dropout drops in evaluation mode too.",
        "give it training=self.training, or use the module torch.nn.Dropout", "mode",
    ),
    _fact(
        "one number is normalized", lambda s: s.single > 0, "normalizations over one number",
        lambda s, v: "A normalization takes the mean of one number from it, which leaves 0.",
        "normalize over several features, or leave it out", "architecture", hides=("signal dies", "gradient vanishes"),
    ),
    _fact(
        "momentum is too large", lambda s: s.momentum, "momentum of the optimizer",
        lambda s, v: f"The optimizer's momentum is {v:.4g}: a gradient counts for {1 / max(1e-9, 1 - v):,.0f} steps.",
        "lower it to 0.9", "optimizer", threshold=0.995, source=CHOICE,
    ),
    _fact(
        "rate is too low", _steps_needed, "the loss / what the optimizer's next step takes off it",
        lambda s, v: f"At this rate a step takes 1/{v:,.0f} off the loss.", "raise the learning rate ten times or more",
        "optimizer", threshold=2000, source=CHOICE, alone=True,
    ),
    _fact(
        "batch of one", lambda s: s.examples == 1 and len(s.normalized) > 0, "examples of a batch-normalized batch",
        lambda s, v: "Batch normalization sees one example, whose mean it takes off.",
        "use larger batches, or torch.nn.GroupNorm or LayerNorm", "mode",
    ),
    _fact(
        "dropout is too strong", lambda s: s.dropout, "largest probability of a dropout",
        lambda s, v: f"Dropout with p={v:.2g} keeps {percent(1 - v)} of the units; p is the share that is dropped.",
        "lower it to 0.5 or less", "mode", threshold=0.85, source=CHOICE,
    ),
    _fact(
        "statistics forget", lambda s: s.memory, "momentum of a batch normalization",
        lambda s, v: f"A batch normalization has momentum {v:.3g}, the share of the newest batch in torch.",
        "use momentum=0.1; what other libraries call 0.99 is 0.01 here", "mode", threshold=0.5, source=CHOICE,
    ),
    _fact(
        "statistics never change", lambda s: len(s.untracked) > 0, "batch normalizations with momentum 0",
        lambda s, v: f"{_named(s.untracked)} with momentum=0 keeps the statistics it was made with.",
        "use momentum=0.1", "mode",
    ),
    _fact(
        "model remembers", lambda s: s.remembers, "outputs that differ for the same inputs",
        lambda s, v: "The same inputs give other outputs the second time: the model keeps a state between calls.",
        "start each sequence from a state of zeros, or detach and mask the one that is kept", "mixing",
    ),
    _fact(
        "activations follow each other", lambda s: len(s.pairs) > 0, "bounded activations one after the other",
        lambda s, v: f"{s.pairs[0][1].lower()} is applied to a {s.pairs[0][0].lower()}, which squashes twice.",
        "leave one of them out", "architecture",
    ),
    _fact(
        "examples mix", lambda s: s.mixes, "how far outputs move with another example",
        lambda s, v: f"The outputs of an example change with another example, by {percent(v)} of their size.",
        "look for view or reshape where transpose is meant, a softmax or mean over dim 0, batch_first, or a kept state",
        "mixing", threshold=MOVED,
    ),
    _fact(
        "later inputs leak", lambda s: s.leaks, "how far earlier outputs move with a later input",
        lambda s, v: f"Outputs change with later inputs, by {percent(v)} of their size, and are to predict these.",
        "mask the attention: is_causal=True, or pad convolutions on the left alone", "mixing", threshold=MOVED,
    ),
)  # fmt: skip
RULES = (*OUTPUTS, *OPTIMIZER, *MODES)
