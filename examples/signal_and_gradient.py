"""Six initializations over 100 ReLU layers: what the theory predicts (lines) and what images do (points).

    python examples/signal_and_gradient.py                      # MNIST where it is found, else digits
    python examples/signal_and_gradient.py --data DIR           # MNIST, from DIR/mnist/*.gz in idx format
    python examples/signal_and_gradient.py --data DIR --record  # also docs/: theory_numbers.json, tables, picture

STIEFEL_INIT_DATA stands for --data.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stiefel_init.theory import finite_width, propagate
from stiefel_init.torch import draw_

DEPTH, WIDTH = 100, 64
LAYERS = (1, 10, 50, 100)
KINDS = ("measured", "pooled", "own")
QUANTITIES = ("mean", "std", "active", "gradient")
TEST_IMAGES = "t10k-images-idx3-ubyte.gz"
DOCS = Path(__file__).parents[1] / "docs"
SCHEMES = ("stiefel", "lee", "he", "xavier", "orthogonal", "random")
MARKERS = dict(zip(SCHEMES, "osD^vX"))
COLOURS = dict(zip(SCHEMES, ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#777777")))


def images(dataset: str, data: Path | None) -> Path | None:
    """The file of test images, if it is there."""
    path = None if data is None else data / dataset / TEST_IMAGES
    return path if path is not None and path.is_file() else None


def load(dataset: str, data: Path | None, count: int) -> torch.Tensor:
    """The first `count` test images as rows of pixels in [0, 1]."""
    if dataset == "digits":
        from sklearn.datasets import load_digits

        return torch.from_numpy(load_digits().data[:count] / 16)
    if data is None:
        sys.exit(f"{dataset} needs --data DIR or STIEFEL_INIT_DATA, with {dataset}/{TEST_IMAGES} in it.")
    path = images(dataset, data)
    if path is None:
        sys.exit(f"There is no {data / dataset / TEST_IMAGES}; give --data the folder that holds {dataset}/.")
    pixels = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16)
    return torch.from_numpy(pixels.reshape(-1, 784)[:count] / 255)


def measure(scheme: str, inputs: torch.Tensor, widths: list[int], networks: int) -> dict[str, np.ndarray]:
    """Per layer, of post-activations over units and inputs: mean, std, active fraction; and the gradient's length.

    The gradient starts at the top as one random vector for all inputs; its length is relative to that. Lengths,
    means and deviations are geometric means over networks.
    """
    generator = torch.Generator().manual_seed(SCHEMES.index(scheme))
    fixed = scheme == "lee"
    runs = []
    for _ in range(1 if fixed else networks):
        x, tape, rows = inputs, [], []
        for n, m in pairwise(widths):
            weight = draw_(torch.empty(m, n, dtype=torch.float64), scheme, generator=generator)
            y = x @ weight.T
            x = y.relu()
            tape.append((weight, y > 0))
            rows.append([x.mean().log(), x.std().log(), (y > 0).double().mean()])
        gradient = torch.randn(1, widths[-1], generator=generator, dtype=torch.float64).expand(len(x), -1)
        top = gradient.norm()
        for row, (weight, on) in zip(reversed(rows), reversed(tape)):
            gradient = (gradient * on) @ weight
            row.append((gradient.norm() / top).log())
        runs.append(rows)
    mean, std, active, gradient = np.asarray(runs).mean(0).T
    return {"mean": np.exp(mean), "std": np.exp(std), "active": active, "gradient": np.exp(gradient)}


def predict(scheme: str, mean: Any, std: Any, widths: list[int]) -> dict[str, np.ndarray]:
    """The theory's columns, named as in `measure`, and how far below them a typical network of finite width lies."""
    p = propagate(widths, mean=mean, std=std, scheme=scheme)
    gradient = np.cumprod(p.gradient_factor[::-1])[::-1]
    shift = finite_width(p).log_shift
    return {
        "mean": p.post_mean,
        "std": p.post_std,
        "active": p.active,
        "gradient": gradient,
        "typical_std": p.post_std * np.exp(shift),
        "typical_gradient": gradient * np.exp(shift[-1] - np.concatenate(([0], shift[:-1]))),
    }


def compare(inputs: torch.Tensor, networks: int) -> dict[str, Any]:
    """Measurement, prediction from the pooled mean and std, and from every image's own, for every scheme."""
    widths = [inputs.shape[1]] + [WIDTH] * DEPTH
    mean, std = float(inputs.mean()), float(inputs.std())
    own = inputs.mean(1).numpy(), inputs.std(1, correction=0).numpy()
    return {
        "mean": mean,
        "std": std,
        "schemes": {
            scheme: {
                "measured": measure(scheme, inputs, widths, networks),
                "pooled": predict(scheme, mean, std, widths),
                "own": None if scheme == "lee" else predict(scheme, *own, widths),
            }
            for scheme in SCHEMES
        },
    }


