"""The hashes that pin the published sets."""

from __future__ import annotations

import numpy as np

from stiefel_init.lab.data.catalog import digest


def test_the_hash_sees_dtype_shape_and_content_and_no_layout() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    others: list[np.ndarray] = [array.astype(np.int32), array.reshape(3, 2), array + 1]
    assert digest(array) == digest(np.asfortranarray(array)) == digest(array.astype(">i8"))
    assert len({digest(array), *map(digest, others)}) == 4
