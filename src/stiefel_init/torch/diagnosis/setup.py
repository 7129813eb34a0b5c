"""How a training is put together: what its loss reads, which parameters it reaches, in which mode the model runs.

`setup_of` reads it off the loss's graph, the optimizer, the modules, and what the probes of `losses` and `mixing` tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...health.setup import Setup, Targets
from ..inputs import tensors_in
from ..observe.observer import first_tensor
from .graph import Calls, graph_of, is_read, tail_of
from .losses import IGNORED, Wishes, groups_of, wishes_of
from .mixing import leaking, mixing, padding_of, reach

Modules = Sequence[tuple[str, nn.Module]]
_FORGETS = 0.5  # momentum of a batch normalization
_ALIKE = 16  # examples that are not equal by chance


def _hidden(modules: Modules, names: Mapping[int, str]) -> Iterator[str]:
    """Modules and parameters in lists, tuples and dicts of a module, which `parameters()` does not see."""
    registered = {id(module) for _, module in modules} | names.keys()

    def inside(value: Any, name: str) -> Iterator[str]:
        if isinstance(value, nn.Module | nn.Parameter):
            if id(value) not in registered:
                yield name
        elif isinstance(value, list | tuple):
            for at, item in enumerate(value):
                yield from inside(item, f"{name}[{at}]")
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from inside(item, f"{name}[{key!r}]")

    for path, module in modules:
        for attribute, value in vars(module).items():
            if type(value) in (list, tuple, dict) and attribute[0] != "_":
                yield from inside(value, f"{path}.{attribute}".lstrip("."))


def _repeated(modules: Modules) -> tuple[str, int]:
    """A container that holds a module with weights several times, and how often."""
    for path, module in modules:
        if isinstance(module, nn.Sequential | nn.ModuleList):
            children = [child for child in module._modules.values() if child is not None]
            for child, count in Counter(children).items():
                if count > 1 and any(True for _ in child.parameters()):
                    return path or type(module).__name__, count
    return "", 1


def _targets(targets: Any) -> Targets | None:
    if not isinstance(targets, Tensor) or not targets.numel() or targets.is_complex():
        return None
    values = targets.detach()
    distinct, counts = torch.unique(values, return_counts=True)
    most = int(counts.argmax())
    rows = values.double().reshape(len(values) if values.ndim else 1, -1)
    return Targets(
        shape=tuple(values.shape), whole=not values.is_floating_point(), low=float(distinct[0]),
        high=float(distinct[-1]), distinct=len(distinct), majority=float(counts[most]) / values.numel(),
        usual=float(distinct[most]), counts=_counts(values), padding=padding_of(values),
        several=rows.shape[1] > 1 and distinct.tolist() == [0, 1] and bool((rows.sum(1) > 1).any()),
        negative=float((rows < 0).double().mean()), above=float((rows > 1).double().mean()),
        beyond=float((rows.abs() > 1).double().mean()),
    )  # fmt: skip


def _counts(targets: Tensor) -> tuple[int, ...]:
    if targets.ndim == 2 and bool(((targets == 0) | (targets == 1)).all()) and bool((targets.sum(1) <= 1).all()):
        return tuple(targets.long().sum(0).tolist())
    if targets.is_floating_point() or targets.ndim != 1 or int(targets.min()) < 0 or int(targets.max()) > 1000:
        return ()
    return tuple(targets.long().bincount().tolist())


def _padding_share(given: Sequence[Tensor]) -> float:
    """The share of the first tensor of tokens that pads the ends of rows."""
    tokens = next((tensor for tensor in given if not tensor.is_floating_point()), None)
    value = None if tokens is None else padding_of(tokens)
    return 0.0 if tokens is None or value is None else float((tokens == value).double().mean())


def setup_of(
    model: nn.Module, inputs: Any, outputs: Any, targets: Any, value: Tensor, loss: Callable[[Any, Any], Tensor],
    optimizers: Sequence[torch.optim.Optimizer], ran: Collection[nn.Module], calls: Calls,
) -> Setup:  # fmt: skip
    """What the graph of the loss's `value`, the optimizer and the modules tell; `ran` are the layers that took part."""
    modules, parameters = list(model.named_modules()), list(model.named_parameters())
    names = {id(parameter): name for name, parameter in parameters}
    given = list(tensors_in(inputs))
    graph = graph_of(value)
    reached = {id(leaf) for leaf in graph.leaves} - {id(tensor) for tensor in given}
    trained = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
    frozen = tuple(name for name, parameter in parameters if not parameter.requires_grad)
    running = {id(parameter) for module in ran for parameter in module.parameters(recurse=False)}
    first = first_tensor(outputs)
    tail, last = tail_of(value, None if first is None else first.numel())
    norms = {name: module for name, module in modules if isinstance(module, nn.modules.batchnorm._BatchNorm)}
    dropouts = {name: module for name, module in modules if isinstance(module, nn.modules.dropout._DropoutNd)}
    unreached = tuple(name for name, p in trained if id(p) not in reached and id(p) in running)
    wishes = wishes_of(loss, outputs, targets, [op.name for op in tail] + [last]) if is_read(value, first) else Wishes()
    return Setup(
        tail=tail, last=last, softmaxes=tuple(graph.softmaxes), outputs=None if first is None else tuple(first.shape),
        targets=_targets(targets) if _is_heard(loss, outputs, targets) else None, broadcast=calls.broadcast,
        span=(0.0, 0.0) if first is None or not first.numel() else tuple(map(float, first.detach().aminmax())),
        zeros=0.0 if first is None or not first.numel() else float((first.detach() == 0).double().mean()),
        parameters=len(names), hidden=tuple(_hidden(modules, names)),
        unregistered=sum(isinstance(p, nn.Parameter) and id(p) not in names for p in graph_of(first).leaves),
        frozen=frozen, repeated=_repeated(modules),
        unreached=unreached,
        standardizes=standardizes(modules), single=graph.single, pairs=tuple(graph.pairs),
        evaluating=tuple(n for n, m in (norms | dropouts).items() if _is_asleep(m)) if model.training else (),
        dropout=max((float(module.p) for module in dropouts.values()), default=0.0),
        examples=len(given[0]) if given and given[0].ndim else 1, normalized=tuple(norms),
        statistics=_statistics(list(norms.values())),
        **leaking(model, inputs, targets), **mixing(model, inputs, targets),
        padded=_padding_share(given), blocks=graph.blocks, normalizes=graph.normalizes,
        contrary=wishes.contrary, opposite=wishes.opposite, linear=wishes.linear, shift=wishes.shift,
        moved=calls.moved, discarded=calls.discarded(graph.nodes), doubled=graph.doubled, stairs=graph.stairs,
        stacked=max((module.num_layers for _, module in modules if isinstance(module, nn.RNNBase)), default=0),
        suspects=tuple(graph.suspects.items()), broke=calls.broke, contradicts=_contradiction(given, targets),
        **_copies(inputs, targets), **reach(model, inputs),
        **(_optimized(optimizers, trained, reached, names.keys()) if optimizers else {}),
    )  # fmt: skip


