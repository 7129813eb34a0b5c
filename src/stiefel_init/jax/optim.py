"""JAX: gradient transformations with optax's contract that keep weights in the set, and the nearest member."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..core import geometry, validate
from ..core.errors import StiefelError

__all__ = ["GradientTransformation", "Projection", "project", "stiefel_adam", "stiefel_muon", "stiefel_sgd"]

Rate = float | Callable[[Any], Any]


class GradientTransformation(NamedTuple):
    """optax's contract: `init(params)` makes a state, `update(updates, state, params)` returns updates and a state."""

    init: Callable[[Any], Any]
    update: Callable[..., tuple[Any, Any]]


class Moments(NamedTuple):
    """The state of a transformation: steps taken, and for each weight a tuple of its moments."""

    steps: jax.Array
    moments: tuple[Any, ...]


class Projection(NamedTuple):
    """What `project` returns: the nearest members, and ‖A - W‖_F of each matrix."""

    weight: jax.Array
    distance: jax.Array


def stiefel_adam(
    learning_rate: Rate = 1e-3, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> GradientTransformation:
    r"""Build Adam on Õ(m,n): the updates lead from one member to the next.

    Each leaf is a matrix or a stack of them, of shape (…, m, n), and starts in the set. Give other parameters to
    another transformation, with `optax.partition` or `optax.masked`. A step turns no direction by more than 23°.

    Args:
        learning_rate: A number, or a schedule of the number of steps taken.
        b1: Decay of the first moment.
        b2: Decay of the second moment.
        eps: Added to the root of the second moment.

    Returns:
        `init` and `update`; `update` needs the params.

    Raises:
        StiefelError: for an option out of range; from `init` and `update`, for leaves that are no matrices and missing
            params.

    >>> params = {"kernel": jnp.eye(3)}
    >>> adam = stiefel_adam(0.1)
    >>> updates, state = adam.update({"kernel": jnp.arange(9.0).reshape(3, 3) ** 2}, adam.init(params), params)
    >>> float(abs((params["kernel"] + updates["kernel"]).sum(0) - 1).max()) < 1e-6
    True
    """
    betas = validate.decay("b1", b1), validate.decay("b2", b2)
    eps = validate.number("eps", eps, at_least=0)

    def step(w: Any, g: Any, moments: tuple[Any, ...], count: Any, rate: Any) -> tuple[Any, ...]:
        first, second = moments
        return geometry.adam_step(w, g, first, second, count, rate, betas=betas, eps=eps)

    return _transformation(step, 2, learning_rate)


def stiefel_sgd(learning_rate: Rate, momentum: float = 0.0, nesterov: bool = False) -> GradientTransformation:
    r"""Build gradient descent on Õ(m,n), with the momentum of the Riemannian gradient.

    Args:
        learning_rate: As in `stiefel_adam`, and so is the result.
        momentum: What is left of the momentum after a step.
        nesterov: Whether to look ahead.

    >>> stiefel_sgd(0.1).init(jnp.eye(3)).steps.item()
    0
    """
    return _with_momentum(geometry.sgd_step, learning_rate, momentum, nesterov)


def stiefel_muon(learning_rate: Rate = 0.02, momentum: float = 0.95, nesterov: bool = True) -> GradientTransformation:
    r"""Build Muon on Õ(m,n): `learning_rate` is about the angle by which a step turns a weight.

    Args:
        learning_rate: As in `stiefel_adam`, and so is the result.
        momentum: What is left of the momentum after a step.
        nesterov: Whether to look ahead.

    >>> stiefel_muon().init(jnp.eye(3)).steps.item()
    0
    """
    return _with_momentum(geometry.muon_step, learning_rate, momentum, nesterov)


def project(weight: Any) -> Projection:
    r"""argmin_W ‖A - W‖_F over Õ(m,n), for each matrix A of a weight of shape (…, m, n).

    Args:
        weight: Of real floats. Under `jit` its values are not checked: see to it that it has rank min(m,n) - 1 once
            centred.

    Returns:
        The nearest members and their distances.

    >>> member, distance = project(2 * jnp.eye(3))
    >>> bool(jnp.allclose(member, jnp.eye(3), atol=1e-6)), round(float(distance), 4)
    (True, 1.7321)
    """
    a = jnp.asarray(weight)
    _check(a)
    if not a.size:
        return Projection(a, jnp.zeros(a.shape[:-2], a.dtype))
    work = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    members, condition = geometry.nearest(work, jnp.linalg.svd)
    if not isinstance(condition, jax.core.Tracer):
        lowest = float(condition.min())
        if not jnp.isfinite(work).all():
            raise StiefelError("weight holds NaN or infinity, which no member is nearest to; initialize it first.")
        if lowest <= max(a.shape[-2:]) * float(jnp.finfo(a.dtype).eps):
            raise StiefelError(
                f"weight holds a {a.shape[-2]}×{a.shape[-1]} matrix of too low a rank once centred (σ_min/σ_max = "
                f"{lowest:.1e}), so that no one member is nearest; initialize it, for example with jax.stiefel."
            )
    return Projection(members.astype(a.dtype), jnp.linalg.norm(work - members, axis=(-2, -1)))


def _with_momentum(
    plain: Callable[..., tuple[Any, ...]], rate: Rate, momentum: float, nesterov: bool
) -> GradientTransformation:
    decay = validate.decay("momentum", momentum)

    def step(w: Any, g: Any, moments: tuple[Any, ...], count: Any, rate: Any) -> tuple[Any, ...]:
        return plain(w, g, moments[0], rate, decay=decay, nesterov=nesterov)

    return _transformation(step, 1, rate)


def _check(weight: Any) -> None:
    if weight.ndim < 2 or not jnp.issubdtype(weight.dtype, jnp.floating):
        raise StiefelError(
            f"a weight has shape {weight.shape} and dtype {weight.dtype}; give matrices (…, m, n) of real floats, and "
            "the other parameters to another transformation."
        )


def _transformation(step: Callable[..., tuple[Any, ...]], moments: int, rate: Rate) -> GradientTransformation:
    """The transformation of a step (w, g, moments, count, rate) → (w, *moments)."""
    if not callable(rate):
        validate.number("learning_rate", rate, at_least=0)

    def init(params: Any) -> Moments:
        jax.tree.map(_check, params)
        zeros = tuple(jax.tree.map(_zeros, params) for _ in range(moments))
        return Moments(jnp.zeros((), jnp.int32), zeros)

    def update(updates: Any, state: Moments, params: Any = None, **_: Any) -> tuple[Any, Moments]:
        if params is None:
            raise StiefelError("params=None; call update(gradients, state, params), as the set is curved.")
        count = state.steps + 1
        now = rate(state.steps) if callable(rate) else rate
        tree: Any
        leaves, tree = jax.tree.flatten(params)
        parts = [tree.flatten_up_to(part) for part in (updates, *state.moments)]
        results = [_leaf(partial(step, count=count, rate=now), w, g, old) for w, g, *old in zip(leaves, *parts)]
        changes, *new = (tree.unflatten(column) for column in zip(*results))
        return changes, Moments(count, tuple(new))

    return GradientTransformation(init, update)


def _zeros(weight: Any) -> jax.Array:
    return jnp.zeros(weight.shape, jnp.promote_types(weight.dtype, jnp.float32))


def _leaf(step: Callable[..., tuple[Any, ...]], weight: Any, gradient: Any, old: list[Any]) -> tuple[Any, ...]:
    """The change of a weight and its new moments, computed in float32 or better."""
    if not weight.size:
        return jnp.zeros_like(weight), *old
    dtype = old[0].dtype
    w = weight.astype(dtype)
    new, *moments = step(w, gradient.astype(dtype), tuple(old))
    return (new - w).astype(weight.dtype), *moments
