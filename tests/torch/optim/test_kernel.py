"""The GPU's kernel for small squares: the plain steps. Triton's interpreter runs it without a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from stiefel_init.core import geometry
from stiefel_init.torch import sample
from stiefel_init.torch.optim import kernel

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, in Triton's interpreter
]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


GRID = [(n, rate) for n in (1, 2, 3, 16, 17, 33, 64) for rate in (1e-3, 0.1, 100.0)]
BRIEF = ((1, 0.1), (3, 1e-3), (17, 0.1), (17, 100.0))  # one element, a tile, more than a tile; each length of a turn


@pytest.mark.parametrize(
    ("n", "rate"), [pytest.param(*case, marks=() if case in BRIEF else pytest.mark.slow) for case in GRID]
)
@pytest.mark.parametrize("kind", ["adam", "adam without the ones", "sgd", "nesterov"])
def test_steps_in_one_launch_are_the_plain_ones(kind: str, n: int, rate: float) -> None:
    generator = torch.Generator().manual_seed(0)
    ones = kind != "adam without the ones"
    w = sample(n, n, batch=2, dtype=torch.float32, generator=generator)
    w = (w if ones else torch.linalg.qr(torch.randn(2, n, n, generator=generator)).Q).to(DEVICE).contiguous()
    first, second = torch.zeros_like(w), torch.zeros_like(w)
    plain: Any = (w.double(), first.double(), second.double())
    for number in range(2):
        g = torch.randn(2, n, n, generator=generator).to(DEVICE)
        steps = torch.full((2, 1, 1), float(number), dtype=torch.float64, device=DEVICE)
        if kind.startswith("adam"):
            numbers = kernel.adam_numbers(rate, (0.9, 0.999), 1e-8, steps)
            w = kernel.step(w, g, (first, second), "adam", numbers, ones=ones)
            plain = geometry.adam_step(plain[0], g.double(), plain[1], plain[2], steps + 1, rate, ones=ones)
        else:
            numbers = kernel.sgd_numbers(rate, 0.9, kind == "nesterov", steps)
            w = kernel.step(w, g, (first,), "sgd", numbers)
            options: Any = {"decay": 0.9, "nesterov": kind == "nesterov"}
            plain = (*geometry.sgd_step(plain[0], g.double(), plain[1], rate, **options), second)
    torch.testing.assert_close(w.double(), plain[0], atol=2e-5, rtol=0)
    torch.testing.assert_close(first.double(), plain[1], atol=2e-5, rtol=0)
    assert float((w @ w.mT - torch.eye(n, device=DEVICE)).abs().max()) < 1e-5
    assert not ones or float((w.sum(-1) - 1).abs().max()) < 1e-5


def test_only_small_squares_in_single_precision_on_a_gpu() -> None:
    assert not kernel.fits(torch.zeros(2, 8, 8))
    if torch.cuda.is_available():
        assert kernel.fits(torch.zeros(2, 8, 8, device="cuda"))
        assert not kernel.fits(torch.zeros(2, 8, 9, device="cuda"))
        assert not kernel.fits(torch.zeros(2, 65, 65, device="cuda"))


def test_a_kernel_is_tried_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    device, right = torch.device(DEVICE), kernel.step

    def broken(*given: Any) -> torch.Tensor:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(kernel, "_AGREES", {})
    assert kernel.agrees(device)
    for step in (lambda *given: right(*given) * 1.01, broken):
        monkeypatch.setattr(kernel, "_AGREES", {})
        monkeypatch.setattr(kernel, "step", step)
        with pytest.warns(RuntimeWarning, match="does not run") if step is broken else nullcontext():
            assert not kernel.agrees(device)
        assert not kernel.agrees(device)  # and it stays so, without another word
