"""How a training is put together: what its loss reads, which parameters it reaches, in which mode the model runs.

`setup_of` reads it off the loss's graph, the optimizer and the modules. `mixing` and `leaking` send a few examples
through once more, with one of them changed: do the outputs of the others move?
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...health.setup import Op, Setup, Targets
from ..auditing import audit
from ..inputs import arguments, tensors_in
from ..observe.observer import first_tensor

Modules = Sequence[tuple[str, nn.Module]]
_LAYERS = frozenset({
    "Addmm", "Mm", "Bmm", "Convolution", "Embedding", "NativeLayerNorm", "NativeBatchNorm", "CudnnBatchNorm",
    "NativeGroupNorm", "MkldnnRnnLayer", "CudnnRnn", "Baddbmm", "FusedRmsNorm",
})  # fmt: skip
_ORDERED = frozenset({"BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"})  # arguments that cannot be swapped
_RESHAPES = frozenset(
    {"T", "Transpose", "View", "UnsafeView", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "Expand"}
)
_SQUASHING = frozenset({"Sigmoid", "Tanh", "Softmax", "Hardsigmoid"})
_MOST = 64  # operations between the last layer and the loss, at most
_TELLING = 500  # numbers whose distribution can be told
_FEW = 4  # examples of a probe
_ROUNDING = 1e-4  # of the outputs' size: what rounding on a GPU may change


def _name(node: Any) -> str:
    """An autograd node's operation, such as `"LogSoftmax"`."""
    return str(node.name()).partition("Backward")[0].rpartition("::")[2]


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node._input_metadata[0].shape) if node._input_metadata else ()


def _dim(node: Any, shape: tuple[int, ...]) -> int | None:
    dim = getattr(node, "_saved_dim", None)
    if not isinstance(dim, int) or not shape:
        return None
    return dim - (1 << 64) + len(shape) if dim >= 1 << 63 else dim


def tail_of(loss: Tensor, size: int | None = None) -> tuple[tuple[Op, ...], str]:
    """The operations between the last layer and the loss, the loss's own last, and the operation before these.

    An operation on fewer or more numbers than `size`, which the model returns, is its inside once that many were met.
    """
    ops: list[Op] = []
    node, last, met = loss.grad_fn, "", False
    while node is not None and len(ops) < _MOST:
        name, shape = _name(node), _shape(node)
        met = met or math.prod(shape) == size
        if name in _LAYERS or name == "AccumulateGrad" or (met and math.prod(shape) != size and name != "Expand"):
            last = name
            break
        below = [function for function, _ in node.next_functions]
        ignored, weight = (getattr(node, f"_saved_{what}", None) for what in ("ignore_index", "weight"))
        ops.append(
            Op(
                name, shape, _dim(node, shape), getattr(node, "_saved_reduction", None),
                None if ignored is None else ignored - (1 << 64) if ignored >= 1 << 63 else ignored,
                tuple(weight.tolist()) if isinstance(weight, Tensor) and weight.ndim == 1 else (),
                name in _ORDERED and len(below) > 1 and below[0] is None,
            )
        )  # fmt: skip
        node = next((function for function in below if function is not None), None)
    return tuple(reversed(ops)), last


@dataclass
class Graph:
    """What the loss's gradient passes on its way to the leaves."""

    leaves: list[Tensor] = field(default_factory=list)
    softmaxes: list[Op] = field(default_factory=list)
    pairs: list[tuple[str, str]] = field(default_factory=list)
    """Activations that follow each other directly."""
    single: int = 0
    """Normalizations over one number."""
    blocks: int = 0
    """Sums of two tensors of one shape, each computed: skip connections."""
    normalizes: bool = False
    measured: bool = False
    """Whether something is divided by its length."""


def graph_of(loss: Tensor) -> Graph:
    """All that the loss's gradient passes."""
    stack: list[tuple[Any, str]] = [(loss.grad_fn, "")]
    seen: set[Any] = {None}
    found = Graph()
    while stack:
        node, reader = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        name = _name(node)
        if hasattr(node, "variable"):
            found.leaves.append(node.variable)
        elif name in ("Softmax", "LogSoftmax"):
            dim = _dim(node, _shape(node))
            found.softmaxes.append(Op(name, _shape(node), dim, reader=reader, peak=_peak(node, dim)))
        if name in _SQUASHING and reader in _SQUASHING:
            found.pairs.append((name, reader))
        computed = [below for below, _ in node.next_functions if below is not None and not hasattr(below, "variable")]
        found.blocks += name == "Add" and len(computed) == 2 and _shape(computed[0]) == _shape(computed[1])
        found.normalizes = found.normalizes or ("Norm" in name and name != "LinalgVectorNorm")
        found.measured = found.measured or name in ("LinalgVectorNorm", "CosineSimilarity")
        if name == "NativeLayerNorm":
            found.single += math.prod(node._saved_normalized_shape) == 1
        if name == "NativeGroupNorm":
            found.single += node._saved_C * node._saved_HxW == node._saved_group
        reader = reader if name in _RESHAPES else name
        stack += [(below, reader) for below, _ in node.next_functions]
    return found


