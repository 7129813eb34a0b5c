"""The pictures: learning curves, the signal over depth, accuracy over depth, and figure 1."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from .alignment import Study
from .cells import SCHEMES, VARIANTS, initialization
from .records import Record, write_whole
from .signal import Signal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour for each scheme in every picture, told apart by the colour-blind too (Okabe and Ito's palette).
COLOURS = dict(zip(SCHEMES, ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#777777")))
COLOURS |= dict(zip(VARIANTS.values(), ("#D55E00", "#F0E442", "#000000")))
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.dpi": 110,
    "savefig.bbox": "tight",
    "svg.hashsalt": "stiefel-init",  # the same picture is the same file
}


def _figure(columns: int, rows: int = 1, size: tuple[float, float] = (4.2, 3.2)) -> tuple[Figure, np.ndarray]:
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        return figure, np.atleast_2d(figure.subplots(rows, columns, squeeze=False))


def save(figure: Figure, path: Path) -> None:
    """Write a picture as PNG, all or nothing."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    write_whole(path, buffer.getvalue())


def learning_curves(records: Sequence[Record], title: str = "", *, error: bool = False) -> Figure:
    """Test score against the epoch: one panel for each depth, one line for each scheme, seeds as thin lines.

    With `error` the score is an error, not an accuracy.
    """
    depths = sorted({record["depth"] for record in records})
    figure, axes = _figure(len(depths))
    for axis, depth in zip(axes[0], depths):
        for scheme, colour in COLOURS.items():
            chosen = [r for r in records if r["depth"] == depth and initialization(r) == scheme]
            if not chosen:
                continue
            lines = np.array([[np.nan if value is None else value for value in r["test_score"]] for r in chosen])
            epochs = chosen[0]["tested"]
            for line in lines if len(lines) > 1 else []:
                axis.plot(epochs, line, color=colour, alpha=0.25, linewidth=0.8)
            axis.plot(epochs, lines.mean(0), color=colour, label=scheme, linewidth=1.8)
        axis.set(title=f"depth {depth}", xlabel="epoch", ylim=(0, None if error else 102))
    axes[0, 0].set_ylabel("root mean squared error" if error else "test accuracy (%)")
    _legend(figure, axes[0, -1])
    if title:
        figure.suptitle(title)
    return figure


def signal(signals: Mapping[str, Signal], title: str = "") -> Figure:
    """Spread, share of firing units and gradient over the layers, at initialization; one line for each scheme."""
    figure, axes = _figure(3)
    panels = (
        ("std", "spread of the pre-activations", True),
        ("active", "share of units that fire", False),
        ("gradient", "length of the gradient", True),
    )
    for axis, (name, label, logarithmic) in zip(axes[0], panels):
        for scheme, one in signals.items():
            values = getattr(one, name).mean(0)
            layers = np.arange(1, len(values) + 1)
            shown = np.where(values > 0, values, np.nan) if logarithmic else values
            axis.plot(layers, shown, color=COLOURS[scheme], label=scheme, linewidth=1.8)
        axis.set(title=label, xlabel="layer")
        if logarithmic:
            axis.set_yscale("log")
        else:
            axis.set_ylim(0, 1.03)
    _legend(figure, axes[0, -1])
    if title:
        figure.suptitle(title)
    return figure


