"""The study of baselines: every initialization on one engine, each at its best learning rate, against ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.significance import holm
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.record import Record
from stiefel_init.schemes import MuP, Orthogonal, Scheme, get

from ..experiment import titled
from ..tables.images import at_places
from ..tables.protocol import IMAGES
from ..verdicts import different, verdicts
from .kit import DEEP, MISSING, WORKS, Data, Grid, Setting, Tuned, TunedStudy, by_depth, perceptron, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAST = ", fast ends"
"""What a name ends with if the first and the last layer learn √depth times as fast as the others, by a cosine."""


class Initialization(NamedTuple):
    """An initialization that is compared, and how it is trained."""

    scheme: Scheme
    activation: str = "relu"
    fast: bool = False


OURS = ("recipe", "stiefel", "permutation", "identity")
"""`recipe` is what `initialize_(model)` does."""
_SCHEMES = {
    **{name: Initialization(get(name)) for name in (*OURS, "looks-linear")},
    "tat": Initialization(get("tat"), "tat"),
    "orthogonal √2": Initialization(Orthogonal(math.sqrt(2))),
    **{name: Initialization(get(name)) for name in ("lsuv", "zero", "idinit", "sinusoidal")},
    "tanh-init": Initialization(get("tanh-init"), "tanh"),
    **{name: Initialization(get(name)) for name in ("he", "xavier", "torch", "truncated-normal", "gpt-2")},
    "mup √2": Initialization(MuP(math.sqrt(2))),
}
NAMES = tuple(_SCHEMES)
FAST_NAMES = tuple(name + FAST for name in NAMES)
EVERY = _SCHEMES | {name + FAST: each._replace(fast=True) for name, each in _SCHEMES.items()}
"""All of them with one rate for all layers, then all of them with fast ends."""
MINE = {name + end for name in OURS for end in ("", FAST)}
DEPTHS = (10, 30, 100, 300, 1000)
RATES, QUICK_RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0), (0.25, 1.0, 4.0, 16.0)
"""Times the paper's 0.001/√depth."""
SHOTS = (1, 8)
EPOCHS, TABLE_EPOCHS, QUICK_EPOCHS = {**dict.fromkeys(IMAGES, 15), "digits": 40}, 100, 12
"""A third of them to choose a rate."""
STEPS, QUICK_STEPS = 100, 60
"""On a few of each class."""
DOWNLOADED = ("pima", "ionosphere")
"""Tables that do not come with scikit-learn: the study goes on without them."""
TABLES = ("cancer", "wine", "diabetes", *DOWNLOADED)
"""Without Adult, which has as many rows as MNIST and would cost as much."""


def _grid(
    datasets: Sequence[str], depths: Sequence[int] = DEPTHS, shots: int | None = None, names: tuple[str, ...] = NAMES
) -> Grid:
    return Grid(tuple(Setting(dataset, depth, shots) for depth, dataset in product(depths, datasets)), names)


class Baselines(TunedStudy[str]):
    """Initializations by other authors and ours in plain networks, each at its best rate."""

    name = "baselines"
    title = "Which initialization?"
    page = "baselines"
    seeds = 10
    quick_seeds = 3
    optional = DOWNLOADED
    order = (*IMAGES, "digits", *TABLES)
    hopeless = 0.5
    stages: ClassVar = {
        False: (
            (_grid(IMAGES, (100,), names=tuple(EVERY)),),
            (_grid(IMAGES, (1000,)), _grid(("mnist",), (1000,), names=FAST_NAMES)),
            (_grid(IMAGES, (10, 30)),),
            (_grid(IMAGES, (300,)), _grid(("mnist",), (300,), names=FAST_NAMES)),
            *((_grid(IMAGES, shots=shots),) for shots in SHOTS),
            tuple(_grid(("digits",), shots=shots) for shots in (None, *SHOTS)),
            *((_grid((table,), depths),) for depths, table in product((DEPTHS[::2], DEPTHS[1::2]), TABLES)),
        ),
        True: (
            (_grid(("digits",), (30, 100), names=tuple(EVERY)),),
            (Grid((Setting("digits", 10), Setting("digits", 30, 8)), NAMES),),
        ),
    }

    def rates(self, contender: str, setting: Setting, quick: bool) -> tuple[float, ...]:
        """Every second one where deep networks are trained in a second way."""
        return QUICK_RATES if quick or (is_fast(contender) and setting.depth >= DEEP) else RATES

    def cell(self, contender: str, setting: Setting, times: float, *, quick: bool, tuning: bool = False) -> Cell:
        each, whole = EVERY[contender], EPOCHS.get(setting.dataset, TABLE_EPOCHS)
        return perceptron(
            setting, each.scheme, times, epochs=QUICK_EPOCHS if quick else whole // 3 if tuning else whole,
            steps=QUICK_STEPS if quick else STEPS, activation=each.activation,
            schedule="cosine" if each.fast else "constant", ends=math.sqrt(setting.depth) if each.fast else 1.0,
        )  # fmt: skip

    def select(self, records: Mapping[Cell, Record], *, quick: bool = False) -> list[Record]:
        """Its records without what this study does not ask."""
        return [record.scored() for record in super().select(records, quick=quick)]

    def tables(self, evidence: Tuned[str]) -> list[Table]:
        names, first = {marked(name): name for name in NAMES}, evidence.data[0]
        title = f"{first}: rates that work ({WORKS:.0%} of the best score), the highest over the lowest"
        rates = by_depth(title, evidence, names, lambda n, depth: evidence.working(Setting(first.dataset, depth), n))
        return [leaders(evidence), verdict_counts(evidence), rates]

    def pictures(self, evidence: Tuned[str]) -> dict[str, Figure]:
        return {self.name: over_depth(evidence)}

    def section(self, evidence: Tuned[str]) -> list[str]:
        wins = _wins(duels(evidence), over_depths(evidence))
        return [*wins, "", *titled(self.tables(evidence))]


