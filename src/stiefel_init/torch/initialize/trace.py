"""The flow of a model in PyTorch.

Two ways lead to it. With example inputs the model is run once and every torch function on the way is watched; without,
`torch.fx` reads the model's forward; where it cannot, `examples` are guesses at inputs. Both tell a `Flow` of one call
after the other.
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

from ...core.errors import StiefelError, said
from ...recipe.trace import INPUT, LAYERS, SIDES, Flow, Signal, does_not_run, join, not_finite
from ..inputs import arguments, plain, shapes, tensors_in
from .layers import is_normalization

_SAME = frozenset({
    "getitem", "select", "view", "reshape", "squeeze", "unsqueeze", "expand", "to", "expandas", "get", "transpose",
    "permute", "t", "mt", "h", "mh", "swapaxes", "swapdims", "movedim", "flatten", "unflatten", "reshapeas", "viewas",
    "contiguous", "clone", "detach", "data", "chunk", "split", "unbind", "narrow", "cat", "stack", "float", "half",
    "bfloat16", "double", "type", "typeas", "getattr", "requiresgrad",
})  # fmt: skip
"""What leaves the entries of a weight as they are."""
_OF_PARAMETERS = frozenset({"linear", "conv1d", "conv2d", "conv3d", "embedding"})
"""Layers that also read what is the same for all inputs: learned queries, or positions."""
_TRANSPOSES: dict[Any, str] = {getattr(Tensor, name).__get__: name for name in ("T", "mT", "H", "mH")}
_FACTS = frozenset({"shape", "size", "dim", "ndim", "dtype", "device", "numel"})  # known of a tensor, but no signal


def read(model: nn.Module, weights: Mapping[int, str]) -> Flow | None:
    """The flow through the model's forward as `torch.fx` reads it; None if it cannot.

    `weights` are the names of the weights by the identity of their parameters.
    """
    if (chain := _chain(model)) is not None:
        flow = Flow()
        flow.returned = [Signal(frozenset({INPUT}))]
        for module in chain:
            flow.returned = [_through(flow, module, flow.returned[0], weights)]
        return flow
    from torch.fx import Tracer

    class Reader(Tracer):
        """Goes into everything but layers, without their hooks."""

        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            layer = isinstance(m, _LEAVES) and type(m).forward.__module__.startswith("torch.")
            return layer or is_normalization(m) or super().is_leaf_module(m, module_qualified_name)

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
    reader = _Reader(weights, dict)
    flow, signals = reader.flow, reader.signals
    for node in graph.nodes:
        if node.op == "placeholder" and node.name not in fixed:
            signals[node] = Signal(frozenset({INPUT}))
        elif node.op == "get_attr":
            reader.held[node] = reader.named(_attribute(model, node.target))
        elif node.op == "call_module":
            module = model.get_submodule(node.target)
            known = [signals[other] for other in node.all_input_nodes if other in signals]
            if not known and isinstance(module, nn.Linear | nn.modules.conv._ConvNd | nn.Embedding):
                known = [Signal(frozenset())]
            if known:
                signals[node] = _through(flow, module, join(known), weights)
        elif node.op in ("call_function", "call_method"):
            name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
            name = str(node.args[1]) if name == "getattr" else name
            if name not in _FACTS:
                numbers = [_number(each, model) for each in node.args]
                reader.call(name, node.all_input_nodes, [node], node.args, node.kwargs, numbers)
        elif node.op == "output":
            flow.returned = [signals[other] for other in node.all_input_nodes if other in signals]
    return flow


class _Reader:
    """Tells a flow of calls, of whatever stands for tensors; weights are known by their parameters."""

    def __init__(self, weights: Mapping[int, str], table: Callable[[], Any]) -> None:
        self.weights = weights
        self.flow = Flow()
        self.signals = table()
        self.held = table()
        """The names of the weights that something is computed from, where it is no signal."""
        self.altered = table()
        """What holds other values than the weights that it is made of."""

    def named(self, tensor: Any) -> tuple[str, ...]:
        """The name of a weight; none of anything else."""
        return (name,) if (name := self.weights.get(id(tensor))) is not None else ()

    def names(self, value: Any) -> tuple[str, ...]:
        return self.named(value) or self.held.get(value, ())

    def call(
        self, name: str, given: Sequence[Any], made: Sequence[Any], args: Sequence[Any], options: Mapping[str, Any],
        numbers: Sequence[Any], rank: int | None = None,
    ) -> None:  # fmt: skip
        """A function makes something of what it is given."""
        signals = [signal for each in given if (signal := self.signals.get(each)) is not None]
        used = list(dict.fromkeys(name for each in given for name in self.names(each)))
        if used and not signals and name in _OF_PARAMETERS:
            signals = [Signal(frozenset())]
        altered = [each for each in given if each in self.altered]
        if signals and made:
            self.flow.altered |= {name for each in altered for name in self.names(each)}
            turns = _swaps_axes(name, args[1:], rank)
            name, factor = _meaning(name, args, options), _factor(name, numbers)
            signal = self.flow.call(name, signals, used, turns=turns, factor=factor)
            for each in made:
                self.signals[each] = signal
        elif used:  # a view of a weight, or what a parametrization computes
            alters = altered or name.replace("_", "").lower() not in _SAME
            for each in made:
                if not self.named(each):
                    self.held[each] = tuple(used)
                    if alters:
                        self.altered[each] = True


def _swaps_axes(name: str, options: Sequence[Any], rank: int | None = None) -> bool:
    """Whether a function puts another axis last; without the `rank`, an exchange of the second and third does."""
    if name in _TRANSPOSES.values():
        return True
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


def _meaning(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The name of a function, by what it is called with: from 0 on, `hardtanh` is a rectifier."""
    low = args[1] if len(args) > 1 else options.get("min_val", -1)
    return "relu6" if name.rstrip("_") == "hardtanh" and low == 0 else name


