"""The six initializations in PyTorch: what they draw, on which tensors, and what they leave alone."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import METHODS, TORCH_DTYPES
from scipy import stats
from torch.profiler import ProfilerActivity, profile

from stiefel_init import check
from stiefel_init.torch import SCHEMES, he_, lee_, orthogonal_, random_, sample, stiefel_, xavier_

DRAWING = [name for name in SCHEMES if name != "lee"]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_schemes_has_exactly_the_six_names() -> None:
    assert list(SCHEMES) == ["stiefel", "lee", "he", "xavier", "orthogonal", "random"]
    with pytest.raises(TypeError):
        SCHEMES["other"] = stiefel_  # type: ignore[index]


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (4, 6), (6, 4), (5, 3, 2, 2), (4, 0, 3)], ids=str)
def test_fills_in_place_and_returns_the_tensor(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.full(shape, math.nan, dtype=dtype)
    memory = tensor.data_ptr()
    assert SCHEMES[name](tensor) is tensor
    assert tensor.data_ptr() == memory
    assert tensor.shape == shape
    assert torch.isfinite(tensor).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_parameters_keep_requiring_grad_and_gain_no_history(name: str) -> None:
    weight = torch.nn.Linear(5, 7).weight
    SCHEMES[name](weight)
    assert weight.requires_grad
    assert weight.grad_fn is None
    assert weight.is_leaf


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_tensors_that_are_not_contiguous(name: str, dtype: torch.dtype) -> None:
    base = torch.zeros(6, 10, dtype=dtype)
    for view in (base.T, base[:, ::2], base[1:4].T, base.view(6, 5, 2).permute(1, 0, 2)):
        base.zero_()
        SCHEMES[name](view)
        contiguous = torch.empty(view.shape, dtype=dtype)
        if name == "stiefel":
            assert check(view.reshape(view.shape[0], -1)).ok
        elif name == "lee":
            assert torch.equal(view, lee_(contiguous))
        assert view.abs().sum() > 0
    base.zero_()
    SCHEMES[name](base[:, ::2])
    assert (base[:, 1::2] == 0).all()  # the columns between are not ours


@pytest.mark.parametrize("name", DRAWING)
def test_a_generator_makes_it_repeatable_and_leaves_the_global_one_alone(name: str) -> None:
    before = torch.get_rng_state()
    first, second, other = (SCHEMES[name](torch.empty(6, 9), generator=generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", DRAWING)
def test_without_a_generator_the_global_seed_rules(name: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first = SCHEMES[name](torch.empty(6, 9))
        torch.manual_seed(3)
        assert torch.equal(first, SCHEMES[name](torch.empty(6, 9)))
        assert not torch.equal(first, SCHEMES[name](torch.empty(6, 9)))


@pytest.mark.parametrize("name", SCHEMES)
def test_meta_tensors_stay_as_they_are(name: str) -> None:
    tensor = torch.empty(5, 8, device="meta")
    assert SCHEMES[name](tensor) is tensor
    assert sample(5, 8, batch=2, device="meta").shape == (2, 5, 8)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 6), (4, 3, 2, 2), (12, 2, 2)], ids=str)
def test_stiefel_is_gain_times_a_member_of_the_flattened_matrix(shape: tuple[int, ...], method: str) -> None:
    tensor = stiefel_(torch.empty(shape, dtype=torch.float64), 1.5, method=method, generator=generator())
    assert check(tensor.flatten(1) / 1.5).ok


def test_he_xavier_orthogonal_are_torchs_own() -> None:
    for shape in ((6, 9), (9, 6), (4, 3, 2, 2)):
        ours = he_(torch.empty(shape), generator=generator())
        assert torch.equal(
            ours, torch.nn.init.kaiming_normal_(torch.empty(shape), nonlinearity="relu", generator=generator())
        )
        ours = xavier_(torch.empty(shape), generator=generator())
        assert torch.equal(ours, torch.nn.init.xavier_uniform_(torch.empty(shape), generator=generator()))
        ours = orthogonal_(torch.empty(shape), 2.0, generator=generator())
        assert torch.equal(ours, torch.nn.init.orthogonal_(torch.empty(shape), 2.0, generator=generator()))


def test_he_xavier_random_have_the_papers_laws() -> None:
    """Kolmogorov–Smirnov, rejecting the right law with probability at most 1e-6 each."""
    m, n = 200, 300
    bound = math.sqrt(6 / (m + n))
    laws = {
        he_: stats.norm(0, math.sqrt(2 / n)),
        xavier_: stats.uniform(-bound, 2 * bound),
        random_: stats.norm(0, 0.1),
    }
    for scheme, law in laws.items():
        values = scheme(torch.empty(m, n, dtype=torch.float64), generator=generator()).flatten().numpy()
        assert stats.kstest(values, law.cdf).pvalue > 1e-6


def test_random_takes_its_standard_deviation() -> None:
    assert random_(torch.empty(300, 300), 0.5, generator=generator()).std() == pytest.approx(0.5, rel=0.02)
    assert (random_(torch.empty(3, 3), 0) == 0).all()


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 3.0])
def test_lee_product_is_the_identity_on_square_layers(epsilon: float) -> None:
    assert torch.equal(lee_(torch.empty(6, 6), epsilon), torch.eye(6))


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (10, 64)], ids=str)
def test_lee_product_follows_its_definition(shape: tuple[int, int]) -> None:
    def positive_q(k: int) -> np.ndarray:
        q, r = np.linalg.qr(np.ones((k, k)) + 0.1 * np.eye(k))
        return q * np.sign(np.diag(r))

    expected = positive_q(shape[0]) @ np.eye(*shape) @ positive_q(shape[1]).T
    actual = lee_(torch.empty(shape, dtype=torch.float64))
    np.testing.assert_allclose(actual, expected, atol=1e-13)
    assert check(actual).orthogonality_error < 1e-13


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (6, 6)], ids=str)
def test_lee_direct_is_the_orthonormal_factor_of_the_perturbed_ones(shape: tuple[int, int]) -> None:
    m, n = shape
    W = lee_(torch.empty(shape, dtype=torch.float64), variant="direct").numpy()
    ones = np.ones(shape) + 0.1 * np.eye(*shape)
    r = W.T @ ones if m >= n else (ones @ W.T).T
    np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-13)
    assert (np.diag(r) > 0).all()
    assert check(W).orthogonality_error < 1e-13


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_settings_for_fast_products_do_not_touch_precision(precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        result = check(stiefel_(torch.empty(300, 300), generator=generator()))
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert result.orthogonality_error < 2e-6


def test_autocast_does_not_touch_precision() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for method in METHODS:
            assert check(stiefel_(torch.empty(300, 300), method=method)).orthogonality_error < 4e-6
        assert check(sample(20, 30, batch=3)).ok
        assert torch.is_autocast_enabled("cpu")


FORKED = """
import multiprocessing, torch
from stiefel_init import check
from stiefel_init.torch import stiefel_

