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
ARCHITECTURES = ("mlp", "cnn", "resnet", "transformer", "rnn")


Activation = type[nn.Module]


def mlp(activation: Activation) -> nn.Sequential:
    """A plain deep network."""
    hidden = [m for _ in range(15) for m in (nn.Linear(32, 32), activation())]
    return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 32), activation(), *hidden, nn.Linear(32, CLASSES))


def cnn(activation: Activation) -> nn.Sequential:
    """Convolutions without skip connections or normalization."""
    inner = [m for _ in range(5) for m in (nn.Conv2d(8, 8, 3, padding=1), activation())]
    stem = [nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, 8, 3, padding=1), activation()]
    return nn.Sequential(*stem, *inner, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES))


class Block(nn.Module):
    """x + f(x) with batch normalization."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2, self.act = nn.BatchNorm2d(8), nn.BatchNorm2d(8), activation()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.norm2(self.second(self.act(self.norm1(self.first(x))))))


def resnet(activation: Activation) -> nn.Sequential:
    """A small ResNet."""
    stem = [nn.Unflatten(1, (1, SIDE)), nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), activation()]
    blocks = [Block(activation) for _ in range(3)]
    return nn.Sequential(*stem, *blocks, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, CLASSES))


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


_BUILD: Mapping[str, Callable[[Activation], nn.Module]] = {
    "mlp": mlp, "cnn": cnn, "resnet": resnet, "transformer": Transformer, "rnn": Recurrent,
}  # fmt: skip
MIDDLE = {"mlp": "15", "cnn": "5", "resnet": "5.first", "transformer": "blocks.1.up", "rnn": "first"}
TWIN = {"mlp": "19", "cnn": "9", "resnet": "6.first", "transformer": "blocks.2.up", "rnn": "second"}
STEM = {"mlp": "1", "cnn": "1", "resnet": "1", "transformer": "blocks.0.up", "rnn": "rnn"}
OFFSET = {"resnet": {"5.first": "5.norm1", "1": "2"}}
"""Where the bias behind a layer is another module's."""


def build(name: str, seed: int, *, tanh: bool = False, start: str | None = None) -> nn.Module:
    """An architecture; `start` is a scheme of `initialize_`, or "torch" for PyTorch's own."""
    torch.manual_seed(seed)
    model = _BUILD[name](nn.Tanh if tanh else nn.ReLU)
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

    name: str
    plant: Callable[[Training], None]
    kinds: tuple[str, ...]
    """The findings that name it."""
    place: Mapping[str, str] | None = None
    """The layer that must be named, by architecture."""
    start: bool = False
    """Planted before the first step, else while the network trains."""
    tanh: bool = False
    regression: bool = False
    harmless: tuple[str, ...] = ()
    """Architectures that train all the same."""


def scaled(training: Training, factor: float, *names: str) -> None:
    """Multiply the weights of layers; of all of them by default."""
    with torch.no_grad():
        for name, parameter in training.model.named_parameters():
            inside = not names or any(name.startswith(f"{chosen}.") for chosen in names)
            if inside and parameter.ndim > 1 and name != "places":
                parameter.mul_(factor)


def set_rate(factor: float) -> Callable[[Training], None]:
    def plant(training: Training) -> None:
        for group in training.optimizer.param_groups:
            group["lr"] *= factor

    return plant


def offset(places: Mapping[str, str]) -> Callable[[Training], None]:
    def plant(training: Training) -> None:
        name = places[training.name]
        module = training.layer(OFFSET.get(training.name, {}).get(name, name))
        with torch.no_grad():
            for parameter_name, parameter in module.named_parameters():
                if "bias" in parameter_name:
                    parameter.fill_(-100)

    return plant


def depth(training: Training) -> int:
    return sum(isinstance(module, nn.Linear | nn.Conv2d | nn.RNN) for module in training.model.modules())


def prepared(change: Callable[[Tensor], Tensor]) -> Callable[[Training], None]:
    return lambda training: setattr(training, "prepare", change)


