"""Models people use, initialized: every parameter accounted for in the plan, and a step forward and back is finite.

    python benchmarks/real_models.py [--device cpu|cuda] [--write]

The architectures are those of timm (torchvision serves where timm is missing) and of transformers, built without a
download. Accounted for means: the plan has a row for every name of every parameter; what it says is drawn has changed,
what it says is set to a constant is that constant, what it says is left alone has kept its values, and it says why.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from _timing import machine, write_record
from torch import Tensor, nn

from stiefel_init.torch import Plan, initialize_

Built = tuple[nn.Module, Tensor]
COLUMNS = ["model", "from", "parameters", "drawn", "constant", "left alone", "tied", "init s", "output", "gradient", ""]
CONSTANTS = {"zeros": 0.0, "ones": 1.0}


def pictures(name: str) -> Callable[[str], Built]:
    """An image model and two images for it."""

    def build(device: str) -> Built:
        try:
            from timm import create_model
        except ImportError:
            try:
                from torchvision.models import get_model as create_model
            except ImportError:
                raise ImportError("neither timm nor torchvision can be imported") from None
        with torch.device(device):
            return create_model(name), torch.rand(2, 3, 224, 224)

    return build


def gpt2(device: str) -> Built:
    """GPT-2 with 124 million parameters, and two lines of 64 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device(device):
        return GPT2LMHeadModel(GPT2Config()), torch.randint(50_257, (2, 64))


MODELS: dict[str, Callable[[str], Built]] = {
    "resnet18": pictures("resnet18"),
    "vgg11": pictures("vgg11"),
    "convnext_tiny": pictures("convnext_tiny"),
    "vit_tiny": pictures("vit_tiny_patch16_224"),
    "mixer": pictures("mixer_s16_224"),
    "gpt2": gpt2,
}


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


def try_model(build: Callable[[str], Built], device: str, synchronize: Callable[[], Any]) -> dict[str, Any]:
    """Initialize the model and take a step forward and back."""
    model, x = build(device)
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
    output = model.train()(x)
    output = getattr(output, "logits", output).float()
    output.square().mean().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    size, slope = output.detach().std(), torch.stack([gradient.norm() for gradient in gradients]).norm()
    return {
        "from": type(model).__module__.split(".")[0],
        "parameters": sum(p.numel() for p in model.parameters()),
        **kinds,
        "left alone because": sorted({row.reason for row in plan if row.action == "left alone"}),
        "unaccounted": unaccounted(plan, before, after),
        "without gradient": [name for name, p in model.named_parameters() if p.grad is None],
        "init s": seconds,
        "output": float(size),
        "gradient": float(slope),
        "finite": bool(output.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)),
    }


def line(name: str, row: dict[str, Any]) -> str:
    """A row of the table, with the verdict at its end."""
    if "error" in row:
        return f"{name:>14} {row['error'].splitlines()[0][:200]}"
    good = row["finite"] and not row["unaccounted"] and not row["without gradient"]
    verdict = "all accounted for, all finite" if good else "NOT AS IT SHOULD BE, see the record"
    cells = [f"{row[c]:.3g}" if isinstance(row[c], float) else str(row[c]) for c in COLUMNS[1:-1]]
    return " ".join(f"{cell:>14}" for cell in (name, *cells)) + f"  {verdict}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", action="store_true", help="keep the table under benchmarks/records/")
    options = parser.parse_args()
    synchronize = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    record: dict[str, Any] = {"machine": machine(options.device), "models": {}}
    print(" ".join(f"{column:>14}" for column in COLUMNS))
    for name, build in MODELS.items():
        try:
            row = try_model(build, options.device, synchronize)
        except ImportError as error:
            row = {"error": f"skipped: {error}"}
        except Exception as error:  # the other models are tried all the same
            row = {"error": f"{type(error).__name__}: {error}"}
        record["models"][name] = row
        print(line(name, row), flush=True)
        if options.write:
            path = write_record(f"real_models-{options.device}", record)
    if options.write:
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