def _peak(node: Any, dim: int | None) -> float | None:
    """The mean of a softmax's largest probability, if it is over four or more."""
    result = getattr(node, "_saved_result", None) if _name(node) == "Softmax" else None
    if not isinstance(result, Tensor) or dim is None or result.shape[dim] < 4:
        return None
    return float(result.detach().amax(dim).double().mean())


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
        usual=float(distinct[most]), counts=_counts(values), padding=_padding(values),
        several=rows.shape[1] > 1 and distinct.tolist() == [0, 1] and not bool((rows.sum(1) == 1).all()),
        negative=float((rows < 0).double().mean()), above=float((rows > 1).double().mean()),
        beyond=float((rows.abs() > 1).double().mean()),
    )  # fmt: skip


def _counts(targets: Tensor) -> tuple[int, ...]:
    if targets.is_floating_point() or targets.ndim != 1 or int(targets.min()) < 0 or int(targets.max()) > 1000:
        return ()
    return tuple(targets.long().bincount().tolist())


def _padding(targets: Tensor) -> float | None:
    """The value that rows of classes end with, if many do, for lengths that differ."""
    if targets.ndim != 2 or targets.is_floating_point() or targets.shape[1] < 4 or len(targets) < 4:
        return None
    values, counts = torch.unique(targets[:, -1], return_counts=True)
    value = values[counts.argmax()]
    lengths = (targets != value).double().flip(1).cumsum(1).eq(0).sum(1)  # of the runs at the end
    mostly = float(lengths.double().mean()) > 0.5 * targets.shape[1]
    is_padded = float((lengths > 1).double().mean()) > 0.3 and (mostly or int(lengths.amax() - lengths.amin()) > 1)
    inside = (targets == value).sum(1) - lengths  # padding stands at the end alone
    return float(value) if is_padded and int(inside.sum()) == 0 else None


def _padding_share(given: Sequence[Tensor]) -> float:
    """The share of the first tensor of tokens that pads the ends of rows."""
    tokens = next((tensor for tensor in given if not tensor.is_floating_point()), None)
    value = None if tokens is None else _padding(tokens)
    return 0.0 if tokens is None or value is None else float((tokens == value).double().mean())


def _is_read(loss: Tensor, outputs: Tensor | None) -> bool:
    """Whether the loss reads the outputs as they are, and not their products, say."""
    node = loss.grad_fn
    while node is not None and outputs is not None:
        if node is outputs.grad_fn:
            return True
        if _name(node) in _LAYERS:
            return False
        node = next((below for below, _ in node.next_functions if below is not None), None)
    return False


@torch.no_grad()
def _contrary(loss: Callable[[Any, Any], Tensor], outputs: Tensor | None, targets: Any) -> tuple[float, float] | None:
    """The loss of scores that name each target's class, and of scores of zero; None where no axis counts classes."""
    if outputs is None or not isinstance(targets, Tensor) or targets.is_floating_point() or targets.is_complex():
        return None
    axes = [at for at in range(outputs.ndim) if outputs.shape[:at] + outputs.shape[at + 1 :] == targets.shape]
    if len(axes) != 1 or outputs.shape[axes[0]] < 2 or not 0 <= int(targets.max()) < outputs.shape[axes[0]]:
        return None
    named = torch.zeros_like(outputs).movedim(axes[0], -1)
    named.scatter_(-1, targets.clamp(0, named.shape[-1] - 1).long().unsqueeze(-1), 3.0)
    try:
        return float(loss(named.movedim(-1, axes[0]), targets)), float(loss(torch.zeros_like(outputs), targets))
    except Exception:  # a loss of more than one output, say
        return None


