"""The study of members, as tables and tests: which member of the set trains best, and how deep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from .cells import ACTIVATIONS, initialization
from .claims import greater_p
from .compare import ERRORS, score
from .experiments import FRESH, IMAGES, MEMBER_DEPTHS, MEMBER_QUICK_EPOCHS, MEMBERS, RECOMMENDED, member_epochs
from .records import Record

UNIFORM = "uniform"
CANDIDATES = ("permutation", "identity", "rotation 0.03", "rotation 0.1")
Table = tuple[str, list[str], list[list[str]]]


def kind(record: Record) -> str:
    """What was compared: a member of the set by name, or another scheme."""
    name = initialization(record)
    if name == "orthogonal" and record["variant"] is not None:
        return "orthogonal, gain √2"
    return UNIFORM if name == "stiefel" else name


KINDS = tuple(kind({"scheme": scheme, "variant": variant}) for scheme, variant in MEMBERS)


def times(record: Record) -> float:
    """The learning rate in units of 0.001/√depth."""
    return round(record["rate"] * 1e3 * math.sqrt(record["depth"]), 3)


def best_rates(records: Sequence[Record]) -> dict[tuple[str, str, str | None, int], float]:
    """By data set, scheme, variant and depth: the rate whose tuning network scored best, in units of 0.001/√depth."""
    found: dict[tuple[str, str, str | None, int], tuple[float, float]] = {}
    for r in records:
        if r["experiment"] == "members-rates":
            key = r["dataset"], r["scheme"], r["variant"], r["depth"]
            found[key] = max(found.get(key, (-math.inf, 1.0)), (score(r), times(r)))
    return {key: rate for key, (_, rate) in found.items()}


def compared(records: Sequence[Record]) -> list[Record]:
    """The networks that differ in nothing but member, depth, rate and seed."""
    return [
        r for r in records
        if r["experiment"] in ("members", "members-quick") and r["alpha"] is r["shots"] is None
        and r["activation"] == "relu" and r["depth"] in MEMBER_DEPTHS
        and r["epochs"] == (MEMBER_QUICK_EPOCHS if r["experiment"] == "members-quick" else member_epochs(r["depth"]))
    ]  # fmt: skip


def few_shots(records: Sequence[Record]) -> list[Record]:
    """The networks that see few images; on MNIST and Fashion-MNIST the uniform member's are those of table 3."""
    shared = "table3", 100, UNIFORM
    return [
        r for r in records
        if r["shots"] is not None
        and (r["experiment"].startswith("members") or (r["experiment"], r["depth"], kind(r)) == shared)
    ]  # fmt: skip


def at_best(records: Sequence[Record]) -> list[Record]:
    """Those at the rate that the tuning found best for their member and depth."""
    best = best_rates(records)
    return [r for r in compared(records) if best.get((r["dataset"], r["scheme"], r["variant"], r["depth"])) == times(r)]


def everything(records: Sequence[Record]) -> list[Table]:
    """All tables of the study, the claims first."""
    found = [claims(records)] if deepest(records) else []
    return [*found, *tables(records), *(table for table in (duels(records), duels(records, best=True)) if table[2])]


