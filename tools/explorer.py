"""Measure real networks for the site's explorer: its dots, beside which its curves are drawn.

    python -m tools.explorer    # docs/explorer/measured.json, two minutes

Images: the published record of `stiefel-init reproduce signal`. Noise: networks drawn here, the median of ten.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from paper.results import Results
from torch import nn

from stiefel_init.theory.moments import resolve
from stiefel_init.torch import draw_, initialize_
from stiefel_init.torch.observe.statistics import distinct

FILE = Path(__file__).parents[1] / "docs" / "explorer" / "measured.json"
COLUMNS = ("mean", "std", "active", "ratio", "distinct", "gradient")
SCHEMES = ("recipe", "stiefel", "permutation", "identity", "lee", "he", "xavier", "orthogonal", "random")
ACTIVATIONS = ("relu", "leaky_relu", "prelu", "elu", "selu", "tanh")
NETWORKS, INPUTS = 10, 256
SETTINGS = (  # name, inputs, width, depth, mean, std, activations
    ("noise like MNIST", 784, 64, 100, 0.13, 0.31, ACTIVATIONS),
    ("centred noise", 64, 64, 100, 0.0, 1.0, ACTIVATIONS),
    ("noise at α = 2, narrow", 16, 16, 50, 2.0, 1.0, ACTIVATIONS),
    ("a thousand layers", 64, 64, 1000, 0.5, 1.0, ("relu",)),
)


def measure(scheme: str, activation: str, widths: list[int], mean: float, std: float, seed: int) -> np.ndarray:
    """Of one network, layer by layer: mean and deviation before the activation, share that fires, variance ratio after
    it, distinct units, and the gradient by what comes before it, 1 at the top."""
    generator = torch.Generator().manual_seed(seed)
    function: Any = resolve(activation, {})
    x = mean + std * torch.randn(INPUTS, widths[0], generator=generator, dtype=torch.float64)
    rows, tape, before = [], [], float(x.std())
    for weight in weights(scheme, widths, seed, generator):
        y = x @ weight.T
        x = torch.from_numpy(np.asarray(function(y.numpy())))
        tape.append((weight, torch.from_numpy(np.asarray(function.slope(y.numpy())))))
        now = float(x.std())
        ratio = (now / before) ** 2 if before else np.nan
        told: tuple[Any, ...] = (y.mean(), y.std(), (y > 0).double().mean(), ratio, distinct(x[None]))
        rows.append([float(each) for each in told])
        before = now
    gradient = torch.randn(INPUTS, widths[-1], generator=generator, dtype=torch.float64)
    for row, (weight, slope) in zip(reversed(rows), reversed(tape)):
        row.append(float((gradient * slope).norm()))
        gradient = (gradient * slope) @ weight
    for row in rows:
        row[-1] = row[-1] / (rows[-1][-1] or np.nan)
    return np.array(rows)


def weights(scheme: str, widths: list[int], seed: int, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """Of all layers, as they are needed: one by one, or those of a model that `initialize_` has seen."""
    if scheme != "recipe":
        for n, m in pairwise(widths):
            yield draw_(torch.empty(m, n, dtype=torch.float64), scheme, generator=generator)
        return
    layers = [nn.Linear(n, m, dtype=torch.float64) for n, m in pairwise(widths)]
    head = nn.Linear(widths[-1], 10, dtype=torch.float64)
    initialize_(nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), head), seed=seed)
    assert not any(layer.bias.any() for layer in layers)  # the curves here have none
    yield from (layer.weight.detach() for layer in layers)


def network(name: str, scheme: str, activation: str, setting: tuple[Any, ...]) -> dict[str, Any]:
    """One entry of the file: the median of the networks at the shown layers."""
    inputs, width, depth, mean, std = setting
    widths, seeds = [inputs] + [width] * depth, range(1 if scheme == "lee" else NETWORKS)
    runs = [measure(scheme, activation, widths, mean, std, seed) for seed in seeds]
    return entry(name, scheme, activation, setting, np.median(runs, axis=0))


def entry(name: str, scheme: str, activation: str, setting: tuple[Any, ...], rows: np.ndarray) -> dict[str, Any]:
    inputs, width, depth, mean, std = setting
    layers = sorted({round(layer) for layer in np.geomspace(1, depth, 14)})  # with a dot, evenly in the logarithm
    keys = COLUMNS if rows.shape[1] == len(COLUMNS) else [key for key in COLUMNS if key != "distinct"]
    columns = {key: [_short(rows[layer - 1, place]) for layer in layers] for place, key in enumerate(keys)}
    return {
        "name": name, "scheme": scheme, "activation": activation, "inputs": inputs, "width": width, "depth": depth,
        "mean": mean, "std": std, "layers": layers, "measured": columns,
    }  # fmt: skip


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None


def images() -> Iterable[dict[str, Any]]:
    """The networks of results/signal.csv; mean and deviation of the pixels are where its predictions started."""
    rows = Results().table("signal")
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        of = {
            scheme: [row for row in rows if (row["dataset"], row["scheme"]) == (dataset, scheme)]
            for scheme in dict.fromkeys(row["scheme"] for row in rows)
        }
        first = of["stiefel"][0]  # its mean is √(784/64) times that of the pixels
        mean, std = first["predicted_mean"] / (784 / 64) ** 0.5, first["predicted_std"]
        setting = 784, 64, 100, round(mean, 3), round(std, 3)
        name = {"mnist": "MNIST images"}.get(dataset, "Fashion-MNIST images")
        for scheme, layers in of.items():
            columns = [[row[key] for row in layers] for key in ("mean", "std", "active", "variance_ratio", "gradient")]
            columns[-1] = [value / columns[-1][-1] if columns[-1][-1] else np.nan for value in columns[-1]]
            yield entry(name, scheme, "relu", setting, np.array(columns).T)


def noise() -> Iterable[dict[str, Any]]:
    for name, *setting, activations in SETTINGS:
        for scheme, activation in product(SCHEMES, activations):
            if activation == "relu" or scheme not in ("recipe", "permutation", "identity"):
                yield network(name, scheme, activation, tuple(setting))


def main() -> None:
    networks = [*images(), *noise()]
    lines = ",\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in networks)
    FILE.write_text(f'{{"networks": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"wrote {FILE.name}: {len(networks)} kinds of networks")


if __name__ == "__main__":
    main()
