"""One scheme for every layer, where it has a law of its own for each: by the layer's position, or for biases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..core.errors import StiefelError
from ..schemes import Position, Scheme
from ._transformer import parts_of_attention
from .layers import Conv, Weight, kernel_matrices
from .roles import Roles
from .rules import Part

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
    named = roles.stems and roles.heads and not roles.origins and not any(map(_guessed, (roles.stems, roles.heads)))
    if not (roles.origins or named):
        raise StiefelError(
            f"scheme={str(scheme)!r} needs to know what feeds what, and the model's forward could not be read; give "
            "inputs= to trace it."
        )
    expected = {_IN_FLOWS.get(name, name.replace("_", "")) for name in scheme.activations}
    for weight, activation in roles.next.items():
        if expected and activation not in expected and weight not in roles.heads:
            raise StiefelError(
                f"scheme={str(scheme)!r} is made for networks with {' or '.join(scheme.activations)}, and {weight} is "
                f"followed by {activation}; use another scheme or that activation."
            )
    if scheme.residual and not (roles.residual or (scheme.zeroes_gains and roles.gains)):
        raise StiefelError(
            f"scheme={str(scheme)!r} is for residual networks, and no layer of the model ends a residual branch; use "
            "another scheme."
        )


def _guessed(ends: dict[str, str]) -> bool:
    return any("not traced" in how for how in ends.values())


def parts_of_scheme(
    weights: Iterable[Weight], scheme: Scheme, roles: Roles | None, conv: Conv
) -> dict[str, list[Part]]:
    """What all weights of a model start as, by name.

    Raises:
        StiefelError: if the scheme is for transformers, and the model is none.
    """
    known = {weight.name: weight for weight in weights}
    positions = _positions(known, roles)
    attention = parts_of_attention(known, scheme, roles, positions)
    found: dict[str, list[Part]] = {}
    for name, weight in known.items():
        if name in attention:
            found[name] = attention[name]
            continue
        position = positions[name]
        law = scheme.at(position)
        matrices = weight.matrices
        if weight.layer.kind == "convolution" and law.entrywise != scheme.entrywise:
            matrices = kernel_matrices(weight.layer, weight.shape, conv, entrywise=law.entrywise)
        drawn = law.bias(matrices.n) if weight.biased and weight.layer.kind in ("linear", "convolution") else None
        found[name] = [Part(matrices, law, _reason(scheme, position, roles, name), bias=drawn)]
    return found


def _positions(weights: Mapping[str, Weight], roles: Roles | None) -> dict[str, Position]:
    """The part that each weight plays, as far as the flow tells."""
    if roles is None:
        return {name: Position(table=weight.layer.kind == "embedding") for name, weight in weights.items()}
    in_branch = {name: len(row) for row in roles.residual.values() for name in row}
    return {
        name: Position(
            first=name in roles.stems,
            last=name in roles.heads,
            branches=len(roles.residual),
            branch=in_branch.get(name, 0),
            ends_branch=name in roles.residual,
            gained=name in roles.gains,
            table=weight.layer.kind == "embedding",
            row=roles.runs.get(name) or roles.row_behind(name) or 1,
            units=weight.matrices.m,
            inputs=weight.matrices.n,
            activation=roles.next.get(name, ""),
        )
        for name, weight in weights.items()
    }


def _reason(scheme: Scheme, position: Position, roles: Roles | None, name: str) -> str:
    if roles is None or scheme.at(position) == scheme.at(Position(branches=position.branches)):
        return ""
    if position.ends_branch:
        return f"ends one of {position.branches} residual branches"
    if position.branch:
        return f"in one of {position.branches} residual branches of {position.branch} layers"
    return roles.heads.get(name) or roles.stems.get(name, "")