def _factor(name: str, args: Sequence[Any]) -> float:
    """The number that a signal is multiplied by; 1 if that is not known."""
    if name not in ("mul", "rmul", "__mul__", "__rmul__", "multiply", "div", "truediv", "__truediv__", "imul", "mul_"):
        return 1.0
    numbers = [float(each) for each in args if isinstance(each, int | float) and each]
    return 1.0 if len(numbers) != 1 else 1 / numbers[0] if "div" in name else numbers[0]


def _number(value: Any, model: nn.Module | None = None) -> Any:
    """An argument; of a tensor of one entry, its value, and of a node of the graph that gets one from the model."""
    if model is not None and getattr(value, "op", "") == "get_attr":
        value = _attribute(model, value.target)
    one = isinstance(value, Tensor) and not value.requires_grad and not value.is_meta and value.numel() == 1
    return value.item() if one else value


def _chain(model: nn.Module) -> list[nn.Module] | None:
    """The modules of a Sequential one after the other, if they are all torch's own or Sequentials of such."""
    if type(model) is not nn.Sequential:
        return None
    chain: list[nn.Module] = []
    for module in model:
        inner = [module] if type(module).__module__.startswith("torch.nn.modules") else None
        inner = _chain(module) if type(module) is nn.Sequential else inner
        if inner is None:
            return None
        chain += inner
    return chain


def _through(flow: Flow, module: nn.Module, signal: Signal, weights: Mapping[int, str]) -> Signal:
    """What leaves a module of torch's own."""
    kind, mine = _kind(type(module)), _named(module, weights)  # type: ignore[arg-type]
    if not mine and module._modules and kind not in LAYERS and any(id(p) in weights for p in module.parameters()):
        # A block, such as an encoder layer: its inner flow stays unknown.
        flow.opaque = True
        return Signal(frozenset({f"{type(module).__name__} {id(module)}"}), merged=True)
    if is_normalization(module) and not type(module).__module__.startswith("torch."):
        kind = normalization_of(module)
    return flow.call(kind, [signal], mine) or signal


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


def normalization_of(module: nn.Module) -> str:
    """What a normalization of someone's own is called in a flow."""
    return "batch_norm" if "batchnorm" in type(module).__name__.lower() else "layer_norm"


