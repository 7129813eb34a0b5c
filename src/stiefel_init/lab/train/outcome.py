"""`Outcome`: what came of training one cell."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The outcome of one cell. Accuracies in percent; for regression, root mean squared errors."""

    score: float = math.nan
    """Test accuracy, or test RMSE, after the last epoch."""
    train_loss: list[float] = field(default_factory=list)
    """Mean training loss of each epoch; for few shots, only of the last step."""
    train_score: list[float] = field(default_factory=list)
    tested: list[int] = field(default_factory=list)
    """The epochs after which the test score was taken: all of a short run, every fifth of a hundred."""
    test_score: list[float] = field(default_factory=list)
    diverged: int | None = None
    """The first epoch whose training loss was not finite."""
    balanced: float | None = None
    """The mean over classes of the share predicted correctly, in percent, after the last epoch; None for regression."""
    log_loss: float | None = None
    """Of the test part, as all below, after the last epoch; None for regression."""
    calibration: float | None = None
    """Expected calibration error in percent."""
    noisy: float | None = None
    """Accuracy in percent with noise in the inputs; see `evaluation`."""