def isotropic(networks: int = 25_600) -> list[dict[str, float]]:
    """Gaussian inputs under stiefel: N · (measured - predicted) after 100 layers of width N, in units of σ."""
    rows = []
    for alpha in (0.0, 0.3, 1.0):
        for width in (16, 32, 64, 128):
            count = networks // width
            generator = torch.Generator().manual_seed(width)
            x = alpha + torch.randn(count, 16, width, generator=generator, dtype=torch.float64)
            for _ in range(DEPTH):
                weights = torch.empty(count, width, width, dtype=torch.float64)
                for weight in weights:
                    draw_(weight, generator=generator)
                y = x @ weights.mT
                x = y.relu()
            p = propagate([width] * (DEPTH + 1), mean=alpha, std=1.0)
            term = finite_width(p)
            row: dict[str, float] = {"alpha": alpha, "width": width, "networks": count}
            for name, found, expected in (
                ("mean", x.mean((1, 2)), p.post_mean),
                ("std", x.flatten(1).std(1), p.post_std),
                ("active", (y > 0).double().mean((1, 2)), p.active),
            ):
                row[name] = width * float(found.mean() - expected[-1])
                row[f"{name}_error"] = width * float(found.std()) / count**0.5
                row[f"{name}_term"] = width * float(getattr(term, name)[-1])
            rows.append(row)
    return rows


