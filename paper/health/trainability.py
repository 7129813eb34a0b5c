"""The networks of the study of `diagnose`: tasks, architectures, initializations and faults, and how they are trained.

Which there are is in the record, a row for each: those that the rules were written with; those of seeds 7, 13 and 17,
of other depths and mixtures, the first two fresh for earlier versions of the rules; and those of seed 19, `FRESH`,
which were first looked at when all rules and thresholds stood.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.health import AT_INITIALIZATION as RULES
from stiefel_init.health import Evidence
from stiefel_init.torch import diagnose, initialize_

Row = dict[str, Any]
FRESH = 19
ROWS, WIDTH, CHANNELS, BATCH, STEPS = 256, 32, 8, 64, 200
RATES = (1e-3, 3e-3, 3e-4)
ENOUGH = 0.85  # a score from which on no further rate is tried
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU,
    "mish": nn.Mish, "hardswish": nn.Hardswish, "sigmoid": nn.Sigmoid, "none": nn.Identity,
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """One network: everything that decides it."""

    task: str
    architecture: str
    depth: int
    activation: str
    start: str
    fault: str = ""
    seed: int = 0


@dataclass
class Case:
    """A network with its data, ready to be diagnosed and trained."""

    model: nn.Module
    inputs: Tensor
    targets: Tensor

    def layer(self, at: int | None = None) -> Any:
        """The layer at a place; the middle one by default."""
        layers = [module for module in self.model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
        return layers[len(layers) // 2 if at is None else at]

    def change_bias(self, value: Callable[[Tensor], Tensor]) -> None:
        self.layer().bias.copy_(value(self.layer().bias))

    def zero_layer(self) -> None:
        self.layer().weight.zero_()
        self.layer().bias.zero_()

    def repeat_stem(self, distinct: int) -> None:
        stem = self.layer(0)
        which = torch.arange(len(stem.weight)) % distinct
        stem.weight.copy_(stem.weight[which])
        stem.bias.copy_(stem.bias[which])

    def change_inputs(self, scale: float = 1.0, offset: float = 0.0) -> None:
        self.inputs = scale * self.inputs + offset

    def widen_one_feature(self) -> None:
        self.inputs[:, self.inputs.std(0).argmax()] *= 1e6

    def change_targets(self, scale: float = 1.0, offset: float = 0.0) -> None:
        self.targets = scale * self.targets + offset


FAULTS: dict[str, tuple[str, Callable[[Case], Any]]] = {
    "bias -100": ("biases", lambda case: case.change_bias(lambda b: b - 100)),
    "bias ±100": ("biases", lambda case: case.change_bias(lambda b: 100 * torch.randn(b.shape))),
    "zero layer": ("weights", Case.zero_layer),
    "small layer": ("weights", lambda case: case.layer().weight.mul_(1e-4)),
    "large layer": ("weights", lambda case: case.layer().weight.mul_(1e4)),
    "equal stem": ("weights", lambda case: case.repeat_stem(1)),
    "few stem": ("weights", lambda case: case.repeat_stem(2)),
    "inputs 0..255": ("inputs", lambda case: case.change_inputs(255)),
    "inputs 1e-3": ("inputs", lambda case: case.change_inputs(1e-3)),
    "inputs 1e-6": ("inputs", lambda case: case.change_inputs(1e-6)),
    "feature 1e6": ("inputs", Case.widen_one_feature),
    "inputs +10": ("inputs", lambda case: case.change_inputs(offset=10)),
    "inputs +100": ("inputs", lambda case: case.change_inputs(offset=100)),
    "inputs -3": ("inputs", lambda case: case.change_inputs(offset=-3)),
    "targets +3": ("targets", lambda case: case.change_targets(offset=3)),
    "targets +10": ("targets", lambda case: case.change_targets(offset=10)),
    "targets +1000": ("targets", lambda case: case.change_targets(offset=1000)),
    "targets 1e4": ("targets", lambda case: case.change_targets(1e4)),
    "targets 1e-4": ("targets", lambda case: case.change_targets(1e-4)),
    "common head": ("weights", lambda case: None),  # it is initialized so
    "diverged": ("training", lambda case: train(case, 2.0, 40)),  # type: ignore[has-type]
    "linear": ("activation", lambda case: None),  # it is built so
    "large head": ("weights", lambda case: case.layer(-1).weight.mul_(1e3)),
    "trained": ("", lambda case: train(case, 2e-3, 300)),  # type: ignore[has-type]
}
"""Name → what it is called if it makes a network sick, and how it is planted; to be trained already is no fault."""


@cache
def data(task: str, steps: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    if task == "digits":
        bunch = load_digits()
        return torch.tensor(bunch.data / 16, dtype=torch.float32), torch.tensor(bunch.target)
    if task == "cancer":
        bunch = load_breast_cancer()
        x = torch.tensor(bunch.data)
        return ((x - x.mean(0)) / x.std(0)).float(), torch.tensor(bunch.target)
    if task == "waves":
        x = torch.randn(1024, 6, generator=generator)
        y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] / 2
        return x, ((y - y.mean()) / y.std()).unsqueeze(1)
    classes = torch.randint(4, (512,), generator=generator)  # recall: the class is told at the first step alone
    x = 0.3 * torch.randn(512, steps, 4, generator=generator)
    x[:, 0] += 2 * F.one_hot(classes, 4)
    return x, classes


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, width: int, activation: str, norm: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(self.activation(self.inner(self.norm(x))))


class Transformer(nn.Module):
    """The rows of a digit are its tokens."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem, self.positions = nn.Linear(8, WIDTH), nn.Parameter(torch.randn(8, WIDTH) / 8)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.stem(x.unflatten(1, (8, 8))) + self.positions).mean(1))


