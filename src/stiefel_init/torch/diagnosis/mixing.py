"""What outputs depend on: `mixing`, `leaking` and `reach` send a few examples through once more.

One of them is changed, or their order, or the gradient of one place of the outputs is followed back to the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..inputs import arguments, tensors_in
from ..observe.observer import first_tensor

_FEW = 4  # examples of a probe
_SEVERAL = 16  # of one that follows gradients, of which some may be 0 by chance
_ROUNDING = 1e-4  # of the outputs' size: what rounding on a GPU may change
_MOST = 1 << 22  # numbers of inputs and outputs of such a probe


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


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = {module: module.training for module in model.modules()}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _runs(model: nn.Module, *batches: Any, seed: int = 0) -> list[Tensor] | None:
    """The outputs in evaluation mode, each from the same random numbers; None where the model does not take them."""
    outputs = []
    try:
        with _evaluating(model):
            for batch in batches:
                torch.manual_seed(seed)
                args, kwargs = arguments(batch)
                outputs.append(first_tensor(model(*args, **kwargs)))
    except Exception:  # a model that takes whole batches only
        return None
    return None if any(output is None or output.ndim < 1 for output in outputs) else outputs  # type: ignore[return-value]


def _moved(one: Tensor, other: Tensor, size: float) -> float:
    return float((other.double() - one.double()).abs().amax()) / size if size > 0 and one.numel() else 0.0


@torch.no_grad()
def mixing(model: nn.Module, inputs: Any, targets: Any) -> dict[str, Any]:
    """Change all examples but the second: do its outputs move? Send them in another order: do theirs not follow?

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
        outputs = _runs(model, few, few, others, changed(few, lambda t: t.flip(0)))
    if outputs is None or any(len(output) != _FEW for output in outputs):
        return {}
    one, same, other, turned = outputs
    size = float(one.double().std()) if one.numel() > 1 else 0.0
    if _moved(one, same, size) > _ROUNDING:
        return {"remembers": True, "drops": dropped.seen}
    if not size > 0:
        return {"drops": dropped.seen}
    mixes, by_place = _moved(one[1:2], other[1:2], size), _moved(one, turned.flip(0), size)
    if by_place > _ROUNDING >= mixes:  # unless chance acts, which is the same at a place
        again = _runs(model, few, seed=1)
        by_place = by_place if again is not None and _moved(one, again[0], size) <= _ROUNDING else 0.0
    return {"mixes": max(mixes, by_place), "drops": dropped.seen}


@torch.no_grad()
def leaking(model: nn.Module, inputs: Any, targets: Any) -> dict[str, Any]:
    """How far earlier outputs move with the last input, over their size: where targets are the next inputs, or they."""
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor) or inputs.ndim < 2 or inputs.shape[1] < 3:
        return {}
    if targets.shape[:2] != inputs.shape[:2] or targets.ndim != inputs.ndim:
        return {}
    ahead = float((targets[:, :-1] == inputs[:, 1:]).double().mean()) >= 0.95
    if not ahead and (inputs.is_floating_point() or float((targets == inputs).double().mean()) < 0.95):
        return {}
    few, later = inputs[:_FEW], inputs[:_FEW].clone()
    later[:, -1] = few.roll(1, 0)[:, -1]
    later[:, -1] = torch.where(later[:, -1] == few[:, -1], few[:, 0], later[:, -1])
    outputs = _runs(model, few, later)
    if outputs is None or bool((later == few).all()):
        return {}
    steps = few.shape[1]
    if outputs[0].shape[:1].numel() == len(few) * steps:
        outputs = [output.reshape(len(few), steps, -1) for output in outputs]
    one, other = outputs
    if one.ndim < 3 or one.shape[1] != steps:
        return {}
    moved = _moved(one[:, :-1], other[:, :-1], float(one.double().std()))
    return {"leaks": moved} if ahead else {"looks_ahead": moved > _ROUNDING}


