"""`restore_`: trained weights, taken towards what training starts well from, so that they go on learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import StiefelError
from ..recipe.initialize import Options, Patterns, initialize
from ..recipe.layers import Matrices, kernel_matrices
from ..recipe.plan import NEITHER, Plan, Row
from ..recipe.roles import Roles
from ..recipe.rules import Draw
from ..schemes.on_set import Grouped, Stiefel
from .initialize.adapter import TorchAdapter
from .initialize.apply import Planned, fill_all
from .initialize.parameters import TorchRef
from .initialize.sharded import is_sharded
from .initialize.wrappers import finish_first
from .inputs import check_module
from .optim.nearest import nearest


def restore_(
    model: nn.Module,
    *,
    strength: float = 0.5,
    inputs: Any = None,
    stem: Patterns | None = None,
    head: Patterns | None = None,
    skip: Patterns = (),
    dry_run: bool = False,
) -> Plan:
    r"""Take the weights of a trained model a part of the way to a good start, before it learns something new.

    W ← (1 - strength)·W + strength·c·P. Where `initialize_` would draw from Õ(m,n), P is the nearest member,
    ξ_m ξ_nᵀ + polar(C_m W C_n) with C = I - ξξᵀ; elsewhere the nearest semi-orthogonal matrix, polar(W). c·P has the
    Frobenius norm of what `initialize_` would draw. Biases go the same part of the way to zero. What `initialize_`
    leaves alone stays as it is, and so do normalization layers and weights that it would set to a constant. Everything
    is checked first: when something is refused, the model is unchanged. The optimizer's state is not touched; a new
    optimizer is what docs/plasticity.md was measured with, which also says when this helps.

    Args:
        model: A module with values, not sharded.
        strength: Between 0, which changes nothing, and 1.
        inputs, stem, head, skip: As in `initialize_`.
        dry_run: Change nothing, only make the plan.

    Returns:
        What was done to each parameter, and how far it was moved; it prints as a table.

    Raises:
        StiefelError: for a model, option, name or parameter that cannot be used; the model is unchanged.

    >>> from stiefel_init.torch import initialize_
    >>> hidden = [part for _ in range(6) for part in (nn.Linear(8, 8), nn.ReLU())]
    >>> model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), *hidden, nn.Linear(8, 3))
    >>> plan = initialize_(model, seed=0)  # and training, of which here is none
    >>> print(restore_(model, strength=1))
    8 of 16 parameters restored, 8 zeros or ones.
    parameter        shape    what is done            orthonormal  why
    0.weight         (8, 16)  nearest member 8×16     rows
        stem: reads the input (torch.fx), moved by 0%
    *.bias (8)                zeros                   —
    2…12.weight (6)  (8, 8)   nearest member 8×8      both         moved by 0%
    14.weight        (3, 8)   nearest orthogonal 3×8  rows
        head: makes the output (torch.fx), moved by 0%
    """
    check_module(model)
    if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 <= strength <= 1:
        raise StiefelError(f"strength={strength!r} is not a number from 0 to 1; 0.5 goes half of the way.")
    options = Options.of(None, None, conv=None, inputs=inputs, stem=stem, head=head, skip=skip, dry_run=dry_run)
    with torch.no_grad():
        adapter = Restorer(model, float(strength))
        plan = initialize(adapter, options)
    return Plan(tuple(map(adapter.told, plan)), done="restored")


def target(weights: Tensor, on_set: bool, name: str = "weights") -> Tensor:
    """The nearest members of Õ(m,n), or else semi-orthogonal matrices, to matrices of shape (…, m, n), in float64.

    Raises:
        StiefelError: if the weights hold NaN or infinity, or no member is nearest.
    """
    if on_set or not torch.isfinite(weights).all():
        return nearest(weights, name)[0].double()
    u, _, v = torch.linalg.svd(weights.double(), full_matrices=False)
    return u @ v


class Restorer(TorchAdapter):
    """A model whose weights are taken towards what the recipe would draw, instead of being drawn."""

    def __init__(self, model: nn.Module, strength: float) -> None:
        super().__init__(model, 0, None)
        self.strength = strength
        self._told: dict[str, tuple[str, str]] = {}

    def told(self, row: Row) -> Row:
        """The row of the plan, as what was done."""
        if row.name not in self._told:
            kept = row.action.startswith(("left alone", "tied to ", "part of "))
            return row if kept else Row(row.name, row.shape, "left alone", reason="set to a constant by initialize_")
        action, moved = self._told[row.name]
        side = row.orthonormal if self.strength == 1 else NEITHER
        return Row(row.name, row.shape, action, side, ", ".join(filter(None, (row.reason, moved))))

    def write(self, planned: Planned, options: Options, roles: Roles) -> None:
        """Take the weights, and the biases of their layers, towards their targets."""
        weights = [(ref, draw) for ref, draw in planned if isinstance(draw.what, Matrices) and len(ref.shape) > 1]
        for ref, _ in weights:
            trouble = (
                "is on the meta device and has no values" if ref.tensor.is_meta
                else "is sharded" if is_sharded(ref.tensor)
                else "is parametrized" if ref.parametrization is not None else ""
            )  # fmt: skip
            if trouble:
                raise StiefelError(f"{ref.name} {trouble}; restore_ needs plain weights, or pass skip={ref.name!r}.")
        drawn = {ref.key: torch.zeros_like(ref.tensor) for ref, _ in weights}
        fill_all(weights, 0, drawn)
        new = {ref.key: ref.tensor.clone() for ref, _ in weights}
        kinds: dict[str, list[str]] = {}
        for ref, draw in weights:
            kinds.setdefault(ref.name, []).append(self._towards(new[ref.key], drawn[ref.key], ref, draw))
        for ref, _ in weights:
            moved = torch.linalg.vector_norm((new[ref.key] - ref.tensor).double()) / ref.tensor.norm().clamp(min=1e-30)
            self._told[ref.name] = ", ".join(dict.fromkeys(kinds[ref.name])), f"moved by {float(moved):.0%}"
        layers = {self.bias_of(ref) for ref, _ in weights}
        biases = [ref for ref, _ in planned if ref.key in layers and ref.leaf == "bias"]
        for ref in biases:
            new[ref.key] = ref.tensor * (1 - self.strength)
            self._told[ref.name] = "zeros" if self.strength == 1 else f"times {1 - self.strength:.3g}", ""
        if not options.dry_run:
            with finish_first():
                for ref in [*(ref for ref, _ in weights), *biases]:
                    ref.tensor.copy_(new[ref.key])

    def _towards(self, new: Tensor, drawn: Tensor, ref: TorchRef, draw: Draw) -> str:
        """Move the matrices of a draw in the weight `new`, given what would be drawn; and say so."""
        what, on_set = draw.matrices, isinstance(draw.scheme, Stiefel | Grouped)
        if what.tap:  # a trained kernel is not at its centre alone
            layer = self.layer(ref)
            assert layer is not None
            what, on_set = kernel_matrices(layer, ref.canonical, "delta", entrywise=True), False
        if what.m * what.n:
            old = what.read(new).double()
            best = target(old, on_set, ref.name)
            best *= torch.linalg.matrix_norm(what.read(drawn).double(), keepdim=True) / torch.linalg.matrix_norm(
                best, keepdim=True
            )
            moved = old.lerp(best, self.strength).to(new.dtype) * what.scale
            places = what.places(new)
            places.copy_(what.blocks(moved, new.shape).reshape(places.shape))
        many = f"{what.count} of " if what.count > 1 else ""
        return f"nearest {'member' if on_set else 'orthogonal'} {many}{what.m}×{what.n}"