def watch(model: nn.Module, inputs: Any, weights: Mapping[int, str]) -> Flow:
    """The flow through the model as it runs on example inputs, once; names as for `read`.

    Raises:
        StiefelError: if the model's forward raises.
    """
    watcher = _Watcher(weights)
    for tensor in tensors_in(inputs):
        watcher.signals[tensor] = Signal(frozenset({INPUT}))
    foreign = [module for module in model.modules() if not type(module).__module__.startswith("torch.")]
    hooks = [module.register_forward_hook(watcher.normalized) for module in foreign if is_normalization(module)]
    try:
        result = runs_undisturbed(model, inputs, watcher)
    finally:
        for hook in hooks:
            hook.remove()
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
    if any(tensor.is_floating_point() and not bool(tensor.isfinite().all()) for tensor in tensors_in((args, options))):
        raise not_finite(shapes(inputs))
    with undisturbed(model), torch.no_grad():
        try:
            with watcher or nullcontext():
                return model(*args, **options)
        except StiefelError:
            raise
        except Exception as error:  # whatever the user's forward raises
            give = "what its forward takes: a tensor, a tuple of arguments or a dict of keywords"
            raise does_not_run(shapes(inputs), f"{type(error).__name__}: {said(error)}", give) from None


class _Watcher(TorchFunctionMode, _Reader):
    """Tells a flow of every torch function that is called."""

    def __init__(self, weights: Mapping[int, str]) -> None:
        TorchFunctionMode.__init__(self)
        _Reader.__init__(self, weights, WeakTensorKeyDictionary)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        given = list(tensors_in((*args, *options.values())))
        result = func(*args, **options)
        name = str(_TRANSPOSES.get(func) or getattr(func, "__name__", ""))
        if given and (made := list(tensors_in(result))):
            numbers = [_number(each) for each in args]
            self.call(name, given, made, args, options, numbers, given[0].ndim)
        return result

    def normalized(self, module: nn.Module, given: Any, result: Any) -> None:
        """A module normalizes, however it does that: a forward hook."""
        signals = [signal for tensor in tensors_in(given) if (signal := self.signals.get(tensor)) is not None]
        for tensor in tensors_in(result):
            self.signals[tensor] = self.flow.call(normalization_of(module), signals, ())


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


_LENGTH = 8  # of a sequence


def examples(model: nn.Module) -> Iterator[Any]:
    """Inputs that the model may take: its own of the package transformers, and what suits its first layer."""
    tensor = next(model.parameters(), None)
    if tensor is None:
        return
    with torch.device(tensor.device):
        own = getattr(model, "dummy_inputs", None)
        if isinstance(own, Mapping) and all(isinstance(each, Tensor) for each in own.values()):
            given = {name: each.to(tensor.device) for name, each in own.items()}
            yield given
            if "input_ids" in given:
                yield {**given, "decoder_input_ids": given["input_ids"]}
        named = inspect.signature(model.forward).parameters.values()
        needed = [each.name for each in named if each.default is each.empty and each.kind not in (2, 4)]
        main = getattr(model, "main_input_name", needed[0] if needed else None)
        if len(needed) > 1 or not isinstance(main, str):
            return
        for example in _of_layers(model):
            yield {main: example} if any(each.name == main for each in named) else example


def _of_layers(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            yield (torch.arange(2 * _LENGTH) % module.num_embeddings).view(2, _LENGTH)
        elif isinstance(module, nn.Linear):
            yield from (torch.ones(2, module.in_features), torch.ones(2, _LENGTH, module.in_features))
        elif isinstance(module, nn.RNNBase):
            yield torch.ones(2, _LENGTH, module.input_size)
        elif isinstance(module, nn.modules.conv._ConvNd):
            config = getattr(model, "config", None)
            sides = [side] if isinstance(side := getattr(config, "image_size", None), int) else SIDES
            yield from (torch.ones(2, module.in_channels, *(size,) * len(module.kernel_size)) for size in sides)
        else:
            continue
        return