def survey(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Spread, share of active units and gradient over the layers: measured as dots, predicted as lines."""
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    figure, axes = _figure(3, len(datasets), size=(4.2, 3.0))
    panels = (("std", "spread of the pre-activations"), ("active", "share of active units"), ("gradient", "gradient"))
    for line, dataset in zip(axes, datasets):
        for axis, (name, label) in zip(line, panels):
            for scheme, colour in ((name, COLOURS[name]) for name in SCHEMES):
                chosen = [row for row in rows if row["dataset"] == dataset and row["scheme"] == scheme]
                layers = np.array([row["layer"] for row in chosen])
                values = np.array([row[name] for row in chosen], float)
                shown = np.where(values > 0, values, np.nan) if name != "active" else values
                some = np.unique(np.geomspace(1, len(layers), 24).astype(int)) - 1
                axis.plot(layers[some], shown[some], "o", color=colour, label=scheme, markersize=3)
                if name != "gradient":
                    predicted = np.array([row[f"predicted_{name}"] for row in chosen], float)
                    axis.plot(layers, predicted, color=colour, linewidth=1)
            axis.set(title=f"{dataset}: {label}", xlabel="layer")
            if name == "active":
                axis.set_ylim(0, 1.03)
            else:
                axis.set_yscale("log")
                axis.set_ylim(bottom=max(axis.get_ylim()[0], 1e-12))
    _legend(figure, axes[0, -1])
    return figure


def over_depth(records: Sequence[Record], datasets: Sequence[str], ylabel: str = "test accuracy (%)") -> Figure:
    """Score against depth with bands of one standard deviation: one panel for each data set."""
    figure, axes = _figure(len(datasets), size=(5.0, 3.6))
    for axis, dataset in zip(axes[0], datasets):
        for scheme, colour in ((name, COLOURS[name]) for name in SCHEMES):
            chosen = [r for r in records if r["dataset"] == dataset and r["scheme"] == scheme]
            depths = sorted({r["depth"] for r in chosen})
            if not depths:
                continue
            scores = [np.array([r["score"] for r in chosen if r["depth"] == d], float) for d in depths]
            mean, std = np.array([s.mean() for s in scores]), np.array([s.std() for s in scores])
            axis.plot(depths, mean, color=colour, label=scheme, linewidth=1.8, marker="o", markersize=3)
            low, high = np.maximum(mean - std, 0), np.minimum(mean + std, 100)
            axis.fill_between(depths, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.set(title=dataset, xlabel="depth", ylim=(0, None))
    axes[0, 0].set_ylabel(ylabel)
    _legend(figure, axes[0, -1])
    return figure


def members(records: Sequence[Record]) -> Figure:
    """Score against depth for each kind of the study of members, and the ten best points once more.

    Bands are one standard deviation.
    """
    from .compare import score
    from .members import KINDS, kind

    figure, axes = _figure(2, size=(4.6, 4.0))
    best = 0.0
    for number, name in enumerate(KINDS):
        chosen = [r for r in records if kind(r) == name]
        if not chosen:
            continue
        depths = sorted({r["depth"] for r in chosen})
        scores = [np.array([score(r) for r in chosen if r["depth"] == d], float) for d in depths]
        mean, std = np.array([s.mean() for s in scores]), np.array([s.std() for s in scores])
        best = max(best, float((mean + std).max()))
        colour = f"C{number}"
        style = "-" if chosen[0]["scheme"] == "stiefel" else "--"
        for axis in axes[0]:
            axis.plot(depths, mean, style, color=colour, label=name, linewidth=1.6, marker="o", markersize=3)
            axis.fill_between(depths, mean - std, mean + std, color=colour, alpha=0.12, linewidth=0)
    depths = sorted({r["depth"] for r in records})
    for axis, limits in zip(axes[0], ((0, 102), (best - 10, best + 0.5))):
        axis.set(xlabel="depth", xscale="log", ylim=limits)
        axis.set_xticks(depths, [f"{d:,}" for d in depths])
        axis.set_xticks([], minor=True)
    axes[0, 0].set_ylabel("test accuracy (%)")
    _legend(figure, axes[0, 0])
    return figure


def member_learning(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Test accuracy by epoch in the comparison of members: a row for each data set, a column for each depth.

    Bands from the lowest seed to the highest. What is more than twenty points behind is not shown.
    """
    from .experiments import MEMBER_DEPTHS, member_epochs

    usual = [r for r in rows if r["times"] == 1 and r["depth"] in MEMBER_DEPTHS]
    usual = [r for r in usual if r["epochs"] == member_epochs(r["depth"])]
    datasets, depths = list(dict.fromkeys(r["dataset"] for r in usual)), sorted({r["depth"] for r in usual})
    figure, axes = _figure(len(depths), len(datasets), size=(4.2, 3.2))
    for line, dataset in zip(axes, datasets):
        for axis, depth in zip(line, depths):
            own = [r for r in usual if (r["dataset"], r["depth"]) == (dataset, depth)]
            _by_epoch(axis, own)
            top = max(r["score"] for r in own)
            axis.set(title=f"{dataset}, {depth:,} layers", xlabel="epoch", ylim=(top - 20, top + 1))
        line[0].set_ylabel("test accuracy (%)")
    _legend(figure, axes[0, 0])
    return figure


def member_curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Test accuracy by epoch of networks of a thousand layers and more, a panel for each data set and depth.

    Of trainings of different length, the longest that five networks or more had. Bands from the lowest seed to the
    highest; other rates than 0.001/√depth are dashed.
    """
    from matplotlib.lines import Line2D

    rows = [row for row in rows if row["depth"] >= 1000]
    panels = list(dict.fromkeys((row["depth"], row["dataset"]) for row in rows))
    panels.sort(key=lambda panel: panel[0])
    figure, axes = _figure(len(panels), size=(4.4, 3.8))
    others: set[float] = set()
    for axis, (depth, dataset) in zip(axes[0], panels):
        own = [row for row in rows if (row["depth"], row["dataset"]) == (depth, dataset)]
        trained = Counter(row["epochs"] for row in own if row["epoch"] == row["epochs"])
        longest = max(trained, key=lambda epochs: (trained[epochs] >= 5, epochs))
        own = [row for row in own if row["epochs"] == longest]
        _by_epoch(axis, own)
        others |= {row["times"] for row in own} - {1}
        axis.set(xlabel="epoch", title=f"{dataset}, {depth:,} layers", ylim=(0, 102))
    axes[0, 0].set_ylabel("test accuracy (%)")
    handles = {label: handle for axis in axes[0] for handle, label in zip(*axis.get_legend_handles_labels())}
    for times in sorted(others):
        handles[f"{times:g} × the rate"] = Line2D([], [], color="black", linestyle="--")
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False)
    return figure


def _by_epoch(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The mean of the seeds by epoch, and a band from the lowest to the highest, for each member and rate."""
    from .members import KINDS

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


def alignment(study: Study, plane: np.ndarray | None, mode: str = "shared") -> Figure:
    """Figure 1: alignment against accuracy and, with `plane`, the embedding coloured by each; members marked."""
    figure, axes = _figure(1 if plane is None else 3, size=(4.6, 3.8))
    haar = ~study.aligned
    score, accuracy = study.alignment, study.accuracy[mode]
    r, low, high = study.correlation(mode)
    first: Axes = axes[0, 0]
    first.scatter(score[haar], accuracy[haar], s=3, alpha=0.3, color="#555555", linewidths=0, label="Haar orthogonal")
    first.scatter(
        score[~haar],
        accuracy[~haar],
        s=10,
        color=COLOURS["stiefel"],
        marker="D",
        linewidths=0,
        label="members of Õ(64,64)",
    )
    first.set(
        xlabel="alignment 1ᵀW1", ylabel="one-shot accuracy (%)", title=f"r = {r:.3f} ({low:.3f} … {high:.3f}), {mode}"
    )
    first.legend(loc="lower right", markerscale=2)
    if plane is not None:
        for axis, values, label in ((axes[0, 1], score, "alignment"), (axes[0, 2], accuracy, "accuracy (%)")):
            low_c, high_c = np.percentile(values[haar], [1, 99])
            dots = axis.scatter(
                *plane[haar].T, c=values[haar], s=4, cmap="viridis", vmin=low_c, vmax=high_c, linewidths=0
            )
            axis.scatter(*plane[~haar].T, s=14, facecolors="none", edgecolors="red", linewidths=0.6)
            figure.colorbar(dots, ax=axis, label=label)
            axis.set(title=f"UMAP of sorted Wᵀ1, by {label.split()[0]}", xticks=[], yticks=[])
            axis.grid(False)
    return figure


def _legend(figure: Figure, axis: Axes) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