def is_fast(name: str) -> bool:
    """Whether the ends of the networks of that name learn fast."""
    return name.endswith(FAST)


def best_of_ours(found: Tuned[str], setting: Setting, *, fast: bool = False) -> tuple[str, np.ndarray] | None:
    """Our initialization that did best in a setting among the networks that chose the rates, and its scores.

    To choose it by the scores themselves would favour ours: the best of several is high by chance.
    """
    scores = {name: values for name, values in found.of(setting).items() if name in MINE and is_fast(name) == fast}
    best = max(scores, key=lambda name: max(found.tuned[setting, name].values()), default=None)
    return None if best is None else (best, scores[best])


class Duel(NamedTuple):
    """A baseline against ours in a setting, or over all depths of some data, both trained in the same way."""

    where: Any
    baseline: str
    ours: str
    gain: float
    """Of the baseline: the difference of means."""
    verdict: str


Pair = tuple[Setting, str, str, np.ndarray, np.ndarray]
"""Where, the baseline, the name of ours, its scores, the baseline's."""
WORDS = {"better": "wins", "worse": "loses"}


def _pairs(found: Tuned[str]) -> list[Pair]:
    """All baselines in all settings, each beside our best that was trained in the same way."""
    pairs = []
    for setting, fast in product(found.settings, (False, True)):
        if (mine := best_of_ours(found, setting, fast=fast)) is not None:
            others = {name: each for name, each in found.of(setting).items() if is_fast(name) == fast}
            pairs += [(setting, name, *mine, each) for name, each in others.items() if name not in MINE]
    return pairs


def duels(found: Tuned[str]) -> list[Duel]:
    """Every baseline in every setting against our best initialization there; all share the level."""
    pairs = _pairs(found)
    told = verdicts([(theirs, mine) for *_, mine, theirs in pairs])
    return [Duel(*pair[:3], each.gain, WORDS.get(each.word, each.word)) for pair, each in zip(pairs, told)]


def over_depths(found: Tuned[str]) -> list[Duel]:
    """Every baseline on all data: small differences that are the same at every depth show here.

    Networks of one seed have the same data. So the differences to our best are taken seed by seed, averaged over
    depths, and held against zero by Student's test; Holm at 0.05 for all baselines and data.
    """
    pools: dict[tuple[Data, str], list[np.ndarray]] = {}
    for setting, name, _, mine, theirs in _pairs(found):
        count = min(len(theirs), len(mine))
        pools.setdefault((setting.data, name), []).append(theirs[:count] - mine[:count])
    means = {key: np.mean([each[: min(map(len, pool))] for each in pool], axis=0) for key, pool in pools.items()}
    means = {key: values for key, values in means.items() if len(values) > 1 and np.isfinite(values).all()}
    results = []
    for ((data, name), values), p in zip(means.items(), holm([different(values) for values in means.values()])):
        gain = float(values.mean())
        results.append(Duel(data, name, "", gain, "not shown" if p >= 0.05 else "wins" if gain > 0 else "loses"))
    return results