def work(queue):
    torch.set_num_threads(1)
    queue.put([bool(check(stiefel_(torch.empty(size, size)))) for size in (32, 300)])

stiefel_(torch.empty(300, 300))  # the parent has used it, threads and all
context = multiprocessing.get_context("fork")
queue = context.Queue()
worker = context.Process(target=work, args=(queue,), daemon=True)
worker.start()
print(queue.get(timeout=60))
"""


def test_works_in_a_forked_worker() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("[True, True]\n", 0), done.stderr


def test_default_dtype_and_explicit_dtype() -> None:
    assert sample(2, 3).dtype == torch.get_default_dtype()
    assert sample(2, 3, dtype=torch.float16).dtype == torch.float16


def test_a_batch_is_one_call_of_independent_matrices() -> None:
    W = sample(4, 6, batch=(5, 2), generator=generator())
    assert W.shape == (5, 2, 4, 6)
    assert len({tuple(w.flatten().tolist()) for w in W.flatten(0, 1)}) == 10


@pytest.mark.parametrize(("shape", "batch"), [((600, 600), ()), ((200, 400), ()), ((400, 200), ()), ((64, 64), (900,))])
def test_peak_memory_stays_below_the_result_and_three_times_it(shape: tuple[int, int], batch: tuple[int, ...]) -> None:
    size = sample(*shape, batch=batch).nbytes
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        sample(*shape, batch=batch)
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())])
    assert size <= live.max() <= 4 * size
