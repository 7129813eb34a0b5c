"""The flow of a model in PyTorch.

Two ways lead to it. With example inputs the model is run once and every torch function on the way is watched; without,
`torch.fx` reads the model's forward. Both tell a `Flow` of one call after the other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from ...core.errors import StiefelError
from ...recipe.trace import INPUT, LAYERS, Flow, Signal, join
from ..inputs import arguments, plain, shapes, tensors_in

_VIEWS = frozenset({"getitem", "select", "view", "reshape", "squeeze", "unsqueeze", "expand", "to", "expandas"})
_FACTS = frozenset({"shape", "size", "dim", "ndim", "dtype", "device", "numel"})  # known of a tensor, but no signal


def read(model: nn.Module, weights: Mapping[int, str], gains: Mapping[int, str] | None = None) -> Flow | None:
    """The flow through the model's forward as `torch.fx` reads it; None if it cannot.

    Args:
        model: Any module.
        weights: The names of the weights by the identity of their parameters.
        gains: Likewise, those of parameters that signals may be multiplied by.
    """
    gains = gains or {}
    if (chain := _chain(model)) is not None:
        return _along(chain, weights)
    from torch.fx import Tracer

    class Reader(Tracer):
        """Goes into everything but layers, without their hooks."""

        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, _LEAVES) or super().is_leaf_module(m, module_qualified_name)

        def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
            return super().call_module(m, m.forward, args, kwargs)

    fixed = {
        name: parameter.default
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is not parameter.empty
    }
    try:
        graph = Reader().trace(model, concrete_args=fixed or None)
    except Exception:  # whatever a forward does that a symbol cannot
        return None
    flow, signals, held = Flow(), dict[Any, Signal | None](), dict[Any, tuple[str, ...]]()
    sort = _Sorter(weights, gains)

    for node in graph.nodes:
        inputs = [signal for other in node.all_input_nodes if (signal := signals.get(other)) is not None]
        using = tuple(name for other in node.all_input_nodes for name in held.get(other, ()))
        if node.op == "placeholder":
            signals[node] = None if node.name in fixed else Signal(frozenset({INPUT}))
        elif node.op == "get_attr":
            tensor = _attribute(model, node.target)
            held[node] = sort.names(tensor)
        elif node.op == "call_module":
            module = model.get_submodule(node.target)
            signals[node] = _through(flow, module, join(inputs), weights, gains) if inputs else None
        elif node.op in ("call_function", "call_method"):
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
            if using and not inputs:
                held[node] = sort.kept(name, using)
            elif name not in _FACTS and not (name == "getattr" and node.args[1] in _FACTS):
                turns = _swaps_axes(name, node.args[1:])
                signals[node] = flow.call(name, inputs, sort.weights(using), turns=turns, gains=sort.gains(using))
        elif node.op == "output":
            flow.returned = inputs
    return flow


class _Sorter:
    """Tells weights from gains, by the identity of parameters and by their names."""

    def __init__(self, weights: Mapping[int, str], gains: Mapping[int, str]) -> None:
        self._both = {**gains, **weights}
        self._weights, self._gains = frozenset(weights.values()), frozenset(gains.values())

    def names(self, tensor: Any) -> tuple[str, ...]:
        return (name,) if (name := self._both.get(id(tensor))) is not None else ()

    def weights(self, using: Iterable[str]) -> list[str]:
        return [name for name in dict.fromkeys(using) if name in self._weights]

    def gains(self, using: Iterable[str]) -> list[str]:
        return [name for name in dict.fromkeys(using) if name in self._gains]

    def kept(self, function: str, using: Iterable[str]) -> tuple[str, ...]:
        """What a tensor that a function computes stands for: a gain only as long as it is zero where that is."""
        views = function.replace("_", "").lower() in _VIEWS
        return tuple(name for name in dict.fromkeys(using) if name in self._weights or views)


def _swaps_axes(name: str, options: Sequence[Any], rank: int | None = None) -> bool:
    """Whether a function puts another axis last; without the `rank`, an exchange of the second and third does."""
    axes = tuple(options[0]) if options and isinstance(options[0], tuple | list) else tuple(options)
    if not axes or not all(type(axis) is int for axis in axes):
        return False
    if name == "permute":
        return axes[-1] % len(axes) != len(axes) - 1
    if name not in ("transpose", "swapaxes", "swapdims", "movedim", "moveaxis"):
        return False
    if rank is None:
        return -1 in axes or set(axes) == {1, 2}
    return rank - 1 in {axis % rank for axis in axes}


def _chain(model: nn.Module) -> list[nn.Module] | None:
    """The modules of a Sequential one after the other, if they are all torch's own or Sequentials of such."""
    if type(model) is not nn.Sequential:
        return None
    chain: list[nn.Module] = []
    for module in model:
        if type(module) is nn.Sequential:
            inner = _chain(module)
            if inner is None:
                return None
            chain += inner
        elif type(module).__module__.startswith("torch.nn.modules"):
            chain.append(module)
        else:
            return None
    return chain


def _along(chain: list[nn.Module], weights: Mapping[int, str]) -> Flow:
    """The flow through a chain of modules."""
    flow, signal = Flow(), Signal(frozenset({INPUT}))
    for module in chain:
        signal = _through(flow, module, signal, weights, {})  # a chain has no branches
    flow.returned = [signal]
    return flow


