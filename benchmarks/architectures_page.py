"""docs/architectures.md and a line of the README, from the networks that `architectures.py` trained."""

from __future__ import annotations

import json
import math
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from architectures import NETWORKS, RECORD, better, starts
from scipy import stats

from stiefel_init.lab.report.tables import Table

ARCHITECTURES = Path(__file__).parents[1] / "docs" / "architectures.md"
NETWORK_NAMES = {
    "vit": "vision transformer", "gpt": "GPT", "rnn": "ReLU RNN", "lstm": "LSTM", "gru": "GRU",
    "resnet20": "ResNet-20", "resnet20 without normalization": "ResNet-20 without normalization",
    **{f"cnn{depth}": f"plain CNN of {depth} layers" for depth in (8, 20, 50, 100)},
}  # fmt: skip
UNITS = {+1: "%", -1: "nats"}  # accuracy: more is better; loss: less is
MARGINS = {+1: 0.5, -1: 0.02}
AT_CHANCE = 15.0  # percent, with ten classes


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    return Table("", header, rows).markdown()


class Comparison(NamedTuple):
    """Ours against one other start; differences are positive where ours is better."""

    difference: float
    low: float
    high: float
    p: float


def welch(ours: list[float], theirs: list[float]) -> Comparison:
    """The difference of means, its 95 % interval, and Welch's p-value."""
    parts = [statistics.variance(scores) / len(scores) for scores in (ours, theirs)]
    difference, error = statistics.mean(ours) - statistics.mean(theirs), math.sqrt(sum(parts))
    if not error:
        return Comparison(difference, difference, difference, float(not difference))
    freedom = sum(parts) ** 2 / sum(part**2 / (len(s) - 1) for part, s in zip(parts, (ours, theirs)))
    reach = stats.t.ppf(0.975, freedom) * error
    p = 2 * stats.t.sf(abs(difference) / error, freedom)
    return Comparison(difference, difference - reach, difference + reach, float(p))


def holm(tests: dict[Any, Comparison]) -> dict[Any, Comparison]:
    """The same with Holm's p-values."""
    adjusted, least = {}, 0.0
    for place, key in enumerate(sorted(tests, key=lambda key: tests[key].p)):
        least = max(least, min(1.0, (len(tests) - place) * tests[key].p))
        adjusted[key] = tests[key]._replace(p=least)
    return {key: adjusted[key] for key in tests}


def verdict(network: str, test: Comparison) -> str:
    if test.p < 0.05:
        return "better" if test.difference > 0 else "worse"
    return "not worse" if test.low > -MARGINS[better(network)] else "undecided"


class Start(NamedTuple):
    """What came of one start of a network."""

    rate: float
    edge: str
    """Whether that is the largest or smallest rate that was tried."""
    scores: list[float]


def runs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


@lru_cache
def trained() -> dict[str, dict[str, Start]]:
    """By network and start: the best rate of seed 0, and the scores of the fresh seeds."""
    rows = runs()
    found: dict[str, dict[str, Start]] = {}
    for network in NETWORKS:
        for start in starts(network):
            mine = [r for r in rows if (r["network"], r["start"]) == (network, start) and math.isfinite(r["score"])]
            tried = {r["rate"]: r["score"] for r in mine if r["seed"] == 0}
            if not tried:
                continue
            best = max(tried, key=lambda rate: better(network) * tried[rate])
            edge = {max(tried): ", the largest", min(tried): ", the smallest"}.get(best, "") if len(tried) > 1 else ""
            fresh = {r["seed"]: r["score"] for r in mine if r["rate"] == best and r["seed"] > 0}
            if len(fresh) > 1:
                found.setdefault(network, {})[start] = Start(best, edge, [fresh[seed] for seed in sorted(fresh)])
    return {network: found[network] for network in found if "ours" in found[network] and len(found[network]) > 1}


@lru_cache
def comparisons() -> dict[tuple[str, str], Comparison]:
    """Ours against every other start of every network, with Holm's p-values over all of them."""
    tests = {}
    for network, each in trained().items():
        ours, sign = each["ours"].scores, better(network)
        for start, other in each.items():
            if start != "ours":
                tests[network, start] = welch([sign * x for x in ours], [sign * x for x in other.scores])
    return holm(tests)


