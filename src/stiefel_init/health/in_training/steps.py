"""Rules about the steps of a training: what is not finite, stands still, gets no gradient, or moves too far."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

from ..rows import RECENT, Moment, Row, Sample, median
from ..rule import CHOICE, DEFINITION, EVERYTHING, STUDY, Measured, largest, over
from ..wording import percent, times
from .base import FAR, LOWER, SIGNAL, UNITS, Text, recent_update, since_step, training_rule, with_before

FALLS = 0.3  # of the first loss: a loss this much lower has learned something that it can lose again
SUDDEN = 10  # a step this many times larger than those before
STEPS = 100  # of a training, before one can say that nothing was learned
FALLEN, CREPT = 0.03, 0.05  # of itself: a loss that has fallen by less has not; where steps are small, too
SHORT = 3e-4  # steps of less than this share of the weights hardly train
FEW = 10  # steps of another network's for one of this one's, as of a critic's for a generator's
ROUNDING = 1e-6  # updates below this may be lost in the rounding of the weights


def overflow(moment: Moment, limit: float) -> Measured | None:
    """1 where something is not finite: inputs, else weights, else the signal, else the gradient, else the loss."""
    now = moment.now
    if not now.finite_inputs:
        return Measured(1.0, None, "inputs")
    broken = [row for row in now.rows if not _all_finite(row.norm, row.bias_mean, row.bias_std)]
    overflown = [row for row in now.rows if not _all_finite(row.mean, row.std, row.post_mean, row.post_std)]
    if len(broken) > 1 and overflown and overflown[0] is not now.rows[0]:
        return Measured(1.0, overflown[0], "signal")  # the step spread it to all weights
    if broken:
        return Measured(1.0, broken[0], "weights" if len(broken) < max(2, len(now.rows) / 2) else "all weights")
    if overflown:
        return Measured(1.0, overflown[0], "signal")
    if now.stepped or not now.backward:
        for row in reversed(now.rows):
            if not _all_finite(row.weight_gradient):
                return Measured(1.0, row, "gradient")
    if now.loss is not None and not math.isfinite(now.loss):
        return Measured(1.0, None, "loss")
    return Measured(0.0)


def _all_finite(*values: float | None) -> bool:
    return all(map(math.isfinite, filter(None, values)))  # None and 0 are


_OVERFLOWS = {
    "inputs": ("the inputs are not finite", "remove the entries that are not finite, or skip such batches"),
    "weights": ("the weights of {at.named} are not finite{since}", "{back}{lower}"),
    "all weights": ("the weights are not finite{since}, from {at.named} on", "{back}{lower}"),
    "signal": ("the signal overflows from {at.named} on", LOWER),
    "gradient": ("the gradient at {at.named} is not finite", f"skip such steps, {LOWER}"),
    "loss": ("the loss is not finite", f"look at the loss function, or {LOWER}"),
}
"""What overflows → sentence and advice."""


def _if_weights_overflow(moment: Moment, measured: Measured) -> str:
    last = moment.past.last
    fast = last is not None and (median(row.update for row in last.rows) or 0.0) > FAR
    lower = LOWER if fast else f"look for a batch with non-finite entries, or {LOWER}"
    back = "" if last is None else f"go back to a checkpoint of step {last.step:,} or before, and "
    return _OVERFLOWS[measured.detail][1].format(back=back, lower=lower)


def no_backward(moment: Moment, limit: float) -> Measured | None:
    """Unless the optimizer steps once for a few batches, as that of a generator may, beside a critic's."""
    now = moment.now
    few = 1 < now.period <= FEW or (not now.period and now.others and now.step < FEW)
    if few or not any(row.ran for row in now.rows) or not any(row.trained for row in now.rows):
        return None
    return Measured(0.0 if now.backward and not now.severed else 1.0)


def unused_batches(moment: Moment, limit: float) -> Measured | None:
    missing = no_backward(moment, limit)
    return None if missing is None else Measured(missing.value * moment.now.period)


def uphill(moment: Moment, limit: float) -> Measured | None:
    return None if moment.now.uphill is None else Measured(moment.now.uphill)


