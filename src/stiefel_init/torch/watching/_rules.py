"""The rules of `watch`: each measures one number of a sample and of what came before; larger is worse.

A rule opens when its number exceeds its limit, and closes when it is below half of it. Rules about the signal and the
gradient are those of `diagnose`, with its thresholds; the others compare a step with earlier ones, which a single batch
cannot.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..diagnosis._ends import ENOUGH
from ..diagnosis._evidence import Evidence, over
from ..diagnosis._evidence import Measured as Found
from ..diagnosis._rules import RULES as START
from ._sample import Row, Sample

RECENT = 8  # samples that a new one is compared with
FALLS = 0.3  # of the first loss: a loss this much lower has learned something that it can lose again
SUDDEN = 10  # a step this many times larger than those before
ROUNDING = 1e-6  # updates below this may be lost in the rounding of the weights
LEARNING = 0.8  # of the first loss: below it, the training works, whatever the signal looks like


@dataclass
class Past:
    """What earlier samples told, in bounded memory."""

    recent: deque[Sample] = field(default_factory=lambda: deque(maxlen=RECENT))
    first_loss: float | None = None
    best_loss: float = math.inf
    inputs: float | None = None
    """Size of the inputs at the first sample."""
    norms: dict[str, float] = field(default_factory=dict)
    """Largest norm of each layer's weights."""
    moved: float = 0.0
    """Largest update, the median over the layers."""
    across: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """`across` of the recent samples, the median over the layers."""
    count: int = 0

    @property
    def last(self) -> Sample | None:
        """The sample before."""
        return self.recent[-1] if self.recent else None

    def was(self, row: Row) -> Row | None:
        """The layer at the sample before."""
        return self.recent[-1].by_name.get(row.layer) if self.recent else None

    def add(self, sample: Sample) -> None:
        """Remember a sample."""
        self.recent.append(sample)
        self.across.append(median(map(across, sample.rows)) or 0.0)
        self.count += 1
        if sample.loss is not None and math.isfinite(sample.loss):
            self.first_loss = sample.loss if self.first_loss is None else self.first_loss
            self.best_loss = min(self.best_loss, sample.loss)
        if self.inputs is None and sample.inputs is not None:
            self.inputs = sample.inputs.size
        self.moved = max(self.moved, median(row.update for row in sample.rows) or 0.0)
        for row in sample.rows:
            if row.norm is not None and math.isfinite(row.norm):
                self.norms[row.layer] = max(self.norms.get(row.layer, 0.0), row.norm)

    def works(self, sample: Sample) -> bool:
        """Whether the loss has come down, so that the network trains."""
        if sample.loss is None or self.first_loss is None or self.first_loss <= 0:
            return False
        return sample.loss < LEARNING * self.first_loss


class Measured(NamedTuple):
    """A rule's number and where it shows."""

    value: float
    row: Row | None = None
    detail: str = ""


Measure = Callable[[Sample, Past], Measured | None]


@dataclass(frozen=True)
class Rule:
    """Something that goes wrong while a network trains."""

    kind: str
    measure: Measure
    limit: float
    quantity: str
    """What it measures, in words."""
    source: str
    """Where the limit comes from: `"definition"`, `"diagnose"`, `"study"` or `"choice"`."""
    lasting: int = 1
    """So many samples in a row must exceed the limit."""


