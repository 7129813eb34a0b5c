"""GPT-2's initialization."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import _validate
from ._position import Position
from ._scheme import Scheme, register
from .random import Random


@register
@dataclass(frozen=True)
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
    std: float = 0.02

    def __post_init__(self) -> None:
        _validate.number("std", self.std, at_least=0, hint="it is a standard deviation")

    def at(self, position: Position) -> Scheme:
        return GPT2(self.std / math.sqrt(position.branches)) if position.ends_branch else self