def taper(networks: int = 50) -> dict[str, Any]:
    """Gaussian inputs through several rectangular layers."""
    widths, at = [300] + [200] * 6 + [100] * 3 + [250] * 2, [1, 6, 7, 10, 11]
    x = 0.3 + torch.randn(2000, widths[0], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result: dict[str, Any] = {"widths": widths, "layers": at, "schemes": {}}
    for scheme in ("stiefel", "lee"):
        predicted, measured = predict(scheme, 0.3, 1.0, widths), measure(scheme, x, widths, networks)
        result["schemes"][scheme] = {
            k: [[float(f"{v[i - 1]:.3g}") for v in (measured[k], predicted[k])] for i in at] for k in QUANTITIES
        }
    return result


def picture(result: dict[str, Any], name: str, path: Path) -> None:
    """Prediction as lines, measurement as points: signal, active fraction, gradient."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    layer, shown = np.arange(1, DEPTH + 1), np.r_[0, np.arange(4, DEPTH, 5)]
    panels = {
        "std": "standard deviation of the activations",
        "active": "fraction of units that fire",
        "gradient": "length of the gradient, 1 at the top",
    }
    style: Any = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "font.size": 13,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(3, 1, figsize=(6.2, 11), layout="constrained")
        for axis, (column, title) in zip(axes, panels.items()):
            for scheme, columns in result["schemes"].items():
                predicted, colour = columns["own"] or columns["pooled"], COLOURS[scheme]
                axis.plot(layer, predicted[column], color=colour, lw=1.7)
                if column != "active":
                    axis.plot(layer, predicted[f"typical_{column}"], ":", color=colour, lw=1.4)
                points = columns["measured"][column][shown]
                axis.plot(layer[shown], points, MARKERS[scheme], color=colour, ms=6, mec="white", mew=0.6, zorder=4)
            axis.set(title=title, xlabel="layer", xlim=(0, DEPTH + 1))
            if column == "active":
                axis.set_ylim(0.4, 1.02)
            else:
                axis.set(yscale="log", ylim=(1e-4, 2))
        line = mpl.lines.Line2D
        handles = [line([], [], color=COLOURS[s], marker=MARKERS[s], mec="white", ms=7, label=s) for s in SCHEMES]
        handles += [
            line([], [], color="black", lw=1.7, label="predicted"),
            line([], [], color="black", lw=1.4, ls=":", label=f"… typical, {WIDTH} wide"),
            line([], [], color="black", lw=0, marker="o", mec="white", ms=7, label="measured"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
        figure.suptitle(f"{DEPTH} ReLU layers, {WIDTH} wide, before training, on {name}")
        figure.savefig(path, dpi=100)
        plt.close(figure)


def record(data: Path | None, networks: int, images: int) -> dict[str, Any]:
    """What docs/theory_numbers.json holds."""
    result: dict[str, Any] = {"layers": LAYERS, "width": WIDTH, "networks": networks, "images": images, "data": {}}
    for dataset in ("mnist", "fashion-mnist"):
        found = compare(load(dataset, data, images), networks)
        for columns in found["schemes"].values():
            for kind, values in columns.items():
                if values is not None:
                    columns[kind] = {k: [float(f"{v[at - 1]:.4g}") for at in LAYERS] for k, v in values.items()}
        result["data"][dataset] = found
    result["taper"] = taper()
    result["isotropic"] = [{k: float(f"{v:.3g}") for k, v in row.items()} for row in isotropic()]
    return result


def stiefel_table(numbers: dict[str, Any]) -> str:
    """measured, predicted from the pooled mean and std, predicted from every image's own: a Markdown table."""
    lines = [f"| data | quantity | {' | '.join(f'layer {at}' for at in LAYERS)} |", f"|---|---|{'---|' * len(LAYERS)}"]
    for dataset, found in numbers["data"].items():
        columns = found["schemes"]["stiefel"]
        for quantity in QUANTITIES:
            cells = (" / ".join(f"{columns[kind][quantity][i]:.3f}" for kind in KINDS) for i in range(len(LAYERS)))
            lines.append(f"| {dataset} | {quantity} | {' | '.join(cells)} |")
    return "\n".join(lines)


def scheme_table(numbers: dict[str, Any]) -> str:
    """measured/predicted std, pooled and own: a Markdown table."""
    names = [f"layer {at}" for at in LAYERS]
    lines = [f"| data | scheme | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for dataset, found in numbers["data"].items():
        for scheme, columns in found["schemes"].items():
            kinds = [kind for kind in KINDS[1:] if columns[kind] is not None]
            cells = []
            for i in range(len(LAYERS)):
                measured = columns["measured"]["std"][i]
                cells.append(" / ".join(f"{measured / columns[kind]['std'][i]:.2f}" for kind in kinds))
            lines.append(f"| {dataset} | {scheme} | {' | '.join(cells)} |")
    return "\n".join(lines)


def width_table(numbers: dict[str, Any]) -> str:
    """N × error ± standard error, beside the finite-width term, as a Markdown table."""
    lines = ["| α of the input | N | N·(mean error)/σ | N·(std error)/σ | N·(active error) |", "|---|---|---|---|---|"]
    for row in (row for row in numbers["isotropic"] if row["width"] in (16, 128)):
        cells = (
            f"{row[k]:+.2f} ± {row[f'{k}_error']:.2f} (≤ {row[f'{k}_term']:.2f})" for k in ("mean", "std", "active")
        )
        lines.append(f"| {row['alpha']:g} | {row['width']:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def taper_table(numbers: dict[str, Any]) -> str:
    """measured / predicted, as a Markdown table."""
    found = numbers["taper"]
    names = [f"layer {at}, {found['widths'][at - 1]} → {found['widths'][at]}" for at in found["layers"]]
    lines = [f"| scheme | quantity | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for scheme, columns in found["schemes"].items():
        for quantity in ("mean", "std", "active"):
            cells = (" / ".join(f"{v:.3f}" for v in pair) for pair in columns[quantity])
            lines.append(f"| {scheme} | {quantity} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {"stiefel": stiefel_table, "schemes": scheme_table, "width": width_table, "taper": taper_table}


def _constant(body: str, match: re.Match[str]) -> str:
    return body


def with_tables(text: str, numbers: dict[str, Any]) -> str:
    """`text` with the tables between its <!-- name --> … <!-- end --> marks made from the numbers."""
    for name, table in TABLES.items():
        body = f"<!-- {name} -->\n{table(numbers)}\n<!-- end -->"
        text = re.sub(rf"<!-- {name} -->\n.*?<!-- end -->", partial(_constant, body), text, flags=re.DOTALL)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = os.environ.get("STIEFEL_INIT_DATA")
    parser.add_argument("--data", type=Path, default=Path(folder) if folder else None, help="folder of the idx files")
    parser.add_argument("--dataset", choices=("mnist", "fashion-mnist", "digits"), help="mnist, if it is found")
    parser.add_argument("--output", type=Path, default=Path("signal_and_gradient.png"))
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--record", action="store_true", help="measure again what docs/theory.md reports")
    arguments = parser.parse_args()
    dataset = arguments.dataset or "mnist"
    if not (arguments.dataset or arguments.record or images(dataset, arguments.data)):
        dataset = "digits"
        print("MNIST was not found (--data DIR or STIEFEL_INIT_DATA names its folder): here are scikit-learn's digits.")
    result = compare(load(dataset, arguments.data, arguments.images), arguments.networks)
    picture(result, dataset, arguments.output)
    print(f"{dataset}: pixels have mean {result['mean']:.3f} and std {result['std']:.3f}; picture: {arguments.output}")
    print(f"{'scheme':<12}{'std of layer 100':>18}{'predicted':>11}{'gradient at the input':>23}{'predicted':>11}")
    for scheme, columns in result["schemes"].items():
        predicted, measured = columns["own"] or columns["pooled"], columns["measured"]
        pairs = [(measured[k][at], predicted[k][at]) for k, at in (("std", -1), ("gradient", 0))]
        print(f"{scheme:<12}{pairs[0][0]:>18.2e}{pairs[0][1]:>11.2e}{pairs[1][0]:>23.2e}{pairs[1][1]:>11.2e}")
    if arguments.record:
        picture(result, dataset, DOCS / "signal_and_gradient.png")
        numbers = record(arguments.data, arguments.networks, arguments.images)
        (DOCS / "theory_numbers.json").write_text(json.dumps(numbers, indent=1) + "\n")
        page = DOCS / "theory.md"
        page.write_text(with_tables(page.read_text(), numbers))


if __name__ == "__main__":
    main()