def tables(records: Sequence[Record]) -> list[Table]:
    """(title, header, rows) of what the records answer, one set of them for each data set."""
    found: list[Table] = []
    plain = [r for r in records if r["alpha"] is None and not r["experiment"].startswith("table")]
    grid = compared(records)
    for dataset in dict.fromkeys(r["dataset"] for r in plain):
        own = [r for r in plain if r["dataset"] == dataset]
        full = [r for r in grid if r["dataset"] == dataset]
        fixed = [r for r in full if r["scheme"] == "lee" and times(r) == round(math.sqrt(r["depth"]), 3)]
        usual = [r for r in full if times(r) == 1]
        if not usual:
            continue
        epochs = " or ".join(str(e) for e in sorted({r["epochs"] for r in usual}, reverse=True))
        found.append(
            _table(f"{dataset}, {epochs} epochs at 0.001/√depth; by depth", usual, lambda r: r["depth"], extra=fixed)
        )
        best = [r for r in at_best(records) if r["dataset"] == dataset]
        if {(kind(r), r["depth"]) for r in best} >= {(kind(r), r["depth"]) for r in usual}:
            found.append(_table(f"{dataset}, each at its best rate of five; by depth", best, lambda r: r["depth"]))
        tried = [r for r in own if r["experiment"] == "members-rates"] or [r for r in full if r not in fixed]
        for depth in (100, 300, 1000):
            rates = [r for r in tried if r["depth"] == depth]
            if len({times(r) for r in rates}) > 1:
                what = f"{dataset}, depth {depth}, {rates[0]['epochs']} epochs; by rate, in units of 0.001/√depth"
                found.append(_table(what, rates, times))
        few = [r for r in few_shots(records) if r["dataset"] == dataset]
        if few:
            found.append(_table(f"{dataset}, depth 100; by images of each class", few, lambda r: r["shots"]))
        shaped = [r for r in own if r["shots"] is None and r["activation"] != "relu"]
        if shaped:
            epochs = shaped[0]["epochs"]
            same = [r for r in own if r["activation"] == "relu" and r["shots"] is None and times(r) == 1]
            shaped += [r for r in same if (r["depth"], r["epochs"]) == (100, epochs)]
            what = f"{dataset}, depth 100, {epochs} epochs; by activation"
            found.append(_table(what, shaped, lambda r: r["activation"]))
    long = [r for r in records if (r["depth"], r["epochs"], r["activation"]) == (100, 100, "relu")]
    long = [r for r in long if r["shots"] is r["alpha"] is None and r["experiment"] in ("members", "table1")]
    if any(r["experiment"] == "members" for r in long):
        own = [r for r in long if r["scheme"] == "stiefel"]
        found.append(_table("depth 100, the paper's 100 epochs; by data set", own, lambda r: r["dataset"]))
    if deepest(records):
        found.append(
            _table(
                "mnist, the deepest; by depth, epochs and rate in units of 0.001/√depth",
                deepest(records),
                lambda r: f"{r['depth']:,}, {r['epochs']} epochs, × {times(r):g}",
            )
        )
    # The quick study has some of the same networks: each counts once.
    tabular = list(
        {(r["dataset"], kind(r), r["alpha"], r["seed"]): r for r in records if r["alpha"] is not None}.values()
    )
    for error, what in ((False, "accuracy"), (True, "root mean squared error")):
        rows = [r for r in tabular if (r["dataset"] in ERRORS) == error]
        if rows:
            title = f"tabular data, depth 100, {what}; by set and α"
            found.append(_table(title, rows, lambda r: f"{r['dataset']}, α {r['alpha']:g}"))
    return found


def deepest(records: Sequence[Record]) -> list[Record]:
    """The networks deeper than the comparison goes, on MNIST."""
    return [r for r in records if r["experiment"] == "members" and r["depth"] > MEMBER_DEPTHS[-1]]


def _table(
    title: str, records: Sequence[Record], column: Callable[[Record], object], extra: Sequence[Record] = ()
) -> Table:
    columns = list(dict.fromkeys(column(r) for r in records))
    if all(isinstance(c, int | float) for c in columns):
        columns.sort(key=float)  # type: ignore[arg-type]
    elif set(columns) <= set(ACTIVATIONS):
        columns.sort(key=ACTIVATIONS.index)
    ranks = {one: rank for rank, one in enumerate(MEMBERS)}
    in_order = sorted(records, key=lambda r: ranks.get((r["scheme"], r["variant"]), len(ranks)))
    labelled = [(kind(r), r) for r in in_order] + [("lee at 0.001", r) for r in extra]
    rows = []
    for name in dict.fromkeys(label for label, _ in labelled):
        cells = [name]
        for c in columns:
            scores = [score(r) for label, r in labelled if label == name and column(r) == c]
            cells.append(f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else
                         f"{scores[0]:.1f}" if scores else "—")  # fmt: skip
        rows.append(cells)
    return title, ["", *map(str, columns)], rows


def duels(records: Sequence[Record], *, best: bool = False) -> Table:
    """Each member against the uniform one: difference of means, and p of Welch's tests both ways.

    At 0.001/√depth, few shots too; or at the best rate of each.
    """
    rows = []
    usual = at_best(records) if best else [r for r in compared(records) + few_shots(records) if times(r) == 1]
    settings = sorted({(r["dataset"], r["depth"], r["shots"] or 0) for r in usual if r["depth"] >= 100})
    for dataset, depth, shots in settings:
        here = [r for r in usual if (r["dataset"], r["depth"], r["shots"] or 0) == (dataset, depth, shots)]
        found = {name: _scores(here, name) for name in (UNIFORM, *CANDIDATES)}
        if any(len(values) < 2 for values in found.values()):
            continue
        where = f"{dataset}, depth {depth}" + (f", {shots}-shot" if shots else "")
        for name in CANDIDATES:
            a, b = found[name], found[UNIFORM]
            rows.append(
                [where, name, f"{a.mean() - b.mean():+.2f}", f"{greater_p(a, b):.3f}", f"{greater_p(b, a):.3f}"]
            )
    title = "against the uniform member, " + ("each at its best rate" if best else "at 0.001/√depth")
    return title, ["setting", "member", "difference", "p, better", "p, worse"], rows


