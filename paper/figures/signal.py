"""Signal and gradient at initialization, layer by layer, beside what the theory predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from stiefel_init.lab.report import plots
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.network import LOSSES, Architecture, Parameters, applied, initial
from stiefel_init.lab.train.problem import Problem, Problems
from stiefel_init.theory import propagate

from ..experiment import Claim, Measured, Options, held
from ..results import Results
from ..tables.protocol import IMAGES, SCHEMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CPU = torch.device("cpu")
MEASURED = ("mean", "std", "active", "variance_ratio", "gradient")
COLUMNS = ("dataset", "scheme", "layer", *MEASURED, *(f"predicted_{name}" for name in MEASURED[:4]))


class Signals(Measured):
    """Ten networks of depth 100 for each scheme, on 256 images."""

    name = "signal"
    title = "Signal and gradient at initialization"
    of_paper = True
    files = ("signal",)
    numbers = COLUMNS[2:]

    def measure(self, options: Options, device: torch.device, advance: Callable[[float], None]) -> tuple[Any, int]:
        tasks, seeds = Problems(directory=options.data), 2 if options.quick else 10
        chosen = {name: tasks(Cell(name, "stiefel", 1)) for name in IMAGES}
        return survey(chosen, seeds=seeds, progress=advance, device=device), len(IMAGES) * len(SCHEMES) * seeds

    def evidence(self, results: Results) -> list[dict[str, Any]] | None:
        rows = super().evidence(results)
        if rows and {(row["dataset"], row["scheme"]) for row in rows} != set(product(IMAGES, SCHEMES)):
            raise self.damaged(results)
        return rows

    def pictures(self, evidence: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {"results-signal": _picture(evidence)}

    def claims(self, evidence: Sequence[Mapping[str, Any]] | None) -> list[Claim]:
        claims = (
            "The share of active units approaches 1 with depth",
            "The variance ratio of consecutive layers approaches 1 with depth",
            "The gradient does not vanish with depth",
        )
        if not evidence:
            return [Claim(claim) for claim in claims]
        texts: list[list[str]] = [[], [], []]
        verdicts = [True, True, True]
        for dataset in IMAGES:
            first, *_, last = rows = _layers(evidence, dataset, "stiefel")
            fifth, (he, *_, he_last), depth = rows[4], _layers(evidence, dataset, "he"), last["layer"]
            ratio = first["gradient"] / last["gradient"]
            told = (
                f"{first['active']:.2f} in layer 1, {last['active']:.3f} in layer {depth} "
                f"(theory {last['predicted_active']:.3f})",
                f"{fifth['variance_ratio']:.3f} in layer 5, {last['variance_ratio']:.4f} in layer {depth} "
                f"(theory {last['predicted_variance_ratio']:.4f})",
                f"the gradient at layer 1 is {ratio:.2f} of that at layer {depth} "
                f"(he: {he['gradient'] / he_last['gradient']:.2g})",
            )
            held_here = (
                last["active"] > 0.9 and last["active"] > first["active"],
                abs(last["variance_ratio"] - 1) < min(0.05, abs(first["variance_ratio"] - 1)),
                ratio > 0.01,
            )
            for place in range(3):
                texts[place].append(f"{dataset}: {told[place]}")
                verdicts[place] &= held_here[place]
        return [
            Claim(f"{claim} (at initialization, depth 100)", held(ok), f"{'; '.join(text)}.")
            for claim, text, ok in zip(claims, texts, verdicts)
        ]

    def section(self, evidence: Sequence[Mapping[str, Any]]) -> list[str]:
        return [
            f"## {self.title}", "",
            "Ten networks of depth 100 for each scheme, on 256 images. Dots are measured; lines are what",
            "`theory.propagate` predicts from the mean and standard deviation of the pixels.", "",
            *self.shown(evidence),
        ]  # fmt: skip


def _layers(rows: Sequence[Mapping[str, Any]], dataset: str, scheme: str) -> list[Mapping[str, Any]]:
    chosen = [row for row in rows if (row["dataset"], row["scheme"]) == (dataset, scheme)]
    return sorted(chosen, key=lambda row: row["layer"])


def survey(
    datasets: Mapping[str, Problem],
    depth: int = 100,
    seeds: int = 10,
    progress: Callable[[float], None] = lambda s: None,
    schemes: Sequence[str] = SCHEMES,
    device: torch.device = CPU,
) -> list[dict[str, Any]]:
    """Each scheme's signal on each data set, averaged over seeds, beside what `theory.propagate` predicts.

    The theory knows only the mean and standard deviation of the inputs.
    """
    rows = []
    for dataset, task in datasets.items():
        inputs = task.features[:256] / task.scale
        for scheme in schemes:
            cells = [Cell(dataset, scheme, depth, seed=seed) for seed in range(seeds)]
            measured = measure_signal(cells, task, device=device)
            widths = (task.inputs, *cells[0].hidden)
            theory = propagate(widths, mean=float(inputs.mean()), std=float(inputs.std()), scheme=scheme)
            predicted = theory.pre_mean, theory.pre_std, theory.active, theory.variance_ratio
            for layer in range(depth):
                values = [float(measured[name][:, layer].mean()) for name in MEASURED]
                values += [float(column[layer]) for column in predicted]
                rows.append(dict(zip(COLUMNS, (dataset, scheme, layer + 1, *(float(f"{v:.5g}") for v in values)))))
            progress(1 / len(datasets) / len(schemes))
    return rows


def _picture(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Spread, share of active units and gradient over the layers: measured as dots, predicted as lines."""
    dataset = rows[0]["dataset"]
    panels = (("std", "spread of the pre-activations"), ("active", "share of active units"), ("gradient", "gradient"))
    drawn, axes = plots.column(len(panels), label="Signal and gradient over the layers")
    for axis, (name, label) in zip(axes, panels):
        for scheme in SCHEMES:
            chosen = [row for row in rows if row["dataset"] == dataset and row["scheme"] == scheme]
            layers = np.array([row["layer"] for row in chosen])
            values = np.array([row[name] for row in chosen], float)
            shown = np.where(values > 0, values, np.nan) if name != "active" else values
            some = np.unique(np.geomspace(1, len(layers), 24).astype(int)) - 1
            axis.plot(layers[some], shown[some], "o", color=plots.colour(scheme), label=scheme, markersize=3)
            if name != "gradient":
                predicted = np.array([row[f"predicted_{name}"] for row in chosen], float)
                axis.plot(layers, predicted, color=plots.colour(scheme), linewidth=1)
        axis.set(title=f"{dataset}: {label}", xlabel="layer")
        if name == "active":
            axis.set_ylim(0, 1.03)
        else:
            axis.set_yscale("log")
            axis.set_ylim(bottom=max(axis.get_ylim()[0], 1e-12))
        plots.direct(axis)
    return drawn


