"""The page of a user's study: what was compared and how, who won, the curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..progress import counted
from ..report.page import Chart, Line, Panel, learning, screen_colour, write_page
from ..report.tables import Table, plain, score_text, summary
from ..train.family import FAMILIES, PERCEPTRON, is_own
from ..train.stack import RELEASED, WARM_UP
from .files import columns_table, comparison, several_activations
from .plan import FIRST_SEED, MOST_SEEDS, Outcome


def page(
    outcome: Outcome, content: dict[str, Any], path: Path, title: str, told: Sequence[str], more: Mapping[str, Chart],
    scores: Table | None = None,
) -> Path:  # fmt: skip
    """Write the page of a study, from its records and its summary.

    `told` are the sentences it begins with; `more` what is shown beside its curves, by the heading; `scores` its first
    table and the line above it, by default the mean scores.
    """
    data, metric = content["data"], outcome.metric
    label = f"{content['metric']['label'][0].upper()}{content['metric']['label'][1:]}"
    epochs = outcome.study.settings[0].epochs
    if scores is None:
        table = summary(outcome.records, title="Mean ± standard deviation over seeds; the best of a row is bold.")
        scores = table.marked(min if metric.less_is_better else max)
    lines = [
        *(plain(sentence) for sentence in told), "",
        f"## {plain(label)}{', ' if data['target'] else ' '}after {counted(epochs, 'epoch')}", "",
        scores.title, "", *scores.markdown(), "",
    ]  # fmt: skip
    if outcome.study.seeds > 1 or outcome.study.rates.searched:
        lines += [
            "## The schemes compared", "",
            "Means with 95 % intervals over seeds (Student's, cut off where the scale ends). p is that of Welch's test "
            "against the best scheme of the setting, corrected by Holm; above 0.05 the data do not tell the two apart.",
            "", *comparison(content).markdown(), "",
        ]  # fmt: skip
    pictures = dict[str, Any]()
    if outcome.choice.records:
        pictures["Validation score at each learning rate"] = rates_chart(outcome)
    for activation in dict.fromkeys(record.cell.activation for record in outcome.records):
        some = [record for record in outcome.records if record.cell.activation == activation]
        pictures[f"Learning curves, {activation}"] = learning(some, _axis(content))
    pictures |= more
    for place, heading in enumerate(pictures):
        lines += [f"## {heading}", "", f"![{heading}]({place})", ""]
    lines += ["## Protocol", "", *(f"- {plain(line)}" for line in protocol(outcome, content)), ""]
    if data["columns"]:
        table = columns_table(outcome.study.dataset)
        rows = [[plain(cell) for cell in row] for row in table.rows]
        lines += ["## How each column was read", "", *replace(table, rows=rows).markdown(), ""]
    drawn = {str(place): chart for place, chart in enumerate(pictures.values())}
    return write_page(path, title, "\n".join(lines), drawn)


def sentences(outcome: Outcome, content: dict[str, Any]) -> list[str]:
    """What one answer to everything scores; who is best in each setting, and what cannot be told apart from it."""
    metric, alone = outcome.metric, content["baseline"]
    answer = "the mean of the targets" if metric.less_is_better else "the largest class"
    lines = [f"Baseline: {answer}, as the answer to everything, scores {score_text(alone, metric)}."]
    several = several_activations(content)
    reach = metric.better(alone) + abs(alone if metric.less_is_better else 100) / 100
    for leader in (entry for entry in content["results"] if entry["best"]):
        place = (leader["activation"], leader["depth"])
        others = [e for e in content["results"] if (e["activation"], e["depth"]) == place and e is not leader]
        where = f"At depth {leader['depth']}" + (f" with {leader['activation']}" if several else "")
        if leader["mean"] is None or metric.better(leader["mean"]) <= reach:
            lines.append(f"{where}, no initialization is better than the baseline: try more --epochs, or --lr auto.")
            continue
        level = [e["scheme"] for e in others if e["p_against_best"] is None or e["p_against_best"] >= 0.05]
        told = f", not significantly better than {', '.join(level)}" if level else ", better than every other"
        if outcome.study.seeds == 1:
            told = "; with one network each, chance may decide"
        if others:
            lines.append(f"{where}, {leader['scheme']} is best{told}.")
    return lines[:12]


def protocol(outcome: Outcome, content: dict[str, Any]) -> list[str]:
    """How the networks were trained, a sentence each."""
    study, data = outcome.study, content["data"]
    first = study.settings[0]
    if study.rates.searched:
        seeds = min(study.seeds, MOST_SEEDS)
        tried = ", ".join(f"{value:g}" for value in study.rates.values)
        further = ", extended where the best lay at an edge, each with its double" if study.rates.auto else ""
        rate = (
            f"Learning rate: each scheme in each setting at the best of {tried} × {first.rate_unit}{further}, chosen "
            f"on a validation part of the training data by {counted(seeds, 'network')} a rate with seeds of their own "
            f"(from {FIRST_SEED}); the test part was not used."
        )
    else:
        rate = f"Learning rate: {study.rates.values[0]:g} × {first.rate_unit}, the same for every scheme."
    batch = "all rows" if first.batch is None else f"{first.batch} rows"
    shots = "" if first.shots is None else f" on {first.shots} rows of each class"
    warm = f"{WARM_UP:.0%} of the steps" if first.warmup is None else f"{first.warmup:g} of an epoch"
    schedule = {
        "cosine": f"Schedule: a linear warm-up over {warm}, then a cosine to zero.",
        "release": f"Schedule: half of the steps on the set, then free at {RELEASED:g} of the rate, a cosine to zero.",
    }
    networks = f"plain, hidden layers of {first.width} units, no skip connections, no normalization"
    if is_own(first.network):
        networks = first.network.partition("@")[0]
    elif first.network != PERCEPTRON:
        networks = f"{FAMILIES[first.network].what}, {first.width} channels in the first stage"
    optimizer: str = "adamw" if first.decay and first.optimizer == "adam" else first.optimizer
    optimizer += f" with weight decay {first.decay:g}" if first.decay else ""
    lines = [
        f"Networks: {networks}; {counted(study.seeds, 'seed')} in each setting.",
        f"Dropout: {first.dropout:g} after every hidden layer, in training alone." if first.dropout else "",
        f"Training: {optimizer}, {counted(first.epochs, 'epoch')}{shots}, batches of {batch}, {first.precision}.",
        rate,
        f"The first and the last layer: {first.ends:g} times the learning rate." if first.ends != 1 else "",
        schedule.get(first.schedule, ""),
        "Each layer has the rate that `param_groups` gives it for this one." if first.groups else "",
        f"The norm of the gradient is at most {first.clip:g}." if first.clip is not None else "",
        f"Labels are smoothed by {first.smoothing:g} in training." if first.smoothing else "",
        "Training images are cut out of a mirrored frame." if "crop" in first.augment else "",
        "Half of the training images are flipped." if "flip" in first.augment else "",
        f"Data: {data['rows']:,} rows, {data['features']} features, {data['task']}. Split {data['split']}.",
        "" if first.alpha is None else f"Features are standardized and shifted by {first.alpha:g}.",
        "Targets are standardized for training; errors are reported in the target's own unit."
        if data["targets_standardized"]
        else "",
    ]
    return list(filter(None, lines))


def _axis(content: dict[str, Any]) -> str:
    """What the scores are, short enough for an axis."""
    if not content["metric"]["less_is_better"]:
        return str(content["metric"]["label"])
    target = content["data"]["target"] or ""
    return f"error ({target if len(target) <= 20 else f'{target[:19]}…'})" if target else "error"


def rates_chart(outcome: Outcome) -> Chart:
    """The mean validation score over the rates: a panel for each depth and activation."""
    panels = []
    for activation, depth in dict.fromkeys((s.activation, s.depth) for s in outcome.study.settings):
        lines = []
        for setting in outcome.study.settings:
            if (setting.activation, setting.depth) == (activation, depth):
                row = outcome.choice.scores[setting]
                lines.append(Line(str(setting.scheme), screen_colour(setting.scheme), list(row), list(row.values())))
        title = f"depth {depth}, {activation}"
        unit = outcome.study.settings[0].rate_unit
        panels.append(Panel(title, f"rate, × {unit}", "validation score", lines, log_x=True, dots=True))
    return Chart("validation score at each learning rate", panels)
