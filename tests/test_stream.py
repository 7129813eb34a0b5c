"""The Gaussian stream: known answers, one matrix whatever block is asked for, and the normal law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stiefel_init import _stream

# Known-answer vectors of Threefry-2x32, 20 rounds, published with the Random123 library: counter, key, result.
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_published_known_answers(counter: tuple, key: tuple, result: tuple) -> None:
    words = _stream.threefry2x32(np, *(np.array([word], np.uint32) for word in (*key, *counter)))
    assert tuple(int(word[0]) for word in words) == result


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("block", [((0, 0), (0, 0)), ((0, 1), (0, 1)), ((3, 9), (1, 2)), ((5, 40), (7, 30))], ids=str)
def test_a_block_is_that_block_of_the_whole(block: tuple, dtype: type) -> None:
    rows, columns = block
    key = _stream.key(1, "w")
    whole = _stream.normals(key, (0, 40), (0, 30), dtype)
    np.testing.assert_array_equal(_stream.normals(key, *block, dtype), whole[slice(*rows), slice(*columns)])


def test_threads_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    key = _stream.key(2, "w")
    many = _stream.normals(key, (0, 700), (0, 1001), np.float32)
    monkeypatch.setattr(_stream, "_THREADED", 1 << 60)
    np.testing.assert_array_equal(many, _stream.normals(key, (0, 700), (0, 1001), np.float32))


def test_float32_is_float64_rounded() -> None:
    key = _stream.key(3, "w")
    single, double = (_stream.normals(key, (0, 300), (0, 1000), dtype) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-6)


def test_the_numbers_are_standard_normal_and_uncorrelated() -> None:
    """Each check rejects a right stream with probability at most 1e-6."""
    z = _stream.normals(_stream.key(4, "w"), (0, 1000), (0, 1000), np.float64)
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-6
    limit = stats.norm.isf(1e-6 / 2 / 4) / 1000
    for a, b in ((z[:, :-1], z[:, 1:]), (z[:-1], z[1:]), (z[:, ::2], z[:, 1::2] ** 2 - 1), (z, z[::-1, ::-1])):
        assert abs((a * b).mean()) < 2 * limit


def test_box_muller_keeps_the_ends_of_the_range() -> None:
    ends = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1], np.uint32)
    zero = np.zeros_like(ends)
    expected = np.sqrt(-2 * np.log((ends.astype(np.longdouble) + 0.5) / 2**32))
    for dtype in (np.float32, np.float64):
        radius, sine = _stream.box_muller(np, ends, zero, dtype)
        np.testing.assert_allclose(radius, expected.astype(np.float64), rtol=4 * np.finfo(dtype).eps)
        assert (sine == 0).all()
        assert radius.dtype == dtype


def test_seeds_names_and_batch_places_have_their_own_keys() -> None:
    keys = [_stream.key(seed, name) for seed in (0, 1, 10**30) for name in ("", "a", "1")]
    keys += [*_stream.fold(keys[0], np.array([0, 1, 2**32, 2**40 + 1])), _stream.key(1, "1/a"), _stream.key(11, "a")]
    assert len({tuple(key) for key in keys}) == len(keys)
    np.testing.assert_array_equal(_stream.fold(keys[0], 2**32), keys[-4])


def test_many_keys_at_once_give_what_each_gives_alone() -> None:
    keys = _stream.fold(_stream.key(5), np.arange(6)).reshape(2, 3, 2)
    together = _stream.normals(keys, (1, 5), (3, 10), np.float64)
    assert together.shape == (2, 3, 4, 7)
    for place in np.ndindex(2, 3):
        np.testing.assert_array_equal(together[place], _stream.normals(keys[place], (1, 5), (3, 10), np.float64))
    assert _stream.words(keys, (0, 2), (0, 5)).shape == (2, 3, 2, 5, 2)
