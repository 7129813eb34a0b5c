"""Settings that the paper's experiments share.

Images: pixels/255, 784 → 64 × D → 10, Adam, batches of 256, 100 epochs, rate 0.001/√D; for Lee the paper uses 0.001.
Few shots: all k images per class are one batch, 100 steps, tested on all 10,000. Tabular: see `lab.data.split`.
"""

from __future__ import annotations

import math

from stiefel_init.lab.study import SCHEMES as SCHEMES

IMAGES = ("mnist", "fashion-mnist")
DEPTHS = tuple(range(10, 101, 10))
SHOTS = (1, 2, 4, 8)
ALPHAS = (-2.0, 0.0, 2.0, 50.0)
TABULAR_WIDTH = {"adult": 8, "cancer": 16, "pima": 4, "ionosphere": 16, "wine": 8, "diabetes": 8}
"""Units of a hidden layer, for each of the tabular sets."""
EPOCHS = 100


LEE = "lee lapack"
"""The form of Lee's initialization in tables 1, 3 and 5: only with LAPACK's signs do its networks on Diabetes die, and
with the published errors. Table 2 seems to use the direct form."""


def drawn(scheme: str) -> str:
    """The form of a scheme that the paper's numbers point to."""
    return LEE if scheme == "lee" else scheme


def rate(scheme: str, depth: int) -> float:
    """The paper's learning rate: 0.001/√depth, but 0.001 for Lee."""
    return 1e-3 if scheme == "lee" else 1e-3 / math.sqrt(depth)