def reach(model: nn.Module, inputs: Any) -> dict[str, Any]:
    """Which steps of sequences the outputs depend on, in evaluation mode, by gradients that are exactly 0 or not.

    `unseen`: the share of steps, without padding, that no output depends on, of which no two examples are equal.
    `one_sided`: whether of a recurrent layer of both directions the last step alone is read.
    `padding`: what padding and real tokens weigh, as a mean gradient. `unordered`: whether tokens in another order
    give the same outputs.
    """
    if not isinstance(inputs, Tensor) or not 2 <= inputs.ndim <= 4 or len(inputs) < _FEW or inputs.numel() > _MOST:
        return {}
    few = inputs[:_SEVERAL]
    tokens = not few.is_floating_point()
    if (tokens and few.ndim > 3) or (not tokens and few.ndim < 3) or few.shape[1] < 3:
        return {}
    sources: list[Tensor] = []

    def separate(module: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if output.shape[:2] != few.shape[:2]:
            return None
        sources.append(output.detach().requires_grad_())
        return sources[-1].clone()

    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)] if tokens else []
    both_ways: list[tuple[nn.RNNBase, Tensor]] = []

    def keep(module: Any, args: Any, output: Any) -> None:
        if isinstance(output[0], Tensor) and output[0].requires_grad and output[0].ndim == 3:
            both_ways.append((module, output[0]))

    handles = [module.register_forward_hook(separate) for module in embeddings]
    handles += [
        module.register_forward_hook(keep)
        for module in model.modules()
        if isinstance(module, nn.RNNBase) and module.bidirectional
    ]
    if not tokens:
        sources.append(few.detach().clone().requires_grad_())
    try:
        with _evaluating(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            result = first_tensor(model(few if tokens else sources[0]))
            if result is None or not result.requires_grad or result.ndim < 2 or len(result) != len(few):
                return {}
            noise = torch.randn(result.shape, generator=torch.Generator().manual_seed(0)).to(result)
            weight = _weights_of(result * noise, sources)
            found = _of_steps(few, weight, tokens)
            found["one_sided"] = any(_is_read_last(result * noise, *each) for each in both_ways)
    except Exception:  # a model that takes whole batches only, or whose outputs have no gradient
        return {}
    finally:
        for handle in handles:
            handle.remove()
    if tokens and few.ndim == 2 and _attends(model, result):
        order = torch.randperm(few.shape[1], generator=torch.Generator().manual_seed(0)).to(few.device)
        with torch.no_grad():
            runs = _runs(model, few, few[:, order])
        if runs is not None:
            one, other = runs
            each = one.ndim > 2 and one.shape[1] == few.shape[1]
            moved = _moved(one[:, order] if each else one, other, float(one.double().std()))
            found["unordered"] = moved <= _ROUNDING and bool((few != few[:, order]).any())
    return found


def _is_read_last(outputs: Tensor, module: nn.RNNBase, steps: Tensor) -> bool:
    """Whether of a recurrent layer's output the outputs depend on the last step alone."""
    (gradient,) = torch.autograd.grad(outputs.sum(), [steps], retain_graph=True, allow_unused=True)
    if gradient is None:
        return False
    by_step = gradient.movedim(1 if module.batch_first else 0, 0).flatten(1).abs().sum(1)
    return len(by_step) > 2 and bool(by_step[-1] > 0) and not bool((by_step[:-1] > 0).any())


def _attends(model: nn.Module, result: Tensor) -> bool:
    """Whether tokens attend to each other."""
    if any(isinstance(module, nn.MultiheadAttention) for module in model.modules()):
        return True
    stack, seen = [result.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if "ScaledDotProduct" in node.name():
            return True
        stack += [below for below, _ in node.next_functions]
    return False


def _weights_of(outputs: Tensor, sources: list[Tensor]) -> Tensor:
    """The size of the outputs' gradient with respect to each step of each example."""
    found = torch.autograd.grad(outputs.sum(), sources, retain_graph=True, allow_unused=True)
    total = torch.zeros(())
    for gradient in found:
        if gradient is not None:
            moved = gradient.detach().abs()
            total = total.to(moved.device) + moved.flatten(2).sum(2)
    if total.ndim != 2:
        raise ValueError("the outputs depend on nothing that was looked at")
    return total


def _of_steps(few: Tensor, weight: Tensor, tokens: bool) -> dict[str, Any]:
    """Of what each step of each example weighs."""
    if not tokens and few.ndim > 3:
        return {}  # places of an image may be cut off
    value = padding_of(few) if tokens and few.ndim == 2 else None
    real = torch.ones_like(weight, dtype=torch.bool) if value is None else few != value
    varies = (few != few[:1]).flatten(2).any(2).any(0) if few.ndim > 2 else (few != few[:1]).any(0)
    unseen = varies & (((weight > 0) & real).sum(0) == 0) & (real.sum(0) > 1)
    found: dict[str, Any] = {"unseen": float(unseen.double().mean()) / max(float(varies.double().mean()), 1e-9)}
    if value is not None and bool((~real).any()):
        found["padding"] = float(weight[~real].mean()), float(weight[real].mean())
    return found


def padding_of(targets: Tensor) -> float | None:
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