def _statistics(norms: Sequence[nn.modules.batchnorm._BatchNorm]) -> str:
    for norm in norms:
        momentum = 0.1 if norm.momentum is None else norm.momentum
        if norm.running_mean is None:
            return "are not kept"
        if momentum == 0 or momentum > _FORGETS:
            return (
                "never change, with momentum 0" if momentum == 0 else f"are those of the last batch ({momentum=:.3g})"
            )
    return ""


def _is_asleep(module: nn.Module) -> bool:
    """Whether it is in evaluation mode; who freezes a normalization has trained it before."""
    count = getattr(module, "num_batches_tracked", None)
    return not module.training and (not isinstance(module, nn.modules.batchnorm._BatchNorm) or not count)


@torch.no_grad()
def _is_heard(loss: Callable[[Any, Any], Tensor], outputs: Any, targets: Any) -> bool:
    """Whether targets that are all equal are more than a placeholder: others have another loss."""
    if not isinstance(targets, Tensor) or not targets.numel() or bool((targets != targets.flatten()[0]).any()):
        return True
    try:
        losses = []
        for each in (targets, 1 - targets, targets + 1):
            torch.manual_seed(0)
            losses.append(float(loss(outputs, each).detach()))
    except Exception:  # a loss that takes some targets only
        return True
    return len(set(losses)) > 1


