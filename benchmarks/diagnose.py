"""Time of `diagnose` against one forward and backward pass of the same network, and of `theory.propagate`, in one run.

The network is a plain ReLU one, 64 wide, on a batch of 256. Two figures are given for diagnose: all its time, and its
overhead beyond the forward and backward pass that it makes itself, both in units of such a pass. To reach: at most 3 at
100 layers; propagate through 1,000 layers within 50 ms. At 100 layers its parts are measured by themselves, too, each
in a loop of its own, where caches and threads are warm: what they sum to is about the least that it could take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from paper.tables.protocol import SCHEMES
from torch import nn

from stiefel_init.lab.report.tables import wrapped
from stiefel_init.theory import propagate
from stiefel_init.torch import diagnose, initialize_
from stiefel_init.torch.diagnosis._diagnose import Gradients, _predictions
from stiefel_init.torch.diagnosis._observe import Observer
from stiefel_init.torch.diagnosis._snapshot import unchanged
from stiefel_init.torch.diagnosis._statistics import Gatherer, common, entering, leaving, norms
from stiefel_init.torch.diagnosis._weights import own_weights, survey, weight_layers

from . import timing
from .timing import Record, Ways

WIDTH, BATCH, LAYERS = 64, 256, 1000
DEPTHS = (10, 100, 300)
TAKEN_APART = 100


def network(depth: int, device: str) -> nn.Sequential:
    layers = [module for _ in range(depth) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10)).to(device)
    initialize_(model, recipe="paper", seed=0)
    return model


def parts(model: nn.Module, x: torch.Tensor) -> Ways:
    """What a diagnosis does besides its own pass, part by part, on tensors that are there."""
    modules = list(model.named_modules())
    layers = weight_layers(modules)
    weights = [weight for _, module in layers for weight in own_weights(module)]
    with Observer(layers, gradients=True) as observer:
        outputs = model(x)
    values = torch.rand(BATCH, WIDTH, device=x.device)
    known = survey(dict.fromkeys(module for _, module in layers))
    gradients = [Gradients(1.0, 1.0)] * len(observer.seen)

    def gathered(measure: Callable[[torch.Tensor], torch.Tensor], each: Sequence[torch.Tensor]) -> None:
        gatherer = Gatherer(measure)
        for key, tensor in enumerate(each):
            gatherer.add(key, tensor)
        gatherer.results()

    def observed() -> None:
        with Observer(layers, gradients=True) as again:
            for gatherer in (again.entering, again.leaving):
                vars(gatherer)["add"] = lambda key, tensor: None
            model(x)

    def signal() -> None:
        gathered(entering, [values] * len(layers))
        gathered(leaving, [values] * len(layers))

    def lengths() -> None:
        with torch.no_grad():
            norms([*weights, *[values] * len(layers)])
            gathered(common, weights)

    def put_back() -> None:
        with unchanged([module for _, module in modules], [x, outputs]):
            pass

    return {
        "forward": lambda: model(x),
        "forward, observed": observed,
        "statistics of the signal": signal,
        "norms of the gradients": lengths,
        "weights": lambda: survey(dict.fromkeys(module for _, module in layers)),
        "theory": lambda: _predictions(observer.seen, gradients, known),
        "putting the model back": put_back,
    }


def measure(device: str) -> Iterator[Record]:
    generator, waiting = torch.Generator().manual_seed(0), timing.waiting(device)
    x = torch.rand(BATCH, WIDTH, generator=generator).to(device)
    y = torch.randint(10, (BATCH,), generator=generator).to(device)
    record: Record = {"machine": timing.machine(device), "width": WIDTH, "batch": BATCH, "diagnose": []}
    for depth in DEPTHS:
        model = network(depth, device)

        def step(model: nn.Module = model) -> None:
            nn.functional.cross_entropy(model(x), y).backward()

        ways: Ways = {"forward and backward": step, "diagnose": partial(diagnose, model, x, y)}
        times = timing.in_milliseconds(timing.in_turns(ways, synchronize=waiting, rounds=15, seconds=0.2))
        ratio = times["diagnose"] / times["forward and backward"]
        row: Record = {"depth": depth, "milliseconds": times, "ratio": ratio, "overhead": ratio - 1}
        if depth == TAKEN_APART:
            ways = {"its own pass": step} | parts(model, x)
            alone = timing.in_milliseconds(timing.in_turns(ways, synchronize=waiting, rounds=15, seconds=0.1))
            alone["observing"] = alone.pop("forward, observed") - alone.pop("forward")
            row["parts"] = alone
        record["diagnose"].append(row)
    passes = {s: partial(propagate, [WIDTH] * (LAYERS + 1), mean=0.3, std=1.0, scheme=s) for s in SCHEMES}
    seconds = timing.in_turns(passes, rounds=5)
    record["propagate"] = {"layers": LAYERS, "milliseconds": timing.in_milliseconds(seconds)}
    yield record


def tables(record: Record) -> list[str]:
    rows = [
        [str(row["depth"]), *(f"{ms:.1f}" for ms in row["milliseconds"].values()), f"{row['ratio']:.1f}"]
        for row in record["diagnose"]
    ]
    lines = timing.markdown(["layers", *record["diagnose"][0]["milliseconds"], "ratio"], rows)
    for row in record["diagnose"]:
        if (apart := row.get("parts")) is not None:
            sums, least = " + ".join(f"{ms:.1f} {name}" for name, ms in apart.items()), sum(apart.values())
            text = (
                f"Its parts at {row['depth']} layers, each by itself in a loop, where caches and threads are warm: "
                f"{sums} = {least:.1f} ms, {least / apart['its own pass']:.1f} passes. That is about the least that it "
                "could take."
            )
            lines += [*wrapped(text), ""]
    times = record["propagate"]["milliseconds"].values()
    return [
        *lines,
        f"`theory.propagate` through {record['propagate']['layers']:,} layers takes {min(times):.0f} to "
        f"{max(times):.0f} ms, by scheme.", "",
    ]  # fmt: skip


def section() -> list[str]:
    record = timing.kept("diagnose-cpu")
    about = (
        f"`python -m benchmarks diagnose --write`; {timing.where(record)}. Plain networks {record['width']} wide, "
        f"{record['batch']} inputs; milliseconds:"
    )
    return timing.section("diagnose", "Diagnosis", [about], tables)