@torch.no_grad()
def _is_blind(loss: Callable[[Any, Any], Tensor], outputs: Any, targets: Any, value: float) -> bool:
    """Whether the loss is the same for targets in another order, though outputs and targets differ."""
    first = first_tensor(outputs)
    if not isinstance(targets, Tensor) or targets.ndim < 1 or len(targets) < 4 or first is None or first.ndim < 1:
        return False
    other = targets.roll(1, 0)
    # One output for all examples gets the same loss in any order; a target that hardly varies nearly so.
    if len(first) != len(targets) or float((first - first.roll(1, 0)).abs().amax()) == 0:
        return False
    if float((other != targets).double().mean()) < 0.2:
        return False
    try:
        again = [float(loss(outputs, targets.roll(shift, 0))) for shift in (1, 2, 3)]
    except Exception:  # the user's loss, which has taken the targets as they are
        return False
    return all(math.isclose(value, other, rel_tol=1e-6) for other in again)


def setup_of(
    model: nn.Module, inputs: Any, outputs: Any, targets: Any, value: Tensor, loss: Callable[[Any, Any], Tensor],
    optimizers: Sequence[torch.optim.Optimizer], ran: Collection[nn.Module],
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
    momenta = {name: module.momentum for name, module in norms.items() if module.momentum is not None}
    return Setup(
        tail=tail, last=last, softmaxes=tuple(graph.softmaxes), outputs=None if first is None else tuple(first.shape),
        targets=_targets(targets), blind=_is_blind(loss, outputs, targets, float(value.detach())),
        zeros=0.0 if first is None or not first.numel() else float((first.detach() == 0).double().mean()),
        parameters=len(names), hidden=tuple(_hidden(modules, names)),
        unregistered=sum(isinstance(leaf, nn.Parameter) and id(leaf) not in names for leaf in graph.leaves),
        frozen=frozen, last_frozen=next((not p.requires_grad for _, p in parameters[::-1] if p.ndim > 1), False),
        fresh=_fresh(model) if frozen else (), repeated=_repeated(modules),
        unreached=tuple(name for name, p in trained if id(p) not in reached and id(p) in running),
        standardizes=standardizes(modules), single=graph.single, pairs=tuple(graph.pairs),
        evaluating=tuple(n for n, m in (norms | dropouts).items() if not m.training) if model.training else (),
        dropout=max((float(module.p) for module in dropouts.values()), default=0.0),
        examples=len(given[0]) if given and given[0].ndim else 1, normalized=tuple(norms),
        memory=max(momenta.values(), default=None),
        untracked=tuple(name for name, momentum in momenta.items() if momentum == 0),
        leaks=leaking(model, inputs, targets), **mixing(model, inputs, targets),
        padded=_padding_share(given), blocks=graph.blocks, normalizes=graph.normalizes,
        contrary=_contrary(loss, first, targets) if _is_read(value, first) else None, cosines=graph.measured
        and first is not None and [op.name for op in tail if op.name not in _RESHAPES] == ["LogSoftmax", "NllLoss"]
        and float(first.detach().abs().amax()) <= 1 + 1e-5,
        **(_optimized(optimizers, trained, reached, names.keys()) if optimizers else {}),
    )  # fmt: skip


def _fresh(model: nn.Module) -> tuple[str, ...]:
    """Frozen weights that hold what torch, He or Xavier would draw: nobody has trained them.

    Few numbers may look so by chance, and so may trained ones of a scale that no initialization has.
    """
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad and p.numel() >= _TELLING]
    if not frozen:
        return ()
    known = {row.name: row.law for row in audit(model)}
    copies = {(p.shape, float(p.detach().sum())) for p in model.parameters() if p.requires_grad}
    return tuple(
        name
        for name in frozen
        if "(" in known.get(name, "")
        and _has_first_bias(model, name)
        and ((p := model.get_parameter(name)).shape, float(p.sum())) not in copies  # a teacher begins as its student
    )


def _has_first_bias(model: nn.Module, name: str) -> bool:
    """Whether the bias beside a weight, if there is one, is as torch or a constant leaves it."""
    module, weight = model.get_submodule(name.rpartition(".")[0]), model.get_parameter(name)
    bias = getattr(module, "bias", None)
    if not isinstance(bias, Tensor) or not bias.numel():
        return True
    bound = float(bias.detach().abs().amax())
    return bound <= 1.001 / math.sqrt(weight[0].numel()) or bool((bias == bias[0]).all())


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
        "momentum": max(
            (float(group.get("momentum") or group.get("betas", (0.0,))[0]) for group in groups), default=0.0
        ),
    }


def standardizes(modules: Modules) -> bool:
    """Whether the first thing a model does to its inputs is to normalize them."""
    first = next((module for _, module in modules if not module._modules), None)
    return isinstance(first, nn.modules.batchnorm._NormBase | nn.LayerNorm | nn.GroupNorm)


