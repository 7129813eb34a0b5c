"""The flow of a model in Keras: its graph of layers, or what its `call` does with symbols in place of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
from keras import layers

from ..recipe.trace import INPUT, Flow, Signal, join
from .layers import ATTENTION, NORMS, PRODUCTS, SEPARABLE, inner

_NAMES = {
    "multiply": "mul",
    "subtract": "sub",
    "average": "add",
    "concatenate": "cat",
    **{f"maxpooling{axes}d": f"maxpool{axes}d" for axes in (1, 2, 3)},
    "unitnormalization": "normalize",
    "maxpool": "maxpool2d",
}
_RECURRENT = layers.RNN, layers.Bidirectional, layers.ConvLSTM1D, layers.ConvLSTM2D, layers.ConvLSTM3D


def flow_of(model: Any, weights: Mapping[int, str], examples: Any = None) -> Flow | None:
    """The flow through a model, whose weights have these names by the identity of their variables.

    None if it cannot be seen: a model that is no graph of layers takes symbols of its input as `examples`.
    """
    walker = _Walker(weights)
    start = Signal(frozenset({INPUT}))
    with _undisturbed(model):
        if (graph := _graph(model)) is not None:
            walker.flow.returned = walker.run(graph, [start] * len(graph.inputs))
        elif examples is None:
            return None
        else:
            traced = keras.Function(examples, model.call(examples))
            walker.flow.returned = walker.run(traced, [start] * len(traced.inputs))
    return walker.flow


def _graph(model: Any) -> Any:
    """The graph of layers that a functional or sequential model is; None for others."""
    if isinstance(model, keras.Sequential):
        return model._functional
    return model if hasattr(model, "_nodes_by_depth") else None


class _Walker:
    """Tells a flow of every layer of a graph."""

    def __init__(self, weights: Mapping[int, str]) -> None:
        self.flow = Flow()
        self.weights = weights

    def run(self, graph: Any, given: list[Signal]) -> list[Signal]:
        """What comes out of a graph of layers that is given these signals."""
        signals = {id(tensor): signal for tensor, signal in zip(graph.inputs, given)}
        for depth in sorted(graph._nodes_by_depth, reverse=True):
            for node in graph._nodes_by_depth[depth]:
                if node.is_input:
                    continue
                taken = [signals[id(tensor)] for tensor in node.input_tensors if id(tensor) in signals]
                made = self.through(node.operation, taken, node) if taken else []
                if len(made) == 1:
                    made *= len(node.outputs)
                signals.update({id(tensor): signal for tensor, signal in zip(node.outputs, made)})
        return [signals[id(tensor)] for tensor in graph.outputs if id(tensor) in signals]

    def through(self, operation: Any, given: list[Signal], node: Any) -> list[Signal]:
        """What comes out of a layer or function."""
        if (graph := _graph(operation)) is not None:
            return self.run(graph, given)
        if isinstance(operation, layers.TimeDistributed | layers.SpectralNormalization):
            return self.through(operation.layer, given, node)
        if isinstance(operation, ATTENTION):
            return [self.attention(operation, given)]
        if isinstance(operation, SEPARABLE):
            depthwise, pointwise = self.named(operation)[:2]
            between = self.called("conv2d", given, (depthwise,))
            return [self.activated(operation, self.called("conv2d", [between], (pointwise,)))]
        for kinds, name in ((PRODUCTS, "linear"), (_RECURRENT, "lstm"), (layers.Embedding, "embedding")):
            if isinstance(operation, kinds):
                made = self.called(name, given, self.named(operation))
                return [self.activated(operation, made) if kinds is PRODUCTS else made]
        if isinstance(operation, NORMS):
            per_channel = isinstance(operation, layers.BatchNormalization | layers.GroupNormalization)
            return [self.called("batchnorm" if per_channel else "layernorm", given)]
        if isinstance(operation, layers.Activation):
            return [self.activated(operation, join(given))]
        if isinstance(operation, layers.Layer) and not type(operation).__module__.startswith("keras."):
            return self.own(operation, given, node)
        short = type(operation).__name__.lower()
        return [self.called(_NAMES.get(short, short), given)]

    def own(self, layer: Any, given: list[Signal], node: Any) -> list[Signal]:
        """A layer of the user's: its `call` is read with symbols, or its inner flow stays unknown."""
        if not self.named(layer):
            return [join(given)]
        try:
            symbols = keras.tree.map_structure(_symbol, (node.arguments.args, node.arguments.kwargs))
            taken = [symbol for symbol in keras.tree.flatten(symbols) if isinstance(symbol, keras.KerasTensor)]
            positional, named = symbols
            return self.run(keras.Function(taken, layer.call(*positional, **named)), given)
        except Exception:  # whatever a user's call does that a symbol cannot
            return [Signal(frozenset({f"{type(layer).__name__} {id(layer)}"}), merged=True)]

    def attention(self, layer: Any, given: list[Signal]) -> Signal:
        """The query reads the first input, key and value the others."""
        projections = {child.name: self.named(child) for child in inner(layer)}
        first, others = given[0], given[1:] or given
        mixed = [
            self.called("linear", [first], projections.get("query", ())),
            self.called("linear", others[-1:], projections.get("key", ())),
            self.called("linear", others[:1], projections.get("value", ())),
        ]
        return self.called("linear", [self.called("softmax", mixed)], projections.get("attention_output", ()))

    def activated(self, layer: Any, signal: Signal) -> Signal:
        activation = getattr(layer, "activation", None)
        name = getattr(activation, "__name__", type(activation).__name__)
        return signal if activation is None or name == "linear" else self.called(name, [signal])

    def called(self, name: str, given: list[Signal], weights: tuple[str, ...] = ()) -> Signal:
        return self.flow.call(name, given, weights) or join(given)

    def named(self, layer: Any) -> tuple[str, ...]:
        """The names of all weights in a layer."""
        return tuple(self.weights[id(variable)] for variable in layer.weights if id(variable) in self.weights)


def _symbol(value: Any) -> Any:
    return keras.Input(batch_shape=value.shape, dtype=value.dtype) if isinstance(value, keras.KerasTensor) else value


@contextmanager
def _undisturbed(model: Any) -> Iterator[None]:
    """Leave the layers' records of their calls as they were."""
    every = [model, *model._flatten_layers(include_self=False)]
    lists = [(calls, len(calls)) for layer in every for calls in (layer._inbound_nodes, layer._outbound_nodes)]
    try:
        yield
    finally:
        for calls, before in lists:
            del calls[before:]