def verdicts(network: str) -> dict[str, str]:
    return {start: verdict(network, test) for (one, start), test in comparisons().items() if one == network}


def figure(network: str, value: float) -> str:
    return f"{value:.1f} %" if better(network) > 0 else f"{value:.2f} nats"


def next_best(network: str) -> tuple[str, float]:
    """The best of the other starts, and its mean."""
    means = {start: statistics.mean(one.scores) for start, one in trained()[network].items() if start != "ours"}
    return max(means.items(), key=lambda item: better(network) * item[1])


def listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def against(network: str) -> str:
    """What is said of a network: its figure and the verdicts on all other starts."""
    groups: dict[str, list[str]] = {}
    for start, word in verdicts(network).items():
        groups.setdefault(word, []).append(start)
    other, mean = next_best(network)
    ours = figure(network, statistics.mean(trained()[network]["ours"].scores))
    everyone = "any other start" if set(groups) == {"not worse"} else "every other start"
    said = [
        f"{word} {'against' if word == 'undecided' else 'than'} {listed(groups[word]) if len(groups) > 1 else everyone}"
        for word in ("better", "worse", "not worse", "undecided")
        if word in groups
    ]
    return f"{NETWORK_NAMES[network]}: {ours}, the next best ({other}) {figure(network, mean)}; {'; '.join(said)}."


def advice() -> list[str]:
    """Should I use this? In sentences, from the verdicts."""
    leads = {
        "yes": "**Yes**, for these: better than every other start.",
        "some": "**It can help** these: better than some other start, not found worse than any.",
        "same": "**It makes no difference** to these: every 95 % interval of a difference lies within the margin.",
        "open": "**These runs cannot tell** for these: no difference was established, but one larger than the margin "
        "is possible.",
        "no": "**No**, for these: worse than some other start.",
    }
    kinds: dict[str, list[str]] = {kind: [] for kind in leads}
    for network in trained():
        words, margin = set(verdicts(network).values()), MARGINS[better(network)]
        mine = [test for (one, _), test in comparisons().items() if one == network]
        within = all(-margin < test.low and test.high < margin for test in mine)
        kinds[
            "no" if "worse" in words
            else "yes" if words == {"better"}
            else "some" if "better" in words
            else "same" if within
            else "open"
        ].append(network)  # fmt: skip
    lines = []
    for kind, networks in kinds.items():
        if networks:
            lines += [leads[kind], "", *(f"- {against(network)}" for network in networks), ""]
    if not kinds["no"]:
        lines += ["In none of these networks was it found worse than another start.", ""]
    plain: dict[str, list[str]] = {}
    for network in trained():
        if "torch" in trained()[network]:
            plain.setdefault(verdicts(network)["torch"], []).append(NETWORK_NAMES[network])
    said = [f"{word}: {listed(plain[word])}" for word in ("better", "not worse", "undecided", "worse") if word in plain]
    return [*lines, f"Against PyTorch's own start, that is, doing nothing: {'; '.join(said)}.", ""]


def architecture(network: str) -> list[str]:
    """The table of one network."""
    words, unit, rows = verdicts(network), UNITS[better(network)], []
    digits = 2 if better(network) > 0 else 3
    for start, one in trained()[network].items():
        lost = sum(score < AT_CHANCE for score in one.scores) if better(network) > 0 else 0
        note = f" ({lost} of {len(one.scores)} did not learn)" if lost else ""
        mean, deviation = statistics.mean(one.scores), statistics.stdev(one.scores)
        row = [start, f"{one.rate:g}{one.edge}", f"{mean:.{digits}f} ± {deviation:.{digits}f}{note}"]
        if start == "ours":
            rows.append([*row, "", "", ""])
            continue
        test = comparisons()[network, start]
        between = f"{test.difference:+.{digits}f} [{test.low:+.{digits}f}, {test.high:+.{digits}f}]"
        rows.append([*row, between, f"{test.p:.2g}", words[start]])
    name = NETWORK_NAMES[network]
    header = ["start", "best rate", unit, "ours is better by", "p", "ours is"]
    return [f"## {name[0].upper()}{name[1:]}", "", *table(header, rows), ""]


