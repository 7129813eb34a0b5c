"""Haar semi-orthogonal weights, and schemes built from them."""

from __future__ import annotations

import math

from .base import Array, Distribution, Position, Role, Scheme, Source, choice, haar, number, register


@register
class Orthogonal(Scheme):
    """gain · W, W Haar semi-orthogonal: the distribution of `torch.nn.init.orthogonal_`.

    Saxe, McClelland, Ganguli: Exact solutions to the nonlinear dynamics of learning in deep linear networks (2014).

    >>> str(Orthogonal(gain=2.0))
    'orthogonal 2'
    """

    name = "orthogonal"
    gain: float = number(1.0, "√2 suits ReLU")

    def draw(self, source: Source) -> Array:
        matrices = source.semi_orthogonal(aligned=False)
        return matrices if self.gain == 1 else self.gain * matrices

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.gain**2 / max(m, n))


@register
class DeltaOrthogonal(Orthogonal):
    """gain · W at the centre of a kernel and zeros elsewhere, W Haar semi-orthogonal.

    What `orthogonal` does with `conv="delta"`, under the name it has in its paper.

    Xiao, Bahri, Sohl-Dickstein, Schoenholz, Pennington: Dynamical Isometry and a Mean Field Theory of CNNs (2018).

    >>> str(DeltaOrthogonal(2.0))
    'delta-orthogonal 2'
    """

    name = "delta-orthogonal"


@register
class LooksLinear(Scheme):
    """First layer (V; -V), hidden layers (V, -V; -V, V), last layer (V, -V), with V Haar semi-orthogonal.

    Units come in pairs that hold x⁺ and x⁻, so a plain ReLU network is exactly linear, and isometric where V is square.
    V has half the units on each side that is paired; of an odd number of units, the last one has zero weights.

    Balduzzi, Frean, Leary, Lewis, Ma, McWilliams: The Shattered Gradients Problem (2017).

    >>> str(LooksLinear("first"))
    'looks-linear first'
    """

    name = "looks-linear"
    positional = True
    activations = ("relu",)
    role: Role = choice(Role)

    def at(self, position: Position) -> Scheme:
        return LooksLinear(position.role)

    def draw(self, source: Source) -> Array:
        precise = source.precise()
        xp, m, n = precise.xp, source.m, source.n
        above, beside = self.role in ("hidden", "first"), self.role in ("hidden", "last")
        rows, columns = m // 2 if above else m, n // 2 if beside else n
        none = 0 * precise.normals(m, n)
        if not (rows and columns):
            return none
        v = haar(precise, rows, columns)
        if above:
            v = xp.concatenate([v, -v, none[:, : m - 2 * rows, :columns]], -2)
        if beside:
            v = xp.concatenate([v, -v, none[:, :, : n - 2 * columns]], -1)
        return v


@register
class TAT(Scheme):
    """max(1, √(m/n)) · W, W Haar semi-orthogonal, for networks whose activation is √(2/(1+a²)) · LeakyReLU_a.

    The slope a makes the correlation of two orthogonal inputs 0.9 at the end of the network: `theory.tailored_slope`.
    Inputs are to have mean square 1; where they are known, the first layer is divided by their root mean square.

    Zhang, Botev, Martens: Deep Learning without Shortcuts (2022).

    >>> str(TAT())
    'tat'
    """

    name = "tat"
    activations = ("tat",)
    calibrates = "inputs"

    def draw(self, source: Source) -> Array:
        matrices = source.semi_orthogonal(aligned=False)
        gain = math.sqrt(max(1.0, source.m / source.n))
        return matrices if gain == 1 else gain * matrices

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=1 / n)