class Recurrent(nn.Module):
    """Reads steps and answers after the last."""

    def __init__(self, kind: str, features: int, outputs: int) -> None:
        super().__init__()
        self.features = features
        self.layer = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[kind](features, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x if x.ndim == 3 else x.unflatten(1, (-1, self.features)))[0][:, -1])


def architecture(spec: Spec, features: int, outputs: int) -> nn.Module:
    activation = ACTIVATIONS["none" if spec.fault == "linear" else spec.activation]
    if spec.architecture == "mlp":
        sizes = [features] + [WIDTH] * spec.depth
        layers: list[nn.Module] = [m for n in sizes[:-1] for m in (nn.Linear(n, WIDTH), activation())]
        return nn.Sequential(*layers, nn.Linear(WIDTH, outputs))
    if spec.architecture == "cnn":
        layers = [nn.Unflatten(1, (1, 8, 8))]
        for at in range(spec.depth):
            layers += [nn.Conv2d(CHANNELS if at else 1, CHANNELS, 3, padding=1), activation()]
        return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16 * CHANNELS, outputs))
    if spec.architecture.startswith("resnet"):
        norm = spec.architecture.endswith("norm")
        blocks = [Residual(WIDTH, spec.activation, norm) for _ in range(spec.depth)]
        return nn.Sequential(nn.Linear(features, WIDTH), *blocks, nn.Linear(WIDTH, outputs))
    if spec.architecture == "transformer":
        return Transformer(spec.depth)
    return Recurrent(spec.architecture, 4 if spec.task == "recall" else 8, outputs)


def build(spec: Spec) -> Case:
    """The network with its start and its fault, and its data."""
    x, y = data(spec.task, spec.depth if spec.task == "recall" else 0)
    torch.manual_seed(spec.seed)
    outputs = {"digits": 10, "cancer": 2, "waves": 1, "recall": 4}[spec.task]
    model = architecture(spec, 4 if spec.task == "recall" else x.shape[1], outputs)
    if spec.start == "paper" or spec.fault == "common head":
        initialize_(model, recipe="paper", seed=spec.seed)
    elif spec.start in ("best", "open"):
        initialize_(model, seed=spec.seed)
    elif spec.start != "torch":
        initialize_(model, spec.start, seed=spec.seed)
    if spec.start == "open":
        open_gates(model.get_submodule("layer"), spec.depth)
    case = Case(model, x.clone(), y.clone())
    if spec.fault:
        with torch.no_grad():
            FAULTS[spec.fault][1](case)
    return case


def open_gates(layer: nn.Module, steps: int) -> None:
    """Biases that let a gated layer remember for up to `steps` steps."""
    size: int = layer.hidden_size  # type: ignore[assignment]
    with torch.no_grad():
        for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
            bias.zero_()  # type: ignore[operator]
        # The forget gate of an LSTM and the update gate of a GRU are the second of the gates.
        layer.bias_ih_l0[size : 2 * size] = math.log(steps)  # type: ignore[operator]


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs, targets) if targets.is_floating_point() else F.cross_entropy(outputs, targets)


@torch.enable_grad()
def train(case: Case, rate: float, steps: int = STEPS) -> float:
    """Train in place with Adam, and return the score: 1 is perfect, 0 is the best constant answer."""
    model, x, y = case.model, case.inputs, case.targets
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(x), (BATCH,), generator=generator)
        value = loss(model(x[rows]), y[rows])
        if not bool(value.isfinite()):
            break
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return score(case)


@torch.no_grad()
def score(case: Case) -> float:
    """The share of the best constant output's loss that the network removes, on all data."""
    outputs, y = case.model(case.inputs).double(), case.targets
    if y.is_floating_point():
        y = y.double()
        constant = float(y.var(correction=0))
    else:
        shares = torch.bincount(y).double() / len(y)
        constant = float(torch.special.entr(shares).sum())
    value = float(loss(outputs, y))
    return max(0.0, 1 - value / constant) if math.isfinite(value) else 0.0


def trained_score(case: Case) -> tuple[float, float]:
    """The best score over the rates, and the rate that got it; the case itself stays as it is."""
    best = (-1.0, 0.0)
    for rate in RATES:
        best = max(best, (train(replace(case, model=copy.deepcopy(case.model)), rate), rate))
        if best[0] >= ENOUGH:
            break
    return best


def examine(row: Row, again: bool) -> Row:
    """Diagnose the network of a row of the record; train it, too, if it is to be trained `again`."""
    spec = Spec(**{field.name: row[field.name] for field in fields(Spec)})
    case = build(spec)
    found = diagnose(case.model, case.inputs[:ROWS], case.targets[:ROWS])
    evidence = Evidence(found.layers, found.inputs, found.fit, found.curvature)
    measured = {kind: rule.measure(evidence, rule.threshold) for kind, rule in RULES.items()}
    reached, rate = trained_score(case) if again else (row["score"], row["rate"])
    return {
        **asdict(spec), "score": round(reached, 4), "rate": rate,
        "findings": [finding.kind for finding in found.findings],
        "warnings": [finding.kind for finding in found.warnings],
        "causes": list(dict.fromkeys(finding.cause for finding in found.findings)),
        "learned": found.fit is not None and found.fit.learned,
        "measured": {kind: _short(value.value) for kind, value in measured.items() if value is not None},
    }  # fmt: skip


def _short(value: float) -> float:
    return 1e300 if value > 1e300 or math.isnan(value) else float(f"{value:.3g}")