def standing(moment: Moment, limit: float) -> Measured | None:
    rows = moment.now.rows
    moves = [row.update for row in rows if row.trained and row.update is not None and row.norm != 0]
    if (
        not moves
        or not moment.now.backward
        or moment.now.resting
        or any(row.weight_gradient == math.inf for row in rows)
        or (moment.past.works(moment.now) and (moment.now.stepped or not any(row.weight_gradient for row in rows)))
    ):  # where it has learned, a schedule or the gradient may end
        return None
    return Measured(0.0 if any(moves) else 1.0)


def _stands(moment: Moment, measured: Measured) -> str:
    why = "since the learning rate is 0" if moment.now.rate == 0 else "though there are gradients"
    return f"no weight moves{since_step(moment.past)}, {why}"


def _if_it_stands(moment: Moment, measured: Measured) -> str:
    step = "call optimizer.step(), with an optimizer that holds model.parameters()"
    return "raise it" if moment.now.rate == 0 else step


def _learning(moment: Moment) -> list[Row]:
    return [row for row in moment.now.rows if row.ran and row.trained]


def cut_off(moment: Moment, limit: float) -> Measured | None:
    rows = _learning(moment)
    if not moment.now.backward or not any(row.weight_gradient for row in rows):
        return None
    missing = [row for row in rows if not row.weight_gradient]
    if not missing:
        return Measured(0.0)
    before = moment.past.was(missing[-1])
    sure = any(row.weight_gradient is None for row in missing) or (before is not None and not before.weight_gradient)
    return Measured(1.0 if sure else 0.4, missing[-1])


def _is_cut_off(moment: Moment, measured: Measured) -> str:
    count, at = sum(not row.weight_gradient for row in _learning(moment)), measured.at.named
    return f"{count} layers up to {at} get no gradient" if count > 1 else f"{at} gets no gradient"


def _where_cut_off(moment: Moment, measured: Measured) -> str:
    rows = _learning(moment)
    above = rows[[row.layer for row in rows].index(measured.at.layer) + 1 :]
    return "look for .detach(), .data or torch.no_grad()" + (f" between it and {above[0].named}" if above else "")


def frozen(moment: Moment, limit: float) -> Measured | None:
    """1 where a layer's weights stand still that moved before, or that get a gradient, while others move."""
    rows = [row for row in moment.now.rows if row.update is not None and row.kind not in ("Embedding", "EmbeddingBag")]
    if not (median(row.update for row in rows) or 0.0) > ROUNDING:
        return None
    for row in rows:
        before = moment.past.was(row)
        could_move = row.trained or any(then.trained for then in moment.past.of(row))
        if row.update or not could_move:
            continue
        if any(then.update for then in moment.past.of(row)):
            return Measured(1.0, row)
        was_there = all(row.layer in then.by_name for then in moment.past.recent)
        meant = was_there and row.trained and (moment.past.count < RECENT or moment.past.works(moment.now))
        if before is not None and not meant and (row.weight_gradient or (before.trained and not row.trained)):
            return Measured(1.0, row)
    return Measured(0.0)


def _is_frozen(moment: Moment, measured: Measured) -> str:
    text = f"the weights of {measured.at.named} stand still{since_step(moment.past)}"
    return f"{text}, though it gets a gradient" if measured.at.trained else text


def _if_frozen(moment: Moment, measured: Measured) -> str:
    trained = measured.at.trained
    return "give its parameters to the optimizer" if trained else "if that is not intended, set requires_grad=True"


def equal(moment: Moment, limit: float) -> Measured | None:
    seen: dict[tuple[object, ...], Row] = {}
    for row, before in with_before(moment):
        if not row.norm or row.singular is None or before.norm is None or not row.weight_gradient:
            continue
        twin = seen.setdefault((row.kind, row.units, row.norm, row.distance), row)
        together = [each.by_name for each in moment.past.recent if {row.layer, twin.layer} <= each.by_name.keys()]
        for then, other in ((names[row.layer], names[twin.layer]) for names in together):
            if (then.norm, then.distance) != (other.norm, other.distance):
                return Measured(1.0, row, twin.named)
    return Measured(0.0)


