"""The study in sentences, tables and pictures."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table

from .catalogue import Network
from .initializations import INITIALIZATIONS, OURS
from .problems import ACCURACY, NATS, R2
from .study import Outcome, Verdicts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_of(network: Network, value: float) -> str:
    """A score with its unit."""
    return f"{value:.{network.metric.digits}f} {network.metric.unit}".strip()


def listed(words: list[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def tables(verdicts: Verdicts) -> list[Table]:
    """One for each network."""
    return [_table(network, verdicts) for network in verdicts.networks.values()]


def _table(network: Network, verdicts: Verdicts) -> Table:
    digits, rows = network.metric.digits + 1, []
    for start, outcome in verdicts.outcomes[network.name].items():
        if not outcome.curves:
            rows.append([start, "any", "learnt nothing", "", "", "better"])
            continue
        rate = f"{outcome.rate:.3g}{' (at an end)' if outcome.at_an_end else ''}"
        row = [start, rate, _spread(network, outcome, digits)]
        if start == OURS:
            rows.insert(0, [*row, "", "", ""])
            continue
        test = verdicts.comparisons[network.name, start]
        exact = (statistics.mean(scores) for scores in (verdicts.outcomes[network.name][OURS].scores, outcome.scores))
        gain = network.metric.sign * (next(exact) - next(exact))
        between = f"{gain:+.{digits}f} [{test.low:+.{digits}f}, {test.high:+.{digits}f}]"
        rows.append([*row, between, f"{test.p:.2g}", verdicts.word(network.name, start)])
    title = f"{network.title[0].upper()}{network.title[1:]}"
    metric = f"{network.metric.name}{f' ({network.metric.unit})' if network.metric.unit else ''}"
    return Table(title, ["initialization", "best rate", metric, "ours is better by", "p", "ours is"], rows)


def _spread(network: Network, outcome: Outcome, digits: int) -> str:
    lost = sum(not network.metric.learnt(score) for score in outcome.scores)
    note = f" ({lost} of {len(outcome.scores)} learnt nothing)" if lost else ""
    mean, deviation = statistics.mean(outcome.scores), statistics.stdev(outcome.scores)
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}{note}"


def against(network: Network, verdicts: Verdicts) -> str:
    """What is said of a network: its figure and the verdicts on all others."""
    groups: dict[str, list[str]] = {}
    for start, word in verdicts.words(network.name).items():
        groups.setdefault(word, []).append(start)
    other, mean = verdicts.next_best(network.name)
    ours = statistics.mean(verdicts.outcomes[network.name][OURS].scores)
    everyone = "any other" if set(groups) == {"not worse"} else "every other"
    said = [
        f"{word} {'against' if word == 'undecided' else 'than'} {listed(groups[word]) if len(groups) > 1 else everyone}"
        for word in ("better", "worse", "not worse", "undecided")
        if word in groups
    ]
    text = f"{figure_of(network, ours)}, the next best ({other}) {figure_of(network, mean)}; {'; '.join(said)}."
    return f"{network.title}: {text}"


def groups(verdicts: Verdicts) -> dict[str, list[Network]]:
    """The networks by what to tell their users."""
    found: dict[str, list[Network]] = {"yes": [], "some": [], "same": [], "open": [], "no": []}
    for name, network in verdicts.networks.items():
        words, margin = set(verdicts.words(name).values()), network.metric.margin
        tests = [test for (one, _), test in verdicts.comparisons.items() if one == name]
        within = all(-margin < test.low and test.high < margin for test in tests)
        kind = (
            "no" if "worse" in words
            else "yes" if words == {"better"}
            else "some" if "better" in words
            else "same" if within
            else "open"
        )  # fmt: skip
        found[kind].append(network)
    return found


def advice(verdicts: Verdicts) -> list[str]:
    """Should I use this? In sentences, from the verdicts."""
    leads = {
        "yes": "**Yes**, for these: better than every other.",
        "some": "**It can help** these: better than some other, not found worse than any.",
        "same": "**It makes no difference** to these: every 95 % interval of a difference lies within the margin.",
        "open": "**These runs cannot tell** for these: no difference was established, but one larger than the margin "
        "is possible.",
        "no": "**No**, for these: worse than some other.",
    }
    lines = []
    for kind, networks in groups(verdicts).items():
        if networks:
            lines += [leads[kind], "", *(f"- {against(network, verdicts)}" for network in networks), ""]
    if not groups(verdicts)["no"]:
        lines += ["In none of these networks was it found worse than another.", ""]
    return lines


def section(verdicts: Verdicts) -> list[str]:
    """The page."""
    counts = sorted({len(o.curves) for each in verdicts.outcomes.values() for o in each.values() if o.curves})
    starts = [start for start in INITIALIZATIONS if any(start in each for each in verdicts.outcomes.values())]
    ends = sum(o.at_an_end for each in verdicts.outcomes.values() for o in each.values() if o.curves)
    every = sum(bool(o.curves) for each in verdicts.outcomes.values() for o in each.values())
    lines = [
        "## Should I use this?", "", *advice(verdicts), "![Test score while training](architectures.png)", "",
        "## How it was measured", "",
        f"- {'–'.join(map(str, counts))} fresh seeds for each, at the rate that was best with seeds of its own:",
        "  of four rates (of MLPs six or seven), each twice the one before, and up to three more while the best lay at",
        f"  an end of them. For {ends} of {every} it still did. They had a third of the length, those of MLPs and",
        "  plain CNNs all of it. Where the two best rates were closer than the margin, both were run again at full",
        "  length, with another seed. At first they were not, and all rates were chosen in short runs; that took too",
        "  small rates for plain CNNs and, for some recurrent networks and MLPs, the worse of two. The choice was then",
        "   changed for all alike, so this page is a second look at these networks.",
        "- A run that had learnt nothing at half its length was stopped; what learnt at no rate was not rerun.",
        "- `better`, `worse`: p < 0.05 by Welch's t-test, Holm-corrected over all "
        f"{len(verdicts.comparisons)} comparisons of this page.",
        f"- `not worse`: no such difference, and the 95 % interval (not corrected) excludes that ours is worse by "
        f"{ACCURACY.margin:g} points",
        f"  of accuracy, {R2.margin:g} of R² or {NATS.margin:g} nats; `undecided`: all else. These margins were fixed "
        "before the runs.",
        "- The recipe was designed on networks and data like these, and rates were chosen by the test score, for every",
        "  initialization alike. Fresh seeds do not undo that.", "",
        "Initializations:", "", *(f"- `{start}`: {INITIALIZATIONS[start].what}." for start in starts), "",
    ]  # fmt: skip
    for network in verdicts.missing:
        lines += [f"Not compared yet: {network.title}.", ""]
    for table in tables(verdicts):
        lines += [f"## {table.title}", "", *table.markdown(), ""]
    return lines


def picture(verdicts: Verdicts) -> Figure:
    """The score on the way, a panel for each network: the mean of the seeds, and where ours lie."""
    import numpy as np

    columns = min(3, len(verdicts.networks))
    rows = -(-len(verdicts.networks) // columns)
    drawn, axes = plots.figure(columns, rows, label="Test score while training, from each initialization")
    for axis in axes.flat[len(verdicts.networks) :]:
        axis.set_axis_off()
    seen: dict[str, Any] = {}
    for axis, (name, network) in zip(axes.flat, verdicts.networks.items()):
        for start, outcome in verdicts.outcomes[name].items():
            if not outcome.curves:
                continue
            looks = max(map(len, outcome.curves))  # runs that were stopped have fewer
            curves = np.array([(*curve, *curve[-1:] * (looks - len(curve))) for curve in outcome.curves])
            steps = network.steps * np.arange(1, curves.shape[1] + 1) / curves.shape[1]
            colour = INITIALIZATIONS[start].colour
            (seen[start],) = axis.plot(
                steps, curves.mean(0), color=colour, label=start, linewidth=2.2 if start == OURS else 1.2
            )
            if start == OURS:
                axis.fill_between(steps, curves.min(0), curves.max(0), color=colour, alpha=0.15, linewidth=0)
        best = [c[-1] for o in verdicts.outcomes[name].values() for c in o.curves]
        metric = network.metric
        if metric.sign > 0:
            top, low = max(best), max(min(best), max(best) - (30 if metric.unit else 0.5))
            span = max(top - low, 2.0 if metric.unit else 0.02)
            axis.set_ylim(low - span, top + 0.15 * span)
        axis.set_title(network.title, fontsize=10)
        axis.set_xlabel("step")
        axis.set_ylabel(f"{metric.name} {metric.unit}".strip())
    drawn.legend(list(seen.values()), list(seen), loc="outside upper center", ncols=len(seen), frameon=False)
    return drawn


def line(verdicts: Verdicts) -> str:
    """For the README: where ours beats every other, and where it loses to one."""
    found = groups(verdicts)
    count = len(verdicts.networks)
    parts = [f"better than every other in {len(found['yes'])} of {count}{_named(found['yes'], verdicts)}"]
    parts += [f"better than some and worse than none in {len(found['some'])}"] if found["some"] else []
    losses = f"worse than some in {len(found['no'])}{_named(found['no'], verdicts)}"
    parts += [losses if found["no"] else "found worse than another in none"]
    return (
        "Networks as users write them, each initialization at its best rate: "
        f"`initialize_(model)` is {', '.join(parts)} "
        "([architectures](docs/architectures.md))."
    )


def _named(networks: Sequence[Network], verdicts: Verdicts) -> str:
    """Each with its score and the next best."""
    names = [f"{network.title} {_short(network, verdicts)}" for network in networks]
    return f" ({'; '.join(names)})" if names else ""


def _short(network: Network, verdicts: Verdicts) -> str:
    ours = statistics.mean(verdicts.outcomes[network.name][OURS].scores)
    return f"{figure_of(network, ours)}, next best {figure_of(network, verdicts.next_best(network.name)[1])}"
