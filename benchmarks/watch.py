"""What `watch` costs: a plain network of 100 layers, ResNet-18 and GPT-2 small, watched every 50 steps.

To reach: 3 % of the training, and 1 % of steps that are not sampled. docs/performance.md has the tables.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from paper.networks import mlp
from torch import Tensor, nn
from torch.nn import functional as F

from stiefel_init.torch import Watch, initialize_, watch

from . import timing
from .timing import Record

EVERY, ROUNDS, SECONDS = 50, 200, 25.0
DEPTH, WIDTH = 100, 64


class Case(NamedTuple):
    """A model, its batch, and what it is."""

    model: nn.Module
    x: Tensor
    y: Tensor
    words: str


class Logits(nn.Module):
    """A model of transformers, by its logits: a row for each image or token."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits.flatten(0, -2)


def _mlp(large: bool) -> Case:
    model = mlp(WIDTH, 10, DEPTH, WIDTH)
    initialize_(model, seed=0)
    return Case(model, torch.rand(256, WIDTH), torch.randint(10, (256,)), f"{DEPTH} layers of {WIDTH}, batches of 256")


def _resnet(large: bool) -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes: Any = {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"}
    model = ResNetForImageClassification(ResNetConfig(**{**sizes, "num_labels": 1000}))
    batch, side = (64, 224) if large else (8, 96)
    x, y = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
    return Case(Logits(model), x, y, f"{batch} images of {side}×{side}")


def _gpt(large: bool) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
    batch, length = (8, 512) if large else (2, 64)
    x = torch.randint(50_257, (batch, length + 1))
    return Case(Logits(model), x[:, :-1], x[:, 1:].flatten(), f"{batch} lines of {length} tokens")


MODELS: dict[str, Callable[[bool], Case]] = {"MLP": _mlp, "ResNet-18": _resnet, "GPT-2 small": _gpt}


def measure(device: str) -> Iterator[Record]:
    record: Record = {"machine": timing.machine(device), "every": EVERY, "models": {}}
    for name in MODELS:
        record["models"][name] = cost(name, device)
        gc.collect()  # hooks and closures of the model before
        yield record


def tables(record: Record) -> list[str]:
    models = record["models"]
    header = ["model", "a step, ms", f"every {record['every']}th step sampled", "steps between", "turns"]
    rows = [
        [f"{name}, {model['words']}", f"{model['milliseconds']['step']:.1f}", f"{model['overhead']['watched']:+.1%}",
         f"{model['overhead']['idle']:+.1%}", str(model["rounds"])]
        for name, model in models.items()
    ]  # fmt: skip
    if any("memory" in model for model in models.values()):
        header += ["memory of a sampled step", "of a step between"]
        for row, model in zip(rows, models.values()):
            memory = model["memory"]
            for kind in ("sampled step", "step between"):
                row.append(f"{(memory[kind] - memory['plain step']) / memory['model']:+.1%} of the model's")
    return [f"Cost on {record['machine']['device']}:", "", *timing.markdown(header, rows)]


def cost(name: str, device: str) -> Record:
    """As a share of a training that is sampled every `EVERY` steps.

    Pairs of steps take turns: without a watch and with one, the same all along, that samples one of the two; with
    `step()` of a watch that samples neither and without it.
    On a CPU the seconds are those that this process got, since other programs share the processor.
    """
    torch.manual_seed(0)
    case = MODELS[name](device == "cuda")
    model, x, y = case.model.to(device), case.x.to(device), case.y.to(device)
    synchronize = timing.waiting(device)
    clock = time.perf_counter if device == "cuda" else time.process_time
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    times: dict[str, list[float]] = {"plain": [], "sampled": [], "alone": [], "idle": []}

    def train(watching: Watch | None) -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if watching is not None:
            watching.step(loss)

    def pair(kind: str, watching: Watch | None, count: bool) -> None:
        synchronize()
        begin = clock()
        for _ in range(2):
            train(watching)
        synchronize()
        if count:  # the first turns warm up
            times[kind].append(clock() - begin)

    def turns(first: tuple[str, Watch | None], second: tuple[str, Watch | None]) -> None:
        end = time.perf_counter() + SECONDS / 2
        for turn in range(ROUNDS + 3):
            pair(*first, turn > 2)
            pair(*second, turn > 2)
            if turn > 5 and time.perf_counter() > end:
                break

    with watch(model, 2, report=lambda event: None) as watching:
        train(watching)  # from here on the first step of a pair puts the hooks on and the second takes them off
        turns(("plain", None), ("sampled", watching))
    with watch(model, 10**9) as idle:  # no hook is on the model after the first step
        train(idle)
        turns(("idle", idle), ("alone", None))
    plain = statistics.median(times["plain"])
    extra = {
        kind: statistics.median(slow - fast for slow, fast in zip(times[kind], times[other]))
        for kind, other in (("sampled", "plain"), ("idle", "alone"))
    }
    result: Record = {
        "words": case.words,
        "parameters": sum(p.numel() for p in model.parameters()),
        "rounds": len(times["sampled"]),
        "milliseconds": {"step": 500 * plain, "sample": 1e3 * extra["sampled"], "two idle steps": 1e3 * extra["idle"]},
        "overhead": {"watched": 2 * extra["sampled"] / (EVERY * plain), "idle": extra["idle"] / plain},
    }
    return result
