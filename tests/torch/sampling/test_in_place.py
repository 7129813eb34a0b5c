"""Weights in place with PyTorch, by every scheme: what is drawn, on which tensors, and what is left alone."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ALL_SCHEMES, FILLERS, METHODS, PAPER_SCHEMES, TORCH_DTYPES
from torch.profiler import ProfilerActivity, profile

import stiefel_init
from stiefel_init import check, draw, schemes
from stiefel_init.torch import draw_, he_, lee_, orthogonal_, random_, sample, stiefel_, xavier_

FIXED = ("lee_", "lee", "lee direct", "identity", "idinit", "zero", "sinusoidal")  # one matrix for each shape
DRAWING = [name for name in FILLERS if name not in FIXED]
MEMBERS = ("stiefel_", "stiefel", "permutation", "identity", "rotation", "rotation 1")


Fill = Callable[[torch.Tensor], torch.Tensor]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", PAPER_SCHEMES)
def test_the_papers_six_have_functions_of_their_own_that_draw_what_draw_draws(name: str) -> None:
    function = getattr(stiefel_init.torch, f"{name}_")
    assert f"{name}_" in stiefel_init.torch.__all__
    for shape in ((6, 9), (9, 6), (4, 3, 2, 2)):
        ours = function(torch.empty(shape), **({} if name == "lee" else {"generator": generator()}))
        assert torch.equal(ours, draw_(torch.empty(shape), name, generator=generator()))


@pytest.mark.parametrize(
    ("ours", "scheme"),
    [
        (lambda w: orthogonal_(w, 2.0, generator=generator()), "orthogonal 2"),
        (lambda w: random_(w, 0.5, generator=generator()), "random 0.5"),
        (lambda w: lee_(w, variant="direct"), "lee direct"),
        (lambda w: lee_(w, 0.5, variant="direct"), schemes.Lee("direct", 0.5)),
        (lambda w: stiefel_(w, member="rotation", spread=0.3, generator=generator()), "rotation 0.3"),
        (lambda w: stiefel_(w, member="permutation", generator=generator()), schemes.Permutation()),
    ],
)
def test_their_options_are_the_parameters_of_the_schemes(ours: Fill, scheme: str | schemes.Scheme) -> None:
    assert torch.equal(ours(torch.empty(8, 4)), draw_(torch.empty(8, 4), scheme, generator=generator()))


@pytest.mark.parametrize("name", FILLERS)
def test_fills_in_place_and_returns_the_tensor(name: str) -> None:
    shapes = ((0, 3), (3, 0), (1, 1), (4, 6), (6, 4), (5, 3, 2, 2), (4, 0, 3))
    for shape, dtype in (*((shape, torch.float32) for shape in shapes), *(((4, 6), dtype) for dtype in TORCH_DTYPES)):
        tensor = torch.full(shape, math.nan, dtype=dtype)
        memory = tensor.data_ptr()
        assert FILLERS[name](tensor) is tensor
        assert (tensor.data_ptr(), tensor.shape) == (memory, shape)
        assert torch.isfinite(tensor).all(), (shape, dtype)
    weight = torch.nn.Linear(5, 7).weight  # a parameter keeps requiring its gradient and gains no history
    FILLERS[name](weight)
    assert weight.requires_grad
    assert weight.is_leaf
    meta = torch.empty(5, 8, device="meta")
    assert FILLERS[name](meta) is meta


@pytest.mark.parametrize("name", FILLERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)  # computed in place, and rounded
def test_tensors_that_are_not_contiguous(name: str, dtype: torch.dtype) -> None:
    base = torch.zeros(6, 10, dtype=dtype)
    for view in (base.T, base[:, ::2], base[1:4].T, base.view(6, 5, 2).permute(1, 0, 2)):
        base.zero_()
        FILLERS[name](view)
        contiguous = torch.empty(view.shape, dtype=dtype)
        if name in MEMBERS:
            assert check(view.reshape(view.shape[0], -1)).ok
        elif name in FIXED:
            assert torch.equal(view, FILLERS[name](contiguous))
        assert view.abs().sum() > 0
    base.zero_()
    FILLERS[name](base[:, ::2])
    assert (base[:, 1::2] == 0).all()  # the columns between are not ours


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_seed_gives_the_same_weights_however_the_memory_lies(scheme: str) -> None:
    for shape, dtype in itertools.product(((6, 9), (9, 6), (4, 3, 2, 2)), TORCH_DTYPES):
        plain = draw_(torch.empty(shape, dtype=dtype), scheme, seed=1, name="w")
        turned = torch.empty(shape[::-1], dtype=dtype).permute(*range(len(shape))[::-1])
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(draw_(turned, scheme, seed=1, name="w"), plain, rtol=2 * eps, atol=2 * eps)


@pytest.mark.parametrize("name", DRAWING)
def test_a_generator_or_the_global_seed_makes_it_repeatable(name: str) -> None:
    before = torch.get_rng_state()
    first, second, other = (FILLERS[name](torch.empty(6, 12), generator=generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())  # the global one is left alone
    with torch.random.fork_rng():
        torch.manual_seed(3)
        first = FILLERS[name](torch.empty(6, 12))
        torch.manual_seed(3)
        assert torch.equal(first, FILLERS[name](torch.empty(6, 12)))
        assert not torch.equal(first, FILLERS[name](torch.empty(6, 12)))


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize(("shape", "batch_dims"), [((2, 3, 12, 4), 2), ((5, 4, 3, 2, 2), 1)])
def test_stacked_weights_are_the_batch_of_their_seed(scheme: str, shape: tuple[int, ...], batch_dims: int) -> None:
    tensor = torch.empty(shape, dtype=torch.float64)
    assert draw_(tensor, scheme, seed=3, name="experts", batch_dims=batch_dims) is tensor
    matrices = tensor.reshape(-1, shape[batch_dims], math.prod(shape[batch_dims + 1 :]))
    if len(shape) == batch_dims + 2:  # no kernel, whose fans are not those of its matrix
        expected = draw(scheme, *shape[-2:], batch=len(matrices), seed=3, name="experts")
        np.testing.assert_allclose(matrices, expected, rtol=0, atol=1e-12)
    distinct = {tuple(matrix.flatten().tolist()) for matrix in matrices}
    assert len(distinct) == (1 if scheme in FIXED else len(matrices))


def test_he_and_xavier_are_torchs_own() -> None:
    for shape in ((6, 9), (9, 6), (4, 3, 2, 2)):
        theirs = torch.nn.init.kaiming_normal_(torch.empty(shape), nonlinearity="relu", generator=generator())
        assert torch.equal(he_(torch.empty(shape), generator=generator()), theirs)
        theirs = torch.nn.init.xavier_uniform_(torch.empty(shape), generator=generator())
        assert torch.equal(xavier_(torch.empty(shape), generator=generator()), theirs)


def test_settings_for_fast_products_do_not_touch_precision() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert check(stiefel_(torch.empty(300, 300), generator=generator())).orthogonality_error < 2e-6
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for method in METHODS:
            assert check(stiefel_(torch.empty(300, 300), method=method)).orthogonality_error < 4e-6
        assert check(sample(20, 30, batch=3)).ok
        assert torch.is_autocast_enabled("cpu")


class Turned(schemes.Scheme):
    """The transposes of what another scheme draws."""

    def __init__(self, of: str) -> None:
        object.__setattr__(self, "of", schemes.get(of))

    def draw(self, source: schemes.Source) -> Any:
        return self.of.draw(source).mT  # type: ignore[attr-defined]


@pytest.mark.parametrize("of", ["stiefel", "rotation 0.3"])
def test_a_scheme_may_return_a_view_of_what_was_made_in_place(of: str) -> None:
    plain, turned = (draw_(torch.empty(40, 40), scheme, seed=1, name="w") for scheme in (of, Turned(of)))
    assert torch.equal(turned, plain.T)


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


@pytest.mark.slow
def test_works_in_a_forked_worker() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("[True, True]\n", 0), done.stderr


@pytest.mark.parametrize(("shape", "batch"), [((600, 600), ()), ((200, 400), ()), ((400, 200), ()), ((64, 64), (900,))])
def test_peak_memory_stays_below_the_result_and_three_times_it(shape: tuple[int, int], batch: tuple[int, ...]) -> None:
    size = sample(*shape, batch=batch).nbytes
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        sample(*shape, batch=batch)
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = np.cumsum([e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())])
    assert size <= live.max() <= 4 * size


@pytest.mark.parametrize(("shape", "batch_dims"), [((4, 6), 0), ((5, 4, 6), 1), ((2, 3, 6, 4), 2), ((5, 4, 3, 2), 1)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_stacked_weights_are_independent_members(shape: tuple[int, ...], batch_dims: int, dtype: torch.dtype) -> None:
    tensor = torch.empty(shape, dtype=dtype)
    for target in (tensor, tensor.transpose(0, -1).contiguous().transpose(0, -1)):
        assert stiefel_(target, 2.0, batch_dims=batch_dims) is target
        members = target.reshape(-1, shape[batch_dims], math.prod(shape[batch_dims + 1 :])) / 2
        assert check(members).ok
        assert len({tuple(member.flatten().tolist()) for member in members}) == len(members)
