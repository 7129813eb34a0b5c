"""The GPU's kernel for small squares: the plain steps. Triton's interpreter runs it without a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

from stiefel_init.core import geometry as _on_set
from stiefel_init.torch import sample
from stiefel_init.torch.optim import kernel

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, in Triton's interpreter
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("rate", [1e-3, 0.1, 100.0])
@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 33, 64])
@pytest.mark.parametrize("kind", ["adam", "sgd", "nesterov"])
def test_steps_in_one_launch_are_the_plain_ones(kind: str, n: int, rate: float) -> None:
    generator = torch.Generator().manual_seed(0)
    w = sample(n, n, batch=2, dtype=torch.float32, generator=generator).to(DEVICE)
    first, second = torch.zeros_like(w), torch.zeros_like(w)
    plain: Any = (w.double(), first.double(), second.double())
    for number in range(2):
        g = torch.randn(2, n, n, generator=generator).to(DEVICE)
        steps = torch.full((2, 1, 1), float(number), dtype=torch.float64, device=DEVICE)
        if kind == "adam":
            numbers = kernel.adam_numbers(rate, (0.9, 0.999), 1e-8, steps)
            w = kernel.step(w, g, (first, second), "adam", numbers)
            plain = _on_set.adam_step(plain[0], g.double(), plain[1], plain[2], steps + 1, rate)
        else:
            numbers = kernel.sgd_numbers(rate, 0.9, kind == "nesterov", steps)
            w = kernel.step(w, g, (first,), "sgd", numbers)
            options: Any = {"decay": 0.9, "nesterov": kind == "nesterov"}
            plain = (*_on_set.sgd_step(plain[0], g.double(), plain[1], rate, **options), second)
    torch.testing.assert_close(w.double(), plain[0], atol=2e-5, rtol=0)
    torch.testing.assert_close(first.double(), plain[1], atol=2e-5, rtol=0)
    assert float((w @ w.mT - torch.eye(n, device=DEVICE)).abs().max()) < 1e-5
    assert float((w.sum(-1) - 1).abs().max()) < 1e-5


def test_without_the_ones_the_kernel_keeps_weights_orthogonal() -> None:
    generator = torch.Generator().manual_seed(0)
    w = torch.linalg.qr(torch.randn(2, 17, 17, generator=generator)).Q.to(DEVICE)
    first, second = torch.zeros_like(w), torch.zeros_like(w)
    plain: Any = (w.double(), first.double(), second.double())
    for number in range(2):
        g = torch.randn(2, 17, 17, generator=generator).to(DEVICE)
        steps = torch.full((2, 1, 1), float(number), dtype=torch.float64, device=DEVICE)
        numbers = kernel.adam_numbers(0.1, (0.9, 0.999), 1e-8, steps)
        w = kernel.step(w, g, (first, second), "adam", numbers, ones=False)
        plain = _on_set.adam_step(plain[0], g.double(), plain[1], plain[2], steps + 1, 0.1, ones=False)
    torch.testing.assert_close(w.double(), plain[0], atol=2e-5, rtol=0)
    assert float((w @ w.mT - torch.eye(17, device=DEVICE)).abs().max()) < 1e-5


def test_only_small_squares_in_single_precision_on_a_gpu() -> None:
    assert not kernel.fits(torch.zeros(2, 8, 8))
    if torch.cuda.is_available():
        assert kernel.fits(torch.zeros(2, 8, 8, device="cuda"))
        assert not kernel.fits(torch.zeros(2, 8, 9, device="cuda"))
        assert not kernel.fits(torch.zeros(2, 65, 65, device="cuda"))


def test_a_kernel_is_tried_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device(DEVICE)
    monkeypatch.setattr(kernel, "_AGREES", {})
    assert kernel.agrees(device)
    for trouble in ("wrong", "broken"):
        monkeypatch.setattr(kernel, "_AGREES", {})
        right = kernel.step

        def step(*given: Any, trouble: str = trouble, right: Any = right) -> torch.Tensor:
            if trouble == "broken":
                raise RuntimeError("no compiler")
            return right(*given) * 1.01

        with monkeypatch.context() as patch:
            patch.setattr(kernel, "step", step)
            if trouble == "broken":
                with pytest.warns(RuntimeWarning, match="does not run"):
                    assert not kernel.agrees(device)
            else:
                assert not kernel.agrees(device)
            assert not kernel.agrees(device)  # and it stays so, without another word
