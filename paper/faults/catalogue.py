"""The record of a reported fault, the table of all of them, the split into two halves, and the criterion by which a
fault counts as one."""

import csv
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

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
    kind: str  # the class of faults, which is the module
    source: str
    report: str
    cause: str  # one sentence for one true cause: faults of the same cause share it
    repair: str
    make: Callable[[bool, int], Program]
    reach: float  # the twin scores at least this
    margin: float  # and the broken program at most this share of its twin's score
    why: str  # where these two differ from 0.6, the reason
    look: int  # 1 and 2 were looked at while rules were written; 3, 4 and 5 were written without one at the rules


def read() -> dict[str, Fault]:
    """The table `catalogue.csv`, each row joined with the function of its name in the module of its class."""
    with Path(__file__).with_name("catalogue.csv").open(newline="") as file:
        return {row["name"]: _fault(row) for row in csv.DictReader(file)}


def _fault(row: dict[str, str]) -> Fault:
    build = getattr(import_module(f".{row['class']}", __package__), row["name"].replace("-", "_"))

    def make(repaired: bool, seed: int) -> Program:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return build(repaired)

    said = {key: row[key] for key in ("name", "cause", "source", "report", "repair", "why")}
    return Fault(
        **said,
        kind=row["class"],
        make=make,
        reach=float(row["reach"]),
        margin=float(row["margin"]),
        look=int(row["look"]),
    )


def half(name: str) -> Half:
    """The half of the catalogue that a fault belongs to, decided by its name alone.

    >>> half("softmax-before-cross-entropy")
    'score'
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
