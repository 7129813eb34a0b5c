"""One scheme for every layer, where it is not the same for each: by the layer's position, its biases, its attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..core.errors import StiefelError
from ..schemes import Position, Scheme
from ..schemes.base import InAttention
from .attention import Attention, Projection, attentions, blocks
from .layers import Conv, Matrices, Weight, kernel_matrices
from .roles import Role, Roles
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
        raise _refusal(
            scheme,
            "needs to know what feeds what, and the model's forward could not be read; give inputs= to trace it.",
        )
    expected = {_IN_FLOWS.get(name, name.replace("_", "")) for name in scheme.activations}
    for weight in roles.followed:
        if expected and roles[weight].activation not in expected and not roles[weight].head:
            made_for = f"is made for networks with {' or '.join(scheme.activations)}, and {weight} is followed by"
            raise _refusal(scheme, f"{made_for} {roles[weight].activation}; use another scheme or that activation.")
    gains = scheme.zeroes_gains and any(role.gain for role in roles.values())
    if scheme.residual and not (roles.branches or gains):
        raise _refusal(
            scheme, "is for residual networks, and no layer of the model ends a residual branch; use another scheme."
        )


def refuse_torch_only(scheme: Scheme | None) -> None:
    """Refuse a scheme that needs more than the other frameworks' `initialize` finds out about a model."""
    needs = {
        "measures a batch": scheme is not None and scheme.calibrates not in ("", "inputs"),
        "looks for attention and its heads": scheme is not None and scheme.attention,
        "looks for the gains of residual branches": scheme is not None and scheme.zeroes_gains,
    }
    for need, needed in needs.items():
        if needed:
            raise _refusal(scheme, f"{need}, which only PyTorch's initialize_ does; use another scheme.")


def _refusal(scheme: Scheme | None, why: str) -> StiefelError:
    return StiefelError(f"scheme={str(scheme)!r} {why}")


def one_scheme(weights: Iterable[Weight], scheme: Scheme, roles: Roles, conv: Conv) -> Draws:
    """What is drawn into all weights of a model.

    Raises:
        StiefelError: if the scheme is for transformers, and the model has no attention that it can start.
    """
    known = {weight.name: weight for weight in weights}
    positions = {name: _position(weight, roles) for name, weight in known.items()}
    draws: Draws = {}
    if scheme.attention:
        every = list(attentions({name: weight for name, weight in known.items() if weight.linked}, roles))
        if all(attention.crossed for attention in every):
            raise _refusal(
                scheme,
                "is for transformers, and the model has no weights with the usual names of self-attention, such as "
                "q_proj, k_proj and v_proj; use another scheme.",
            )
        paired = scheme.attention == "paired"
        draws = _paired(known, scheme, every) if paired else _in_blocks(known, scheme, every, positions)
    for name, weight in known.items():
        if name in draws:
            continue
        position = positions[name]
        chosen = scheme.at(position)
        matrices = weight.matrices
        if weight.layer.kind == "convolution" and chosen.entrywise != scheme.entrywise:
            matrices = kernel_matrices(weight.layer, weight.shape, conv, entrywise=chosen.entrywise)
        bias = chosen.bias(matrices.n) if weight.biased and weight.layer.kind in ("linear", "convolution") else None
        differs = chosen != scheme.at(Position(branches=position.branches))
        draws[name] = [Draw(matrices, chosen, _reason(position, roles[name]) if differs else "", bias=bias)]
    return draws


def _position(weight: Weight, roles: Roles) -> Position:
    """The position of a weight, as far as the flow tells."""
    role = roles[weight.name]
    return Position(
        first=bool(role.stem),
        last=bool(role.head),
        branches=roles.branches,
        branch=role.branch,
        ends_branch=role.ends_branch,
        gained=bool(role.gain),
        table=weight.layer.kind == "embedding",
        row=role.chain or 1,
        units=weight.matrices.m,
        inputs=weight.matrices.n,
        activation=role.activation or "",
    )


def _reason(position: Position, role: Role) -> str:
    if position.ends_branch:
        return f"ends one of {position.branches} residual branches"
    if position.branch:
        return f"in one of {position.branches} residual branches of {position.branch} layers"
    return role.head or role.stem


def _in_blocks(
    weights: Mapping[str, Weight], scheme: Scheme, every: list[Attention], positions: Mapping[str, Position]
) -> Draws:
    """Each projection and layer by the number of blocks around it."""
    tables = [name for name, weight in weights.items() if weight.layer.kind == "embedding"]
    around = blocks((name for name in weights if name not in tables), every)
    parts: dict[str, list[tuple[InAttention, Projection]]] = {}
    for attention in every:
        query, key, value = attention.query, attention.key, attention.value
        if query.weight not in around:
            raise _refusal(
                scheme,
                f"needs to know the transformer's blocks, and no module around {query.weight} has a feed-forward "
                "network too; use another scheme.",
            )
        if query.weight == value.weight:
            parts[query.weight] = [("query", query), ("key", key), ("value", value)]
        else:
            parts |= {each.weight: [("query", each)] for each in (query, key)}
    draws: Draws = {}
    for name, block in around.items():
        position = positions[name]._replace(layers=block.layers, crossed=block.crossed)
        reason = f"in one of {block.layers} {'decoder ' if block.crossed else ''}blocks"
        draws[name] = [
            Draw(part.matrices, scheme.at(position._replace(projection=kind)), reason, first=part.first)
            for kind, part in parts.get(name, [("", Projection(name, weights[name].matrices, 0))])
        ]
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
            raise _refusal(
                scheme,
                f"starts each head by itself, and the heads of {query.weight} are not known; give the module around it "
                "an attribute num_heads, or use another scheme.",
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
        raise _refusal(
            scheme,
            "pairs each query with a key of its own, and no attention of the model has those; use another scheme.",
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
