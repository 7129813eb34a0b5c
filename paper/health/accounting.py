"""Models people use, initialized: every parameter accounted for in the plan, and a step forward and back is finite.

    python -m paper.health.accounting [--device cpu|cuda] [--write]

Accounted for means: the plan has a row for every name of every parameter; what it says is drawn has changed,
what it says is set to a constant is that constant, what it says is left alone has kept its values, and it says why.
"""

from __future__ import annotations

import time

import torch
from benchmarks import timing
from torch import Tensor

from stiefel_init.torch import Plan, initialize_

from .zoo import Subject, first, from_timm

NAMES = ("resnet18", "vgg11", "convnext_tiny", "vit_tiny_patch16_224", "mixer_s16_224", "gpt2")
CALLED = {"vit_tiny_patch16_224": "vit_tiny", "mixer_s16_224": "mixer"}
CONSTANTS = {"zeros": 0.0, "ones": 1.0}


def build(name: str, device: str) -> Subject:
    """An image model of timm, or GPT-2 with 124 million parameters and two lines of 64 tokens."""
    if name != "gpt2":
        return from_timm([name], device)
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device(device):
        tokens = torch.randint(50_257, (2, 64))
        return Subject(GPT2LMHeadModel(GPT2Config()), tokens, tokens)


def unaccounted(plan: Plan, before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """The parameters of which the plan says nothing, or something that did not happen."""
    wrong = sorted(after.keys() ^ {row.name for row in plan})
    for row in plan:
        old, new = before[row.name], after[row.name]
        if row.action == "left alone":
            right = torch.equal(old, new) and bool(row.reason)
        elif row.action in CONSTANTS:
            right = bool((new == CONSTANTS[row.action]).all())
        else:  # drawn, or tied to what is
            right = row.action.startswith("tied to") or not torch.equal(old, new)
        if not right:
            wrong.append(row.name)
    return wrong


def examine(subject: Subject, device: str) -> timing.Record:
    """Initialize the model and take a step forward and back."""
    model, synchronize = subject.model, timing.waiting(device)
    before = {name: p.detach().clone() for name, p in model.named_parameters(remove_duplicate=False)}
    synchronize()
    start = time.perf_counter()
    plan = initialize_(model, recipe="paper", seed=0)
    synchronize()
    seconds = time.perf_counter() - start
    after = {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}
    kinds = {"drawn": 0, "constant": 0, "left alone": 0, "tied": 0}
    for row in plan:
        tied = row.action.startswith("tied to")
        kind = row.action if row.action in kinds else "constant" if row.action in CONSTANTS else "drawn"
        kinds["tied" if tied else kind] += 1
    model.train()
    output = first(subject.call()).float()
    output.square().mean().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return {
        "from": type(model).__module__.split(".")[0],
        "parameters": sum(p.numel() for p in model.parameters()),
        **kinds,
        "left alone because": sorted({row.reason for row in plan if row.action == "left alone"}),
        "unaccounted": unaccounted(plan, before, after),
        "without gradient": [name for name, p in model.named_parameters() if p.grad is None],
        "init s": seconds,
        "output": float(output.detach().std()),
        "gradient": float(torch.stack([gradient.norm() for gradient in gradients]).norm()),
        "finite": bool(output.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)),
    }


def tables(record: timing.Record) -> list[str]:
    """For docs/performance.md."""
    names = ["parameters", "drawn", "constant", "left alone", "tied"]
    rows = [
        [
            name, *(f"{row[key]:,}" for key in names), f"{row['init s']:.2f}",
            "yes" if not row["unaccounted"] else ", ".join(row["unaccounted"]), "yes" if row["finite"] else "no",
        ]
        for name, row in record["models"].items() if "parameters" in row
    ]  # fmt: skip
    return [
        f"Real models from timm and transformers, `python -m paper.health.accounting --write`; {timing.where(record)}:",
        "",
        *timing.markdown(["model", *names, "seconds", "all accounted for", "output and gradient finite"], rows),
    ]


def main() -> None:
    options = timing.arguments(__doc__).parse_args()
    record: timing.Record = {"machine": timing.machine(options.device), "models": {}}
    for name in NAMES:
        try:
            row = examine(build(name, options.device), options.device)
        except Exception as error:  # a missing package, say; the other models are tried all the same
            row = {"error": f"{type(error).__name__}: {error}"}
        record["models"][CALLED.get(name, name)] = row
        if options.write:
            timing.write(f"real_models-{options.device}", record)
    print(*tables(record), sep="\n")


if __name__ == "__main__":
    main()