def median(values: Iterable[float | None]) -> float | None:
    """Of the finite ones."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return statistics.median(known) if known else None


def worst(pairs: Iterable[tuple[float, Row]]) -> Measured | None:
    """The largest."""
    best = max(pairs, key=lambda pair: pair[0], default=None)
    return None if best is None else Measured(*best)


def finite(sample: Sample) -> bool:
    """Whether nothing overflowed."""
    found = overflow(sample, Past())
    return found is None or found.value == 0


def overflow(now: Sample, past: Past) -> Measured | None:
    """1 where something is not finite: inputs, else weights, else the signal, else the gradient, else the loss."""
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


def leftover(now: Sample, past: Past) -> Measured | None:
    """1 where gradients of the step before were still there when the backward pass began."""
    return Measured(1.0 if now.leftover > 0 else 0.0) if now.backward else None


def standing(now: Sample, past: Past) -> Measured | None:
    """1 where a backward pass, but no weight moved."""
    moves = [row.update for row in now.rows if row.trained and row.update is not None and row.norm != 0]
    if not moves or not now.backward or any(row.weight_gradient == math.inf for row in now.rows):
        return None
    return Measured(0.0 if any(moves) else 1.0)


def no_backward(now: Sample, past: Past) -> Measured | None:
    """1 where no gradient reached any weight."""
    if not any(row.ran for row in now.rows) or not any(row.trained for row in now.rows):
        return None
    return Measured(0.0 if now.backward else 1.0)


def cut_off(now: Sample, past: Past) -> Measured | None:
    """1 where layers ran and got no gradient at all, though others did."""
    rows = [row for row in now.rows if row.ran and row.trained]
    if not now.backward or not any(row.weight_gradient for row in rows):
        return None
    missing = [row for row in rows if not row.weight_gradient]
    if not missing:
        return Measured(0.0)
    sure = any(row.weight_gradient is None for row in missing)
    return Measured(1.0 if sure or _was_cut(missing[-1], past) else 0.4, missing[-1])


def _was_cut(row: Row, past: Past) -> bool:
    before = past.was(row)
    return before is not None and not before.weight_gradient


def frozen(now: Sample, past: Past) -> Measured | None:
    """1 where a layer's weights stand still that moved before, or that get a gradient, while others move."""
    rows = [row for row in now.rows if row.update is not None and row.kind not in ("Embedding", "EmbeddingBag")]
    if not (median(row.update for row in rows) or 0.0) > ROUNDING:
        return None
    for row in rows:
        before = past.was(row)
        if row.update or (
            not row.trained and (before is None or not before.trained) and not (before and before.update)
        ):
            continue
        if (before is not None and before.trained and before.update) or (row.weight_gradient and before is not None):
            return Measured(1.0, row)
        if before is not None and before.trained and not row.trained:
            return Measured(1.0, row)
        if _open(row, past):
            return Measured(1.0, row)
    return Measured(0.0)


def _open(row: Row, past: Past) -> bool:
    """Whether a layer stood still at the sample before, having moved at an earlier one."""
    return any(earlier.by_name[row.layer].update for earlier in past.recent if row.layer in earlier.by_name)


def collapsed(now: Sample, past: Past) -> Measured | None:
    """How many times smaller a layer's weights are than at the sample before, most others being what they were."""
    found = []
    for row in now.rows:
        before = past.was(row)
        if before is not None and before.norm and row.norm is not None:
            found.append((over(before.norm, row.norm), row))
    usual = median(value for value, _ in found)
    if not found or usual is None or usual > 2:
        return None
    return worst(found)


def jumped(now: Sample, past: Past) -> Measured | None:
    """How many times larger a layer's weights are than at the sample before, those that were near zero left out."""
    usual = median(row.norm for row in now.rows) or 0.0
    found = []
    for row in now.rows:
        before = past.was(row)
        if before is not None and row.norm is not None and (before.norm or 0.0) > 0.1 * min(usual, 1.0):
            found.append((row.norm / (before.norm or 1.0), row))
    return worst(found)


def equal(now: Sample, past: Past) -> Measured | None:
    """1 where two layers that differed have the same weights."""
    seen: dict[tuple[object, ...], Row] = {}
    for row in now.rows:
        before = past.was(row)
        if not row.norm or row.singular is None or before is None or before.norm is None:
            continue
        key = (row.kind, row.units, row.norm, row.distance)
        twin = seen.setdefault(key, row)
        if twin is not row:
            other = past.was(twin)
            if other is not None and (other.norm, other.distance) != (before.norm, before.distance):
                return Measured(1.0, row, twin.named)
            if other is not None and any(
                (e.by_name[row.layer].norm, e.by_name[row.layer].distance)
                != (e.by_name[twin.layer].norm, e.by_name[twin.layer].distance)
                for e in past.recent
                if row.layer in e.by_name and twin.layer in e.by_name
            ):
                return Measured(1.0, row, twin.named)
    return Measured(0.0)


