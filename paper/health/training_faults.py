"""Small networks of five architectures that train, and the catalogue of ways to break their training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import initialize_

CLASSES, BATCH, SIDE = 8, 128, 8
Activation = type[nn.Module]


class Block(nn.Module):
    """x + f(x) with batch normalization."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2, self.act = nn.BatchNorm2d(8), nn.BatchNorm2d(8), activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.norm2(self.second(self.act(self.norm1(self.first(x))))))


class Attention(nn.Module):
    """A block of a transformer, normalized first."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.mix = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.act, self.down = nn.Linear(32, 64), activation(), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.mix(y, y, y, need_weights=False)[0]
        return x + self.down(self.act(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Rows of the image are tokens."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.embed, self.places = nn.Linear(SIDE, 32), nn.Parameter(0.1 * torch.randn(SIDE, 32))
        self.blocks = nn.Sequential(*(Attention(activation) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(x) + self.places)).mean(1))


class Recurrent(nn.Module):
    """Rows of the image are time steps."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.rnn = nn.RNN(SIDE, 32, batch_first=True)
        self.first, self.second, self.act = nn.Linear(32, 32), nn.Linear(32, 32), activation()
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        state = self.rnn(x)[0][:, -1]
        return self.head(self.act(self.second(self.act(self.first(state)))))


MIDDLE = {"mlp": "15", "cnn": "5", "resnet": "5.first", "transformer": "blocks.1.up", "rnn": "first"}
RECURRENT = MIDDLE | {"rnn": "rnn"}
TWIN = {"mlp": "19", "cnn": "9", "resnet": "6.first", "transformer": "blocks.2.up", "rnn": "second"}
STEM = {"mlp": "1", "cnn": "1", "resnet": "1", "transformer": "blocks.0.up", "rnn": "rnn"}
OFFSET = {"resnet": {"5.first": "5.norm1", "1": "2"}}
"""Where the bias behind a layer is another module's."""


def network(name: str, activation: Activation) -> nn.Module:
    """One of five small architectures: plain, convolutional without and with skips, a transformer, a recurrent one."""
    if name == "mlp":
        hidden = [m for _ in range(15) for m in (nn.Linear(32, 32), activation())]
        return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 32), activation(), *hidden, nn.Linear(32, CLASSES))
    if name == "cnn":
        hidden = [m for _ in range(5) for m in (nn.Conv2d(8, 8, 3, padding=1), activation())]
        stem = [nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, 8, 3, padding=1), activation()]
        return nn.Sequential(*stem, *hidden, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES))
    if name == "resnet":
        stem = [nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), activation()]
        blocks = [Block(activation) for _ in range(3)]
        return nn.Sequential(*stem, *blocks, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES))
    return Transformer(activation) if name == "transformer" else Recurrent(activation)


def build(name: str, seed: int, *, tanh: bool = False, start: str | None = None) -> nn.Module:
    """An architecture; `start` is a scheme of `initialize_`, or "torch" for PyTorch's own."""
    torch.manual_seed(seed)
    model = network(name, nn.Tanh if tanh else nn.ReLU)
    if start is None:
        initialize_(model, seed=seed)
    elif start != "torch":
        initialize_(model, start, seed=seed)
    return model