def shuffled(training: Training) -> None:
    training.aim = lambda y: y[torch.randperm(len(y), generator=training.generator)]


def nan_once(training: Training) -> None:
    def change(x: Tensor) -> Tensor:
        training.prepare = lambda x: x
        x = x.clone()
        x[0, 0, 0] = torch.nan
        return x

    training.prepare = change


def frozen(training: Training) -> None:
    gone = {id(p) for p in training.layer(MIDDLE[training.name]).parameters()}
    for group in training.optimizer.param_groups:
        group["params"] = [p for p in group["params"] if id(p) not in gone]


def infinite(training: Training) -> None:
    with torch.no_grad():
        training.layer(MIDDLE[training.name]).weight.view(-1)[0] = torch.inf


def duplicated(training: Training) -> None:
    training.layer(TWIN[training.name]).weight = training.layer(MIDDLE[training.name]).weight


def detached(training: Training) -> None:
    training.layer(MIDDLE[training.name]).register_forward_hook(lambda module, args, output: output.detach())


def decayed(training: Training) -> None:
    for group in training.optimizer.param_groups:
        group["weight_decay"] = 0.1 / group["lr"]


def exploding(training: Training) -> None:
    scaled(training, 100, "rnn" if training.name == "rnn" else MIDDLE[training.name])


FAULTS: tuple[Fault, ...] = (
    Fault("rate 300 times too high", set_rate(300), ("steps are too large",)),
    Fault("rate 300 times too high from the start", set_rate(300), ("steps are too large",), start=True),
    Fault("rate far too low", set_rate(1e-6), ("steps are too small",), start=True),
    Fault("dead stem", offset(STEM), ("units are dead", "units are stuck"), STEM, start=True),
    Fault("inputs 1,000 times larger", prepared(lambda x: 1000 * x), ("inputs changed scale",)),
    Fault("inputs 1,000 times too small", prepared(lambda x: x / 1000), ("inputs are small",), start=True),
    Fault("vanishing start", lambda t: scaled(t, 1e-16 ** (1 / depth(t))), ("signal fades", "signal dies"), start=True,
          harmless=("resnet", "transformer")),
    Fault("exploding start", lambda t: scaled(t, 1e8 ** (1 / depth(t)) if t.name in ("mlp", "cnn") else 100),
          ("signal explodes", "units are stuck"), start=True),
    Fault("label noise", shuffled, ("loss jumps",)),
    Fault("frozen layer", frozen, ("layer is frozen",), MIDDLE),
    Fault("NaN in one batch", nan_once, ("not finite",)),
    Fault("Inf in a weight", infinite, ("not finite",)),
    Fault("one layer in two places", duplicated, ("layers are equal",), TWIN),
    Fault("zero_grad missing", lambda t: setattr(t, "clear", False), ("gradients are not cleared",)),
    Fault("optimizer step missing", lambda t: setattr(t, "move", False), ("weights do not move",)),
    Fault("exploding layer", exploding, ("weights jumped",), {**MIDDLE, "rnn": "rnn"}),
    Fault("biases at -100", offset(MIDDLE), ("units are dead",), MIDDLE),
    Fault("zeroed layer", lambda t: scaled(t, 0, MIDDLE[t.name]), ("weights collapsed",), MIDDLE),
    Fault("saturated tanh", lambda t: scaled(t, 50, "rnn" if t.name == "rnn" else MIDDLE[t.name]),
          ("units are stuck",), {**MIDDLE, "rnn": "rnn"}, tanh=True, start=True, harmless=("resnet",)),
    Fault("targets 100 times larger", lambda t: setattr(t, "aim", lambda y: 100 * y), ("loss jumps",), regression=True),
    Fault("detached graph", detached, ("gradient is cut off",), MIDDLE),
    Fault("weight decay too strong", decayed, ("weights decay",)),
)  # fmt: skip
