"""What the tests share: shapes, the plain textbook sampler, and every way the product draws a member."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the GPU kernels run on this CPU, statement by statement

import stiefel_init
import stiefel_init.torch
from stiefel_init import _stream
from stiefel_init.torch import _sample

# Zero and one first: that is where formulas break.
SHAPES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (7, 7), (6, 11), (11, 6), (64, 64)]
METHODS = ("householder", "algorithm1", "algorithm2")
TORCH_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

Sampler = Callable[[int, int, int, int], np.ndarray]  # (count, m, n, seed) -> (count, m, n)


def plain_member(x: np.ndarray, signs: bool = True) -> np.ndarray:
    """A p × q member from the Gaussian vectors in the rows of `x`, by the textbook: one dense reflection at a time.

    With `signs=False` the sign correction is left out, which gives members that are not uniformly distributed.
    """
    p, q = x.shape
    frame = np.eye(q)
    correction = np.ones(p)
    for j in range(p):
        v = np.ones(q) if j == 0 else np.where(np.arange(q) < j, 0.0, x[j])
        correction[j] = np.copysign(1, v[j])
        v[j] += np.copysign(np.linalg.norm(v), v[j])
        frame = frame @ (np.eye(q) - 2 * np.outer(v, v) / (v @ v))
    u = np.full(p, p**-0.5)
    u[0] += 1
    left = np.eye(p) - 2 * np.outer(u, u) / (u @ u)
    return left @ np.diag(correction if signs else np.ones(p)) @ frame[:, :p].T


def _numpy(method: str) -> Sampler:
    def draw(count: int, m: int, n: int, seed: int) -> np.ndarray:
        return stiefel_init.sample(m, n, batch=count, method=method, seed=np.random.default_rng(seed))

    return draw


def _numpy_stream(count: int, m: int, n: int, seed: int) -> np.ndarray:
    return stiefel_init.sample(m, n, batch=count, seed=seed)


def _torch(method: str) -> Sampler:
    def draw(count: int, m: int, n: int, seed: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(seed)
        out = stiefel_init.torch.sample(m, n, batch=count, method=method, dtype=torch.float64, generator=generator)
        return out.numpy()

    return draw


def _torch_path(fill: Callable[..., Any]) -> Sampler:
    def draw(count: int, m: int, n: int, seed: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(seed)
        out = torch.empty(count, min(m, n), max(m, n), dtype=torch.float64)
        fill(out, generator)
        return (out if m <= n else out.mT).numpy()

    return draw


def _lapack(out: torch.Tensor, generator: torch.Generator) -> None:
    for member in out:
        _sample._lapack(member, _sample._from_generator(generator))


def _blocks(out: torch.Tensor, generator: torch.Generator) -> None:
    for member in out:
        _sample._compact_wy(member, 2, _sample._from_generator(generator))


def _batched_blocks(out: torch.Tensor, generator: torch.Generator) -> None:
    _sample._compact_wy(out, 2, _sample._from_generator(generator))


def _torch_stream(count: int, m: int, n: int, seed: int) -> np.ndarray:
    out = torch.empty(count, m, n, dtype=torch.float64)
    return _sample.fill_seeded_(out, _stream.fold(_stream.key(seed, "torch"), np.arange(count))).numpy()


SAMPLERS: dict[str, Sampler] = {
    **{f"numpy-{method}": _numpy(method) for method in METHODS},
    "numpy-stream": _numpy_stream,
    "torch-stream": _torch_stream,
    **{f"torch-{method}": _torch(method) for method in METHODS},
    "torch-lapack": _torch_path(_lapack),
    "torch-blocks": _torch_path(_blocks),
    "torch-batched-blocks": _torch_path(_batched_blocks),
}


@pytest.fixture(params=SAMPLERS, scope="session")
def sampler(request: pytest.FixtureRequest) -> Sampler:
    """Every way the product draws a member."""
    return SAMPLERS[request.param]
