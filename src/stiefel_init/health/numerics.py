"""What makes numbers infinite or NaN, for the rules at initialization and in training: `CAUSES`."""

from __future__ import annotations

from typing import NamedTuple


class Breaking(NamedTuple):
    """Operations of one kind that are not finite somewhere."""

    sentence: str  # of the operation, `{}`
    advice: str


CAUSES = {
    "slope is infinite": Breaking(
        "{} has an infinite slope there, and the gradient becomes NaN",
        "keep the argument away from there: (x + 1e-8).sqrt(), x.clamp(-1 + 1e-6, 1 - 1e-6).acos(), or a safe function "
        "of torch",
    ),
    "division by zero": Breaking("{} becomes one by 0", "add a small number to what divides: x / (y + 1e-8)"),
    "exponentials overflow": Breaking(
        "{} overflows for scores above 88", "use torch.softmax or logsumexp, or take the largest score off first"
    ),
    "numbers overflow": Breaking(
        "{} makes infinite of finite numbers; in float16 that is what exceeds 65504",
        "compute it in float32: x.float(); or make the numbers smaller first",
    ),
    "a logarithm breaks": Breaking(
        "{} becomes that of 0", "use log_softmax or a loss of logits; or add a small number: (x + 1e-8).log()"
    ),
}
"""By the rule's kind."""
