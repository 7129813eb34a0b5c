"""One scheme for every layer, where it is not the same for each: by the layer's position, its biases, its attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from ..core.errors import StiefelError
from ..schemes import Position, Scheme
from .attention import Attention, Projection, attentions, blocks
from .layers import Conv, Matrices, Weight, kernel_matrices
from .roles import Roles
from .rules import Draw, Draws

_IN_FLOWS = {"tat": "leakyrelu"}
"""What a flow calls an activation, if not by its own name."""


def needs_roles(scheme: Scheme) -> bool:
    """Whether a model must be traced for a scheme."""
    return scheme.positional or scheme.residual or bool(scheme.activations)


def check_roles(scheme: Scheme, roles: Roles) -> None:
    """Refuse a model that a scheme is not made for.

    Raises:
        StiefelError: if its flow is not known, its activations are others, or it has no residual branches.
    """
    stems, heads = {role.stem for role in roles.values()} - {""}, {role.head for role in roles.values()} - {""}
    named = stems and heads and not any("not traced" in how for how in stems | heads)
    if not (roles.traced or named):
        raise StiefelError(
            f"scheme={str(scheme)!r} needs to know what feeds what, and the model's forward could not be read; give "
            "inputs= to trace it."
        )
    expected = {_IN_FLOWS.get(name, name.replace("_", "")) for name in scheme.activations}
    for weight, role in roles.items():
        if expected and role.activation not in (None, *expected) and not role.head:
            raise StiefelError(
                f"scheme={str(scheme)!r} is made for networks with {' or '.join(scheme.activations)}, and {weight} is "
                f"followed by {role.activation}; use another scheme or that activation."
            )
    gains = scheme.zeroes_gains and any(role.gain for role in roles.values())
    if scheme.residual and not (roles.branches or gains):
        raise StiefelError(
            f"scheme={str(scheme)!r} is for residual networks, and no layer of the model ends a residual branch; use "
            "another scheme."
        )


def refuse_torch_only(scheme: Scheme | None) -> None:
    """Refuse a scheme that needs more than the other frameworks' `initialize` finds out about a model."""
    if scheme is None:
        return
    needs = (
        "measures a batch"
        if scheme.calibrates not in ("", "inputs")
        else "looks for attention and its heads"
        if scheme.attention
        else "looks for the gains of residual branches"
        if scheme.zeroes_gains
        else ""
    )
    if needs:
        raise StiefelError(
            f"scheme={str(scheme)!r} {needs}, which only PyTorch's initialize_ does; use another scheme."
        )


def one_scheme(weights: Iterable[Weight], scheme: Scheme, roles: Roles | None, conv: Conv) -> Draws:
    """What is drawn into all weights of a model.

    Raises:
        StiefelError: if the scheme is for transformers, and the model is none.
    """
    known = {weight.name: weight for weight in weights}
    positions = _positions(known, roles)
    attention = _of_attention(known, scheme, roles, positions)
    draws: Draws = {}
    for name, weight in known.items():
        if name in attention:
            draws[name] = attention[name]
            continue
        position = positions[name]
        chosen = scheme.at(position)
        matrices = weight.matrices
        if weight.layer.kind == "convolution" and chosen.entrywise != scheme.entrywise:
            matrices = kernel_matrices(weight.layer, weight.shape, conv, entrywise=chosen.entrywise)
        drawn = chosen.bias(matrices.n) if weight.biased and weight.layer.kind in ("linear", "convolution") else None
        draws[name] = [Draw(matrices, chosen, _reason(scheme, position, roles, name), bias=drawn)]
    return draws


def _positions(weights: Mapping[str, Weight], roles: Roles | None) -> dict[str, Position]:
    """The position of each weight, as far as the flow tells."""
    if roles is None:
        return {name: Position(table=weight.layer.kind == "embedding") for name, weight in weights.items()}
    branches = roles.branches
    return {
        name: Position(
            first=bool(role.stem),
            last=bool(role.head),
            branches=branches,
            branch=role.branch,
            ends_branch=role.ends_branch,
            gained=bool(role.gain),
            table=weight.layer.kind == "embedding",
            row=role.chain or 1,
            units=weight.matrices.m,
            inputs=weight.matrices.n,
            activation=role.activation or "",
        )
        for name, weight in weights.items()
        for role in [roles[name]]
    }