def architectures() -> str:
    """The page of whole networks."""
    cards = ", ".join(sorted({row["device"] for row in runs()}))
    counts = sorted({len(one.scores) for each in trained().values() for one in each.values()})
    seeds = "–".join(map(str, counts))
    rates = sorted({len(NETWORKS[network][1]) for network in trained()})
    epochs = sorted({f"{NETWORKS[network][2]:g}" for network in trained() if network != "gpt"})
    length = [f"{'–'.join(epochs)} epochs"] if epochs else []
    length += [f"{NETWORKS['gpt'][2]:g} steps of the GPT"] if "gpt" in trained() else []
    missing = [NETWORK_NAMES[network] for network in NETWORKS if network not in trained()]
    ends = sum(bool(one.edge) for each in trained().values() for one in each.values())
    starts_run = sum(map(len, trained().values()))
    lines = [
        "# Whole networks: which start trains better?", "",
        "Networks as users write them, trained from `initialize_(model)` (`ours`) and from other starts. Made by",
        "`make docs` from `benchmarks/records/architectures.jsonl`, sentences and verdicts too.", "",
        "## Should I use this?", "",
        f"These runs show early training only: {' and '.join(length)}, {seeds} fresh seeds, "
        f"{'–'.join(map(str, rates))} learning rates.", "",
        *advice(),
        "## How it was measured", "",
        f"`python benchmarks/architectures.py --data DIR`; {cards}. CNNs, ResNets and the vision transformer learn",
        "Fashion-MNIST (the plain CNNs at 14 × 14 pixels), recurrent networks read MNIST row by row, the GPT reads the",
        "bytes of Python's own library. AdamW, a short warm-up, a cosine schedule; no augmentation.", "",
        "- Each start gets the rate that was best with seed 0 and is run again with fresh seeds. The tables have those",
        f"  alone: mean ± standard deviation. For {ends} of the {starts_run} starts the best rate was the largest or",
        "  smallest tried, so a better one may lie outside.",
        "- Rates were chosen by the test score, and the recipe was designed on networks and data like these. Fresh",
        "  seeds do not undo that.",
        "- Starts: `torch`, PyTorch's own; `he`, `xavier`, `orthogonal` (times √2) and `paper` (uniform members of the",
        "  set, at the centre of kernels) in every layer; `gpt-2`, GPT-2's own; `identity`, by Le, Jaitly and Hinton.",
        f"- `better`, `worse`: p < 0.05 by Welch's t-test, Holm-corrected over all {len(comparisons())} comparisons of "
        "this page.",
        f"- `not worse`: no such difference, and the 95 % interval (not corrected) excludes that ours is worse by "
        f"{MARGINS[1]:g} points",
        f"  of accuracy, or {MARGINS[-1]:g} nats. `undecided`: all else.", "",
    ]  # fmt: skip
    if missing:
        lines += [f"Not run yet: {listed(missing)}.", ""]
    for network in trained():
        lines += architecture(network)
    return "\n".join(lines).rstrip() + "\n"


def architectures_line() -> list[str]:
    """For the README: where ours beats every other start, and where nothing was found."""
    won, some, even, lost = (list[str]() for _ in range(4))
    for network in trained():
        words = set(verdicts(network).values())
        ours, other = statistics.mean(trained()[network]["ours"].scores), next_best(network)[1]
        said = f"{NETWORK_NAMES[network]} {figure(network, ours)} (next best {figure(network, other)})"
        if "worse" in words:
            lost.append(said)
        elif "better" in words:
            (won if words == {"better"} else some).append(said)
        else:
            even.append(NETWORK_NAMES[network])
    groups = {
        "better than every other start": won,
        "better than some": some,
        "worse than some": lost,
        "no difference established": even,
    }
    sentences = "; ".join(f"{what}: {', '.join(names)}" for what, names in groups.items() if names)
    return [f"Early training from `initialize_(model)`, {sentences} ([architectures](docs/architectures.md))."]
