"""The networks of the study of `diagnose`: tasks, architectures, initializations, faults, and how they are trained."""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from sklearn.datasets import load_breast_cancer, load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import initialize_

WIDTH, CHANNELS, BATCH, STEPS = 32, 8, 64, 200
RATES = (1e-3, 3e-3, 3e-4)
ENOUGH = 0.85  # a score from which on no further rate is tried
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU, "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU,
    "mish": nn.Mish, "hardswish": nn.Hardswish, "sigmoid": nn.Sigmoid, "none": nn.Identity,
}  # fmt: skip
CAUSES = {
    "bias -100": "biases", "bias ±100": "biases", "zero layer": "weights", "small layer": "weights",
    "large layer": "weights", "equal stem": "weights", "few stem": "weights", "inputs 0..255": "inputs",
    "inputs 1e-3": "inputs", "inputs 1e-6": "inputs", "feature 1e6": "inputs", "inputs +10": "inputs",
    "inputs +100": "inputs", "inputs -3": "inputs", "targets +3": "targets", "targets +10": "targets",
    "targets +1000": "targets", "targets 1e4": "targets", "targets 1e-4": "targets", "common head": "weights",
    "diverged": "training", "linear": "activation", "large head": "weights",
}  # fmt: skip
"""What each planted fault is called if it makes a network sick; a trained network is no fault."""


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


def all_specs() -> list[Spec]:
    """All networks, each once."""
    drawn = [spec for seed in (*EARLIER, *MORE, FRESH) for spec in drawn_specs(seed)]
    return list(dict.fromkeys((*specs(), *drawn)))


def _grid(tasks: str, kinds: str, depths: Iterable[int], activations: str, starts: str, seed: int = 0) -> list[Spec]:
    """Every combination; names are separated by spaces."""
    parts = tasks.split(), kinds.split(), depths, activations.split(), starts.split()
    return [Spec(*chosen, seed=seed) for chosen in itertools.product(*parts)]


def specs() -> Iterator[Spec]:
    """Those that the rules were written with."""
    starts, usual = "best paper torch he xavier orthogonal", "relu tanh gelu sigmoid"
    for task, depths in (("digits", (4, 10, 30, 50)), ("waves cancer", (4, 10, 30))):
        yield from _grid(task, "mlp", depths, usual, starts)
    for activation in ("silu", "mish", "hardswish", "elu", "leaky_relu"):
        yield from _grid("digits", "mlp", (10, 30), activation, "best he torch")
    yield from _grid("digits", "cnn", (4, 12), "relu tanh", starts)
    yield from _grid("digits", "resnet resnet-norm", (5, 20), "relu", "best torch he xavier")
    yield from _grid("digits", "transformer", (1, 4), "relu", "best paper torch xavier")
    yield from _grid("digits", "rnn lstm gru", (8,), "tanh", "best paper torch")
    yield from _grid("recall", "rnn", (10, 40, 120), "tanh", "torch best")
    yield from _grid("recall", "lstm gru", (10, 40, 120), "tanh", "torch best open")
    for fault in (*CAUSES, "trained"):
        yield from _planted(fault)


EARLIER = (7, 13)
"""Seeds of networks that were fresh for earlier versions; they have been looked at since, and serve the thresholds."""
MORE = (17,)
"""Seeds of more networks for the thresholds."""
FRESH = 19
"""The seed of networks that were first looked at when all rules and thresholds of this version stood."""
_DEPTHS = {7: (6, 20, 40, 12, 25, 80), 13: (7, 18, 33, 9, 30, 90)}


def _drawn_depths(seed: int) -> tuple[int, ...]:
    """Of shallow, middle and deep networks, of residual ones, and the numbers of steps."""
    drawn = random.Random(seed)
    ranges = ((5, 9), (13, 25), (28, 45), (6, 15), (20, 40), (60, 120))
    return _DEPTHS.get(seed) or tuple(drawn.randint(*ends) for ends in ranges)


def drawn_specs(seed: int) -> Iterator[Spec]:
    """Networks of other depths and mixtures than those of `specs`."""
    shallow, middle, deep, wide, few, many = _drawn_depths(seed)
    starts = "best torch he xavier"
    yield from _grid("digits waves cancer", "mlp", (shallow, middle, deep), "relu tanh gelu sigmoid", starts, seed)
    yield from _grid("digits", "mlp", (middle,), "silu elu leaky_relu", "best he torch", seed)
    yield from _grid("digits", "cnn", (8,), "relu tanh", starts, seed)
    yield from _grid("digits", "resnet resnet-norm", (wide,), "relu", starts, seed)
    yield from _grid("digits", "transformer", (2,), "relu", "best paper torch xavier", seed)
    for kind, start in itertools.product(("rnn", "lstm", "gru"), ("best", "torch")):
        yield from _grid("digits", kind, (8,), "tanh", start, seed)
        yield from _grid("recall", kind, (few, many), "tanh", start, seed)
    yield from _grid("recall", "gru", (few, many), "tanh", "open", seed)
    for fault in (*CAUSES, "trained"):
        if fault == "large head" and seed == EARLIER[0]:  # planted since
            continue
        for task, activation, start in (
            ("waves", "relu", "best"), ("waves", "tanh", "he"), ("digits", "relu", "torch"), ("digits", "gelu", "best"),
            ("cancer", "tanh", "best"),
        ):  # fmt: skip
            if task == "waves" or not _of_regression(fault):
                yield Spec(task, "mlp", shallow, activation, start, fault, seed=seed)


