"""Adult's categories, encoded another way: the same information under other numbers."""

from __future__ import annotations

import numpy as np
from paper.protocols.hypotheses import _encoded

from stiefel_init.lab.data.formats import ADULT_NUMERIC


def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 14))
    for j in set(range(14)) - set(ADULT_NUMERIC):
        x[:, j] = rng.integers(1 + j % 4 + 1, size=50)
    return x


def test_by_appearance() -> None:
    x = rows()
    encoded = _encoded(x, "appearance")
    assert encoded.shape == x.shape
    np.testing.assert_array_equal(encoded[:, ADULT_NUMERIC], x[:, ADULT_NUMERIC])
    for j in set(range(14)) - set(ADULT_NUMERIC):
        assert encoded[0, j] == 0
        seen = list(dict.fromkeys(encoded[:, j]))
        assert seen == sorted(seen)
        assert len(set(zip(x[:, j], encoded[:, j]))) == len(seen)  # one number for each category


def test_one_hot() -> None:
    x = rows()
    encoded = _encoded(x, "one-hot")
    categories = sum(len(np.unique(x[:, j])) for j in set(range(14)) - set(ADULT_NUMERIC))
    assert encoded.shape == (50, len(ADULT_NUMERIC) + categories)
    assert np.isclose(encoded.sum(axis=1) - x[:, ADULT_NUMERIC].sum(axis=1), 14 - len(ADULT_NUMERIC)).all()