def collapsed(moment: Moment, limit: float) -> Measured | None:
    pairs = [(row, before) for row, before in with_before(moment) if before.norm and row.norm is not None]
    ratios = [(over(before.norm or 0.0, row.norm or 0.0), row) for row, before in pairs]
    usual = median(value for value, _ in ratios)
    return None if usual is None or usual > 2 else largest(ratios)


def jumped(moment: Moment, limit: float) -> Measured | None:
    least = 0.1 * min(median(row.norm for row in moment.now.rows) or 0.0, 1.0)
    pairs = [(row.norm, before.norm or 0.0, row) for row, before in with_before(moment) if row.norm is not None]
    return largest((norm / before, row) for norm, before, row in pairs if before > least)


def _weights_are(word: str) -> Text:
    def sentence(moment: Moment, measured: Measured) -> str:
        at, last, move = measured.at, moment.past.last, recent_update(moment, measured.at)
        if at.norm == 0 or last is None:
            return f"the weights of {at.named} are all zero{since_step(moment.past)}"
        text = f"the weights of {at.named} are {times(measured.value)} {word} than at step {last.step:,}"
        return f"{text}; the update there was {move:.2g} of the weights" if move > FAR else text

    return sentence


def _after_a_jump(moment: Moment, measured: Measured) -> str:
    by_steps = measured.at.norm and recent_update(moment, measured.at) > FAR
    return LOWER if by_steps else "look for code that overwrites them, or go back to a checkpoint"


def decaying(moment: Moment, limit: float) -> Measured | None:
    pairs = [(moment.past.norms.get(row.layer), row.norm) for row in moment.now.rows]
    ratios = [over(largest, norm) for largest, norm in pairs if largest and norm is not None]
    middle = median(ratios)
    return None if middle is None or len(ratios) < 2 or moment.past.works(moment.now) else Measured(middle)