def decaying(now: Sample, past: Past) -> Measured | None:
    """How many times smaller the weights are than they were at their largest, the median over the layers."""
    ratios = [
        over(past.norms[row.layer], row.norm) for row in now.rows if row.norm is not None and past.norms.get(row.layer)
    ]
    middle = median(ratios)
    return None if middle is None or len(ratios) < 2 else Measured(middle)


def too_far(now: Sample, past: Past) -> Measured | None:
    """How far a step moves the weights, over their norm: the median over the layers.

    What only shrinks them is left out. A step ten times larger than all recent ones counts three times.
    """
    rows = [row for row in now.rows if row.update is not None and row.norm]
    middle = median(map(across, rows))
    if middle is None:
        return None
    before = list(past.across)
    sudden = len(before) > 2 and middle > SUDDEN * max(before)
    return Measured(3 * middle if sudden else middle, max(rows, key=lambda row: row.update or 0.0))


def across(row: Row) -> float | None:
    """The part of an update that does not shrink the weights."""
    return None if row.update is None else row.update * math.sqrt(max(0.0, 1 - max(0.0, row.inward or 0.0) ** 2))


def too_short(now: Sample, past: Past) -> Measured | None:
    """One over the median update, if none was larger since the start, the rate does not rise and the loss not fall."""
    last, middle = past.last, median(row.update for row in now.rows if row.norm)
    if last is None or not middle or past.works(now):
        return None
    if now.rate is not None and last.rate is not None and now.rate > last.rate:
        return None
    return Measured(1 / max(middle, past.moved))


def lost(now: Sample, past: Past) -> Measured | None:
    """How much of the first loss came back since the recent samples, once a share of it was gone."""
    losses = [sample.loss for sample in past.recent if sample.loss is not None and math.isfinite(sample.loss)]
    if now.loss is None or len(losses) < 2 or not past.first_loss or past.first_loss <= 0:
        return None
    if min(losses) > (1 - FALLS) * past.first_loss:
        return Measured(now.loss / past.first_loss / 10) if now.loss > 10 * past.first_loss else Measured(0.0)
    return Measured((now.loss - max(losses[-3:])) / past.first_loss)


def input_scale(now: Sample, past: Past) -> Measured | None:
    """How many times larger or smaller the inputs are than at the first sample."""
    if now.inputs is None or not past.inputs:
        return None
    size = now.inputs.size
    return Measured(max(over(size, past.inputs), over(past.inputs, size)))


def large_inputs(now: Sample, past: Past) -> Measured | None:
    """The size of the inputs, at the first sample."""
    return None if now.inputs is None or past.count else Measured(now.inputs.size)


def small_inputs(now: Sample, past: Past) -> Measured | None:
    """One over the size of the inputs, at the first sample."""
    return None if now.inputs is None or past.count else Measured(over(1.0, now.inputs.size))


def silent(now: Sample, past: Past) -> Measured | None:
    """The largest share of a layer's units that fire for no input; 1 where a layer has stopped to vary."""
    found = []
    for row in now.rows:
        if not row.ran or row.samples < ENOUGH or row is now.rows[-1]:
            continue
        share = row.dead or 0.0
        before = past.was(row)
        if before is not None and before.spread and (row.spread or 0.0) < 1e-6 * before.spread:
            share = 1.0
        found.append((share, row))
    return worst(found)


