"""One scheme for every layer, where it is not the same for each: by the layer's position or its biases."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.errors import StiefelError
from ..schemes import Position, Scheme
from .layers import Conv, Weight, kernel_matrices
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
    if scheme.residual and not roles.branches:
        raise _refusal(
            scheme, "is for residual networks, and no layer of the model ends a residual branch; use another scheme."
        )


def refuse_torch_only(scheme: Scheme | None) -> None:
    """Refuse a scheme that measures the layers of a running model."""
    if scheme is not None and scheme.calibrates not in ("", "inputs"):
        raise _refusal(scheme, "measures a batch, which only PyTorch's initialize_ does; use another scheme.")


def _refusal(scheme: Scheme, why: str) -> StiefelError:
    return StiefelError(f"scheme={str(scheme)!r} {why}")


def one_scheme(weights: Iterable[Weight], scheme: Scheme, roles: Roles, conv: Conv) -> Draws:
    """What is drawn into all weights of a model."""
    draws: Draws = {}
    for weight in weights:
        position, matrices, kind = _position(weight, roles), weight.matrices, weight.layer.kind
        chosen = scheme.at(position)
        if kind == "convolution" and chosen.entrywise != scheme.entrywise:
            matrices = kernel_matrices(weight.layer, weight.shape, conv, entrywise=chosen.entrywise)
        bias = chosen.bias(matrices.n) if weight.biased and kind in ("linear", "convolution") else None
        differs = chosen != scheme.at(Position(branches=position.branches))
        reason = _reason(position, roles[weight.name]) if differs else ""
        draws[weight.name] = [Draw(matrices, chosen, reason, bias=bias)]
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