def _reason(scheme: Scheme, position: Position, roles: Roles | None, name: str) -> str:
    if roles is None or scheme.at(position) == scheme.at(Position(branches=position.branches)):
        return ""
    if position.ends_branch:
        return f"ends one of {position.branches} residual branches"
    if position.branch:
        return f"in one of {position.branches} residual branches of {position.branch} layers"
    return roles[name].head or roles[name].stem


_THIRDS: tuple[Literal["query", "key", "value"], ...] = ("query", "key", "value")


def _of_attention(
    weights: Mapping[str, Weight], scheme: Scheme, roles: Roles | None, positions: Mapping[str, Position]
) -> Draws:
    """What is drawn into the weights of a transformer; nothing where the scheme does not look for attention.

    Raises:
        StiefelError: if the model has no attention that the scheme can start.
    """
    if not scheme.attention:
        return {}
    every = list(attentions({n: w for n, w in weights.items() if w.linked}, roles or Roles()))
    if not any(not attention.crossed for attention in every):
        raise StiefelError(
            f"scheme={str(scheme)!r} is for transformers, and the model has no weights with the usual names of "
            "self-attention, such as q_proj, k_proj and v_proj; use another scheme."
        )
    if scheme.attention == "paired":
        return _paired(weights, scheme, every)
    return _in_blocks(weights, scheme, every, positions)


def _in_blocks(
    weights: Mapping[str, Weight], scheme: Scheme, every: list[Attention], positions: Mapping[str, Position]
) -> Draws:
    """Each projection and layer by the number of blocks around it."""
    tables = [name for name, weight in weights.items() if weight.layer.kind == "embedding"]
    around = blocks((name for name in weights if name not in tables), every)
    for attention in every:
        if attention.query.weight not in around:
            raise StiefelError(
                f"scheme={str(scheme)!r} needs to know the transformer's blocks, and no module around "
                f"{attention.query.weight} has a feed-forward network too; use another scheme."
            )
    draws: Draws = {}
    for name in (name for name in weights if name in around):
        block = around[name]
        position = positions[name]._replace(layers=block.layers, crossed=block.crossed)
        reason = f"in one of {block.layers} {'decoder ' if block.crossed else ''}blocks"
        draws[name] = [Draw(weights[name].matrices, scheme.at(position), reason)]
        for attention in every:
            if name == attention.query.weight == attention.value.weight:
                factors = [scheme.at(position._replace(projection=kind)) for kind in _THIRDS]
                thirds = attention.query, attention.key, attention.value
                draws[name] = [Draw(q.matrices, chosen, reason, first=q.first) for q, chosen in zip(thirds, factors)]
            elif name in (attention.query.weight, attention.key.weight):
                chosen = scheme.at(position._replace(projection="query"))
                draws[name] = [Draw(weights[name].matrices, chosen, reason)]
    most = max(around.values(), key=lambda block: (block.crossed, block.layers))
    for name in tables:
        chosen = scheme.at(Position(layers=most.layers, crossed=most.crossed, table=True))
        draws[name] = [Draw(weights[name].matrices, chosen, f"an embedding of {most.layers} blocks")]
    return draws


def _paired(weights: Mapping[str, Weight], scheme: Scheme, every: list[Attention]) -> Draws:
    """Query and key of each head, value and output: two factors of one draw, whose name is the query's or output's."""
    draws: Draws = {}
    for attention in every:
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
        draws[query.weight] = [
            Draw(each, queries, f"{several}, paired with their keys", query.weight, head)
            for head, each in enumerate(_heads(query, heads))
        ]
        draws.setdefault(key.weight, []).extend(
            Draw(each, keys, f"{several}, paired with {query.weight}", query.weight, head)
            for head, each in enumerate(_heads(key, heads))
        )
        square = value.matrices.m == value.matrices.n == size
        if output is not None and square and weights[output].shape == (size, size):
            factors = [scheme.at(Position(projection="value")), scheme.at(Position(projection="output"))]
            draws.setdefault(value.weight, []).append(Draw(value.matrices, factors[0], f"paired with {output}", output))
            draws[output] = [Draw(weights[output].matrices, factors[1], f"paired with {value.weight}", output)]
        elif value.weight == query.weight:  # it holds all three
            draws[value.weight].append(Draw(value.matrices, scheme.at(Position()), "", first=heads))
    if not draws:
        raise StiefelError(
            f"scheme={str(scheme)!r} pairs each query with a key of its own, and no attention of the model has those; "
            "use another scheme."
        )
    return draws


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
