"""Figure 1: alignment and one-shot accuracy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.progress import progress
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.runner import pick_device

from ..experiment import QUICK_NOTE, Claim, Experiment, Options
from ..results import Results
from ..tables.published import published
from .alignment import MODES, Study, chunk, embed, study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FULL = {"matrices": 5000, "members": 200, "trials": 100}
QUICK = {"matrices": 200, "members": 20, "trials": 5}


class Found(NamedTuple):
    """The study, and the place of each matrix in the plane."""

    study: Study
    plane: np.ndarray
    method: str
    """How the plane was made."""


class Figure1(Experiment):
    """Each dot is an orthogonal 64×64 middle layer; its accuracy is the mean of 100 one-shot runs."""

    name = "figure1"
    title = "Figure 1: alignment and accuracy"
    of_paper = True
    files = ("figure1",)

    def run(self, options: Options) -> None:
        """Train every matrix in both modes, and place them in the plane meanwhile."""
        size: dict[str, Any] = QUICK if options.quick else FULL
        device, dataset = pick_device(options.device), Problems(directory=options.data).dataset("mnist")
        start = time.perf_counter()
        with ThreadPoolExecutor(1) as aside, progress(1.0, self.label(options.quick)) as advance:
            placing: list[Future[tuple[np.ndarray, str]]] = []  # the plane needs the matrices, and a CPU, alone
            result = study(
                dataset, device, progress=advance, begun=lambda vectors: placing.append(aside.submit(embed, vectors)),
                **size,
            )  # fmt: skip
            evidence = Found(result, *placing[0].result())
        seconds = time.perf_counter() - start
        networks = (size["matrices"] + size["members"]) * size["trials"] * len(MODES)
        self.write_rows(_rows(evidence), options, device=device, seconds=seconds, networks=networks)
        for table in self.tables(evidence):
            table.show()
        self.write_pictures(evidence, options)
        if options.quick:
            print(QUICK_NOTE)

    def seconds(self, options: Options) -> float:
        """From one training of some matrices in both modes; the plane is made meanwhile."""
        size = QUICK if options.quick else FULL
        device, dataset = pick_device(options.device), Problems(directory=options.data).dataset("mnist")
        some = chunk(device)
        study(dataset, device, matrices=1, members=1, trials=1)  # the first takes longer
        begun, start = time.process_time(), time.perf_counter()
        study(dataset, device, matrices=some - 1, members=1, trials=1)
        parts = -(-(size["matrices"] + size["members"]) // some) * size["trials"]
        return begun + (time.perf_counter() - start) * parts

    def evidence(self, results: Results) -> Found | None:
        """The study as it was written; the vectors themselves are not kept."""
        rows = results.table(self.name)
        if not rows:
            return None
        try:
            names = ("member", "alignment", *(f"accuracy_{mode}" for mode in MODES), "x", "y")
            method = str(rows[0].get("plane", "UMAP"))  # which it was before that was noted
            column = {
                name: np.array([np.nan if row[name] == "" else row[name] for row in rows], float) for name in names
            }
        except (KeyError, ValueError) as error:
            raise StiefelError(f"{results.place / 'figure1.csv'} is damaged ({error}); restore the file.") from error
        accuracy = {mode: column[f"accuracy_{mode}"] for mode in MODES}
        plane = np.array([column["x"], column["y"]]).T
        return Found(Study(column["member"] == 1, column["alignment"], np.empty((0, 0)), accuracy), plane, method)

    def tables(self, evidence: Found) -> list[Table]:
        """The correlation in each mode."""
        result, rows = evidence.study, []
        for mode in MODES:
            r, low, high = result.correlation(mode)
            haar, member = (result.accuracy[mode][which].mean() for which in (~result.aligned, result.aligned))
            theirs = f"{published('figure1')[0].value:.4f}"
            rows.append([mode, f"{r:.4f}", f"{low:.4f} … {high:.4f}", theirs, f"{haar:.2f}", f"{member:.2f}"])
        header = ["outer layers and images", "r", "95 % interval", "published r", "accuracy, Haar", "accuracy, members"]
        return [Table(f"figure1: {len(result.alignment):,} matrices", header, rows)]

    def pictures(self, evidence: Found) -> dict[str, Any]:
        """Alignment against accuracy."""
        return {"results-figure1": _picture(*evidence)}

    def claims(self, evidence: Found | None) -> list[Claim]:
        """That alignment predicts accuracy."""
        claim = "Alignment 1ᵀW1 correlates with one-shot accuracy (figure 1, r = 0.8178)"
        if evidence is None:
            return [Claim(claim, "not tested", "No records.")]
        result, parts = evidence.study, []
        for mode in MODES:
            r, low, high = result.correlation(mode)
            count = int((~result.aligned & np.isfinite(result.accuracy[mode])).sum())
            parts.append(f"{mode} outer layers and images, {count:,} matrices: r = {r:.3f} ({low:.3f} … {high:.3f})")
        haar, member = (result.accuracy[MODES[0]][which].mean() for which in (~result.aligned, result.aligned))
        text = f"{'; '.join(parts)}. Mean accuracy {haar:.2f} %; members of the set, {member:.2f} %."
        return [Claim(claim, "holds" if result.correlation(MODES[0])[1] > 0.5 else "does not hold", text)]

    def section(self, evidence: Found) -> list[str]:
        """The picture."""
        return [
            f"## {self.title}", "",
            "Each dot is an orthogonal 64×64 middle layer; its accuracy is the mean of 100 one-shot runs. The members",
            "of the set, which have the largest possible alignment, are marked.", "",
            *self.shown(evidence),
        ]  # fmt: skip


def _rows(evidence: Found) -> Sequence[dict[str, str]]:
    """One line per matrix, with its place in the plane."""
    result, plane, method = evidence
    rows = []
    for i in range(len(result.alignment)):
        scores = {
            f"accuracy_{mode}": "" if np.isnan(values[i]) else f"{values[i]:.4f}"
            for mode, values in result.accuracy.items()
        }
        rows.append(
            {
                "member": str(int(result.aligned[i])), "alignment": f"{result.alignment[i]:.4f}", **scores,
                "x": f"{plane[i, 0]:.3f}", "y": f"{plane[i, 1]:.3f}", "plane": method,
            }
        )  # fmt: skip
    return rows


def _picture(study: Study, plane: np.ndarray, method: str, mode: str = "shared") -> Figure:
    """Figure 1: alignment against accuracy, and the plane coloured by each; members marked."""
    drawn, axes = plots.figure(3, size=(4.6, 3.8), label="Alignment against accuracy")
    haar = ~study.aligned
    score, accuracy = study.alignment, study.accuracy[mode]
    r, low, high = study.correlation(mode)
    first: Axes = axes[0, 0]
    first.scatter(score[haar], accuracy[haar], s=3, alpha=0.3, color="#555555", linewidths=0, label="Haar orthogonal")
    first.scatter(
        score[~haar],
        accuracy[~haar],
        s=10,
        color=plots.colour("stiefel"),
        marker="D",
        linewidths=0,
        label="members of Õ(64,64)",
    )
    first.set(
        xlabel="alignment 1ᵀW1", ylabel="one-shot accuracy (%)", title=f"r = {r:.3f} ({low:.3f} … {high:.3f}), {mode}"
    )
    first.legend(loc="lower right", markerscale=2)
    for axis, values, label in ((axes[0, 1], score, "alignment"), (axes[0, 2], accuracy, "accuracy (%)")):
        low_c, high_c = np.percentile(values[haar], [1, 99])
        dots = axis.scatter(*plane[haar].T, c=values[haar], s=4, cmap="viridis", vmin=low_c, vmax=high_c, linewidths=0)
        axis.scatter(*plane[~haar].T, s=14, facecolors="none", edgecolors="red", linewidths=0.6)
        drawn.colorbar(dots, ax=axis, label=label)
        axis.set(title=f"{method} of sorted Wᵀ1, by {label.split()[0]}", xticks=[], yticks=[])
        axis.grid(False)
    return drawn