def _scores(records: Sequence[Record], name: str) -> np.ndarray:
    return np.array([score(r) for r in records if kind(r) == name])


def claims(records: Sequence[Record]) -> Table:
    """What the study set out to show, each with its verdict and the numbers behind it."""
    recommended = str(RECOMMENDED[1])
    rows = []
    fresh = [r for r in records if r["experiment"] == "members-fresh"]
    for (depth, epochs), dataset in itertools.product(FRESH.items(), IMAGES):
        own = [r for r in fresh if (r["dataset"], r["depth"]) == (dataset, depth)]
        claim = f"{recommended} is {'not worse' if depth == 100 else 'better'} than uniform"
        rows.append(_row(f"{claim}: {dataset}, depth {depth}, {epochs} epochs", own, worse=depth == 100))
    for dataset, least in zip(IMAGES, (96.0, 86.0)):
        own = [r for r in records if (r["dataset"], r["depth"], r["epochs"]) == (dataset, 1000, 40)]
        for name in dict.fromkeys(kind(r) for r in own):
            values = _scores(own, name)
            reached = int((values >= least).sum())
            verdict = "open" if len(values) < 5 else "holds" if reached == len(values) else "fails"
            told = f"{reached} of {len(values)} seeds; lowest {values.min():.2f}, mean {values.mean():.2f}"
            rows.append([f"a thousand layers, {name}: {dataset} at {least:g} % within 40 epochs", verdict, told])
    for depth in dict.fromkeys(r["depth"] for r in deepest(records)):
        top = max((r for r in deepest(records) if r["depth"] == depth), key=score)
        told = f"best {score(top):.2f} % after {top['epochs']} epochs, {kind(top)} at {times(top):g} × 0.001/√depth"
        rows.append([f"{depth:,} layers reach 90 % on MNIST", "holds" if score(top) >= 90 else "fails", told])
    good = [r for r in records if (r["dataset"], r["scheme"]) == ("mnist", "stiefel") and score(r) >= 95]
    if good:
        top = max(good, key=lambda r: (r["depth"], score(r)))
        told = f"{top['depth']:,} layers, {score(top):.2f} % after {top['epochs']} epochs, {kind(top)}"
        rows.append(["a plain network reaches 95 % on MNIST; the deepest that did", "holds", told])
    return "claims", ["claim", "verdict", "evidence"], rows


def _row(claim: str, records: Sequence[Record], *, worse: bool = False) -> list[str]:
    """The recommended member against the uniform one: that it is better is shown, or that it is `worse` is not."""
    a, b = _scores(records, str(RECOMMENDED[1])), _scores(records, UNIFORM)
    if min(len(a), len(b)) < 2:
        return [claim, "open", f"{len(a)} and {len(b)} seeds"]
    p = greater_p(b, a) if worse else greater_p(a, b)
    numbers = f"{a.mean():.2f} ± {a.std(ddof=1):.2f} ({len(a)}) against {b.mean():.2f} ± {b.std(ddof=1):.2f} ({len(b)})"
    small = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    told = f"that it is worse is {'not ' if p >= 0.05 else ''}shown, {small}" if worse else small
    verdict = "holds" if (p >= 0.05) == worse else "fails" if worse else "not shown"
    if worse and verdict == "holds" and min(len(a), len(b)) < 10:  # few seeds show nothing easily
        verdict = "open"
    return [claim, verdict, f"{numbers}; {told}"]


def curves(records: Sequence[Record]) -> list[dict[str, object]]:
    """Test accuracy by epoch: the comparison at 0.001/√depth from a hundred layers on, and the deepest networks."""
    chosen = [r for r in compared(records) if r["depth"] >= 100 and times(r) == 1]
    seen = {id(r) for r in chosen}
    chosen += [r for r in records if r["depth"] >= 1000 and id(r) not in seen]
    return [
        {
            "dataset": r["dataset"], "member": kind(r), "depth": r["depth"], "times": times(r), "epochs": r["epochs"],
            "seed": r["seed"], "epoch": epoch, "score": value,
        }
        for r in chosen
        if r["experiment"] == "members"
        for epoch, value in zip(r["tested"], r["test_score"])
    ]  # fmt: skip
