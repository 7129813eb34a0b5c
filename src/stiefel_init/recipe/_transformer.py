"""Schemes for transformers: what their attentions, blocks and embeddings start as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from ..core.errors import StiefelError
from ..schemes import Position, Scheme
from .attention import Attention, Projection, attentions, blocks
from .layers import Matrices, Weight
from .roles import Roles
from .rules import Part

_THIRDS: tuple[Literal["query", "key", "value"], ...] = ("query", "key", "value")


def parts_of_attention(
    weights: Mapping[str, Weight], scheme: Scheme, roles: Roles | None, positions: Mapping[str, Position]
) -> dict[str, list[Part]]:
    """What the weights of a transformer start as, by name; nothing where the scheme does not look for attention.

    Raises:
        StiefelError: if the model has no attention that the scheme can start.
    """
    if not scheme.attention:
        return {}
    found = list(attentions({n: w for n, w in weights.items() if w.linked}, roles or Roles()))
    if not any(not attention.crossed for attention in found):
        raise StiefelError(
            f"scheme={str(scheme)!r} is for transformers, and the model has no weights with the usual names of "
            "self-attention, such as q_proj, k_proj and v_proj; use another scheme."
        )
    if scheme.attention == "paired":
        return _paired(weights, scheme, found)
    return _in_blocks(weights, scheme, found, positions)


def _in_blocks(
    weights: Mapping[str, Weight], scheme: Scheme, found: list[Attention], positions: Mapping[str, Position]
) -> dict[str, list[Part]]:
    """Each projection and layer by the number of blocks around it."""
    tables = [name for name, weight in weights.items() if weight.layer.kind == "embedding"]
    around = blocks((name for name in weights if name not in tables), found)
    for attention in found:
        if attention.query.weight not in around:
            raise StiefelError(
                f"scheme={str(scheme)!r} needs to know the transformer's blocks, and no module around "
                f"{attention.query.weight} has a feed-forward network too; use another scheme."
            )
    parts: dict[str, list[Part]] = {}
    for name in (name for name in weights if name in around):
        block = around[name]
        position = positions[name]._replace(layers=block.layers, crossed=block.crossed)
        reason = f"in one of {block.layers} {'decoder ' if block.crossed else ''}blocks"
        parts[name] = [Part(weights[name].matrices, scheme.at(position), reason)]
        for attention in found:
            if name == attention.query.weight == attention.value.weight:
                laws = [scheme.at(position._replace(projection=kind)) for kind in _THIRDS]
                thirds = attention.query, attention.key, attention.value
                parts[name] = [Part(held.matrices, law, reason, first=held.first) for held, law in zip(thirds, laws)]
            elif name in (attention.query.weight, attention.key.weight):
                law = scheme.at(position._replace(projection="query"))
                parts[name] = [Part(weights[name].matrices, law, reason)]
    most = max(around.values(), key=lambda block: (block.crossed, block.layers))
    for name in tables:
        law = scheme.at(Position(layers=most.layers, crossed=most.crossed, table=True))
        parts[name] = [Part(weights[name].matrices, law, f"an embedding of {most.layers} blocks")]
    return parts


def _paired(weights: Mapping[str, Weight], scheme: Scheme, found: list[Attention]) -> dict[str, list[Part]]:
    """Query and key of each head, value and output: two factors of one draw, whose name is the query's or output's."""
    parts: dict[str, list[Part]] = {}
    for attention in found:
        query, key, value, output = attention.query, attention.key, attention.value, attention.output
        size, heads = query.matrices.n, attention.heads
        if attention.crossed or (key.matrices.m, key.matrices.n) != (query.matrices.m, size):
            continue  # two sequences, or a key for several queries
        if heads is None or query.matrices.m % heads:
            raise StiefelError(
                f"scheme={str(scheme)!r} starts each head by itself, and the heads of {query.weight} are not known; "
                "give the module around it an attribute num_heads, or use another scheme."
            )
        several = "1 head" if heads == 1 else f"{heads} heads"
        queries, keys = scheme.at(Position(projection="query")), scheme.at(Position(projection="key"))
        parts[query.weight] = [
            Part(each, queries, f"{several}, paired with their keys", query.weight, head)
            for head, each in enumerate(_heads(query, heads))
        ]
        parts.setdefault(key.weight, []).extend(
            Part(each, keys, f"{several}, paired with {query.weight}", query.weight, head)
            for head, each in enumerate(_heads(key, heads))
        )
        square = value.matrices.m == value.matrices.n == size
        if output is not None and square and weights[output].shape == (size, size):
            laws = [scheme.at(Position(projection="value")), scheme.at(Position(projection="output"))]
            parts.setdefault(value.weight, []).append(Part(value.matrices, laws[0], f"paired with {output}", output))
            parts[output] = [Part(weights[output].matrices, laws[1], f"paired with {value.weight}", output)]
        elif value.weight == query.weight:  # it holds all three
            parts[value.weight].append(Part(value.matrices, scheme.at(Position()), "", first=heads))
    if not parts:
        raise StiefelError(
            f"scheme={str(scheme)!r} pairs each query with a key of its own, and no attention of the model has those; "
            "use another scheme."
        )
    return parts


def _heads(projection: Projection, heads: int) -> Iterator[Matrices]:
    """Where each head is of a projection."""
    held = projection.matrices
    each = held.m // heads
    for head in range(heads):
        if held.columns is not None or held.order:
            start = (held.columns or (0, 0))[0] + head * each
            yield Matrices(1, each, held.n, order=held.order, columns=(start, start + each))
        else:
            start = (held.rows or (0, 0))[0] + head * (held.period or each)
            yield Matrices(1, each, held.n, rows=(start, start + each))
