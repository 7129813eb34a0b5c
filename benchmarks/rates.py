"""What `param_groups` costs: a training step with it, with as many groups at one rate, and with one group.

A plain network of 100 layers and a small GPT, batches of 128 and 16 sequences, torch's Adam; all step in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from paper.networks import GPT, mlp
from torch import nn

from stiefel_init.torch import param_groups

from . import timing
from .timing import Record

TOKENS = 64
MODELS: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "100 layers of 64": lambda: (mlp(784, 10, 101, 64), torch.rand(128, 784)),
    "GPT, 6 blocks of 128": lambda: (GPT(128, 6, TOKENS), torch.randint(0, 64, (16, TOKENS))),
}
ONE, PLAIN, OURS = "one group", "as many groups", "param_groups"


def stepping(model: nn.Module, x: torch.Tensor, groups: Any) -> Callable[[], Any]:
    """A training step."""
    optimizer = torch.optim.Adam(groups, lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def measure(device: str) -> Iterator[Record]:
    alone = device == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    record: Record = {"machine": timing.machine(device), "steps": {}}
    for title, make in MODELS.items():
        model, x = make()
        model, x = model.to(device), x.to(device)
        groups = param_groups(model, 1e-5)
        ways = {
            ONE: stepping(model, x, model.parameters()),
            PLAIN: stepping(model, x, [{"params": group["params"]} for group in groups]),
            OURS: stepping(model, x, groups),
        }
        seconds = timing.in_turns(ways, rounds=15, synchronize=timing.waiting(device), clock=clock)
        record["steps"][title] = {"groups": len(groups), "milliseconds": timing.in_milliseconds(seconds)}
        yield record


def tables(record: Record) -> list[str]:
    rows = []
    for title, found in record["steps"].items():
        step = found["milliseconds"]
        times = [f"{step[OURS] / step[other]:.3f}" for other in (PLAIN, ONE)]
        rows.append([title, str(found["groups"]), *(timing.short(step[way]) for way in (ONE, PLAIN, OURS)), *times])
    header = ["network", "groups", ONE, PLAIN, OURS, "× as many groups", "× one group"]
    return [f"{timing.where(record)}, milliseconds a training step:", "", *timing.markdown(header, rows)]
