"""The GPU's kernels: the textbook's matrices and the stream's numbers. Triton's interpreter runs them without a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from conftest import plain_member

from stiefel_init import check
from stiefel_init.core import stream as _stream
from stiefel_init.torch.sampling import kernels
from stiefel_init.torch.sampling import stream as torch_stream

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, in Triton's interpreter: words wrap around
]
LARGE = ((3, 1100), (64, 64), (65, 70), (130, 200))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 2), (5, 9), (7, 7), (9, 20), (17, 17)], ids=str)
def test_reflections_in_one_launch_give_the_plain_result(shape: tuple[int, int], aligned: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, *shape))
    for out in (torch.empty(x.shape, dtype=torch.float64), torch.empty(2, *shape[::-1], dtype=torch.float64).mT):
        target = out.to(DEVICE)
        kernels.fill_in_one_launch_(target, torch.from_numpy(x).to(DEVICE), aligned)
        expected = [plain_member(row, aligned=aligned) for row in x]
        np.testing.assert_allclose(target.cpu(), expected, atol=1e-13)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(
    "shape",
    [(1, 1), (1, 5), (2, 2), (17, 17), *(pytest.param(s, marks=pytest.mark.slow) for s in LARGE)],
    ids=str,
)
def test_reflections_in_one_block_give_the_plain_result(shape: tuple[int, int], aligned: bool) -> None:
    numbers = np.random.default_rng(0).standard_normal(shape)
    wide, tall = torch.empty(shape, dtype=torch.float64), torch.empty(shape[::-1], dtype=torch.float64).mT
    for x, out in ((numbers, wide), (-numbers, tall)):  # both signs of the first number, which the ones replace
        target = out.to(DEVICE)
        kernels.fill_in_one_block_(target, torch.tensor(x, device=DEVICE), aligned)
        np.testing.assert_allclose(target.cpu(), plain_member(x, aligned=aligned), atol=1e-13)


@pytest.mark.slow
def test_in_float32_one_block_is_orthonormal_to_rounding() -> None:
    """To 2⁻¹⁹, sixteen units in the last place; four are usual, and tf32 would leave 10,000."""
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((129, 140)).astype(np.float32)
        out = torch.empty(129, 140, device=DEVICE)
        kernels.fill_in_one_block_(out, torch.tensor(x, device=DEVICE), True)
        np.testing.assert_allclose(out.cpu(), plain_member(x.astype(float), aligned=True), atol=1e-6)
        assert check(out).orthogonality_error < 2**-19


@pytest.mark.parametrize("shape", [(1, 1), (6, 6), (3, 8), (70, 70)], ids=str)
def test_zeros_of_the_generator_give_members_in_one_block(shape: tuple[int, int]) -> None:
    out, tiny = torch.empty(shape, device=DEVICE), torch.full(shape, 1e-18, device=DEVICE)
    kernels.fill_in_one_block_(out, tiny, True)  # what a zero becomes: the mean of the draw
    assert check(out).ok, check(out)


@pytest.mark.parametrize(
    ("rows", "columns"), [((0, 1), (0, 1)), ((0, 3), (0, 7)), ((2, 5), (3, 8)), ((1, 2), (4, 2000))]
)
def test_normal_numbers_are_the_streams(rows: tuple[int, int], columns: tuple[int, int]) -> None:
    members = np.array([0, 2**33 + 5])
    keys = _stream.fold(_stream.key(1, "w"), members)
    unfolded = _stream.unfolded(np.stack([_stream.key(1, "w")] * 2), members)
    expected = _stream.normals(keys, rows, columns, np.float64)
    first = columns[0] // 2
    for form in (keys, unfolded):
        out = torch.empty(expected.shape, dtype=torch.float64, device=DEVICE)
        torch_stream._launch(out, form, rows, first, (columns[1] + 1) // 2 - first, columns[0] % 2, True)
        np.testing.assert_allclose(out.cpu(), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(torch_stream.normals(keys, rows, columns, torch.float64, "cpu"), expected)


@pytest.mark.parametrize("count", [1, 2, 7, 3001])
def test_words_are_the_streams(count: int) -> None:
    keys = _stream.fold(_stream.key(2, "w"), np.arange(2))
    out = torch.empty(2, 3, count, dtype=torch.int32, device=DEVICE)
    torch_stream._launch(out, keys, (1, 4), 0, (count + 1) // 2, 0, False)
    expected = _stream.words(keys, (1, 4), (0, (count + 1) // 2)).reshape(2, 3, -1)[..., :count].view(np.int32)
    np.testing.assert_array_equal(out.cpu(), expected)
    np.testing.assert_array_equal(torch_stream.words(keys, (1, 4), count, "cpu"), expected)
