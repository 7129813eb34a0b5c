"""Large squares stepped by products in tf32: the plain steps, and members. Triton's interpreter runs the kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from stiefel_init import check
from stiefel_init.core import geometry
from stiefel_init.torch import sample
from stiefel_init.torch.optim import kernel, large

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, in Triton's interpreter
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Cut(TorchFunctionMode):
    """Products of float32 numbers cut down to tf32's 11 digits, the worst that a tensor core may make of them."""

    def __torch_function__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = {torch.Tensor.matmul: 0, torch.Tensor.__matmul__: 0, torch.baddbmm: 1, torch.Tensor.baddbmm_: 1}
        first |= {torch.Tensor.baddbmm: 1}
        if call in first and args[-1].dtype == torch.float32:
            args = *args[: first[call]], *(cut(each) for each in args[first[call] :])
        return call(*args, **(kwargs or {}))


def cut(x: torch.Tensor) -> torch.Tensor:
    return (x.contiguous().view(torch.int32) & -0x2000).view(torch.float32)


@contextmanager
def as_on_tensor_cores() -> Iterator[None]:
    with Cut():
        yield


def adam(w: torch.Tensor, g: torch.Tensor, moments: list[torch.Tensor], steps: float, rate: float) -> torch.Tensor:
    count = torch.full((), float(steps), dtype=torch.float64, device=w.device)
    numbers = kernel.adam_numbers(rate, (0.9, 0.999), 1e-8, count)
    turn = large.adam_turn(w, g, moments[0], moments[1], numbers)
    return large.rotate(w, turn, corrected=steps % large.EVERY == 0)


@pytest.mark.parametrize("n", [1, 2, 33, 64])
@pytest.mark.parametrize("rate", [1e-3, 0.1, 100.0])
def test_steps_are_the_plain_ones(n: int, rate: float) -> None:
    """With products of float32, the turn's rounding to 11 digits is all that differs."""
    draws = torch.Generator().manual_seed(0)
    w = sample(n, n, batch=2, dtype=torch.float32, generator=draws).to(DEVICE)
    moments = [torch.zeros_like(w), torch.zeros_like(w)]
    plain: Any = [w.double(), *(moment.double() for moment in moments)]
    for number in range(3):
        g = torch.randn(2, n, n, generator=draws).to(DEVICE)
        w = adam(w, g, moments, number, rate)
        plain = geometry.adam_step(plain[0], g.double(), plain[1], plain[2], number + 1, rate)
    torch.testing.assert_close(w.double(), plain[0], atol=3e-3, rtol=0)
    torch.testing.assert_close(moments[0].double(), plain[1], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(moments[1].double(), plain[2], atol=1e-3, rtol=1e-3)
    assert check(w, tol=1e-5)


@pytest.mark.parametrize("kind", ["generator", "orthogonalized"])
def test_the_directions_of_momentum_are_the_plain_ones(kind: str) -> None:
    draws = torch.Generator().manual_seed(0)
    w, g = sample(40, 40, batch=2, dtype=torch.float32, generator=draws), torch.randn(2, 40, 40, generator=draws)
    k = geometry.generator(w, g)
    found, plain = (
        (large.generator(w, g), k) if kind == "generator" else (large.orthogonalized(k), geometry.orthogonalized(k))
    )
    torch.testing.assert_close(found, plain, atol=1e-4, rtol=0)
    assert bool((found == -found.mT).all())


@pytest.mark.parametrize("rate", [1e-3, 1.0])
def test_products_in_tf32_leave_members(rate: float) -> None:
    """Also where W is not one at the beginning, and with steps as large as they may be."""
    draws = torch.Generator().manual_seed(0)
    w = sample(64, 64, batch=2, dtype=torch.float32, generator=draws).to(DEVICE) * 1.01
    moments = [torch.zeros_like(w), torch.zeros_like(w)]
    with as_on_tensor_cores():
        for number in range(20):
            w = adam(w, torch.randn(2, 64, 64, generator=draws).to(DEVICE), moments, number, rate)
    assert check(w, tol=1e-5)


def test_products_in_tf32_without_parts_would_not() -> None:
    w = sample(64, 64, batch=1, dtype=torch.float32, generator=torch.Generator().manual_seed(0))
    with as_on_tensor_cores():
        z = 0.01 * geometry.centred_skew(geometry.generator(w, torch.randn_like(w)))
        for _ in range(5):
            w = geometry.rotate(w, z)
    assert not check(w, tol=1e-5)


@pytest.mark.slow
def test_a_thousand_large_steps_stay_in_the_set() -> None:
    """Ten thousand are in benchmarks/on_the_set.py."""
    draws = torch.Generator().manual_seed(0)
    w = sample(32, 32, batch=1, dtype=torch.float32, generator=draws).to(DEVICE)
    moments = [torch.zeros_like(w), torch.zeros_like(w)]
    with as_on_tensor_cores():
        for number in range(1000):
            w = adam(w, torch.randn(1, 32, 32, generator=draws).to(DEVICE), moments, number, 1.0)
    assert check(w, tol=1e-5)


def test_the_kernels_are_tried_before_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert large._tried(torch.device(DEVICE))
    right: Callable[..., torch.Tensor] = large.rotate
    monkeypatch.setattr(large, "rotate", lambda w, z, corrected: right(w, z, corrected=corrected) * 1.01)
    assert not large._tried(torch.device(DEVICE))
