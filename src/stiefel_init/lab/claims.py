"""The paper's claims, each held against the records: a verdict and the evidence for it, computed.

A difference of two samples counts as shown where Welch's one-sided test has p < 0.05/(number of comparisons of the
claim), so that a claim made of many comparisons is not lost, or won, by luck.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from .alignment import MODES, Study
from .cells import ACTIVATIONS, SCHEMES
from .compare import COLLAPSED_WITHIN, ERRORS, FLOOR, score
from .experiments import IMAGES, SHOTS, TABULAR_WIDTH
from .records import Record

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "not tested"


@dataclass(frozen=True)
class Claim:
    """What the paper says, what our records say of it, and why."""

    claim: str
    verdict: str
    evidence: str


class Scores:
    """The records' scores by setting; a network that diverged has the worst score there is."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._found: dict[tuple[Any, ...], list[float]] = {}
        for r in records:
            key = (r["experiment"], r["dataset"], r["scheme"], r["depth"], r["activation"], r["shots"], r["alpha"])
            self._found.setdefault(key, []).append(score(r))

    def __call__(
        self, experiment: str, dataset: str, scheme: str, depth: int, *, activation: str = "relu",
        shots: int | None = None, alpha: float | None = None,
    ) -> np.ndarray:  # fmt: skip
        """The scores of one setting; none if it was not run."""
        return np.array(self._found.get((experiment, dataset, scheme, depth, activation, shots, alpha), []), float)


def judge(
    records: Sequence[Record],
    study: Study | None = None,
    signals: Sequence[dict[str, Any]] = (),
    benchmarks: Sequence[dict[str, Any]] = (),
) -> list[Claim]:
    """Every claim, in the order in which the paper makes them."""
    scores = Scores(records)
    return [
        _best_when_deep(scores),
        _no_collapse(scores),
        _activations(scores),
        _few_shot(scores),
        _shift(scores),
        _alignment(study),
        *_propagation(signals),
        _algorithms(benchmarks),
    ]


def greater_p(a: np.ndarray, b: np.ndarray) -> float:
    """p of Welch's one-sided test that the mean of `a` is above that of `b`."""
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return 0.0 if a[0] > b[0] else 1.0
    return float(stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue)