def _through(
    flow: Flow, module: nn.Module, signal: Signal, weights: Mapping[int, str], gains: Mapping[int, str]
) -> Signal:
    """What leaves a module of torch's own."""
    kind, mine = _kind(type(module)), _named(module, weights)  # type: ignore[arg-type]
    if not mine and module._modules and kind not in LAYERS and any(id(p) in weights for p in module.parameters()):
        # A block, such as an encoder layer: its inner flow stays unknown.
        return Signal(frozenset({f"{type(module).__name__} {id(module)}"}), merged=True)
    scales = [name] if (name := gains.get(id(module._parameters.get("weight")))) else []
    return flow.call(kind, [signal], mine, gains=scales) or signal


def _named(module: nn.Module, weights: Mapping[int, str]) -> tuple[str, ...]:
    """The names of a module's own weights; of a layer, with those that a parametrization or an attention has inside."""
    inside = module._modules and isinstance(module, _LEAVES)
    parameters: Iterable[Any] = module.parameters() if inside else module._parameters.values()
    return tuple(dict.fromkeys([weights[id(p)] for p in parameters if id(p) in weights]))


_KINDS: dict[type[nn.Module], str] = {
    nn.Linear: "linear",
    nn.Bilinear: "bilinear",
    nn.modules.conv._ConvNd: "conv2d",
    nn.MultiheadAttention: "multi_head_attention_forward",
    nn.RNNBase: "lstm",
    nn.RNNCellBase: "lstm_cell",
    nn.Embedding: "embedding",
    nn.EmbeddingBag: "embedding_bag",
}
_LEAVES = tuple(_KINDS)


@lru_cache
def _kind(module: type[nn.Module]) -> str:
    """The name of the function that a kind of module calls."""
    return next((kind for base, kind in _KINDS.items() if issubclass(module, base)), module.__name__)


def _attribute(model: nn.Module, path: str) -> Any:
    value: Any = model
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def watch(model: nn.Module, inputs: Any, weights: Mapping[int, str], gains: Mapping[int, str] | None = None) -> Flow:
    """The flow through the model as it runs on example inputs, once; the model is as before afterwards.

    Args:
        model: Any module.
        inputs: What it is called with: a tensor, a tuple of arguments or a mapping of keywords.
        weights: The names of the weights by the identity of their parameters.
        gains: Likewise, those of parameters that signals may be multiplied by.

    Raises:
        StiefelError: if the model's forward raises.
    """
    watcher = _Watcher(weights, gains or {})
    for tensor in tensors_in(inputs):
        watcher.signals[tensor] = Signal(frozenset({INPUT}))
    result = runs_undisturbed(model, inputs, watcher)
    watcher.flow.returned = [
        signal for leaf in tensors_in(plain(result)) if (signal := watcher.signals.get(leaf)) is not None
    ]
    return watcher.flow


def runs_undisturbed(model: nn.Module, inputs: Any, watcher: AbstractContextManager[Any] | None = None) -> Any:
    """What the model returns for the inputs; the model is as before afterwards.

    Raises:
        StiefelError: if the inputs are not finite, or the model's forward raises.
    """
    args, options = arguments(inputs)
    for tensor in tensors_in((args, options)):
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise StiefelError(f"inputs={shapes(inputs)} have entries that are not finite; give examples without.")
    with undisturbed(model), torch.no_grad():
        try:
            with watcher or nullcontext():
                return model(*args, **options)
        except StiefelError:
            raise
        except Exception as error:  # whatever the user's forward raises
            why = (str(error).splitlines() or [""])[0].rstrip(".")
            raise StiefelError(
                f"the model does not run on inputs={shapes(inputs)} ({type(error).__name__}: {why}); give what its "
                "forward takes: a tensor, a tuple of arguments or a dict of keywords."
            ) from None


class _Watcher(TorchFunctionMode):
    """Tells a flow of every torch function that is called."""

    def __init__(self, weights: Mapping[int, str], gains: Mapping[int, str]) -> None:
        super().__init__()
        self.flow = Flow()
        self.sort = _Sorter(weights, gains)
        self.signals: Any = WeakTensorKeyDictionary()
        self.computed: Any = WeakTensorKeyDictionary()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = list(tensors_in((*args, *kwargs.values()) if kwargs else args))
        result = func(*args, **(kwargs or {}))
        signals = [signal for tensor in given if (signal := self.signals.get(tensor)) is not None]
        using = [name for tensor in given for name in self._names(tensor)]
        made = list(tensors_in(result))
        if signals and made:
            name = getattr(func, "__name__", "")
            turns = _swaps_axes(name, args[1:], given[0].ndim)
            scales = self.sort.gains(using)
            signal = self.flow.call(name, signals, self.sort.weights(using), turns=turns, gains=scales)
            for tensor in made:
                self.signals[tensor] = signal
        elif using:
            for tensor in made:  # a view of a weight, or what a parametrization computes
                if not self.sort.names(tensor):
                    self.computed[tensor] = self.sort.kept(getattr(func, "__name__", ""), using)
        return result

    def _names(self, tensor: Tensor) -> tuple[str, ...]:
        return self.sort.names(tensor) or self.computed.get(tensor, ())


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Run the model in evaluation mode, and leave its mode, buffers and random numbers as they were."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        with torch.random.fork_rng(list(devices)):
            torch.backends.mha.set_fastpath_enabled(False)  # one call for a whole layer of an encoder
            for module, _ in modes:
                module.training = False
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for module, mode in modes:
            module.training = mode
        for buffer, value in buffers:
            buffer.copy_(value)
