"""Rules about how outputs, loss and targets fit: the loss's graph says what it reads, its values what it asks for."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..rule import CHOICE
from ..setup import DISTANCES, LOGITS, SUMS, Setup, Targets
from ..wording import percent, times
from .facts import fact

RARE = 0.9  # the share of one class from which on a network does well by naming it always
ENOUGH = 16  # examples needed to judge targets
SAME = 0.95  # the share of tokens from which on two rows of them are taken for one
PROBABLE = frozenset({"softmax", "sigmoid", "hardsigmoid", "softplus", "exp", "relu"})  # what a logarithm may take
OUTSIDE = 0.02  # the share of targets that an activation may miss


def _as_logits(setup: Setup) -> bool:
    return setup.loss in LOGITS and bool({"softmax", "sigmoid", "hardsigmoid"} & set(setup.before_loss[-1:]))


def _not_logarithms(setup: Setup) -> bool:
    """Scores or probabilities where the loss takes logarithms, or scores where it takes probabilities."""
    whole, (low, high) = setup.targets is not None and setup.targets.whole, setup.span
    acts = setup.before_loss
    if setup.loss in ("nll_loss", "kl_div") and acts[-1:] in ((), ("softmax",), ("sigmoid",), ("relu",)) and high > 0:
        return True
    of_scores = (low < 0 or high > 1) and not set(acts[: acts.index("log")] if "log" in acts else acts) & PROBABLE
    if of_scores and (setup.loss == "binary_cross_entropy" or (whole and "log" in acts)):
        return True
    return setup.linear and setup.acts[-1:] in ((("softmax",), ("sigmoid",), ()) if whole else (("softmax",),))


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


def _bounded(setup: Setup) -> bool:
    return setup.loss in LOGITS and bool({"relu", "tanh", "hardtanh"} & set(setup.before_loss[-1:]))


def _misses(setup: Setup) -> float | None:
    return None if setup.contrary is None or setup.opposite else setup.contrary[0] / setup.contrary[1]


def _out_of_range(setup: Setup) -> float | None:
    """Of a binary cross-entropy, also one that the user wrote."""
    targets, head = setup.targets, setup.head
    if head is not None and head.name.startswith("Binary"):
        return head.outside
    own = "sigmoid" in setup.acts and setup.acts[-1:] == ("log",) and setup.loss == ""
    if targets is None or not own or math.prod(targets.shape) != math.prod(setup.outputs or ()):
        return None
    return targets.negative + targets.above


def _swapped(setup: Setup) -> bool:
    return any(op.swapped for op in setup.tail) or (
        setup.linear and setup.targets is not None and not setup.targets.whole and not setup.acts
    )


def _shifted_twice(setup: Setup) -> bool:
    """Targets that are the next tokens, taken from later ones again."""
    return setup.shift < 0 and setup.ahead > SAME


def _shown(setup: Setup) -> bool:
    """Targets that stand in the inputs at their place, if the loss leaves out others or outputs see no later ones."""
    if setup.copies < SAME or setup.shift or setup.ahead > SAME:
        return False
    return setup.counted < 1 or setup.beside or (setup.looks_ahead is not None and not setup.looks_ahead)


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
    """Whether class 0 does not occur among many examples, or among rows of which some name no class."""
    targets = setup.targets
    if targets is None or not targets.counts or targets.counts[0] or setup.loss not in ("cross_entropy", "nll_loss"):
        return False
    rows = len(targets.shape) == 2
    many = len(targets.counts) > 2 and sum(targets.counts) >= 5 * len(targets.counts)
    return sum(targets.counts) < targets.shape[0] if rows else many


_ENDS = ("", "LogSoftmax", "Log", "NllLoss", "Sub", "Mean", "MseLoss", "BinaryCrossEntropy")
_PROBABILITY = "leave out the softmax or sigmoid at the end of the model: this loss applies its own"
OUTPUTS = (
    fact(
        "probabilities as logits", _as_logits, "softmax or sigmoid in front of a loss of logits",
        lambda s, v: f"The model ends in {s.before_loss[-1]}, and {s.loss} takes scores and applies its own.",
        _PROBABILITY, "loss",
    ),
    fact(
        "no log-probabilities", _not_logarithms, "a loss of probabilities, or of their logarithms, of others",
        lambda s, v: f"The loss takes {'' if s.loss in ('nll_loss', 'kl_div') else 'the logarithm of '}probabilities, "
        f"and gets {s.before_loss[-1] if s.before_loss[-1:] not in ((), ('log',)) else 'scores'}.",
        "use torch.nn.functional.cross_entropy on the scores, or log_softmax at the end of the model", "loss",
        hides=("loss is huge",), always=True,
    ),
    fact(
        "softmax over one", _over_one, "softmax over a dimension of length 1",
        lambda s, v: "A softmax over one unit is always 1.",
        "use a sigmoid with binary_cross_entropy_with_logits for one unit, or two units", "loss",
        hides=("probabilities as logits", "gradient vanishes", "gradient is gone", "signal dies"),
    ),
    fact(
        "softmax over the wrong axis", _wrong_axis, "softmax over the examples or the steps",
        lambda s, v: "A softmax runs over the examples or the steps, not over the classes.",
        "give softmax the dimension of the classes, dim=-1; before a loss of logits leave it out", "loss",
        hides=("examples mix", "probabilities as logits"), always=True,
    ),
    fact(
        "softmax for several labels", _together, "softmax, and targets with several ones in a row",
        lambda s, v: "Examples have several labels at once, and a softmax lets them exclude each other.",
        "use binary_cross_entropy_with_logits on the scores, without a softmax", "loss",
        hides=("probabilities as logits",), always=True,
    ),
    fact(
        "outputs and targets broadcast", lambda s: s.broadcast is not None, "1 if a difference is larger than both",
        lambda s, v: f"Outputs of shape {s.outputs} and targets of shape {s.targets.shape if s.targets else ()} are "
        "compared each with each: the loss does not depend on which target belongs to which output.",
        "give both one shape: outputs.squeeze(-1), or targets.unsqueeze(-1)", "loss",
        hides=("outputs miss their targets",),
    ),
    fact(
        "targets out of reach", _unreachable, "share of targets beyond the last activation's range",
        lambda s, v: f"The last activation, {_bound_of(s)}, cannot reach {percent(v)} of the targets "
        f"({s.targets.low if s.targets else 0:.3g} to {s.targets.high if s.targets else 0:.3g}).",
        "leave out the activation at the end, or scale the targets into its range", "targets", threshold=OUTSIDE,
        hides=("targets are offset", "targets are large", "level is off"), always=True,
    ),
    fact(
        "scores are bounded", _bounded, "relu or tanh in front of a loss of logits",
        lambda s, v: f"The scores pass a {s.before_loss[-1]} before {s.loss}, which bounds what they can say.",
        "leave out the activation after the last layer", "loss",
    ),
    fact(
        "outputs miss their targets", _misses, "loss of outputs that name the targets' classes / of outputs of zero",
        lambda s, v: f"Outputs that say the targets have {times(v, 1)} the loss of outputs that say nothing: it pairs "
        "outputs with the targets of others, or takes targets of another form.",
        "look at what view, reshape and transpose do to outputs and targets before the loss, and whether it expects "
        "targets of 0 and 1, of -1 and 1, classes or rows of numbers", "loss", threshold=1 - 1e-5,
    ),
    fact(
        "loss prefers the opposite", lambda s: s.opposite, "1 if outputs that say the opposite have a lower loss",
        lambda s, v: "Outputs that say the opposite of the targets have a lower loss: its sign is wrong, or labels are "
        "exchanged.",
        "turn the sign of the loss, or exchange the labels: 1 - targets", "loss", hides=("outputs miss their targets",),
        always=True,
    ),
    fact(
        "targets are shifted twice", _shifted_twice, "1 if the loss moves targets that are the next tokens already",
        lambda s, v: "The targets are the next tokens already, and the loss moves them by one more.",
        "shift once: in the data, or in the loss", "loss", hides=("outputs miss their targets",), always=True,
    ),
    fact(
        "targets stand in the inputs", _shown, "share of the targets that count and are the token at their place",
        lambda s, v: "Each target that counts is the token that the input shows at its place: there is nothing to "
        "predict.",
        "count hidden tokens alone, with -100 where they are seen; in a language model shift the targets by one",
        "loss", always=True,
    ),
    fact(
        "examples contradict each other", lambda s: s.contradicts, "share of the targets' variance at equal inputs",
        lambda s, v: f"Equal inputs have different targets, which makes {percent(v)} of what targets differ by.",
        "look at what is done to the inputs: integer division, a cast or a clip has made examples equal, or the "
        "targets belong to others", "inputs", threshold=0.6, source=CHOICE, hides=("inputs are offset",), always=True,
    ),
    fact(
        "targets out of range", _out_of_range, "share of targets outside 0 … 1, for a binary cross-entropy",
        lambda s, v: f"{s.loss} takes targets from 0 to 1, and {percent(v)} of them are outside "
        f"({s.targets.low if s.targets else 0:.3g} to {s.targets.high if s.targets else 0:.3g}).",
        "map the targets to 0 and 1", "targets", threshold=0.0, hides=("loss is huge",),
    ),
    fact(
        "padding counts", _padding, "padded targets that the loss does not leave out",
        lambda s, v: f"The targets are padded with {s.targets.padding if s.targets else 0:.0f}, which the loss counts.",
        lambda s: f"give the loss ignore_index={s.targets.padding if s.targets else 0:.0f}", "loss",
        hides=("one class is rare",),
    ),
    fact(
        "a class is ignored", _ignored, "a class that occurs and equals ignore_index",
        lambda s, v: f"The loss leaves out class {s.head.ignored if s.head else 0}, which occurs among the targets.",
        "leave out ignore_index", "loss", hides=("loss prefers the opposite", "outputs miss their targets"),
    ),
    fact(
        "one class is rare", _rare, "share of the most frequent class",
        lambda s, v: f"One class makes {percent(v)} of the loss's targets, by number and weight: naming it always "
        "does that well.",
        "weight the classes in the loss, or draw them equally often; judge by a score that counts both", "targets",
        threshold=RARE, source=CHOICE,
    ),
    fact(
        "targets are all equal", _one_class, "distinct targets",
        lambda s, v: "All targets of the batch are equal.", "shuffle the data: shuffle=True; or look at the labels",
        "targets", hides=("one class is rare", "outputs miss their targets", "loss prefers the opposite"), always=True,
    ),
    fact(
        "loss is a sum", _summed, "reduction='sum' with plain gradient descent",
        lambda s, v: f"The loss is a sum over {s.examples} examples, so that steps are as many times larger.",
        "take the mean: reduction='mean'; or divide the learning rate by the batch size", "loss", harmless=True,
    ),
    fact(
        "arguments are swapped", _swapped, "a gradient by the loss's second argument, or a loss linear in the outputs",
        lambda s, v: "The loss gets the targets first and the outputs second.", "swap them: loss(outputs, targets)",
        "loss", always=True,
    ),
    fact(
        "everything is masked", lambda s: any(op.empty for op in s.softmaxes), "1 if a softmax has rows of -inf alone",
        lambda s, v: "A softmax gets rows in which everything is masked, and returns NaN for them.",
        "mask with a large negative number, -1e9, in place of -inf; or leave such rows out", "architecture",
        hides=("not finite", "gradient explodes"), always=True,
    ),
    fact(
        "softmax in a hidden layer",
        lambda s: any(op.reader in ("Addmm", "Mm") for op in s.softmaxes if op.name == "Softmax"),
        "a softmax that a linear layer reads",
        lambda s, v: "A linear layer reads a softmax, whose outputs are small and nearly equal.",
        "use a ReLU between layers; a softmax belongs at the end, or into attention", "architecture",
    ),
    fact(
        "attention is saturated", _peak, "mean of the largest weight of a softmax inside the model",
        lambda s, v: f"A softmax inside the model gives {percent(v)} to one of its inputs before training.",
        "divide the scores by the square root of the keys' size, or make queries and keys smaller", "architecture",
        threshold=0.7, source=CHOICE, unless_mastered=True,
    ),
    fact(
        "labels start at one", _from_one, "class 0 does not occur",
        lambda s, v: "The classes start at 1: class 0 does not occur.", "subtract 1 from the labels", "targets",
        always=True,
    ),
    fact(
        "outputs are dropped", _dropped_outputs, "share of outputs that are 0, behind a dropout",
        lambda s, v: f"Dropout follows the last layer: {percent(s.zeros)} of the outputs are 0.",
        "leave out the dropout after the last layer", "architecture",
    ),
    fact(
        "outputs are normalized", lambda s: "BatchNorm" in s.last and s.loss in DISTANCES,
        "batch normalization after the last layer, and a distance",
        lambda s, v: "A batch normalization follows the last layer: outputs have its mean and size in every batch.",
        "leave out the normalization after the last layer", "architecture",
    ),
)  # fmt: skip
