"""The random streams: known answers, one matrix whatever block is asked for, and the laws of what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from stiefel_init.core import stream as _stream

Block = tuple[tuple[int, int], tuple[int, int]]  # rows, columns

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
def test_a_block_is_that_block_of_the_whole(block: Block, dtype: type) -> None:
    rows, columns = block
    key = _stream.key(1, "w")
    whole = _stream.normals(key, (0, 40), (0, 30), dtype)
    np.testing.assert_array_equal(_stream.normals(key, rows, columns, dtype), whole[slice(*rows), slice(*columns)])


def test_neither_threads_nor_the_precision_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    key = _stream.key(2, "w")
    many = _stream.normals(key, (0, 700), (0, 1001), np.float32)
    monkeypatch.setattr(_stream, "_THREADED", 1 << 60)
    np.testing.assert_array_equal(many, _stream.normals(key, (0, 700), (0, 1001), np.float32))
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
        np.testing.assert_allclose(radius, expected.astype(np.float64), rtol=4 * float(np.finfo(dtype).eps))
        assert (sine == 0).all()
        assert radius.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("count", [1, 300])
def test_the_numbers_are_box_mullers_of_the_words(dtype: type, count: int) -> None:
    """Entry by entry the formula that JAX computes, for one key or many to a chunk."""
    keys = _stream.fold(_stream.key(5, "w"), np.arange(count))
    pairs = _stream.words(keys, (0, 30), (0, 9))
    expected = np.stack(_stream.box_muller(np, pairs[..., 0], pairs[..., 1], dtype), -1).reshape(count, 30, 18)
    np.testing.assert_array_equal(_stream.normals(keys, (0, 30), (0, 18), dtype), expected)


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


def test_uniform_numbers_fill_the_open_interval_evenly() -> None:
    """Kolmogorov–Smirnov and two correlations, each rejecting a right stream with probability at most 1e-6."""
    u = _stream.uniforms(_stream.fold(_stream.key(6, "w"), np.arange(4)), 100, 701)
    assert u.shape == (4, 100, 701)
    assert (np.abs(u) < 1).all()
    assert stats.kstest(u.ravel(), stats.uniform(-1, 2).cdf).pvalue > 1e-6
    limit = stats.norm.isf(1e-6 / 2) / 3 / np.sqrt(u.size - u.shape[-1])  # each product has variance 1/9
    assert abs((u[..., :-1] * u[..., 1:]).mean()) < 1.01 * limit
    assert abs((u[:, :-1] * u[:, 1:]).mean()) < 1.01 * limit


def test_uniform_numbers_are_the_signed_words_of_the_stream() -> None:
    keys = _stream.fold(_stream.key(7, "w"), np.arange(2))
    words = _stream.words(keys, (0, 3), (0, 3)).reshape(2, 3, 6)[..., :5].astype(np.int64)
    signed = np.where(words < 2**31, words, words - 2**32)
    np.testing.assert_array_equal(_stream.uniforms(keys, 3, 5), (signed + 0.5) / 2**31)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 1000])
def test_orders_are_permutations(size: int) -> None:
    orders = _stream.orders(_stream.fold(_stream.key(8, "w"), np.arange(3)), size)
    np.testing.assert_array_equal(np.sort(orders), np.tile(np.arange(size), (3, 1)))


def test_orders_are_equally_likely() -> None:
    """χ² over the 24 orders of 4: rejects a right stream with probability 1e-6."""
    orders = _stream.orders(_stream.fold(_stream.key(9, "w"), np.arange(24_000)), 4)
    counts = np.unique(orders @ (4 ** np.arange(4)), return_counts=True)[1]
    assert len(counts) == 24
    assert ((counts - 1000) ** 2 / 1000).sum() < stats.chi2(23).isf(1e-6)


def test_keys_can_be_folded_later() -> None:
    names, index = _stream.keys(3, ["a", "b", ""]), np.array([0, 7, 2**40 + 1])
    unfolded = _stream.unfolded(names, index)
    assert unfolded.shape == (3, 4)
    np.testing.assert_array_equal(_stream.folded(unfolded), _stream.fold(names, index))
    assert _stream.folded(names) is names
    assert _stream.folded(_stream.unfolded(names[:0], index[:0])).shape == (0, 2)
