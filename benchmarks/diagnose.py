"""Time of `diagnose` against one forward and backward pass of the same network, and of `theory.propagate`, in one run.

    python benchmarks/diagnose.py [--device cpu|cuda] [--write]

The network is a plain ReLU one, 64 wide, on a batch of 256. Two figures are given for diagnose: all its time, and its
overhead beyond the forward and backward pass that it makes itself, both in units of such a pass. To reach: at most 3 at
100 layers; propagate through 1,000 layers within 50 ms. At 100 layers its parts are measured by themselves, too, each
in a loop of its own, where caches and threads are warm: what they sum to is about the least that it could take.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from _timing import in_turns, machine, write_record
from paper.tables.protocol import SCHEMES
from torch import nn

from stiefel_init.theory import propagate
from stiefel_init.torch import diagnose, initialize_
from stiefel_init.torch.diagnosis.backward import Gradients
from stiefel_init.torch.diagnosis.predict import predictions
from stiefel_init.torch.diagnosis.snapshot import unchanged
from stiefel_init.torch.observe.observer import Observer
from stiefel_init.torch.observe.statistics import Gatherer, common, entering, leaving, norms
from stiefel_init.torch.observe.weights import own_weights, survey, weight_layers

WIDTH, BATCH, LAYERS = 64, 256, 1000
DEPTHS = (10, 100, 300)
TAKEN_APART = 100


def network(depth: int, device: str) -> nn.Sequential:
    layers = [module for _ in range(depth) for module in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 10)).to(device)
    initialize_(model, recipe="paper", seed=0)
    return model


def parts(model: nn.Module, x: torch.Tensor) -> dict[str, Callable[[], Any]]:
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
        "theory": lambda: predictions(observer.seen, gradients, known),
        "putting the model back": put_back,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the figures under benchmarks/records/")
    options = parser.parse_args()
    device = options.device
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, WIDTH, generator=generator).to(device)
    y = torch.randint(10, (BATCH,), generator=generator).to(device)

    record: dict[str, Any] = {"machine": machine(device), "width": WIDTH, "batch": BATCH, "diagnose": []}
    print(f"{record['machine']['device']}, {record['machine']['threads']} threads, milliseconds")
    for depth in DEPTHS:
        model = network(depth, device)

        def step(model: nn.Module = model) -> None:
            nn.functional.cross_entropy(model(x), y).backward()

        def diagnosis(model: nn.Module = model) -> None:
            diagnose(model, x, y)

        seconds = in_turns(
            {"forward and backward": step, "diagnose": diagnosis}, synchronize=synchronize, rounds=15, seconds=0.2
        )
        ratio = seconds["diagnose"] / seconds["forward and backward"]
        times = {name: 1e3 * value for name, value in seconds.items()}
        record["diagnose"].append({"depth": depth, "milliseconds": times, "ratio": ratio, "overhead": ratio - 1})
        cells = ", ".join(f"{name} {value:.2f}" for name, value in times.items())
        print(f"depth {depth:>4}: {cells}; {ratio:.2f} times, {ratio - 1:.2f} beyond its own pass", flush=True)
        if depth == TAKEN_APART:
            alone = in_turns({"its own pass": step} | parts(model, x), synchronize=synchronize, rounds=15, seconds=0.1)
            alone["observing"] = alone.pop("forward, observed") - alone.pop("forward")
            record["diagnose"][-1]["parts"] = {name: 1e3 * value for name, value in alone.items()}
            text = " + ".join(f"{1e3 * value:.2f} {name}" for name, value in alone.items())
            least = sum(alone.values())
            print(f"by themselves {text} = {1e3 * least:.1f}: {least / alone['its own pass']:.2f} passes")

    seconds = in_turns(
        {s: partial(propagate, [WIDTH] * (LAYERS + 1), mean=0.3, std=1.0, scheme=s) for s in SCHEMES}, rounds=5
    )
    record["propagate"] = {"layers": LAYERS, "milliseconds": {name: 1e3 * value for name, value in seconds.items()}}
    print(f"propagate, {LAYERS} layers: {', '.join(f'{k} {1e3 * v:.1f}' for k, v in seconds.items())}")
    if options.write:
        print(f"wrote {write_record(f'diagnose-{device}', record)}")


if __name__ == "__main__":
    main()