def _of_regression(fault: str) -> bool:
    return fault.startswith("targets") or fault in ("common head", "linear")


def _planted(fault: str) -> Iterator[Spec]:
    for task, depth, activation, start in (
        ("waves", 4, "relu", "best"), ("waves", 4, "relu", "he"), ("waves", 10, "tanh", "best"),
        ("digits", 4, "relu", "he"), ("digits", 10, "relu", "best"), ("digits", 10, "tanh", "best"),
        ("cancer", 4, "relu", "best"),
    ):  # fmt: skip
        if task == "waves" or not _of_regression(fault) or (fault, start) == ("linear", "he"):
            yield Spec(task, "mlp", depth, activation, start, fault)
    if not _of_regression(fault):
        yield Spec("digits", "resnet", 5, "relu", "torch", fault)
        if fault != "feature 1e6":  # an image has one channel
            yield Spec("digits", "cnn", 4, "relu", "best", fault)


@cache
def data(task: str, steps: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a task."""
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
    """The network, as torch starts it."""
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
    if spec.fault == "common head":
        initialize_(model, recipe="paper", seed=spec.seed)
    elif spec.start in ("best", "open"):
        initialize_(model, seed=spec.seed)
    elif spec.start == "paper":
        initialize_(model, recipe="paper", seed=spec.seed)
    elif spec.start != "torch":
        initialize_(model, spec.start, seed=spec.seed)
    if spec.start == "open":
        open_gates(model.get_submodule("layer"), spec.depth)
    case = Case(model, x.clone(), y.clone())
    if spec.fault in _TRAINED:
        train(case, *_TRAINED[spec.fault])
    elif spec.fault in _FAULTS:  # the others are in the architecture
        with torch.no_grad():
            _FAULTS[spec.fault](case)
    return case


def open_gates(layer: nn.Module, steps: int) -> None:
    """Biases that let a gated layer remember for up to `steps` steps."""
    size: int = layer.hidden_size  # type: ignore[assignment]
    with torch.no_grad():
        for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
            bias.zero_()  # type: ignore[operator]
        # The forget gate of an LSTM and the update gate of a GRU are the second of the gates.
        layer.bias_ih_l0[size : 2 * size] = math.log(steps)  # type: ignore[operator]


def _layer(case: Case, at: int | None = None) -> Any:
    """The layer at a place; the middle one by default."""
    layers = [module for module in case.model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return layers[len(layers) // 2 if at is None else at]


def _scale(layer: Any, scale: float) -> None:
    layer.weight *= scale


def _bias(case: Case, value: Callable[[Tensor], Tensor]) -> None:
    layer = _layer(case)
    layer.bias.copy_(value(layer.bias))


def _zero(case: Case) -> None:
    layer = _layer(case)
    layer.weight.zero_()
    layer.bias.zero_()


def _repeat_stem(case: Case, distinct: int) -> None:
    stem = _layer(case, 0)
    which = torch.arange(len(stem.weight)) % distinct
    stem.weight.copy_(stem.weight[which])
    stem.bias.copy_(stem.bias[which])


def _inputs(scale: float = 1.0, offset: float = 0.0) -> Callable[[Case], None]:
    return lambda case: setattr(case, "inputs", scale * case.inputs + offset)


def _one_feature(case: Case) -> None:
    case.inputs[:, case.inputs.std(0).argmax()] *= 1e6


def _targets(scale: float = 1.0, offset: float = 0.0) -> Callable[[Case], None]:
    return lambda case: setattr(case, "targets", scale * case.targets + offset)


_FAULTS: dict[str, Callable[[Case], Any]] = {
    "bias -100": lambda case: _bias(case, lambda b: b - 100),
    "bias ±100": lambda case: _bias(case, lambda b: 100 * torch.randn(b.shape)),
    "zero layer": _zero,
    "small layer": lambda case: _scale(_layer(case), 1e-4),
    "large layer": lambda case: _scale(_layer(case), 1e4),
    "large head": lambda case: _scale(_layer(case, -1), 1e3),
    "equal stem": lambda case: _repeat_stem(case, 1),
    "few stem": lambda case: _repeat_stem(case, 2),
    "inputs 0..255": _inputs(255),
    "inputs 1e-3": _inputs(1e-3),
    "inputs 1e-6": _inputs(1e-6),
    "feature 1e6": _one_feature,
    "inputs +10": _inputs(offset=10),
    "inputs +100": _inputs(offset=100),
    "inputs -3": _inputs(offset=-3),
    "targets +3": _targets(offset=3),
    "targets +10": _targets(offset=10),
    "targets +1000": _targets(offset=1000),
    "targets 1e4": _targets(1e4),
    "targets 1e-4": _targets(1e-4),
}
_TRAINED = {"trained": (2e-3, 300), "diverged": (2.0, 40)}
"""Rate and steps of a network that is trained before it is diagnosed."""


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a task."""
    return F.mse_loss(outputs, targets) if targets.is_floating_point() else F.cross_entropy(outputs, targets)


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
        reached = train(replace(case, model=copy.deepcopy(case.model)), rate)
        best = max(best, (reached, rate))
        if best[0] >= ENOUGH:
            break
    return best