@dataclass
class Training:
    """A training that faults change."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    regression: bool = False
    noise: float = 1.0
    prototypes: Tensor = field(init=False)
    prepare: Callable[[Tensor], Tensor] = lambda x: x
    aim: Callable[[Tensor], Tensor] = lambda y: y
    clear: bool = True
    move: bool = True

    def __post_init__(self) -> None:
        self.prototypes = torch.randn(CLASSES, SIDE, SIDE, generator=self.generator)

    def layer(self, name: str) -> Any:
        return self.model.get_submodule(name)

    @property
    def middle(self) -> Any:
        return self.layer(MIDDLE[self.name])

    def step(self) -> Tensor:
        """One step of the training on a fresh batch."""
        y = torch.randint(CLASSES, (BATCH,), generator=self.generator)
        x = self.prototypes[y] + self.noise * torch.randn(BATCH, SIDE, SIDE, generator=self.generator)
        x = self.prepare(x)
        if self.clear:
            self.optimizer.zero_grad()
        if self.regression:
            loss = F.mse_loss(self.model(x), self.aim(F.one_hot(y, CLASSES).float()))
        else:
            loss = F.cross_entropy(self.model(x), self.aim(y))
        loss.backward()
        if self.move:
            self.optimizer.step()
        return loss


@dataclass(frozen=True)
class Fault:
    """A way to break a training."""

    plant: Callable[[Training], None]
    kinds: tuple[str, ...]
    """The findings that name it."""
    place: Mapping[str, str] | None = None
    """The layer that must be named, by architecture."""
    start: bool = False
    """Planted before the first step, else while the network trains."""
    tanh: bool = False
    regression: bool = False


def group(name: str, change: Callable[[dict[str, Any]], float]) -> Callable[[Training], None]:
    def plant(training: Training) -> None:
        for each in training.optimizer.param_groups:
            each[name] = change(each)

    return plant


@torch.no_grad()
def scaled(training: Training, factor: float, name: str = "") -> None:
    """Multiply the weights of a layer; of all of them by default."""
    for each, parameter in training.model.named_parameters():
        if each.startswith(f"{name}." if name else "") and parameter.ndim > 1 and each != "places":
            parameter.mul_(factor)


def exploding_start(training: Training) -> None:
    scaled(training, 1e8 ** (1 / depth(training)) if training.name in ("mlp", "cnn") else 100)


def depth(training: Training) -> int:
    return sum(isinstance(module, nn.Linear | nn.Conv2d | nn.RNN) for module in training.model.modules())


def offset(places: Mapping[str, str]) -> Callable[[Training], None]:
    @torch.no_grad()
    def plant(training: Training) -> None:
        name = places[training.name]
        for each, parameter in training.layer(OFFSET.get(training.name, {}).get(name, name)).named_parameters():
            if "bias" in each:
                parameter.fill_(-100)

    return plant


def setting(name: str, value: Any) -> Callable[[Training], None]:
    return lambda training: setattr(training, name, value)


def shuffled(training: Training) -> None:
    training.aim = lambda y: y[torch.randperm(len(y), generator=training.generator)]


def nan_once(training: Training) -> None:
    def change(x: Tensor) -> Tensor:
        training.prepare = lambda x: x
        return x.index_put((torch.tensor(0), torch.tensor(0), torch.tensor(0)), torch.tensor(torch.nan))

    training.prepare = change


def frozen(training: Training) -> None:
    gone = {id(p) for p in training.middle.parameters()}
    for each in training.optimizer.param_groups:
        each["params"] = [p for p in each["params"] if id(p) not in gone]


@torch.no_grad()
def infinite(training: Training) -> None:
    training.middle.weight.view(-1)[0] = torch.inf


def duplicated(training: Training) -> None:
    training.layer(TWIN[training.name]).weight = training.middle.weight


def detached(training: Training) -> None:
    training.middle.register_forward_hook(lambda module, args, output: output.detach())


HIGH = group("lr", lambda g: 300 * g["lr"])
FAULTS: dict[str, Fault] = {
    "rate 300 times too high": Fault(HIGH, ("steps are too large",)),
    "rate 300 times too high from the start": Fault(HIGH, ("steps are too large",), start=True),
    "rate far too low": Fault(group("lr", lambda g: 1e-6 * g["lr"]), ("steps are too small",), start=True),
    "dead stem": Fault(offset(STEM), ("units are dead", "units are stuck"), STEM, start=True),
    "inputs 1,000 times larger": Fault(setting("prepare", lambda x: 1000 * x), ("inputs changed scale",)),
    "inputs 1,000 times too small": Fault(setting("prepare", lambda x: x / 1000), ("inputs are small",), start=True),
    "vanishing start": Fault(lambda t: scaled(t, 1e-16 ** (1 / depth(t))), ("signal fades", "signal dies"), start=True),
    "exploding start": Fault(exploding_start, ("signal explodes", "units are stuck"), start=True),
    "label noise": Fault(shuffled, ("loss jumps",)),
    "frozen layer": Fault(frozen, ("layer is frozen",), MIDDLE),
    "NaN in one batch": Fault(nan_once, ("not finite",)),
    "Inf in a weight": Fault(infinite, ("not finite",)),
    "one layer in two places": Fault(duplicated, ("layers are equal",), TWIN),
    "zero_grad missing": Fault(setting("clear", False), ("gradients are not cleared",)),
    "optimizer step missing": Fault(setting("move", False), ("weights do not move",)),
    "exploding layer": Fault(lambda t: scaled(t, 100, RECURRENT[t.name]), ("weights jumped",), RECURRENT),
    "biases at -100": Fault(offset(MIDDLE), ("units are dead",), MIDDLE),
    "zeroed layer": Fault(lambda t: scaled(t, 0, MIDDLE[t.name]), ("weights collapsed",), MIDDLE),
    "saturated tanh": Fault(lambda t: scaled(t, 50, RECURRENT[t.name]), ("units are stuck",), RECURRENT, True, True),
    "targets 100 times larger": Fault(setting("aim", lambda y: 100 * y), ("loss jumps",), regression=True),
    "detached graph": Fault(detached, ("gradient is cut off",), MIDDLE),
    "weight decay too strong": Fault(group("weight_decay", lambda g: 0.1 / g["lr"]), ("weights decay",)),
}  # fmt: skip
