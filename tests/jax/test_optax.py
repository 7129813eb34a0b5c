"""JAX's transformations: PyTorch's steps, optax's contract, under jit, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from conftest import assert_refused

from stiefel_init import check, sample
from stiefel_init.jax.optim import project, stiefel_adam, stiefel_muon, stiefel_sgd
from stiefel_init.torch.optim import StiefelAdam, StiefelMuon, StiefelSGD
from stiefel_init.torch.optim import project as project_torch

PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "adam": (stiefel_adam, StiefelAdam),
    "sgd": (
        lambda rate: stiefel_sgd(rate, momentum=0.9, nesterov=True),
        lambda p, lr: StiefelSGD(p, lr, momentum=0.9, nesterov=True),
    ),
    "muon": (stiefel_muon, StiefelMuon),
}


def weight(m: int, n: int, **options: Any) -> np.ndarray:
    return sample(m, n, seed=0, dtype=np.float32, **options)


@pytest.mark.parametrize("kind", PAIRS)
def test_the_steps_are_those_of_pytorch(kind: str) -> None:
    ours, theirs = PAIRS[kind]
    start = {"kernel": weight(4, 6), "stack": weight(3, 3, batch=2), "row": weight(1, 4)}
    params = {name: jnp.asarray(value) for name, value in start.items()}
    tensors = {name: torch.nn.Parameter(torch.from_numpy(value.copy())) for name, value in start.items()}
    transformation, optimizer = ours(0.05), theirs(tensors.values(), lr=0.05)
    state, update = transformation.init(params), jax.jit(transformation.update)
    rng = np.random.default_rng(1)
    for _ in range(4):
        grads = {name: rng.standard_normal(value.shape).astype(np.float32) for name, value in start.items()}
        updates, state = update(grads, state, params)
        params = {name: params[name] + updates[name] for name in params}
        for name, tensor in tensors.items():
            tensor.grad = torch.from_numpy(grads[name])
        optimizer.step()
    for name, tensor in tensors.items():
        np.testing.assert_allclose(np.asarray(params[name]), tensor.detach().numpy(), atol=2e-5)
        assert check(params[name], tol=1e-5)


def test_it_is_chained_and_partitioned_by_optax() -> None:
    optax = pytest.importorskip("optax")
    params = {"kernel": jnp.asarray(weight(4, 4)), "bias": jnp.zeros(4)}
    schedule = optax.exponential_decay(0.1, 10, 0.5)
    on_set = optax.chain(optax.clip_by_global_norm(1.0), stiefel_adam(schedule))
    both = optax.partition({"set": on_set, "free": optax.adam(0.1)}, {"kernel": "set", "bias": "free"})
    state = both.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        grads = jax.grad(lambda p: ((p["kernel"] @ jnp.arange(4.0) + p["bias"] - 1) ** 2).sum())(params)
        updates, state = both.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(50):
        params, state = step(params, state)
    assert check(params["kernel"], tol=1e-5)
    assert abs(np.asarray(params["kernel"] @ jnp.arange(4.0) + params["bias"] - 1)).max() < 0.2


def test_the_nearest_member_is_that_of_pytorch() -> None:
    a = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    member, distance = project(a)
    expected = project_torch(torch.from_numpy(a), batch_dims=1)
    np.testing.assert_allclose(np.asarray(member), expected.weight.numpy(), atol=1e-5)
    np.testing.assert_allclose(np.asarray(distance), expected.distance.numpy(), atol=1e-5)
    np.testing.assert_allclose(np.asarray(jax.jit(project)(a).weight), np.asarray(member), atol=1e-5)
    assert project(jnp.zeros((0, 3))).weight.shape == (0, 3)


def test_bad_input_is_refused_in_one_sentence() -> None:
    eye = jnp.eye(3)
    cases: list[tuple[Callable[[], Any], list[str]]] = [
        (lambda: stiefel_adam(-1.0), ["learning_rate=-1.0"]),
        (lambda: stiefel_adam(b2=1.0), ["b2=1.0"]),
        (lambda: stiefel_adam(eps=-1.0), ["eps=-1.0"]),
        (lambda: stiefel_sgd(0.1, momentum=2.0), ["momentum=2.0"]),
        (lambda: stiefel_muon(0.1).init({"bias": jnp.zeros(3)}), ["(3,)", "another transformation"]),
        (lambda: stiefel_adam().init(jnp.eye(3, dtype="complex64")), ["complex64"]),
        (lambda: stiefel_adam().update(eye, stiefel_adam().init(eye)), ["params=None"]),
        (lambda: project(jnp.ones(3)), ["(3,)"]),
        (lambda: project(jnp.ones((3, 3))), ["3×3", "rank"]),
        (lambda: project(jnp.full((3, 3), jnp.nan)), ["NaN"]),
    ]
    for call, words in cases:
        assert_refused(call, words)