def _decay(moment: Moment, measured: Measured) -> str:
    pull = sorted(row.inward for row in moment.now.rows if row.inward is not None)
    inward = pull[len(pull) // 2] if pull else 0.0
    text = f"the weights have shrunk {measured.value:.1f} times in most layers"
    return f"{text}, and {percent(inward)} of a step's length shrinks them further" if inward > 0.5 else text


def too_far(moment: Moment, limit: float) -> Measured | None:
    """How far a step moves the weights, over their norm: the median over the layers.

    What only shrinks them is left out. A step ten times larger than all recent ones counts three times.
    """
    rows = [row for row in moment.now.rows if row.update is not None and row.norm]
    middle = median(row.across for row in rows)
    now, past = moment
    if middle is None or now.searches:
        return None
    before = past.across
    if past.works(now) or (now.loss is not None and past.last is not None and now.loss < (past.last.loss or 0.0)):
        return Measured(0.0)  # steps that are too large do not lower the loss
    middle = middle if past.count else middle / 5  # nobody knows yet what the first step did to it
    sudden = len(before) > 2 and middle > SUDDEN * max(before)
    return Measured(3 * middle if sudden else middle, max(rows, key=lambda row: row.update or 0.0))


def _median_update(now: Sample) -> float:
    return median(row.update for row in now.rows if row.norm and row.trained) or 0.0


def _at_rate(now: Sample) -> str:
    return "" if now.rate is None else f" at rate {now.rate:.2g}"


def _goes_far(moment: Moment, measured: Measured) -> str:
    at, now = measured.at, moment.now
    size = f"{_median_update(now):.2g} of their size{_at_rate(now)}"
    return f"a step moves the weights by {size} ({at.named}: {at.update:.2g})"


def too_short(moment: Moment, limit: float) -> Measured | None:
    """One over the median update, if none was larger since the start, the rate does not rise and the loss not fall."""
    now, past = moment
    last, middle = past.last, _median_update(now)
    if last is None or not middle or past.works(now):
        return None
    if now.rate is not None and last.rate is not None and now.rate > last.rate:
        return None
    return Measured(1 / max(middle, past.moved))


def lost(moment: Moment, limit: float) -> Measured | None:
    now, past = moment
    losses = [sample.loss for sample in past.recent if sample.loss is not None and math.isfinite(sample.loss)]
    if now.loss is None or len(losses) < 2 or not past.first_loss or past.first_loss <= 0:
        return None
    if min(losses) > (1 - FALLS) * past.first_loss:
        return Measured(now.loss / past.first_loss / 10) if now.loss > 10 * past.first_loss else Measured(0.0)
    if len(losses) < 3 or (past.least_loss or 0.0) <= 0:  # what goes below zero has no size that a rise could have
        return Measured(0.0)
    before = losses[:-1]
    rise = min(now.loss, losses[-1]) - max(before[-3:])
    usual = max((after - then for then, after in pairwise(before)), default=0.0)
    return Measured(rise / past.first_loss if rise > max(2 * usual, max(before[-3:]) - min(before[-3:])) else 0.0)


def _loss_jumps(moment: Moment, measured: Measured) -> str:
    last = moment.past.last
    before = last.loss if last is not None and last.loss is not None else math.nan
    change = f"from {before:.3g} to {moment.now.loss:.3g}{since_step(moment.past)}"
    return f"the loss jumped {change}, with steps and inputs as before"


def lost_gradient(moment: Moment, limit: float) -> Measured | None:
    now = moment.now
    gone = now.kept == 0 and (now.cleared or not now.signs)
    return None if now.kept is None or not now.backward else Measured(float(gone))


def clipped(moment: Moment, limit: float) -> Measured | None:
    now = moment.now
    quick = _median_update(now) > 3 * SHORT and not now.half
    if now.kept is None or not now.backward or quick or moment.past.works(now):
        return None
    return Measured(over(1.0, now.kept) if now.kept or (now.signs and not now.cleared) else 0.0)


def _if_clipped(moment: Moment, measured: Measured) -> str:
    if moment.now.half:
        return "call scaler.unscale_(optimizer) before you clip"
    return "clip at a norm that most gradients do not reach, or not at all"


def undivided(moment: Moment, limit: float) -> Measured | None:
    """The batches whose gradients are added as they are, where the loss has risen, or has not fallen for ten steps."""
    now, past = moment
    if now.heard is None or now.loss is None or past.first_loss is None or not now.backward or now.others:
        return None
    most = 0.97 if now.step >= 10 * now.period else 1.2
    return Measured(float(now.period if now.heard > 0.9 * now.loss > 0.9 * most * past.first_loss else 0))


def underflow(moment: Moment, limit: float) -> Measured | None:
    rows = [row for row in moment.now.rows if row.ran and row.trained]
    if not moment.now.half or not moment.now.backward or not rows:
        return None
    return Measured(sum(not row.weight_gradient for row in rows) / len(rows))


def unlearned(moment: Moment, limit: float) -> Measured | None:
    """1 where the loss has not fallen, unless it is one of several, may be below zero, or was low already."""
    now, past = moment
    fallen = past.fallen(now)
    if (
        fallen is None
        or now.step < STEPS
        or now.others
        or past.resumed
        or (past.least_loss or 0.0) <= 0
        or past.moved < SHORT
    ):
        return None
    return Measured(float(fallen < FALLEN))


def slow(moment: Moment, limit: float) -> Measured | None:
    fallen = moment.past.fallen(moment.now) if 0 < moment.past.moved < SHORT else None
    return None if fallen is None else Measured(float(fallen < CREPT))


GRADIENT_RULES = (
    training_rule(
        "not finite", overflow, 0.5, "1 if inputs, weights, signal, gradient or loss are not finite",
        lambda at, m: _OVERFLOWS[m.detail][0].format(at=m.at, since=since_step(at.past)), _if_weights_overflow,
        DEFINITION, hides=EVERYTHING,
    ),
    training_rule(
        "gradients are not cleared",
        lambda at, limit: Measured(float(at.now.leftover > 0 and at.past.moved > 0)) if at.now.backward else None,
        0.5, "1 if the first backward pass found old gradients, though weights have moved",
        "the backward pass adds to the gradients of the step before",
        "call optimizer.zero_grad() in every step; with accumulated gradients call step() of the watch once for each "
        "step of the optimizer",
        DEFINITION, hides=("loss jumps", "steps are too large", *SIGNAL, *UNITS),
    ),
    training_rule(
        "accumulated gradients are lost", lambda at, limit: Measured(float(at.now.parts_lost)), 0.5,
        "1 if gradients are accumulated, and those of the batch before are gone",
        "the gradients of the batch before are gone, though the optimizer has not stepped",
        "call optimizer.zero_grad() once for each step of the optimizer", DEFINITION, lasting=2,
    ),
    training_rule(
        "batches are not used", unused_batches, FEW, "steps of the training for one of the optimizer, without backward",
        lambda at, m: f"one batch of {m.value:.0f} gets a backward pass, and the losses of the others are not used",
        "call backward() and step() inside the loop over the batches", DEFINITION, lasting=2,
        hides=("no backward pass", "weights do not move", "layer is frozen", "steps are too small"),
    ),
    training_rule(
        "loss is made anew", lambda at, limit: Measured(float(at.now.severed)), 0.5,
        "1 if backward() is called on a tensor that no weight leads to",
        "backward() is called on a tensor that no weight leads to",
        "call it on the loss itself, not on torch.tensor(loss), loss.item(), .data or .detach()", DEFINITION,
        hides=("no backward pass", "gradient is cut off", "weights do not move", "steps are too small"),
    ),
    training_rule(
        "steps go uphill", uphill, 0.9, "least cosine of a weight's move and its gradient",
        "the weights move along the gradient, which raises the loss",
        "subtract the gradient: p -= rate * grad; no maximize=True", DEFINITION, lasting=2,
        hides=("steps are too large", "loss jumps", "weights jumped"),
    ),
    training_rule(
        "no backward pass", no_backward, 0.5, "1 if no gradient reached a weight", "no gradient reaches any weight",
        "call loss.backward() in every step", DEFINITION, lasting=2,
        hides=("weights do not move", "layer is frozen", "steps are too small"),
    ),
    training_rule(
        "gradient underflows", underflow, 0.4, "in float16: share of layers with a gradient of exactly 0",
        lambda at, m: f"{percent(m.value)} of the layers get a gradient of exactly 0 in half precision",
        "scale the loss: torch.amp.GradScaler; or use bfloat16", DEFINITION, lasting=2,
        hides=(
            "weights do not move", "gradient is cut off", "layer is frozen", "gradient vanishes", "steps are too small",
        ),
    ),
    training_rule(
        "gradient is lost before the step", lost_gradient, 0.5, "1 if gradients arrived and the optimizer found none",
        "gradients arrive at the weights, and are gone when the optimizer steps",
        "call optimizer.zero_grad() before loss.backward(), not between it and optimizer.step()", DEFINITION, lasting=2,
        hides=("weights do not move", "gradient is cut off", "layer is frozen", "steps are too small"),
    ),
    training_rule(
        "optimizer is made anew", lambda at, limit: Measured(float(at.now.renewed)), 0.5,
        "1 if each step is the first one of a new optimizer with averages",
        "each step is the first one of a new optimizer, which forgets what it has averaged",
        "make the optimizer once, before the loop", DEFINITION,
    ),
    training_rule(
        "optimizer steps twice",
        lambda at, limit: Measured(float(at.now.twice)) if at.now.stepped else None, 0.5,
        "1 if an optimizer steps again without a backward pass between",
        "an optimizer steps twice for one backward pass", "step each optimizer once; is the second one another's?",
        DEFINITION, lasting=2,
    ),
    training_rule(
        "gradient is clipped away", clipped, 20, "gradient that arrives / that the optimizer uses, if steps are small",
        lambda at, m: f"clipping makes the gradient {times(m.value)} smaller than it arrives", _if_clipped, CHOICE,
        lasting=2, hides=("steps are too small", "learning rate is too low", "weights do not move"),
    ),
    training_rule(
        "accumulated gradients are not divided", undivided, 4, "steps for one of the optimizer, if the loss has risen",
        lambda at, m: f"the gradients of {m.value:.0f} batches are added, and the loss has risen",
        lambda at, m: f"divide the loss: (loss / {m.value:.0f}).backward()", CHOICE,
        hides=("loss jumps", "weights jumped", "units are dead", "steps are too large",
               "accumulated gradients are lost"),
    ),
    training_rule(
        "model is in evaluation mode", lambda at, limit: Measured(float(at.now.evaluating and at.now.backward)), 0.5,
        "1 if a model with dropout or batch normalization is trained in evaluation mode",
        "the model is trained in evaluation mode", "call model.train() before training", DEFINITION,
    ),
    training_rule(
        "weights do not move", standing, 0.5, "1 if a backward pass, but no update", _stands, _if_it_stands, DEFINITION,
        lasting=2,
    ),
    training_rule(
        "gradient is cut off", cut_off, 0.5, "1 if layers get no gradient, or for two samples one of 0", _is_cut_off,
        _where_cut_off, DEFINITION, hides=("layer is frozen", "gradient vanishes", "signal dies"),
    ),
    training_rule(
        "layer is frozen", frozen, 0.5, "1 if a layer's weights stop while others move", _is_frozen, _if_frozen,
        DEFINITION,
    ),
    training_rule(
        "layers are equal", equal, 0.5, "1 if two layers that differed have equal weights",
        lambda at, m: f"{m.at.named} has the weights of {m.detail}{since_step(at.past)}",
        "look for code that puts one layer in two places", DEFINITION,
    ),
)  # fmt: skip
WEIGHT_RULES = (
    training_rule(
        "weights jumped", jumped, 10, "norm of a layer's weights / at the sample before", _weights_are("larger"),
        _after_a_jump, CHOICE, hides=("loss jumps", "gradient is cut off", *SIGNAL, *UNITS),
    ),
    training_rule(
        "weights collapsed", collapsed, 4, "norm of a layer's weights at the sample before / now",
        _weights_are("smaller"), _after_a_jump, CHOICE,
        hides=("loss jumps", "gradient is cut off", "layer is frozen", "weights jumped", *SIGNAL, *UNITS),
    ),
)  # fmt: skip
STEP_RULES = (
    training_rule(
        "steps are too large", too_far, 0.2, "update / weights, median; thrice if sudden", _goes_far,
        lambda at, m: f"lower the rate {math.ceil(_median_update(at.now) / 0.01):,} times, to 0.01 or less", STUDY,
        hides=("loss jumps", "weights jumped"),
    ),
    training_rule(
        "weights decay", decaying, 2, "largest norm of the weights so far / now, median over the layers", _decay,
        "lower the weight decay", STUDY,
        hides=("signal fades", "signal dies", "gradient vanishes", "loss jumps", "gradient is cut off"),
    ),
    training_rule(
        "learning rate is too low", slow, 0.5, "1 if the loss does not fall and steps are small",
        lambda at, m: f"the loss has not fallen since the start, and steps move the weights by at most "
        f"{at.past.moved:.0e} of their size{_at_rate(at.now)}",
        "raise the learning rate ten times", CHOICE, lasting=2, hides=("steps are too small",),
    ),
    training_rule(
        "steps are too small", too_short, 1e6, "weights / largest update since the start",
        lambda at, m: f"steps move the weights by only {1 / m.value:.0e} of their size{_at_rate(at.now)}",
        "raise the rate", STUDY, lasting=2,
    ),
)  # fmt: skip
LOSS_RULES = (
    training_rule(
        "nothing was learned", unlearned, 0.5, "1 if the loss has not fallen, though weights move",
        lambda at, m: f"the loss has not fallen since the start ({statistics.fmean(at.past.early):.3g}, now "
        f"{at.now.loss:.3g}), though weights move as they should",
        "look whether the targets belong to their inputs, shuffled and cut together; and whether one batch can be "
        "learned: stiefel_init.torch.can_learn", STUDY, lasting=3, alone=True,
    ),
    training_rule(
        "loss jumps", lost, 0.4, "rise of the loss of two samples above the three before / first loss", _loss_jumps,
        "look at the targets of the last batches", STUDY,
    ),
)  # fmt: skip
