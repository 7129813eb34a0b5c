"""Rules about the loop around the steps: what the schedule makes of the rate, which batches come, what is set back."""

from __future__ import annotations

import math
import statistics

from ..rows import ENOUGH, LEARNING, Moment
from ..rule import CHOICE, Measured, over
from ..wording import percent, times
from .base import training_rule
from .steps import CREPT, STEPS

SAMPLES = 12  # that can tell how batches and rates change


def set_back(moment: Moment, limit: float) -> Measured | None:
    now, past = moment
    if now.away is None or past.count < 3 or past.works(now) or not past.away > (past.first_away or 0.0) * 3:
        return None
    return Measured(over(past.away, now.away))


def held_down(moment: Moment, limit: float) -> Measured | None:
    """The rate that the optimizer was made with over the largest so far, if it does not rise, or is so for long."""
    now, past = moment
    if not now.rate or not now.base_rate or past.resumed or past.works(now) or now.step < STEPS or past.count < SAMPLES:
        return None
    fallen = past.fallen(now)
    rises = past.first_rate is not None and now.rate > 1.01 * past.first_rate
    if rises and (fallen is None or fallen >= CREPT):
        return None
    return Measured(now.base_rate / max(past.rate, now.rate))


def repeated_rows(moment: Moment, limit: float) -> Measured | None:
    *rows, real = moment.now.keys or (0.0,)
    return Measured(1 - len(set(rows)) / len(rows)) if len(rows) >= ENOUGH and real else None


def repeated_batch(moment: Moment, limit: float) -> Measured | None:
    """Samples in a row with one small batch; a large one may be all the data."""
    *rows, real = moment.now.keys or (0.0,)
    return Measured(float(moment.past.repeats)) if 1 < len(rows) < 2 * ENOUGH and real else None


def unlike_batches(moment: Moment, limit: float) -> Measured | None:
    """How many times more the means of batches differ than those of batches drawn at random do."""
    known = list(moment.past.batches)
    if len(known) < SAMPLES or len({count for _, _, count in known}) > 1 or moment.past.repeats:
        return None
    losses = [then.loss for then in moment.past.recent if then.loss is not None]
    if losses and max(losses) < LEARNING * (moment.past.first_loss or 0.0):
        return Measured(0.0)  # of sorted data the network forgets what it learned
    means, variances, counts = zip(*known)
    return Measured(over(counts[0] * statistics.variance(means), statistics.fmean(variances)))


def vanished(moment: Moment, limit: float) -> Measured | None:
    now, past = moment
    if now.rate is None or not now.backward or past.works(now):  # a schedule may end where the network has learned
        return None
    return Measured(math.inf if now.rate == 0 else over(past.rate, now.rate))


LOOP_RULES = (
    training_rule(
        "weights are set back", set_back, 2.5, "largest distance of the weights from the first ones / now",
        lambda at, m: f"the weights are {times(m.value, 1)} nearer to the first ones than they were",
        "look for code that loads a checkpoint or initializes again inside the loop", CHOICE,
    ),
    training_rule(
        "schedule holds the rate down", held_down, 3, "rate that the optimizer was made with / largest so far",
        lambda at, m: f"the schedule keeps the learning rate at {at.now.rate:.2g}, {times(m.value)} below the "
        f"{at.now.base_rate:.2g} that the optimizer was made with",
        "look at the schedule: LambdaLR multiplies the rate, and a warm-up counts the calls of scheduler.step()",
        CHOICE, lasting=2, hides=("learning rate is too low", "steps are too small", "nothing was learned"),
    ),
    training_rule(
        "learning rate has vanished", vanished, 1e4, "largest learning rate so far / now",
        lambda at, m: f"the learning rate is {at.now.rate:.2g}"
        + (f", {times(m.value)} lower than it was" if at.now.rate else ""),
        "look at the schedule: what it multiplies the rate with, when it ends, and how often it is stepped", CHOICE,
        lasting=2,
        hides=("steps are too small", "learning rate is too low", "weights do not move"),
    ),
    training_rule(
        "examples repeat", repeated_rows, 0.5, "share of the rows of a batch that are there already",
        lambda at, m: f"{percent(m.value)} of the examples of a batch are there twice",
        "look at the sampler: its weights and indices are those of examples, not of classes", CHOICE, lasting=3,
    ),
    training_rule(
        "every batch is the same", repeated_batch, 12, "samples in a row that see the batch of the sample before",
        lambda at, m: f"{m.value:.0f} steps that were looked at saw the same {len(at.now.keys) - 1} examples",
        "draw new batches: do not seed or restart the loader inside the loop; if this is all the data, get more",
        CHOICE,
    ),
    training_rule(
        "batches differ", unlike_batches, 6, "variance of the batches' means / that of batches drawn at random",
        lambda at, m: f"batches differ {times(m.value)} more from each other than batches drawn at random",
        "shuffle the data: shuffle=True", CHOICE, lasting=3, hides=("nothing was learned", "loss jumps"),
    ),
)  # fmt: skip