@dataclass
class _Duels:
    """`stiefel` against its best rival in each row."""

    rows: list[tuple[str, str, np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, settings: Sequence[tuple[str, dict[str, np.ndarray]]]) -> _Duels:
        rows = []
        for name, found in settings:
            if any(len(values) < 2 for values in found.values()):
                continue
            rival = max((s for s in SCHEMES if s != "stiefel"), key=lambda s: found[s].mean())
            rows.append((name, rival, found["stiefel"], found[rival]))
        return cls(rows)

    def verdict(self) -> tuple[str, str]:
        level = 0.05 / max(1, len(self.rows))
        best = [row for row in self.rows if row[2].mean() > row[3].mean()]
        shown = [row for row in best if greater_p(row[2], row[3]) < level]
        lost = [row for row in self.rows if row[2].mean() <= row[3].mean()]
        text = f"stiefel has the highest mean in {len(best)} of {len(self.rows)} rows, shown (p < {level:.4f}) in "
        text += f"{len(shown)}."
        if lost:
            told = "; ".join(f"{name}: {rival} {b.mean():.2f}, stiefel {a.mean():.2f}" for name, rival, a, b in lost)
            text += f" Not best: {told}."
        return (HOLDS if len(best) == len(self.rows) else PARTLY if best else FAILS), text


def _best_when_deep(scores: Scores) -> Claim:
    claim = "The best initialization at every depth from 40 on (table 1)"
    duels = _Duels.of(
        [
            (f"{d}, depth {depth}", {s: scores("table1", d, s, depth) for s in SCHEMES})
            for d, depth in itertools.product(IMAGES, range(40, 101, 10))
        ]
    )
    if not duels.rows:
        return Claim(claim, OPEN, "No records.")
    return Claim(claim, *duels.verdict())


def _no_collapse(scores: Scores) -> Claim:
    claim = "No collapse up to depth 100 (table 1)"
    found = {
        s: [scores("table1", d, s, depth) - FLOOR[d] for d in IMAGES for depth in range(10, 101, 10)] for s in SCHEMES
    }
    ended = {s: np.concatenate(v) for s, v in found.items()}
    if not len(ended["stiefel"]):
        return Claim(claim, OPEN, "No records.")
    lost = {s: int((~(v > COLLAPSED_WITHIN)).sum()) for s, v in ended.items()}
    others = ", ".join(f"{s} {lost[s]}" for s in SCHEMES if s != "stiefel")
    text = f"{lost['stiefel']} of {len(ended['stiefel'])} stiefel networks end at chance; of as many each: {others}."
    return Claim(claim, HOLDS if not lost["stiefel"] else FAILS, text)


def _activations(scores: Scores) -> Claim:
    claim = "From depth 50 to 100 less than one point is lost, whatever the activation (table 2)"
    losses = {}
    seeds = set()
    for dataset, activation in itertools.product(IMAGES, ACTIVATIONS):
        source = "table1" if activation == "relu" else "table2"
        a, b = (scores(source, dataset, "stiefel", depth, activation=activation) for depth in (50, 100))
        if len(a) and len(b):
            losses[f"{dataset}, {activation}"] = a.mean() - b.mean()
            seeds.add(len(a))
            seeds.add(len(b))
    if not losses:
        return Claim(claim, OPEN, "No records.")
    worst = max(losses, key=lambda name: losses[name])
    total = len(IMAGES) * len(ACTIVATIONS)
    within = sum(loss < 1 for loss in losses.values())
    text = f"{within} of the {len(losses)} rows run (of {total}) lose less than a point; the most: {worst}, "
    text += f"{losses[worst]:+.2f}. Means of {' to '.join(str(n) for n in sorted({min(seeds), max(seeds)}))} seeds."
    verdict = HOLDS if within == len(losses) == total else PARTLY if within else FAILS
    return Claim(claim, verdict, text)


def _few_shot(scores: Scores) -> Claim:
    claim = "The best initialization in every few-shot row (table 3)"
    duels = _Duels.of(
        [
            (f"{d}, {k}-shot, depth {depth}", {s: scores("table3", d, s, depth, shots=k) for s in SCHEMES})
            for d, k, depth in itertools.product(IMAGES, SHOTS, (10, 50, 100))
        ]
    )
    if not duels.rows:
        return Claim(claim, OPEN, "No records.")
    return Claim(claim, *duels.verdict())


def _shift(scores: Scores) -> Claim:
    claim = "Of the shifts of tabular inputs, α = 2 is the best, and -2 and 50 are worse than 0 (table 5)"
    best, worse, rows, told = 0, 0, 0, []
    for dataset, depth in itertools.product(TABULAR_WIDTH, (50, 100)):
        found = {a: scores("table5", dataset, "stiefel", depth, alpha=a) for a in (-2.0, 0.0, 2.0, 50.0)}
        if any(not len(v) for v in found.values()):
            continue
        sign = -1 if dataset in ERRORS else 1
        mean = {a: sign * float(v.mean()) for a, v in found.items()}
        rows += 1
        best += mean[2.0] == max(mean.values())
        worse += max(mean[-2.0], mean[50.0]) < mean[0.0]
        if mean[2.0] != max(mean.values()):
            told.append(f"{dataset}, depth {depth}: {abs(mean[0.0]):.2f} at 0, {abs(mean[2.0]):.2f} at 2")
    if not rows:
        return Claim(claim, OPEN, "No records.")
    text = f"For stiefel, α = 2 has the best mean in {best} of {rows} rows; -2 and 50 are both worse than 0 in {worse}."
    if told:
        text += f" Not best: {'; '.join(told)}."
    return Claim(claim, HOLDS if best == worse == rows else PARTLY if best + worse else FAILS, text)


def _alignment(study: Study | None) -> Claim:
    claim = "Alignment 1ᵀW1 correlates with one-shot accuracy (figure 1, r = 0.8178)"
    if study is None:
        return Claim(claim, OPEN, "No records.")
    parts = []
    for mode in MODES:
        r, low, high = study.correlation(mode)
        count = int((~study.aligned & np.isfinite(study.accuracy[mode])).sum())
        parts.append(f"{mode} outer layers and images, {count:,} matrices: r = {r:.3f} ({low:.3f} … {high:.3f})")
    haar, member = (study.accuracy[MODES[0]][chosen].mean() for chosen in (~study.aligned, study.aligned))
    text = f"{'; '.join(parts)}. Mean accuracy {haar:.2f} %, of members of the set {member:.2f} %."
    return Claim(claim, HOLDS if study.correlation(MODES[0])[1] > 0.5 else FAILS, text)


def _propagation(signals: Sequence[dict[str, Any]]) -> list[Claim]:
    claims = (
        "The share of active units approaches 1 with depth",
        "The variance ratio of consecutive layers approaches 1 with depth",
        "The gradient does not vanish with depth",
    )
    if not signals:
        return [Claim(claim, OPEN, "No records.") for claim in claims]
    texts: list[list[str]] = [[], [], []]
    verdicts = [True, True, True]
    for dataset in IMAGES:
        rows = [r for r in signals if r["dataset"] == dataset and r["scheme"] == "stiefel"]
        rows.sort(key=lambda r: r["layer"])
        first, last, fifth = rows[0], rows[-1], rows[4]
        texts[0].append(
            f"{dataset}: {first['active']:.2f} in layer 1, {last['active']:.3f} in layer {last['layer']} "
            f"(theory {last['predicted_active']:.3f})"
        )
        texts[1].append(
            f"{dataset}: {fifth['variance_ratio']:.3f} in layer 5, {last['variance_ratio']:.4f} in layer "
            f"{last['layer']} (theory {last['predicted_variance_ratio']:.4f})"
        )
        ratio = first["gradient"] / last["gradient"]
        he = sorted((r for r in signals if r["dataset"] == dataset and r["scheme"] == "he"), key=lambda r: r["layer"])
        texts[2].append(
            f"{dataset}: the gradient at layer 1 is {ratio:.2f} of that at layer {last['layer']} "
            f"(he: {he[0]['gradient'] / he[-1]['gradient']:.2g})"
        )
        verdicts[0] &= last["active"] > 0.9 and last["active"] > first["active"]
        verdicts[1] &= abs(last["variance_ratio"] - 1) < min(0.05, abs(first["variance_ratio"] - 1))
        verdicts[2] &= ratio > 0.01
    return [
        Claim(f"{claim} (at initialization, depth 100)", HOLDS if ok else FAILS, f"{'; '.join(text)}.")
        for claim, text, ok in zip(claims, texts, verdicts)
    ]


def _algorithms(benchmarks: Sequence[dict[str, Any]]) -> Claim:
    claim = "Algorithm 2 is up to twice as fast as algorithm 1"
    if not benchmarks:
        return Claim(claim, OPEN, "No records.")
    ratios = {
        (b["machine"]["device"], "×".join(map(str, row["shape"]))): row["milliseconds"]["algorithm 1"]
        / row["milliseconds"]["algorithm 2"]
        for b in benchmarks
        for row in b["matrices"]
    }
    top, low = max(ratios, key=lambda k: ratios[k]), min(ratios, key=lambda k: ratios[k])
    text = f"Between {ratios[low]:.2f} ({low[1]}, {low[0]}) and {ratios[top]:.2f} ({top[1]}, {top[0]}) times as fast."
    return Claim(claim, HOLDS if ratios[top] >= 1.8 and ratios[low] > 0.95 else PARTLY, text)
