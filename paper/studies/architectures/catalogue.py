"""Which networks are trained, on what, for how long, and at which rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import problems
from .initializations import names_of
from .networks import GPT, Mixer, PlainCNN, Recurrent, ResNet20, VisionTransformer, mlp
from .problems import ACCURACY, NATS, QUARTERS, R2, Metric, Problem

MakeProblem = Callable[[torch.device, Path | None], Problem]


@dataclass(frozen=True)
class Network:
    """A network, its problem, and how it is trained: AdamW, warm-up, a cosine."""

    name: str
    kind: str
    title: str
    make: Callable[[], nn.Module]
    problem: MakeProblem
    metric: Metric
    rates: tuple[float, ...]
    """The first rates to try, each twice the one before; more follow where the best lies at an end."""
    steps: int
    batch: int = 256
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    clip: float | None = None
    """The largest norm of the gradient, where it is clipped."""
    half: bool = False
    """Whether products are computed in bfloat16 on a GPU."""
    slots: int = 16
    """How many to train at once on a GPU."""
    only: tuple[str, ...] | None = None
    """The initializations to compare; all that are defined for the kind if None."""
    rates_of: str = ""
    """The network whose best rates are used, if they are not sought anew."""
    tune: int | None = None
    """Steps of the runs that choose the rate, if not a third."""

    @property
    def starts(self) -> tuple[str, ...]:
        """The initializations that are compared, ours first."""
        return self.only or tuple(names_of(self.kind))

    @property
    def tuning_steps(self) -> int:
        """Steps of the runs that choose the rate."""
        return self.tune or self.steps // 3

    @cached_property
    def work(self) -> float:
        """That of a run, by what makes it long: steps and layers."""
        with torch.device("meta"):
            return self.steps * sum(1 for _ in self.make().modules())


def _from(lowest: float, count: int = 4) -> tuple[float, ...]:
    return tuple(lowest * 2**place for place in range(count))


def _images(name: str, *, half: bool = False) -> MakeProblem:
    return lambda device, directory: problems.images(name, device, directory, half=half)


def _function(inputs: int, *, regression: bool) -> MakeProblem:
    return lambda device, directory: problems.function(inputs, device, regression=regression)


EPOCH = 60_000 // 256


def _networks() -> list[Network]:
    fashion, small, digits = _images("fashion-mnist"), _images("fashion-mnist", half=True), _images("mnist")
    found = [
        Network(
            f"mlp{depth}-{inputs}-{'regression' if regression else 'classes'}", "mlp",
            f"MLP of {depth} layers, {inputs:,} input{'s' if inputs > 1 else ''}, "
            f"{'regression' if regression else 'four classes'}",
            partial(mlp, inputs, 1 if regression else 4, depth), _function(inputs, regression=regression),
            R2 if regression else QUARTERS, _from(1e-3, 7) if depth == 3 else _from(2.5e-4, 6), 1000, slots=24,
            tune=1000,
        )
        for depth, inputs, regression in (
            (3, 1, True), (3, 10, True), (3, 1000, True), (3, 10, False), (3, 1000, False),
            (50, 1, True), (50, 10, True), (50, 1000, True), (50, 10, False),
        )
    ]  # fmt: skip
    lowest = {8: 2e-3, 20: 1e-3, 50: 5e-4, 100: 2.5e-4, 1000: 5e-5}
    found += [
        Network(
            f"cnn{depth}", "cnn", f"plain CNN of {depth:,} layers", partial(PlainCNN, depth), small, ACCURACY,
            _from(rate), 3 * EPOCH, slots=16 if depth < 1000 else 6, tune=3 * EPOCH,
            only=None if depth < 1000 else ("ours", "looks-linear"),  # the others are far behind at 100
        )
        for depth, rate in lowest.items()
    ]  # fmt: skip
    found += [
        Network(
            f"resnet20{'' if normalized else '-plain'}", "resnet",
            "ResNet-20" if normalized else "ResNet-20 without normalization",
            partial(ResNet20, normalized=normalized), fashion, ACCURACY, _from(2e-3 if normalized else 5e-4), 4 * EPOCH,
        )
        for normalized in (True, False)
    ]  # fmt: skip
    found += [
        Network("vit", "vit", "vision transformer", VisionTransformer, fashion, ACCURACY, _from(5e-4), 4 * EPOCH,
                half=True, slots=12),
        Network("vit-long", "vit", "vision transformer, 12 epochs", VisionTransformer, fashion, ACCURACY, _from(5e-4),
                12 * EPOCH, half=True, slots=12, rates_of="vit",
                only=("torch", "xavier", "mimetic", "paper", "ours")),
        Network("mixer", "mixer", "MLP-mixer", Mixer, fashion, ACCURACY, _from(5e-4), 4 * EPOCH, half=True, slots=12),
        Network("gpt", "gpt", "GPT", GPT, lambda device, _: problems.Text(device), NATS, _from(1e-3), 1200, batch=64,
                decay=0.1, betas=(0.9, 0.95), clip=1.0, half=True, slots=8),
    ]  # fmt: skip
    found += [
        Network(kind, kind, f"{name}, row by row", partial(Recurrent, kind), digits, ACCURACY, _from(rate), 3 * EPOCH,
                clip=1.0)
        for kind, name, rate in (("rnn", "ReLU RNN", 2.5e-4), ("lstm", "LSTM", 2e-3), ("gru", "GRU", 2e-3))
    ]  # fmt: skip
    found += [
        Network("rnn-pixels", "rnn", "ReLU RNN, pixel by pixel", partial(Recurrent, "rnn", 1), digits, ACCURACY,
                _from(6.25e-5), EPOCH, clip=1.0),
    ]  # fmt: skip
    return found


def _quick() -> list[Network]:
    """Small ones that a CPU trains in minutes, on the images of digits that scikit-learn has."""
    digits = _images("digits")
    steps = 200
    found = [
        Network(f"mlp{depth}-1-regression", "mlp", f"MLP of {depth} layers, 1 input, regression",
                partial(mlp, 1, 1, depth), _function(1, regression=True), R2, _from(1e-3, 2), 400, batch=128, tune=400)
        for depth in (3, 20)
    ]  # fmt: skip
    image: dict[str, Any] = {"problem": digits, "metric": ACCURACY, "steps": steps, "tune": steps, "batch": 64}
    found += [
        Network("cnn8", "cnn", "plain CNN of 8 layers", partial(PlainCNN, 8), rates=_from(4e-3, 2), **image),
        Network("cnn20", "cnn", "plain CNN of 20 layers", partial(PlainCNN, 20), rates=_from(2e-3, 2), **image),
        Network("vit", "vit", "vision transformer", partial(VisionTransformer, 8, 2, 32, 4), rates=_from(2e-3, 2),
                **image),
        Network("mixer", "mixer", "MLP-mixer", partial(Mixer, 8, 2, 32, 4), rates=_from(2e-3, 2), **image),
        Network("rnn", "rnn", "ReLU RNN, row by row", partial(Recurrent, "rnn", 8, 64), rates=_from(1e-3, 2), clip=1.0,
                **image),
    ]  # fmt: skip
    return found


@lru_cache
def networks(*, quick: bool) -> dict[str, Network]:
    """All of them by name."""
    return {network.name: network for network in (_quick() if quick else _networks())}
