"""docs/on-the-set.md: its code runs, its numbers are what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from stiefel_init import check, sample
from stiefel_init.core import geometry

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "on-the-set.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_of_the_docs_runs(block: str) -> None:
    exec(compile(block, "docs/on-the-set.md", "exec"), {})


def test_the_error_after_the_longest_step() -> None:
    """As the page says: of a step in one plane, for which no estimate of its length is too high, and of others."""
    w = np.eye(4)
    t = geometry.tangent(w, geometry.centre(np.outer([1.0, -1, 0, 0], [0, 0, 1.0, -1])))
    (said,) = re.findall(r"leaves at most ([\d.e-]+) in WᵀW - I", PAGE)
    turns = [1e3 * geometry.generator(w, t), *(h**0.5 * geometry.generator(w, t) for h in (0.012, 0.0124, 0.1))]
    worst = [check(geometry.rotate(w, turn)).orthogonality_error for turn in turns]
    for m, n in ((2, 9), (9, 2), (5, 5)):
        base, turn = sample(m, n, seed=0), geometry.centre(sample(m, n, seed=1))
        worst.append(check(geometry.slide(base, 1e6 * geometry.tangent(base, turn))).orthogonality_error)
    assert 0.3 * float(said) < max(worst) <= float(said)
    assert np.rad2deg(np.arctan2(0.4 * (0.995 - 0.02), 1 - 0.495 * 0.16)) < 23
    assert "23°" in PAGE