_MODAL = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)


class _Dropped(TorchFunctionMode):
    """Whether dropout drops in what runs inside, which is in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in ("dropout", "dropout1d", "dropout2d", "alpha_dropout"):
            p = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            training = kwargs.get("training", args[2] if len(args) > 2 else True)
            self.seen = self.seen or (bool(training) and p > 0)
        return func(*args, **kwargs)


def changed(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {key: changed(value, change) for key, value in inputs.items()}
    if type(inputs) in (tuple, list):
        return type(inputs)(changed(value, change) for value in inputs)
    return inputs


def _is_time_first(model: nn.Module, targets: Any) -> bool:
    first = any(getattr(module, "batch_first", True) is False for module in model.modules())
    return first and isinstance(targets, Tensor) and targets.ndim > 1


def _runs(model: nn.Module, *batches: Any) -> list[Tensor] | None:
    """The outputs in evaluation mode, each from the same random numbers; None where the model does not take them."""
    changing = (module for module in model.modules() if module.training and isinstance(module, _MODAL))
    modes: dict[nn.Module, bool] = {model: model.training, **dict.fromkeys(changing, True)}
    try:
        for module in modes:
            module.training = False
        outputs = []
        for batch in batches:
            torch.manual_seed(0)
            args, kwargs = arguments(batch)
            outputs.append(first_tensor(model(*args, **kwargs)))
    except Exception:  # a model that takes whole batches only
        return None
    finally:
        for module, mode in modes.items():
            module.training = mode
    return None if any(output is None or output.ndim < 1 for output in outputs) else outputs  # type: ignore[return-value]


def _moved(one: Tensor, other: Tensor, size: float) -> float:
    return float((other.double() - one.double()).abs().amax()) / size if size > 0 and one.numel() else 0.0


@torch.no_grad()
def mixing(model: nn.Module, inputs: Any, targets: Any) -> dict[str, Any]:
    """Change all examples but the second: do its outputs move?

    In evaluation mode, where batch normalization and dropout keep examples apart. Nothing is told where it cannot be
    asked: outputs that are not one for each example, inputs of several lengths. A model that gives other outputs for
    the same inputs and the same random numbers remembers those before.
    """
    given = list(tensors_in(inputs))
    count = len(given[0]) if given and given[0].ndim else 0
    if count < _FEW or any(t.ndim < 1 or len(t) != count for t in given) or _is_time_first(model, targets):
        return {}
    if not isinstance(targets, Tensor) or targets.ndim < 1 or len(targets) != count:
        return {}
    norms = (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))
    if any(norm.running_mean is None for norm in norms):
        return {}  # each batch has its own statistics, also in evaluation
    few = changed(inputs, lambda t: t[:_FEW])
    others = changed(inputs, lambda t: torch.cat([t[-1:], t[1:2], t[2 - _FEW :]]))
    with _Dropped() as dropped:
        outputs = _runs(model, few, few, others)
    if outputs is None or any(len(output) != _FEW for output in outputs):
        return {}
    one, same, other = outputs
    size = float(one.double().std()) if one.numel() > 1 else 0.0
    if _moved(one, same, size) > _ROUNDING:
        return {"remembers": True, "drops": dropped.seen}
    return {"mixes": _moved(one[1:2], other[1:2], size) if size > 0 else None, "drops": dropped.seen}


@torch.no_grad()
def leaking(model: nn.Module, inputs: Any, targets: Any) -> float | None:
    """Where targets are the next inputs: how far earlier outputs move with the last input, over their size."""
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor) or inputs.ndim < 2 or inputs.shape[1] < 3:
        return None
    if targets.shape[:2] != inputs.shape[:2] or targets.ndim != inputs.ndim:
        return None
    if float((targets[:, :-1] == inputs[:, 1:]).double().mean()) < 0.95:
        return None
    few, later = inputs[:_FEW], inputs[:_FEW].clone()
    later[:, -1] = few.roll(1, 0)[:, -1]
    later[:, -1] = torch.where(later[:, -1] == few[:, -1], few[:, 0], later[:, -1])
    outputs = _runs(model, few, later)
    if outputs is None or bool((later == few).all()):
        return None
    steps = few.shape[1]
    if outputs[0].shape[:1].numel() == len(few) * steps:
        outputs = [output.reshape(len(few), steps, -1) for output in outputs]
    one, other = outputs
    if one.ndim < 3 or one.shape[1] != steps:
        return None
    return _moved(one[:, :-1], other[:, :-1], float(one.double().std()))
