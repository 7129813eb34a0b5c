"""The attentions of a model, found by the names of their weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .layers import Matrices, Weight
from .roles import Roles

_APART: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "q_proj": ("k_proj", "v_proj", ("o_proj", "out_proj", "c_proj", "proj")),
    "query": ("key", "value", ("out", "proj", "dense", "out_proj", "attention_output")),
    "query_proj": ("key_proj", "value_proj", ("output_proj", "out_proj")),
    "to_q": ("to_k", "to_v", ("to_out", "to_out.0")),
    "q_lin": ("k_lin", "v_lin", ("out_lin",)),
    "wq": ("wk", "wv", ("wo",)),
    "q": ("k", "v", ("o", "out", "proj")),
}
"""What layers are called whose weights are a query; the names of their key, value and output."""
_TOGETHER: dict[str, tuple[str, ...]] = {
    "in_proj_weight": ("out_proj",),  # of `MultiheadAttention`, a parameter of its own
    "qkv": ("proj", "out_proj", "out"),
    "qkv_proj": ("o_proj", "out_proj", "proj"),
    "Wqkv": ("out_proj", "Wo"),
    "to_qkv": ("to_out", "to_out.0"),
    "c_attn": ("c_proj",),
    "query_key_value": ("dense",),
}
"""Likewise of those that hold query, key and value; the names of their output."""
_CROSS = ("cross", "encoder_attn", "encdecattention", "multihead_attn")

QUERIES = frozenset(_APART.keys() | _TOGETHER.keys())
"""What layers are called whose weights hold a query."""


class Projection(NamedTuple):
    """One of the matrices q, k and v."""

    weight: str
    """The name of the weight that holds it."""
    matrices: Matrices
    first: int
    """Its place among the matrices of that weight."""


class Attention(NamedTuple):
    """The weights of one attention."""

    query: Projection
    key: Projection
    value: Projection
    output: str | None
    """The name of the output projection; None if it was not found."""
    crossed: bool
    """Whether queries and keys read two sequences."""
    heads: int | None
    """None where that is not known."""

    @property
    def weights(self) -> set[str]:
        """The names of all its weights."""
        named = {self.query.weight, self.key.weight, self.value.weight}
        return named if self.output is None else named | {self.output}


def attentions(weights: Mapping[str, Weight], roles: Roles) -> Iterator[Attention]:
    """All attentions whose weights have the usual names, in the order of the weights."""
    for name, weight in weights.items():
        path, dot, leaf = name.removesuffix(".weight").rpartition(".")
        stem = path + dot
        if leaf not in QUERIES or len(weight.shape) != 2 or name.endswith(".weight") == (leaf == "in_proj_weight"):
            continue
        crossed = any(word in name.lower() for word in _CROSS)
        if leaf in _TOGETHER:
            parts = [Projection(name, part, place) for place, part in enumerate(_thirds(weight, leaf))]
            outputs = [f"{stem}{out}.weight" for out in _TOGETHER[leaf]]
        else:
            key_leaf, value_leaf, outs = _APART[leaf]
            names = [name, f"{stem}{key_leaf}.weight", f"{stem}{value_leaf}.weight"]
            parts = [Projection(each, weights[each].matrices, 0) for each in names if each in weights]
            crossed = crossed or roles[name].origins != roles[names[1]].origins
            # BERT's output is beside the module of the others.
            outputs = [*(f"{stem}{out}.weight" for out in outs), stem.removesuffix("self.") + "output.dense.weight"]
        if len(parts) == 3:
            query, key, value = parts
            output = next((each for each in outputs if each in weights), None)
            yield Attention(query, key, value, output, crossed, weight.layer.heads)


def _thirds(weight: Weight, leaf: str) -> list[Matrices]:
    """Where q, k and v are in a weight that holds all three; none if that is not known."""
    size, heads = weight.matrices.n, weight.layer.heads
    if weight.matrices.m * weight.matrices.count != 3 * size:
        return []
    if leaf == "query_key_value":
        if heads is None or size % heads:
            return []
        each = size // heads
        return [Matrices(1, size, size, rows=(part * each, (part + 1) * each), period=3 * each) for part in range(3)]
    ranges = [(part * size, (part + 1) * size) for part in range(3)]
    if order := weight.matrices.order:
        return [Matrices(1, size, size, order=order, columns=columns) for columns in ranges]
    return [Matrices(1, size, size, rows=rows) for rows in ranges]