def _copies(inputs: Any, targets: Any) -> dict[str, Any]:
    """Of classes for each token: the share that is the token itself, that is the next one, and that counts."""
    if not isinstance(targets, Tensor) or targets.ndim != 2 or targets.shape[1] < 3 or targets.is_floating_point():
        return {}
    counts, given = targets != IGNORED, list(tensors_in(inputs))
    found: dict[str, Any] = {"counted": float(counts.double().mean()), "beside": len(given) > 1}
    for tokens in given:
        if tokens.shape == targets.shape and not tokens.is_floating_point() and not found.get("copies", 0.0) > 0.9:
            found["copies"] = float((targets == tokens)[counts].double().mean())
            found["ahead"] = float((targets[:, :-1] == tokens[:, 1:])[counts[:, :-1]].double().mean())
    return found


@torch.no_grad()
def _contradiction(given: Sequence[Tensor], targets: Any) -> float:
    """The share of the targets' variance that lies among examples with equal inputs."""
    if len(given) != 1 or not isinstance(targets, Tensor) or targets.ndim < 1 or targets.is_complex():
        return 0.0
    count = len(targets)
    groups = groups_of(given, count) if given[0].ndim > 1 and count >= _ALIKE and targets.numel() == count else None
    if groups is None or int(groups.max()) + 1 == count:
        return 0.0
    y = targets.reshape(-1, 1).cpu()
    aims = y.double() if y.is_floating_point() else (y == torch.unique(y)).double()
    means = torch.zeros(int(groups.max()) + 1, aims.shape[1], dtype=torch.double).index_add_(0, groups, aims)
    apart = aims - (means / groups.bincount()[:, None])[groups]
    whole = float((aims - aims.mean(0)).square().sum())
    return float(apart.square().sum()) / whole if whole > 0 else 0.0


def _optimized(
    optimizers: Sequence[torch.optim.Optimizer],
    trained: Sequence[tuple[str, nn.Parameter]],
    reached: set[int],
    own: Collection[int],
) -> dict[str, Any]:
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    held = {id(parameter) for group in groups for parameter in group["params"]}
    known = reached | set(own)
    return {
        "optimizer": type(optimizers[0]).__name__,
        "optimized": len(held & known),
        "stale": len(held - known),
        "warms_up": any(group["lr"] < group.get("initial_lr", 0.0) for group in groups if "lr" in group),
        "unoptimized": tuple(name for name, p in trained if id(p) in reached and id(p) not in held),
        "stalled": tuple(
            name
            for name, p in trained
            if any(p is held for g in groups if g.get("lr") == 0 and not g.get("initial_lr") for held in g["params"])
        ),
        "tiny": any(_underflows(group) for group in groups),
        "momentum": max(
            (float(group.get("momentum") or group.get("betas", (0.0,))[0]) for group in groups), default=0.0
        ),
    }


def _underflows(group: Mapping[str, Any]) -> bool:
    """Whether an optimizer's epsilon is 0 in the precision of its parameters."""
    eps = group.get("eps")
    return bool(eps) and any(
        p.is_floating_point() and float(torch.tensor(eps).to(p.dtype)) == 0 for p in group["params"]
    )


def standardizes(modules: Modules) -> bool:
    """Whether the first thing a model does to its inputs is to normalize them."""
    first = next((module for _, module in modules if not module._modules), None)
    return isinstance(first, nn.modules.batchnorm._NormBase | nn.LayerNorm | nn.GroupNorm)
