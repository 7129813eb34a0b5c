"""How likely a published number is under a protocol, given the scores of our own seeds.

The noise model: a published number is one run (or the mean of k runs), drawn from the law of our seeds. That law is
estimated by kernels around the seeds' scores, for each cell of the table by itself, since networks that collapse for
some seeds only have two modes. A kernel is a mixture of Gaussians whose widths double from the resolution of a score
up; the shares of the widths are those under which each seed is most likely given the others, over all cells of one
data set under one protocol. So the noise comes from our seeds alone, never from the published numbers. With
probability OUTLIERS a number is anything at all (a slip, or a mode that our few seeds missed): no single number can
decide. Numbers count as independent given the protocol; where all share one split, they are not quite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

OUTLIERS = 0.1
"""The share of numbers that may be anything."""
_ROUNDS = 60
_DRAWS = 200


@dataclass(frozen=True)
class Noise:
    """The law of one more run, around the scores of our seeds."""

    widths: np.ndarray
    shares: np.ndarray
    span: float
    """Length of the range of possible scores."""

    @classmethod
    def of(cls, samples: Sequence[np.ndarray], resolution: float, span: float) -> Noise:
        """The noise of our seeds: by expectation maximization on each seed given the others of its cell.

        Args:
            samples: The scores of each cell; cells with one score say nothing.
            resolution: The least difference of two scores that means anything.
            span: Length of the range of possible scores.

        Returns:
            The noise.

        >>> noise = Noise.of([np.array([90.0, 90.0, 90.0]), np.array([10.0, 10.0, 10.0])], 1.0, 100.0)
        >>> int(noise.shares.argmax())
        0
        """
        widths = resolution * 2.0 ** np.arange(1 + int(math.log2(span / 4 / resolution)))
        known = [scores[np.isfinite(scores)] for scores in samples]
        parts = [part for scores in known if len(scores) > 1 for part in _held_out(scores, widths)]
        shares = np.full(len(widths), 1 / len(widths))
        density = np.array(parts).reshape(-1, len(widths))
        for _ in range(_ROUNDS):
            mixed = (1 - OUTLIERS) * density * shares
            belongs = mixed / (mixed.sum(axis=1, keepdims=True) + OUTLIERS / span)
            shares = (belongs.sum(axis=0) + 1 / len(widths)) / (belongs.sum() + 1)  # one seed's worth of doubt
        return cls(widths, shares, span)

    def density(self, number: float, scores: np.ndarray, runs: int = 1) -> float:
        """The density of one run at `number`, or of the mean of `runs` that are drawn from our seeds."""
        widths = self.widths
        if runs > 1:
            draws = np.random.default_rng(0).integers(len(scores), size=(_DRAWS, runs))  # the same for every protocol
            scores, widths = scores[draws].mean(axis=1), widths / math.sqrt(runs)
        known = scores[np.isfinite(scores)]  # a network that diverged supports no number
        return float((_gaussians(number - known, widths).sum(axis=0) / len(scores)) @ self.shares)

    def log_likelihood(self, number: float, scores: np.ndarray, *, runs: int = 1, outliers: float = OUTLIERS) -> float:
        """log p(number) = log((1 - ε)·density + ε/span)."""
        return math.log((1 - outliers) * self.density(number, scores, runs) + outliers / self.span)

    def explains(self, number: float, scores: np.ndarray) -> bool:
        """Whether the number is rather a run like ours than anything at all."""
        return (1 - OUTLIERS) * self.density(number, scores) > OUTLIERS / self.span


def _held_out(scores: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """(seeds, widths): the density at each score, of kernels around the others."""
    kernels = _gaussians(scores[:, None] - scores[None, :], widths)
    kernels[np.arange(len(scores)), np.arange(len(scores))] = 0.0
    return np.asarray(kernels.sum(axis=1) / (len(scores) - 1))


def _gaussians(distance: np.ndarray, widths: np.ndarray) -> np.ndarray:
    z = distance[..., None] / widths
    return np.asarray(np.exp(-0.5 * z * z) / (widths * math.sqrt(2 * math.pi)))