def measure_signal(
    cells: Sequence[Cell], problem: Problem, rows: int = 256, device: torch.device = CPU
) -> dict[str, np.ndarray]:
    """Of the untrained networks of cells that share an architecture, per cell and hidden layer, on the first rows.

    Mean and standard deviation of the pre-activations over inputs and units, the share of them that is positive, the
    variance of the activations divided by that of the layer before (for the first, by the inputs'), and the norm of
    the loss's gradient with respect to the pre-activations.
    """
    net = Architecture.of(cells[0], problem)
    # Some schemes shrink the signal below what float32 can square, so the measurement is made in float64.
    parameters = Parameters.of(initial(cells, net, device).flat.double(), net)
    x = torch.from_numpy(problem.features[:rows]).to(device).double().div(problem.scale).expand(len(cells), -1, -1)
    targets = torch.from_numpy(problem.targets[:rows]).to(device).expand(len(cells), -1)
    before: list[torch.Tensor] = []
    after = [x]
    for layer in range(net.layers - 1):
        pre = torch.baddbmm(parameters.biases[layer].unsqueeze(1), after[-1], parameters.weights[layer].mT)
        before.append(pre.requires_grad_() if layer == 0 else pre)
        after.append(applied(net.activation, net.layers - 1).forward(pre.clone(), parameters.slope(layer)))
    out = torch.baddbmm(parameters.biases[-1].unsqueeze(1), after[-1], parameters.weights[-1].mT)
    loss = LOSSES[problem.loss](out, targets)[0].sum() / x.shape[1]
    slopes = torch.autograd.grad(loss, before)
    with torch.no_grad():
        pre = torch.stack(before, 1).flatten(2)
        variance = torch.stack([h.flatten(1).var(1) for h in after], 1)
        norms = torch.stack([slope.flatten(1).norm(dim=1) for slope in slopes], 1)
        ratio, active = variance[:, 1:] / variance[:, :-1], (pre > 0).double().mean(2)
        measured = dict(zip(MEASURED, (pre.mean(2), pre.std(2), active, ratio, norms)))
        return {name: values.cpu().numpy() for name, values in measured.items()}
