"""Figure 1: does the alignment 1ᵀW1 of a middle layer predict one-shot accuracy?

Networks 784 → 64 → 64 → 10: the middle matrix is the one under study, the outer layers are Haar orthogonal, and 100
steps of plain gradient descent (rate 0.01) are taken on one image per class. A matrix's score is its mean test accuracy
over the trials. In mode "independent" every training has its own outer layers and images; in mode "shared" trial t has
the same ones for every matrix, which removes their chance from the comparison.

Note [the first layer in ten dimensions]
    Gradient descent moves the first layer only within the span of the ten training images, so instead of W₁ we keep
    D, the sum of rate · (derivatives) for each image: W₁(t) x = W₁(0) x - Dᵀ(X x). Training then touches 10 × 64
    numbers in place of 784 × 64, and the result is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from stiefel_init.core import stream as _stream
from stiefel_init.lab.data import Dataset
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.problem import Problems
from stiefel_init.schemes import Orthogonal, Stiefel
from stiefel_init.torch.sampling.source import fill_

from ..experiment import Claim, Measured, Options, held
from ..results import Results
from ..tables.published import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, CLASSES, STEPS, RATE = 64, 10, 100, 0.01
MODES = ("shared", "independent")
_MOST = {"cuda": 2600, "cpu": 100}  # networks at once, tested on all images


@dataclass(frozen=True)
class Alignment:
    """Scores of the matrices under study, Haar ones first, then members of the set."""

    aligned: np.ndarray
    """Whether a matrix was drawn from Õ(64,64)."""
    alignment: np.ndarray
    """1ᵀW1, the sum of the entries; 64 for a member."""
    accuracy: dict[str, np.ndarray]
    """Mean test accuracy in percent, for each mode; nan where a matrix was not trained in it."""
    plane: np.ndarray
    """The place of each matrix in the plane."""
    method: str
    """How the plane was made."""

    def means(self, mode: str) -> tuple[float, float]:
        """The mean accuracy of Haar matrices and of members of the set."""
        return float(self.accuracy[mode][~self.aligned].mean()), float(self.accuracy[mode][self.aligned].mean())

    def correlation(self, mode: str) -> tuple[float, float, float]:
        """Pearson's r over the Haar matrices, and its 95 % interval (Fisher)."""
        haar = ~self.aligned & np.isfinite(self.accuracy[mode])
        result = stats.pearsonr(self.alignment[haar], self.accuracy[mode][haar])
        low, high = result.confidence_interval(0.95)
        return float(result.statistic), float(low), float(high)


