"""The record of a reported fault, the registry that the modules of faults fill, the split into two halves, and
the criterion by which a fault counts as one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from .causes import Cause

Loss = Callable[[Tensor, Tensor], Tensor]
Hook = Callable[[int, float], None]  # after each step: its number and its loss
Half = Literal["choose", "score"]

SEEDS = (0, 1, 2)


@dataclass
class Program:
    """What a user's script has before it starts: `inputs` and `targets` are one batch, `train` is the user's own loop.

    `train(hook)` returns the score on held-out data: the share of the constant predictor's squared error that is
    removed, or the accuracy above the largest class as a share of what was possible; 0 where outputs are not finite.
    """

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    loss: Loss
    optimizer: torch.optim.Optimizer
    train: Callable[[Hook | None], float]


@dataclass(frozen=True)
class Fault:
    """A fault as somebody reported it, and the program that shows it: `make(repaired, seed)`."""

    name: str
    kind: str  # the module, which is the class of faults
    source: str
    report: str
    cause: Cause
    repair: str
    make: Callable[[bool, int], Program]
    reach: float  # the twin scores at least this
    margin: float  # and the broken program at most this share of its twin's score


FAULTS: dict[str, Fault] = {}


def fault(
    source: str, cause: Cause, repair: str, *, reach: float = 0.6, margin: float = 0.6
) -> Callable[[Callable[[bool], Program]], Callable[[bool], Program]]:
    """Registers a program under its function's name; what the reporter saw is the function's docstring."""

    def register(build: Callable[[bool], Program]) -> Callable[[bool], Program]:
        def make(repaired: bool, seed: int) -> Program:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                return build(repaired)

        name = build.__name__.replace("_", "-")
        kind = build.__module__.rpartition(".")[2]
        report = " ".join((build.__doc__ or "").split())
        if name in FAULTS:
            raise ValueError(f"two faults are called {name}: rename one")
        FAULTS[name] = Fault(name, kind, source, report, cause, repair, make, reach, margin)
        return build

    return register


def half(name: str) -> Half:
    """The half of the catalogue that a fault belongs to, decided by its name alone.

    >>> half("softmax-before-cross-entropy")
    'choose'
    """
    return "choose" if hashlib.sha256(name.encode()).digest()[-1] % 2 == 0 else "score"


@dataclass(frozen=True)
class Verdict:
    """The scores of both programs, one for each seed, and whether the fault holds with every seed."""

    broken: tuple[float, ...]
    repaired: tuple[float, ...]
    holds: bool


def judge(fault: Fault, seeds: tuple[int, ...] = SEEDS) -> Verdict:
    """Trains the broken program and its twin with each seed.

    A fault holds where, with every seed, the twin scores at least `reach` and the broken program at most `margin`
    of the twin's score.
    """
    broken, repaired = (tuple(fault.make(twin, seed).train(None) for seed in seeds) for twin in (False, True))
    holds = all(b <= fault.margin * r and r >= fault.reach for b, r in zip(broken, repaired, strict=True))
    return Verdict(broken, repaired, holds)
