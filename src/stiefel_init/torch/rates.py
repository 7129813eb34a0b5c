"""Parameter groups for any optimizer, each layer at its own rate: `param_groups`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..core import validate
from ..core.errors import StiefelError
from ..recipe.initialize import Options, Patterns
from ..recipe.rates import Share, Step, shares
from .initialize.adapter import TorchAdapter
from .initialize.parameters import is_uninitialized
from .inputs import check_module


def param_groups(
    model: nn.Module,
    lr: float,
    *,
    optimizer: Step = "adam",
    weight_decay: float | None = None,
    inputs: Any = None,
    stem: Patterns | None = None,
    head: Patterns | None = None,
) -> list[dict[str, Any]]:
    r"""Give each layer its own learning rate, so that one number suits networks of any depth and width.

    `lr` is the rate of the hidden layers of a network of 10 layers of 64 units. What is found best on a small network
    is right for a large one: for Adam, hidden layers of shape (m, n) learn at lr · 64/√(mn) · 10/L in a network of L
    layers, at lr · 64/√(mn) · √(10/B) in one of B residual branches; the first layer at 10 lr, the last one at 10 lr ·
    min(1, 64/n). docs/learning-rate.md says why.

    Args:
        model: Any module, as for `initialize_`. Parameters that need no gradient are left out.
        lr: The one number.
        optimizer: What the groups are for: `"adam"` and its relatives, `"sgd"`, or `"muon"`, where the matrices between
            hidden layers are in groups with `use_muon=True`, and all others have the rates of an Adam at lr/20.
        weight_decay: Decoupled, as in AdamW; each group's own is such that a step at `lr` takes lr · weight_decay from
            every matrix, whatever its rate, and nothing from other parameters. Without it groups have none, and the
            optimizer's own holds.
        inputs: Example inputs, to find the first and the last layer by running the model, as in `initialize_`.
        stem: Names of weights that read the input, as in `initialize_`.
        head: Names of those that make the output.

    Returns:
        Groups, each with `params`, `lr`, `name` and `lr_scale`, its rate over `lr`. Every optimizer takes them, and a
        schedule multiplies their rates.

    Raises:
        StiefelError: for a model, number or name that cannot be used.

    >>> model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    >>> adam = torch.optim.Adam(param_groups(model, 1e-3))
    >>> [group["name"] for group in adam.param_groups]
    ['first layer × 10', 'biases × 10', 'hidden layers × 5', 'biases × 5', 'last layer × 10']
    """
    check_module(model)
    if isinstance(optimizer, torch.optim.Optimizer):
        name = type(optimizer).__name__
        raise StiefelError(
            f"optimizer is a {name} that is made already; make it from the groups: {name}(param_groups(model, lr))."
        )
    lr = validate.number("lr", lr, above=0, hint="give one such as 1e-3")
    if weight_decay is not None:
        weight_decay = validate.number("weight_decay", weight_decay, at_least=0, hint="give a number ≥ 0, such as 0.1")
    for name, parameter in model.named_parameters():
        if is_uninitialized(parameter):
            raise StiefelError(f"{name} is a lazy layer's parameter without a shape; run one forward pass first.")
        if type(parameter).__name__ == "FlatParameter":
            raise StiefelError(f"{name} holds several layers; wrap the model with use_orig_params=True.")
    options = Options(inputs=inputs, stem=stem, head=head)
    with torch.no_grad():
        adapter = TorchAdapter(model, None, None)
        by_key = shares(adapter, options, optimizer)
    by_tensor = {id(ref.tensor): by_key[ref.key] for ref in reversed(adapter.parameters)}
    groups: dict[Share, dict[str, Any]] = {}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        share = by_tensor[id(parameter)]
        groups.setdefault(share, _group(share, lr, optimizer, weight_decay))["params"].append(parameter)
    if not groups:
        raise StiefelError("no parameter of the model needs a gradient; unfreeze some, or there is nothing to train.")
    return list(groups.values())


def _group(share: Share, lr: float, optimizer: Step, weight_decay: float | None) -> dict[str, Any]:
    """A group without its parameters yet."""
    group = {"params": [], "lr": lr * share.multiplier, "name": share.name, "lr_scale": share.multiplier}
    if weight_decay is not None:
        group["weight_decay"] = weight_decay / share.multiplier if share.decays else 0.0
    return group | {"use_muon": share.turns} if optimizer == "muon" else group
