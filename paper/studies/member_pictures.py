"""The pictures of the study of members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from stiefel_init.lab.report import plots
from stiefel_init.lab.train.record import Record

from .member_cells import DEPTHS, KINDS, OF_THE_SET, epochs_of, kind


def over_depth(records: Sequence[Record]) -> Figure:
    """Score against depth for each kind, and the ten best points once more.

    Bands are one standard deviation, as far as there are such scores.
    """
    drawn, axes = plots.figure(2, size=(4.6, 4.0), label=f"Accuracy over depth, {records[0].cell.dataset}")
    best = 0.0
    for number, name in enumerate(KINDS):
        chosen = [record for record in records if kind(record.cell) == name]
        if not chosen:
            continue
        depths = sorted({record.cell.depth for record in chosen})
        scores = [np.array([record.score for record in chosen if record.cell.depth == d]) for d in depths]
        mean, std = np.array([s.mean() for s in scores]), np.array([s.std() for s in scores])
        best = max(best, float(mean.max()))
        style = "-" if chosen[0].cell.scheme in OF_THE_SET else "--"
        for axis in axes[0]:
            axis.plot(depths, mean, style, color=f"C{number}", label=name, linewidth=1.6, marker="o", markersize=3)
            low, high = (np.clip(edge, 0, 100) for edge in (mean - std, mean + std))
            axis.fill_between(depths, low, high, color=f"C{number}", alpha=0.12, linewidth=0)
    depths = sorted({record.cell.depth for record in records})
    for axis, limits in zip(axes[0], ((0, 102), (best - 10, best + 1))):
        axis.set(xlabel="depth", xscale="log", ylim=limits)
        axis.set_xticks(depths, [f"{d:,}" for d in depths])
        axis.set_xticks([], minor=True)
    axes[0, 0].set_ylabel("test accuracy (%)")
    plots.legend(drawn, axes[0, 0])
    return drawn


def learning(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Test accuracy by epoch in the comparison of members: a row for each data set, a column for each depth.

    Bands from the lowest seed to the highest. Curves more than twenty points behind are not shown.
    """
    usual = [r for r in rows if r["times"] == 1 and r["depth"] in DEPTHS]
    usual = [r for r in usual if r["epochs"] == epochs_of(r["depth"])]
    datasets, depths = list(dict.fromkeys(r["dataset"] for r in usual)), sorted({r["depth"] for r in usual})
    drawn, axes = plots.figure(
        len(depths), len(datasets), size=(4.2, 3.2), label="Accuracy by epoch, by data set and depth"
    )
    for line, dataset in zip(axes, datasets):
        for axis, depth in zip(line, depths):
            chosen = [r for r in usual if (r["dataset"], r["depth"]) == (dataset, depth)]
            _by_epoch(axis, chosen)
            top = max(r["score"] for r in chosen)
            axis.set(title=f"{dataset}, {depth:,} layers", xlabel="epoch", ylim=(top - 20, top + 1))
        line[0].set_ylabel("test accuracy (%)")
    plots.legend(drawn, axes[0, 0])
    return drawn


def deep(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Test accuracy by epoch of networks of a thousand layers and more, a panel for each data set and depth.

    Of runs of different length, the longest that five networks or more had. Bands from the lowest seed to the
    highest; other rates than 0.001/√depth are dashed.
    """
    rows = [row for row in rows if row["depth"] >= 1000]
    panels = list(dict.fromkeys((row["depth"], row["dataset"]) for row in rows))
    panels.sort(key=lambda panel: panel[0])
    drawn, axes = plots.figure(len(panels), size=(4.4, 3.8), label="Accuracy by epoch, a thousand layers and more")
    others: set[float] = set()
    for axis, (depth, dataset) in zip(axes[0], panels):
        chosen = [row for row in rows if (row["depth"], row["dataset"]) == (depth, dataset)]
        trained = Counter(row["epochs"] for row in chosen if row["epoch"] == row["epochs"])
        longest = max(trained, key=lambda epochs: (trained[epochs] >= 5, epochs))
        chosen = [row for row in chosen if row["epochs"] == longest]
        _by_epoch(axis, chosen)
        others |= {row["times"] for row in chosen} - {1}
        axis.set(xlabel="epoch", title=f"{dataset}, {depth:,} layers", ylim=(0, 102))
    axes[0, 0].set_ylabel("test accuracy (%)")
    handles = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels())}
    for times in sorted(others):
        handles[f"{times:g} × the rate"] = Line2D([], [], color="black", linestyle="--")
    drawn.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
    return drawn


def _by_epoch(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The mean of the seeds by epoch, and a band from the lowest to the highest, for each member and rate."""
    for member, times in sorted({(r["member"], r["times"]) for r in rows}, key=lambda p: (KINDS.index(p[0]), p[1])):
        chosen = [r for r in rows if (r["member"], r["times"]) == (member, times)]
        epochs = sorted({r["epoch"] for r in chosen})
        scores = [np.array([r["score"] for r in chosen if r["epoch"] == epoch], float) for epoch in epochs]
        colour, label = f"C{KINDS.index(member)}", member if times == 1 else None
        style = "-" if times == 1 else "--"
        axis.plot(epochs, [s.mean() for s in scores], style, color=colour, label=label, linewidth=1.6)
        low, high = [s.min() for s in scores], [s.max() for s in scores]
        axis.fill_between(epochs, low, high, color=colour, alpha=0.12, linewidth=0)
    axis.locator_params(axis="x", integer=True)
