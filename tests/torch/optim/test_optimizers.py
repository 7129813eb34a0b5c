"""The optimizers: equal to the textbook's, on the set at any rate, batched as one by one, and downhill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from plain_set import REFERENCES
from torch import Tensor, nn

from stiefel_init import check
from stiefel_init.torch import sample
from stiefel_init.torch.optim import StiefelAdam, StiefelMuon, StiefelSGD

KINDS: dict[str, Callable[..., Any]] = {
    "adam": StiefelAdam,
    "sgd": StiefelSGD,
    "momentum": partial(StiefelSGD, momentum=0.9),
    "nesterov": partial(StiefelSGD, momentum=0.9, nesterov=True),
    "muon": StiefelMuon,
}
# Single elements first: there is nothing to train, and formulas break.
SHAPES = [(1, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (6, 11), (11, 6), (9, 9)]


def weight(m: int, n: int, seed: int = 0, dtype: torch.dtype = torch.float64, **options: Any) -> nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    return nn.Parameter(sample(m, n, dtype=dtype, generator=generator, **options))


def gradients(count: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randn(count, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def error(w: Tensor) -> float:
    found = check(w)
    return max(found.orthogonality_error, found.alignment_error)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_of_the_textbook(kind: str, shape: tuple[int, int]) -> None:
    """At rates whose steps are retracted all but exactly; and at one that the limit of a step shortens."""
    for lr, close in ((1e-3, 1e-9), (10.0, 2e-4)):
        w = weight(*shape)
        given = gradients(6, *shape)
        expected = REFERENCES[kind](w.detach().numpy().copy(), list(given.numpy()), lr)
        optimizer = KINDS[kind]([w], lr=lr)
        for gradient in given:
            w.grad = gradient
            optimizer.step()
        np.testing.assert_allclose(w.detach().numpy(), expected, atol=close)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n"), [(4, 6), (5, 5)])  # squares have a way of their own
def test_matrices_of_one_shape_together_move_as_one_by_one(kind: str, m: int, n: int) -> None:
    """In a stack, in several parameters, as parts of one, as the transpose, with one that has no gradient."""
    values = torch.stack([weight(m, n, seed).detach() for seed in range(5)])
    given = gradients(3, 5, m, n)
    alone = []
    for i in range(5):
        w = nn.Parameter(values[i].clone())
        optimizer = KINDS[kind]([w], lr=0.05)
        for gradient in given:
            w.grad = gradient[i]
            optimizer.step()
        alone.append(w.detach())
    turned: Callable[[Tensor], Tensor] = (lambda a: a) if m == n else (lambda a: a.T)
    stack, first, idle, last = (nn.Parameter(v.clone()) for v in (values[:3], values[3], values[1], turned(values[4])))
    last.data = last.data.contiguous()
    optimizer = KINDS[kind]([stack, first, idle, last], lr=0.05)
    assert [group["on_set"] for group in optimizer.param_groups] == [True]
    apart = [nn.Parameter(v.clone()) for v in values]
    several = KINDS[kind](apart, lr=0.05)
    for gradient in given:
        for w, part in zip(apart, gradient):
            w.grad = part
        several.step()
        stack.grad, first.grad, last.grad = gradient[:3], gradient[3], turned(gradient[4])
        optimizer.step()
    torch.testing.assert_close(torch.stack([w.detach() for w in apart]), torch.stack(alone), atol=1e-12, rtol=0)
    torch.testing.assert_close(stack.detach(), torch.stack(alone[:3]), atol=1e-12, rtol=0)
    torch.testing.assert_close(first.detach(), alone[3], atol=1e-12, rtol=0)
    torch.testing.assert_close(last.detach(), turned(alone[4]), atol=1e-12, rtol=0)
    assert torch.equal(idle.detach(), values[1])
    assert "exp_avg" not in optimizer.state[idle] or not optimizer.state[idle]["exp_avg"].any()


@pytest.mark.parametrize("kind", ["adam", "nesterov", "muon"])
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (64, 64), (16, 49), (49, 16), (3, 8, 8)], ids=str)
def test_weights_stay_on_the_set_in_float32(kind: str, shape: tuple[int, ...]) -> None:
    """At the largest steps there are; `python -m benchmarks on_the_set` takes ten thousand of them."""
    *batch, m, n = shape
    w = weight(m, n, dtype=torch.float32, batch=tuple(batch))
    torch.manual_seed(0)
    optimizer = KINDS[kind]([w], lr=1.0)
    given = torch.randn(32, *shape) + torch.randn(32, *batch, m, 1) * torch.randn(32, *batch, 1, n)
    worst = 0.0
    for step in range(300):
        w.grad = given[step % 32]
        optimizer.step()
        if step % 10 == 9:
            worst = max(worst, error(w))
    assert worst < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_tangent_and_the_free_parameters_move_as_usual(kind: str) -> None:
    w, bias, head = weight(5, 7), nn.Parameter(torch.zeros(5).double()), nn.Parameter(torch.ones(3, 5).double())
    optimizer = KINDS[kind]([w, bias, head], lr=0.01, weight_decay=0.1)
    copies = [nn.Parameter(p.detach().clone()) for p in (bias, head)]
    usual: Any = torch.optim.AdamW(copies, lr=1e-3 if kind == "muon" else 0.01, weight_decay=0.1)
    if kind not in ("adam", "muon"):
        momentum = 0.0 if kind == "sgd" else 0.9
        usual = torch.optim.SGD(copies, 0.01, momentum, weight_decay=0.1, nesterov=kind == "nesterov")
    for number in range(4):
        at = w.detach().clone()
        for p, q in zip((w, bias, head), (w, *copies)):
            p.grad = q.grad = gradients(1, *p.shape, seed=number)[0]
        optimizer.step()
        usual.step()
        first = optimizer.state[w].get("exp_avg", optimizer.state[w].get("momentum_buffer"))
        assert float((first @ at.T + at @ first.T).abs().max()) < 1e-8
        assert float(first.sum(0).abs().max()) < 1e-12
        assert float(first.sum(1).abs().max()) < 1e-12
    for p, q in zip((bias, head), copies):
        torch.testing.assert_close(p.detach(), q.detach(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_weights_are_the_rounding_of_float32_ones(dtype: torch.dtype) -> None:
    """Steps far below their resolution add up."""
    w, exact = weight(8, 8, dtype=dtype), weight(8, 8, dtype=torch.float32)
    optimizer, reference = StiefelAdam([w], lr=1e-5), StiefelAdam([exact], lr=1e-5)
    with torch.no_grad():
        exact.copy_(w)
    for gradient in gradients(100, 8, 8):
        w.grad = gradient.to(dtype)
        exact.grad = w.grad.float()
        optimizer.step()
        reference.step()
    assert optimizer.state[w]["master"].dtype == optimizer.state[w]["exp_avg"].dtype == torch.float32
    assert error(optimizer.state[w]["master"]) < 1e-5
    torch.testing.assert_close(optimizer.state[w]["master"], exact.detach(), atol=1e-6, rtol=0)
    assert torch.equal(w.detach(), optimizer.state[w]["master"].to(dtype))
    with torch.no_grad():
        w.copy_(torch.eye(8))
    w.grad = torch.zeros(8, 8, dtype=dtype)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    torch.testing.assert_close(optimizer.state[w]["master"], torch.eye(8), atol=1e-6, rtol=0)


def test_weights_changed_from_outside_are_pulled_back() -> None:
    w = weight(8, 8, dtype=torch.float32)
    optimizer = StiefelAdam([w], lr=1e-3)
    for change in (1e-3, 0.1):
        with torch.no_grad():
            w.add_(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), alpha=change)
        for _ in range(2 if change < 0.01 else 10):
            w.grad = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))
            optimizer.step()
        assert error(w) < 1e-5
    with torch.no_grad():
        w.mul_(100)
    for _ in range(20):
        optimizer.step()
    assert error(w) < 1e-5
