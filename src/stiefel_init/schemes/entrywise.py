"""Weights whose entries are independent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .base import Array, Distribution, Position, Scheme, Source, number, register


@register
class Random(Scheme):
    """W_ij ~ N(0, std²). The paper does not define its `Random`; 0.1 comes closest to its numbers.

    >>> str(Random(0.5))
    'random 0.5'
    """

    name = "random"
    entrywise = True
    std: float = number(0.1, "it is a standard deviation", at_least=0)

    def draw(self, source: Source) -> Array:
        return self.std * source.normals(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.std**2)


@dataclass(frozen=True)
class Uniform(Scheme):
    """W_ij ~ U(±bound).

    >>> str(Uniform(0.5))
    'uniform 0.5'
    """

    name = "uniform"
    entrywise = True
    bound: float = 1.0

    def draw(self, source: Source) -> Array:
        return self.bound * source.uniforms(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.bound**2 / 3)


@dataclass(frozen=True)
class Zeros(Scheme):
    """W = 0, for the ends of residual branches; not registered, and not `ZerO`, whose registered name is `"zero"`.

    >>> str(Zeros())
    'zeros'
    """

    name = "zeros"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return source.array(np.zeros((source.count, source.m, source.n)))

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=0.0)


@register
class He(Scheme):
    """W_ij ~ N(0, 2/fan_in): `torch.nn.init.kaiming_normal_` for ReLU.

    He, Zhang, Ren, Sun: Delving Deep into Rectifiers (2015).

    >>> str(He())
    'he'
    """

    name = "he"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return math.sqrt(2 / source.n) * source.normals(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=2 / n)


@dataclass(frozen=True)
class ScaledHe(Scheme):
    """W_ij ~ N(0, 2 factor²/fan_in).

    >>> str(ScaledHe(0.5))
    'he-scaled 0.5'
    """

    name = "he-scaled"
    entrywise = True
    factor: float = 1.0

    def draw(self, source: Source) -> Array:
        return self.factor * math.sqrt(2 / source.n) * source.normals(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=2 * self.factor**2 / n)


@register
class Xavier(Scheme):
    """W_ij ~ U(±√(6/(fan_in + fan_out))): `torch.nn.init.xavier_uniform_`.

    Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks (2010).

    >>> str(Xavier())
    'xavier'
    """

    name = "xavier"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return math.sqrt(6 / (source.n + source.fan_out)) * source.uniforms(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=2 / (m + n))


@register
class TorchDefault(Scheme):
    """W_ij and b_i ~ U(±1/√fan_in): `kaiming_uniform_` with a = √5, as `torch.nn.Linear` and `Conv2d` start.

    Biases of attention and recurrent layers are zero.

    PyTorch: `reset_parameters` of its linear layers and convolutions.

    >>> str(TorchDefault())
    'torch'
    """

    name = "torch"
    entrywise = True

    def draw(self, source: Source) -> Array:
        return math.sqrt(1 / source.n) * source.uniforms(source.m, source.n)

    def bias(self, fan_in: int) -> Scheme:
        return Uniform(1 / math.sqrt(max(fan_in, 1)))


@register
class TruncatedNormal(Scheme):
    """W_ij ~ N(0, std²) given |W_ij| ≤ cut · std; its standard deviation is 0.88 · std for cut = 2.

    Drawn as √2 std · erf⁻¹(u erf(cut/√2)), u uniform on (-1, 1).

    Devlin, Chang, Lee, Toutanova: BERT (2019), whose program starts all weights so.

    >>> str(TruncatedNormal(0.1, 3.0))
    'truncated-normal 0.1 cut=3'
    """

    name = "truncated-normal"
    entrywise = True
    std: float = number(0.02, "it is a standard deviation", at_least=0)
    cut: float = number(2.0, "it is a number of standard deviations", above=0)

    def draw(self, source: Source) -> Array:
        within = math.erf(self.cut / math.sqrt(2))
        return math.sqrt(2) * self.std * source.erfinv(within * source.uniforms(source.m, source.n))

    def distribution(self, m: int, n: int) -> Distribution:
        density = math.exp(-(self.cut**2) / 2) / math.sqrt(2 * math.pi)
        kept = 1 - 2 * self.cut * density / math.erf(self.cut / math.sqrt(2))
        return Distribution(variance=self.std**2 * kept)


@register
class MuP(Scheme):
    """W_ij ~ N(0, gain²/fan_in), in the last layer N(0, gain²/fan_in²).

    Only the start is μP's: its learning rates, 1/fan_in for hidden and last layers under Adam, are for your optimizer.

    Yang, Hu and others: Tensor Programs V, Table 3 (2022).

    >>> str(MuP().at(Position(last=True)))
    'mup power=2'
    """

    name = "mup"
    entrywise = True
    positional = True
    gain: float = number(1.0, "√2 suits ReLU")
    power: int = 1
    """Of 1/fan_in in the variance."""

    def at(self, position: Position) -> Scheme:
        return MuP(self.gain, 2) if position.last else self

    def draw(self, source: Source) -> Array:
        return self.gain * source.n ** (-self.power / 2) * source.normals(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.gain**2 / n**self.power)


@dataclass(frozen=True)
class Offsets(Scheme):
    """m × 1: Gaussian numbers shifted and scaled to mean `level` and standard deviation `deviation`.

    For a single input the set has one matrix: all units are equal and stay equal. These offsets set them apart.

    >>> str(Offsets(0.5)), str(Offsets(0.0, 2.0))
    ('offsets 0.5', 'offsets 0 level=2')
    """

    name = "offsets"
    entrywise = True
    deviation: float = 1.0
    level: float = 0.0

    def draw(self, source: Source) -> Array:
        values = source.precise().normals(source.m, source.n)
        values = values - values.mean(-2)[..., None, :]
        size = ((values**2).mean(-2) ** 0.5)[..., None, :]
        return values * (self.deviation / source.xp.where(size > 0, size, size + 1)) + self.level

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.deviation**2)