def chunk(device: torch.device, tests: int) -> int:
    """Networks at once: three arrays of their hidden units for all test images take at most half of what is free."""
    if device.type != "cuda":
        return _MOST["cpu"]
    return max(1, min(_MOST["cuda"], torch.cuda.mem_get_info(device)[0] // (2 * 3 * 4 * WIDTH * tests)))


def study(
    dataset: Dataset,
    device: torch.device,
    *,
    matrices: int = 5000,
    members: int = 200,
    trials: int = 100,
    seed: int = 0,
    modes: tuple[str, ...] = MODES,
    progress: Callable[[float], None] = lambda share: None,
) -> Alignment:
    """Train every matrix `trials` times in each mode; `dataset` is MNIST, or any with a fixed split and ten classes."""
    middle = torch.empty(matrices + members, WIDTH, WIDTH, device=device)
    for part, aligned in ((middle[:matrices], False), (middle[matrices:], True)):
        name = "figure1/members" if aligned else "figure1/matrices"
        keys = _stream.fold(_stream.key(seed, name), np.arange(len(part)))
        fill_(part, Stiefel() if aligned else Orthogonal(), keys=keys)
    vectors = middle.double().sum(1)  # Wᵀ1
    images = _Images(dataset, device)
    accuracy, together = {}, chunk(device, len(images.test))
    for mode in modes:
        total = torch.zeros(len(middle), dtype=torch.float64, device=device)
        for trial in range(trials):
            for rows in torch.arange(len(middle)).split(together):
                draws = rows.numpy() * trials + trial if mode == "independent" else np.array([trial])
                total[rows] += _trial(middle[rows], images, draws, f"{seed}/{mode}")
            progress(1 / trials / len(modes))
        accuracy[mode] = (total / trials).cpu().numpy()
    placed = embed(vectors.sort(dim=1).values.cpu().numpy())
    return Alignment(np.arange(len(middle)) >= matrices, vectors.sum(1).cpu().numpy(), accuracy, *placed)


class _Images:
    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        assert dataset.train_rows is not None
        self.x = torch.from_numpy(dataset.x[: dataset.train_rows]).to(device)
        self.scale = dataset.scale
        self.test = torch.from_numpy(dataset.x[dataset.train_rows :]).to(device).float() / dataset.scale
        self.test_y = torch.from_numpy(dataset.y[dataset.train_rows :]).to(device)
        labels = dataset.y[: dataset.train_rows]
        self.rows = [np.flatnonzero(labels == label) for label in range(CLASSES)]

    def one_shot(self, keys: np.ndarray) -> Tensor:
        """One random image of each class for each key: (keys, 10, d)."""
        lots = _stream.words(keys, (0, 1), (0, CLASSES // 2)).reshape(len(keys), CLASSES)
        chosen = np.stack([rows[lots[:, label] % len(rows)] for label, rows in enumerate(self.rows)], 1)
        return self.x[torch.from_numpy(chosen).to(self.x.device)].float() / self.scale


def _trial(middle: Tensor, images: _Images, draws: np.ndarray, name: str) -> Tensor:
    """Test accuracy of each matrix after one training, with the outer layers and images of `draws`: one or one each."""
    device = middle.device
    d = images.x.shape[1]
    keys = {part: _stream.fold(_stream.key(0, f"figure1/{name}/{part}"), draws) for part in ("first", "head", "images")}
    first = fill_(torch.empty(len(draws), WIDTH, d, device=device), Orthogonal(), keys=keys["first"])
    head = fill_(torch.empty(len(draws), CLASSES, WIDTH, device=device), Orthogonal(), keys=keys["head"])
    x = images.one_shot(keys["images"])
    count = len(middle)
    gram = (x @ x.mT + 1).expand(count, -1, -1)  # + 1: the bias learns as one more pixel that is always lit
    z = (x @ first.mT).expand(count, -1, -1).clone()
    w, head = middle.clone(), head.expand(count, -1, -1).clone()
    b, head_b = middle.new_zeros(count, 1, WIDTH), middle.new_zeros(count, 1, CLASSES)
    moved = torch.zeros_like(z)
    wanted = torch.eye(CLASSES, device=device)
    for _ in range(STEPS):
        h1 = z.relu()
        h2 = torch.baddbmm(b, h1, w.mT).relu_()
        slope = (torch.softmax(torch.baddbmm(head_b, h2, head.mT), -1) - wanted) * (RATE / CLASSES)
        d2 = (slope @ head).mul_(h2 > 0)
        d1 = (d2 @ w).mul_(h1 > 0)
        head -= slope.mT @ h2
        head_b -= slope.sum(1, keepdim=True)
        w -= d2.mT @ h1
        b -= d2.sum(1, keepdim=True)
        z -= gram @ d1
        moved += d1
    test_z = images.test @ first.mT  # (1 or count, tests, 64)
    near = images.test @ x.mT + 1
    h1 = torch.baddbmm(test_z.expand(count, -1, -1), near.expand(count, -1, -1), moved, alpha=-1).relu_()
    out = torch.baddbmm(head_b, torch.baddbmm(b, h1, w.mT).relu_(), head.mT)
    return 100 * (out.argmax(-1) == images.test_y).double().mean(1)


def embed(vectors: np.ndarray, seed: int = 0) -> tuple[np.ndarray, str]:
    """The plane of figure 1, under the 1-Wasserstein distance, of sorted vectors the mean |difference|; and its method.

    The paper's is UMAP; where umap-learn is not installed, it is scikit-learn's t-SNE.
    """
    points = vectors / math.sqrt(WIDTH)
    try:
        import umap  # optional: only this picture needs it
    except ImportError:
        from sklearn.manifold import TSNE

        perplexity = min(30.0, max(1.0, (len(points) - 1) / 3))
        tsne = TSNE(metric="manhattan", random_state=seed, init="random", perplexity=perplexity, n_jobs=-1)
        return tsne.fit_transform(points.astype(np.float32)), "t-SNE"
    return umap.UMAP(metric="manhattan", random_state=seed, n_jobs=1).fit_transform(points), "UMAP"


FULL: dict[str, Any] = {"matrices": 5000, "members": 200, "trials": 100}
QUICK: dict[str, Any] = {"matrices": 200, "members": 20, "trials": 5}


class Figure1(Measured):
    """Each dot is an orthogonal 64×64 middle layer; its accuracy is the mean of 100 one-shot runs."""

    name = "figure1"
    title = "Figure 1: alignment and accuracy"
    of_paper = True
    files = ("figure1",)
    numbers = ("member", "alignment", "x", "y")

    def measure(self, options: Options, device: torch.device, advance: Callable[[float], None]) -> tuple[Any, int]:
        size = QUICK if options.quick else FULL
        dataset = Problems(directory=options.data).dataset("mnist")
        networks = (size["matrices"] + size["members"]) * size["trials"] * len(MODES)
        return study(dataset, device, progress=advance, **size), networks

    def rows(self, evidence: Alignment) -> list[dict[str, str]]:
        return [
            {
                "member": str(int(evidence.aligned[i])), "alignment": f"{evidence.alignment[i]:.4f}",
                **{f"accuracy_{m}": "" if np.isnan(v[i]) else f"{v[i]:.4f}" for m, v in evidence.accuracy.items()},
                "x": f"{evidence.plane[i, 0]:.3f}", "y": f"{evidence.plane[i, 1]:.3f}", "plane": evidence.method,
            }
            for i in range(len(evidence.alignment))
        ]  # fmt: skip

    def evidence(self, results: Results) -> Alignment | None:
        """The study as it was written."""
        if not (rows := super().evidence(results)):
            return None
        names = *self.numbers, *(f"accuracy_{mode}" for mode in MODES)
        try:
            read = {n: np.array([np.nan if row[n] == "" else row[n] for row in rows], float) for n in names}
        except (KeyError, ValueError) as error:
            raise self.damaged(results) from error
        accuracy, plane = {mode: read[f"accuracy_{mode}"] for mode in MODES}, np.array([read["x"], read["y"]]).T
        method = str(rows[0].get("plane", "UMAP"))  # which it was before that was noted
        return Alignment(read["member"] == 1, read["alignment"], accuracy, plane, method)

    def tables(self, evidence: Alignment) -> list[Table]:
        rows, theirs = [], f"{published('figure1')[0].value:.4f}"
        for mode in MODES:
            r, low, high = evidence.correlation(mode)
            means = (f"{value:.2f}" for value in evidence.means(mode))
            rows.append([mode, f"{r:.4f}", f"{low:.4f} … {high:.4f}", theirs, *means])
        header = ["outer layers and images", "r", "95 % interval", "published r", "accuracy, Haar", "accuracy, members"]
        return [Table(f"figure1: {len(evidence.alignment):,} matrices", header, rows)]

    def pictures(self, evidence: Alignment) -> dict[str, Any]:
        return {"results-figure1": _picture(evidence)}

    def claims(self, evidence: Alignment | None) -> list[Claim]:
        claim = "Alignment 1ᵀW1 correlates with one-shot accuracy (figure 1, r = 0.8178)"
        if evidence is None:
            return [Claim(claim)]
        parts = []
        for mode in MODES:
            r, low, high = evidence.correlation(mode)
            count = int((~evidence.aligned & np.isfinite(evidence.accuracy[mode])).sum())
            parts.append(f"{mode} outer layers and images, {count:,} matrices: r = {r:.3f} ({low:.3f} … {high:.3f})")
        haar, member = evidence.means(MODES[0])
        text = f"{'; '.join(parts)}. Mean accuracy {haar:.2f} %; members of the set, {member:.2f} %."
        return [Claim(claim, held(evidence.correlation(MODES[0])[1] > 0.5), text)]

    def section(self, evidence: Alignment) -> list[str]:
        return [
            f"## {self.title}", "",
            "Each dot is an orthogonal 64×64 middle layer; its accuracy is the mean of 100 one-shot runs. The members",
            "of the set, which have the largest possible alignment, are marked.", "",
            *self.shown(evidence),
        ]  # fmt: skip


def _picture(study: Alignment, mode: str = "shared") -> Figure:
    """Figure 1: alignment against accuracy, and the plane coloured by each; members marked."""
    drawn, axes = plots.column(3, label="Alignment against accuracy", height=3.8)
    haar, plane = ~study.aligned, study.plane
    score, accuracy = study.alignment, study.accuracy[mode]
    r, low, high = study.correlation(mode)
    first: Axes = axes[0]
    first.scatter(score[haar], accuracy[haar], s=3, alpha=0.3, color="#555555", linewidths=0, label="Haar orthogonal")
    marked: dict[str, Any] = {"color": plots.colour("stiefel"), "marker": "D", "label": "members of Õ(64,64)"}
    first.scatter(score[~haar], accuracy[~haar], s=10, linewidths=0, **marked)
    title = f"r = {r:.3f} ({low:.3f} … {high:.3f}), {mode}"
    first.set(xlabel="alignment 1ᵀW1", ylabel="one-shot accuracy (%)", title=title)
    first.legend(loc="lower right", markerscale=2)
    for axis, values, label in ((axes[1], score, "alignment"), (axes[2], accuracy, "accuracy (%)")):
        low_c, high_c = np.percentile(values[haar], [1, 99])
        dots = axis.scatter(*plane[haar].T, c=values[haar], s=4, cmap="viridis", vmin=low_c, vmax=high_c, linewidths=0)
        axis.scatter(*plane[~haar].T, s=14, facecolors="none", edgecolors="red", linewidths=0.6)
        drawn.colorbar(dots, ax=axis, label=label)
        axis.set(title=f"{study.method} of sorted Wᵀ1, by {label.split()[0]}", xticks=[], yticks=[])
        axis.grid(False)
    return drawn
