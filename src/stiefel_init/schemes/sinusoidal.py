"""Sinusoidal initialization."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._scheme import Fixed, register


@register
@dataclass(frozen=True)
class Sinusoidal(Fixed):
    """W_ij = a sin 2π(ij/n + i/m), i = 1 … m, j = 1 … n: each unit a wave of its own frequency and phase.

    a makes the mean square of W that of Xavier's weights, 2/(m + n). No randomness: one matrix per shape.

    Fernández-Hernández, Mestre, Dolz, Duato, Quintana-Ortí: Sinusoidal Initialization, Time for a New Start (2025).

    >>> Sinusoidal().matrix(2, 3).round(3).tolist()
    [[-0.775, 0.775, 0.0], [-0.775, 0.775, 0.0]]
    """

    name = "sinusoidal"

    def matrix(self, m: int, n: int) -> np.ndarray:
        i, j = np.arange(1, m + 1)[:, None], np.arange(1, n + 1)
        # The phase in turns is reduced to [0, 1) in whole numbers, so that waves that vanish do so exactly.
        waves = np.sin(2 * np.pi * ((i * j * m + i * n) % (m * n)) / (m * n)) if m * n else np.zeros((m, n))
        waves[np.abs(waves) < 1e-12] = 0
        size = np.sqrt(np.mean(waves**2)) if m * n else 0.0
        return waves * (np.sqrt(2 / (m + n)) / size) if size else waves
