"""Weights whose entries are independent."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .base import Array, Distribution, Position, Scheme, Source, number, register


class Entrywise(Scheme):
    """W_ij ~ N(0, scale²), or U(±scale) if `uniform`; the scale by the fans."""

    entrywise = True
    uniform: ClassVar[bool] = False

    @abstractmethod
    def scale(self, fan_in: int, fan_out: int) -> float:
        """The standard deviation, or the bound."""

    def draw(self, source: Source) -> Array:
        numbers = source.uniforms if self.uniform else source.normals
        return self.scale(source.n, source.fan_out) * numbers(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=self.scale(n, m) ** 2 / (3 if self.uniform else 1))


@register
class Random(Entrywise):
    """W_ij ~ N(0, std²). The paper does not define its `Random`; 0.1 comes closest to its numbers.

    >>> str(Random(0.5))
    'random 0.5'
    """

    name = "random"
    std: float = number(0.1, "it is a standard deviation", at_least=0)

    def scale(self, fan_in: int, fan_out: int) -> float:
        return self.std


@register
class GPT2(Random):
    """W_ij ~ N(0, std²), std/√B at the ends of B residual branches; embeddings N(0, std²), biases zero.

    Radford, Wu, Child, Luan, Amodei, Sutskever: Language Models are Unsupervised Multitask Learners (2019). B counts
    attention and feed-forward branches, two for each block.

    >>> str(GPT2().at(Position(branches=4, branch=2, ends_branch=True)))
    'gpt-2 0.01'
    """

    name = "gpt-2"
    positional = True
    embeds = True
    std: float = number(0.02, "it is a standard deviation", at_least=0)

    def at(self, position: Position) -> Scheme:
        return GPT2(self.std / math.sqrt(position.branches)) if position.ends_branch else self


@dataclass(frozen=True)
class Uniform(Entrywise):
    """W_ij ~ U(±bound).

    >>> str(Uniform(0.5))
    'uniform 0.5'
    """

    name = "uniform"
    uniform = True
    bound: float = 1.0

    def scale(self, fan_in: int, fan_out: int) -> float:
        return self.bound


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
class He(Entrywise):
    """W_ij ~ N(0, 2/fan_in): `torch.nn.init.kaiming_normal_` for ReLU.

    He, Zhang, Ren, Sun: Delving Deep into Rectifiers (2015).

    >>> str(He())
    'he'
    """

    name = "he"

    def scale(self, fan_in: int, fan_out: int) -> float:
        return math.sqrt(2 / fan_in)


@dataclass(frozen=True)
class ScaledHe(Entrywise):
    """W_ij ~ N(0, 2 factor²/fan_in).

    >>> str(ScaledHe(0.5))
    'he-scaled 0.5'
    """

    name = "he-scaled"
    factor: float = 1.0

    def scale(self, fan_in: int, fan_out: int) -> float:
        return self.factor * math.sqrt(2 / fan_in)


@register
class Xavier(Entrywise):
    """W_ij ~ U(±√(6/(fan_in + fan_out))): `torch.nn.init.xavier_uniform_`.

    Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks (2010).

    >>> str(Xavier())
    'xavier'
    """

    name = "xavier"
    uniform = True

    def scale(self, fan_in: int, fan_out: int) -> float:
        return math.sqrt(6 / (fan_in + fan_out))


@register
class TorchDefault(Entrywise):
    """W_ij and b_i ~ U(±1/√fan_in): `kaiming_uniform_` with a = √5, as `torch.nn.Linear` and `Conv2d` start.

    Biases of attention and recurrent layers are zero.

    PyTorch: `reset_parameters` of its linear layers and convolutions.

    >>> str(TorchDefault())
    'torch'
    """

    name = "torch"
    uniform = True

    def scale(self, fan_in: int, fan_out: int) -> float:
        return math.sqrt(1 / fan_in)

    def distribution(self, m: int, n: int) -> Distribution:
        return Scheme.distribution(self, m, n)  # none is known where biases are not zero

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
class MuP(Entrywise):
    """W_ij ~ N(0, gain²/fan_in), in the last layer N(0, gain²/fan_in²).

    Only the start is μP's: its learning rates, 1/fan_in for hidden and last layers under Adam, are for your optimizer.

    Yang, Hu and others: Tensor Programs V, Table 3 (2022).

    >>> str(MuP().at(Position(last=True)))
    'mup power=2'
    """

    name = "mup"
    positional = True
    gain: float = number(1.0, "√2 suits ReLU")
    power: int = 1
    """Of 1/fan_in in the variance."""

    def at(self, position: Position) -> Scheme:
        return MuP(self.gain, 2) if position.last else self

    def scale(self, fan_in: int, fan_out: int) -> float:
        return self.gain * fan_in ** (-self.power / 2)


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