def dying(now: Sample, past: Past) -> Measured | None:
    """The largest share of a layer's units that have died since the sample before."""
    found = []
    for row in now.rows:
        before = past.was(row)
        if before is not None and row.dead is not None and before.dead is not None and row.samples >= ENOUGH:
            found.append((row.dead - before.dead, row))
    return worst(found)


def stuck(now: Sample, past: Past) -> Measured | None:
    """The largest share of a layer's outputs at their bound; that of gates is theirs to choose."""
    return worst((row.saturated, row) for row in now.rows if row.saturated is not None)


def of_start(measure: Callable[[Evidence, float], Found | None], limit: float) -> Measure:
    """A rule of `diagnose`, for a network whose loss has not come down."""

    def measured(now: Sample, past: Past) -> Measured | None:
        if past.works(now):
            return None
        evidence = now.evidence
        if evidence is None:
            return None
        found = measure(evidence, limit)
        if found is None:
            return None
        return Measured(found.value, None if found.layer is None else now.by_name.get(found.layer.layer))

    return measured


DEFINED, CHOSEN, STUDIED = "definition", "choice", "study"


def _from_start(kind: str, lasting: int = 1, limit: float | None = None) -> Rule:
    """A rule of `diagnose`, with its threshold unless another limit is given."""
    rule = START[kind]
    used, source = (rule.threshold, "diagnose") if limit is None else (limit, STUDIED)
    return Rule(kind, of_start(rule.measure, used), used, rule.quantity, source, lasting)


RULES: dict[str, Rule] = {
    rule.kind: rule
    for rule in (
        Rule("not finite", overflow, 0.5, "1 if inputs, weights, signal, gradient or loss are not finite", DEFINED),
        Rule("gradients are not cleared", leftover, 0.5, "1 if the first backward pass found old gradients", DEFINED),
        Rule("no backward pass", no_backward, 0.5, "1 if no gradient reached a weight", DEFINED, 2),
        Rule("weights do not move", standing, 0.5, "1 if a backward pass, but no update", DEFINED, 2),
        Rule("gradient is cut off", cut_off, 0.5, "1 if layers get no gradient, or for two samples one of 0", DEFINED),
        Rule("layer is frozen", frozen, 0.5, "1 if a layer's weights stop while others move", DEFINED),
        Rule("layers are equal", equal, 0.5, "1 if two layers that differed have equal weights", DEFINED),
        Rule("inputs changed scale", input_scale, 30, "size of the inputs / of the first, or the inverse", CHOSEN),
        Rule("inputs are large", large_inputs, 300, "size of the first inputs: above raw pixels", CHOSEN),
        Rule("inputs are small", small_inputs, START["inputs are small"].threshold, "1 / size of the first inputs",
             "diagnose"),
        Rule("weights jumped", jumped, 10, "norm of a layer's weights / at the sample before", CHOSEN),
        Rule("weights collapsed", collapsed, 4, "norm of a layer's weights at the sample before / now", CHOSEN),
        Rule("units are dead", silent, 0.95, "largest share of units of a layer that never fire", STUDIED),
        Rule("units died", dying, 0.4, "largest share of units of a layer that died since the sample before", STUDIED),
        Rule("units are stuck", stuck, 0.9, "largest share of outputs of a layer at their bound", CHOSEN),
        Rule("steps are too large", too_far, 0.2, "update / weights, median; thrice if sudden", STUDIED),
        Rule("weights decay", decaying, 2, "largest norm of the weights so far / now, median over the layers", STUDIED),
        Rule("steps are too small", too_short, 1e6, "weights / largest update since the start", STUDIED, 2),
        _from_start("signal dies"),
        _from_start("signal fades"),
        _from_start("signal explodes"),
        _from_start("gradient vanishes", 2, 1e9),  # below a head of zeros there is none in the first step
        _from_start("gradient explodes"),
        Rule("loss jumps", lost, 0.4, "rise of the loss above the last three samples / first loss", STUDIED),
    )
}  # fmt: skip
"""In the order of the lines. *Study* is paper/health/watching.py."""