def _wins(results: Sequence[Duel], pooled: Sequence[Duel]) -> list[str]:
    """Where a baseline wins, in a setting or with all depths taken together."""
    heads = {
        "**Where a baseline wins:**": results,
        "**Where a baseline wins with all depths taken together** (mean difference to our best, seed by seed; "
        "Student's test, p < 0.05 by Holm for all baselines and data):": pooled,
    }
    lines = []
    for head, all_of in heads.items():
        places: dict[str, list[str]] = {}
        for duel in all_of:
            if duel.verdict == "wins":
                over = f" over {duel.ours}" if duel.ours else ""
                places.setdefault(duel.baseline, []).append(f"{duel.where} ({duel.gain:+.1f}{over})")
        if places:
            lines += [head, "", *(f"- {name}: {'; '.join(where)}" for name, where in places.items()), ""]
    if not any(duel.verdict == "wins" for duel in results):
        lines += ["**In no single setting is a baseline shown to win.**"]
    ahead = sum(duel.gain > 0 for duel in results)
    return [*lines, f"A baseline has a higher mean than our best in {ahead} of {len(results)} comparisons."]


def verdict_counts(found: Tuned[str]) -> Table:
    """Each baseline against the best of ours: a column for each depth, counted over the data."""
    words: dict[tuple[str, int], list[str]] = {}
    for duel in duels(found):
        words.setdefault((duel.baseline, duel.where.depth), []).append(duel.verdict)

    def text(name: str, depth: int) -> str:
        told = words.get((name, depth), [])
        wins = f", wins {told.count('wins')}" if "wins" in told else ""
        return f"{told.count('loses')}/{len(told)}{wins}" if told else MISSING

    title = "data on which ours is shown to be better, of all"
    return by_depth(title, found, {name: name for name in NAMES if name not in MINE}, text)


def leaders(found: Tuned[str]) -> Table:
    """Our best initialization and the best baseline, for data and depths; bold where one is shown to be ahead."""
    best: dict[tuple[str, int], Duel] = {}
    for duel in duels(found):
        key = str(duel.where.data) + FAST * is_fast(duel.baseline), duel.where.depth
        best[key] = max(best.get(key, duel), duel, key=lambda each: each.gain)

    def text(data: str, depth: int) -> str:
        if (duel := best.get((data, depth))) is None:
            return MISSING
        ahead, told = {"loses": duel.ours, "wins": duel.baseline}.get(duel.verdict), []
        for name in (duel.ours, duel.baseline):
            mean, mark = spread(found.scores[duel.where, name]).partition(" ±")[0], "**" if name == ahead else ""
            told.append(f"{mark}{name.partition(',')[0]} {mean}{mark}")
        return ", ".join(told)

    rows = {name: name for name in (str(data) + end for data in found.data for end in ("", FAST))}
    return by_depth("our best initialization, then the best baseline", found, rows, text)


def marked(name: str) -> str:
    """A name, with a word where it is ours."""
    return f"{name} (ours)" if name in MINE else name


SETS = 2
"""Data sets that are drawn: the first of the study, with all their rows."""
DRAWN: dict[str, dict[str, Any]] = {
    "torch": {"color": "#6E7781", "linestyle": "--"},
    "he": {"color": "#6E7781"},
    "looks-linear": {"color": "#B35900"},
    "recipe": {"color": "#0072B2"},
}
"""With a name in the picture: the usual ones, the baseline that comes closest, and ours."""


def over_depth(found: Tuned[str]) -> Figure:
    """A panel for each set of images and way to train: accuracy over depth, of the others in light grey."""
    # Of a problem of classes; errors are below zero.
    classes = {where.dataset for (where, _), values in found.scores.items() if values.max() > 0}
    sets = [data for data in found.data if data.shots is None and data.dataset in classes][:SETS]
    lines: dict[tuple[Data, bool], dict[str, dict[int, float]]] = {}
    for (where, name), values in found.scores.items():
        if where.data in sets:
            panel = lines.setdefault((where.data, is_fast(name)), {})
            panel.setdefault(name.removesuffix(FAST), {})[where.depth] = float(np.maximum(values, 0).mean())
    panels = {key: each for key, each in lines.items() if any(len(means) > 1 for means in each.values())}
    drawn, axes = plots.column(max(len(panels), 1), label="Which initialization, at which depth: test accuracy")
    for axis, ((data, fast), of_names) in zip(axes, sorted(panels.items(), key=lambda panel: panel[0][1])):
        for name in sorted(of_names, key=lambda name: name in DRAWN):
            look = DRAWN.get(name, {"color": "#C4CAD0", "linewidth": 1, "marker": "", "zorder": 1})
            label = marked(name) if name in DRAWN else "_other"
            axis.plot(*zip(*sorted(of_names[name].items())), label=label, **{"marker": "o", "markersize": 4} | look)
        axis.set(title=f"{data}, {'fast ends' if fast else 'one rate for all layers'}", ylim=(0, 102))
        at_places(axis, sorted({depth for means in of_names.values() for depth in means}), "layers")
    return drawn
