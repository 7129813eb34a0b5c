"""The geometry of Õ(m,n), each statement of docs/on-the-set.md: float64, every shape, NumPy, PyTorch and JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from plain_set import Plain, basis, polar, turned
from scipy.linalg import expm

from stiefel_init import check, sample
from stiefel_init.core import geometry

SHAPES = [(1, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (6, 11), (11, 6), (9, 9)]
every_shape = pytest.mark.parametrize(("m", "n"), SHAPES)


def normals(m: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((m, n))


def is_member(w: np.ndarray, close: float = 1e-12) -> bool:
    return check(w, tol=close).ok


@every_shape
def test_a_member_is_the_ones_plus_a_semi_orthogonal_matrix_of_the_complements(m: int, n: int) -> None:
    """The lemma, both ways: from W to V, from any V to W; and both Wξ = ξ and Wᵀξ = ξ, wide or tall."""
    w = sample(m, n, seed=0)
    xi_m, xi_n = np.full(m, m**-0.5), np.full(n, n**-0.5)
    rest = w - np.outer(xi_m, xi_n)
    np.testing.assert_allclose(rest @ xi_n, 0, atol=1e-14)
    np.testing.assert_allclose(xi_m @ rest, 0, atol=1e-14)
    v = basis(m).T @ w @ basis(n)
    small = v @ v.T if m <= n else v.T @ v
    np.testing.assert_allclose(small, np.eye(min(m, n) - 1), atol=1e-14)
    v = polar(normals(m - 1, n - 1)) if min(m, n) > 1 else np.zeros((m - 1, n - 1))
    assert is_member(np.outer(xi_m, xi_n) + basis(m) @ v @ basis(n).T)


@every_shape
def test_centring_is_the_orthogonal_projection_to_the_complements(m: int, n: int) -> None:
    a, b = normals(m, n), normals(m, n, 1)
    centred = geometry.centre(a)
    np.testing.assert_allclose(centred, Plain(sample(m, n, seed=0)).centred(a), atol=1e-14)
    np.testing.assert_allclose((geometry.centre(b) * (a - centred)).sum(), 0, atol=1e-12)


@every_shape
def test_the_tangent_and_normal_spaces(m: int, n: int) -> None:
    """Curves through W have tangent velocities; what the projection removes is orthogonal to all tangent vectors.

    The weight itself is normal, so that its decay does nothing.
    """
    w, a, b = sample(m, n, seed=0), geometry.centre(normals(m, n, 1)), geometry.centre(normals(m, n, 2))
    t, other = geometry.tangent(w, a), geometry.tangent(w, b)
    np.testing.assert_allclose(t, Plain(w).tangent(a), atol=1e-13)
    np.testing.assert_allclose(geometry.tangent(w, t), t, atol=1e-13)
    np.testing.assert_allclose(geometry.tangent(w, geometry.centre(w)), 0, atol=1e-13)
    s = t @ w.T if m <= n else w.T @ t
    np.testing.assert_allclose(s + s.T, 0, atol=1e-13)
    np.testing.assert_allclose(((a - t) * other).sum(), 0, atol=1e-12)
    h = 1e-6
    velocity = (geometry.slide(w, h * t) - geometry.slide(w, -h * t)) / (2 * h)
    np.testing.assert_allclose(velocity, t, atol=1e-8)
    k = min(m, n) - 1
    images = [geometry.tangent(w, geometry.centre(e)).ravel() for e in np.eye(m * n).reshape(-1, m, n)]
    assert np.linalg.matrix_rank(images, tol=1e-9) == (m - 1) * (n - 1) - k * (k + 1) // 2


@every_shape
@pytest.mark.parametrize("length", [1e-3, 0.39, 5.0])
def test_the_retraction_is_the_polar_one_up_to_the_largest_turn(m: int, n: int, length: float) -> None:
    plain = Plain(sample(m, n, seed=0))
    t = plain.tangent(normals(m, n, 1))
    s4 = (np.linalg.svd(t, compute_uv=False) ** 4).sum() ** 0.25
    t = t * (length / s4) if s4 > 1e-9 else 0 * t
    moved = geometry.slide(plain.w, -t)
    assert is_member(moved, 4e-6)
    plain.move(t)  # shortens it by its exact singular values
    np.testing.assert_allclose(moved, plain.w, atol=1e-5 if length > 0.2 else 1e-7)
    assert is_member(geometry.slide(moved, 0 * t), 1e-10)  # the error is squared


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9])
def test_generators_of_square_members(n: int) -> None:
    """Tangent vectors are KW with a centred skew K, which one product gives."""
    w, a = sample(n, n, seed=0), normals(n, n, 1)
    k = geometry.generator(w, a)
    np.testing.assert_allclose(k + k.T, 0, atol=1e-14)
    np.testing.assert_allclose(k.sum(0), 0, atol=1e-13)
    np.testing.assert_allclose(k @ w, geometry.tangent(w, geometry.centre(a)), atol=1e-13)
    np.testing.assert_allclose(geometry.centred_skew(a - a.T), geometry.centre(a - a.T), atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 40])
@pytest.mark.parametrize("length", [0.0, 1e-3, 0.1, 0.39, 5.0])
def test_rotations_lead_to_members_and_are_second_order(n: int, length: float) -> None:
    """RᵀR - I is as small as said; R = I + Z + Z²/2 up to Z³; rows and columns keep their sums to rounding."""
    w = sample(n, n, seed=0)
    k = geometry.generator(w, normals(n, n, 1))
    largest = np.linalg.norm(k, 2)
    z = length * k / largest if largest > 1e-9 else 0 * k
    moved = geometry.rotate(w, z)
    np.testing.assert_allclose(moved, turned(w, -z), atol=2.5e-6)
    found = check(moved)
    assert found.orthogonality_error <= 5e-6
    assert found.alignment_error < 1e-14
    if length <= 0.1:
        np.testing.assert_allclose(moved, (np.eye(n) + z + z @ z / 2) @ w, atol=0.5 * length**3 + 5e-6)
    assert check(geometry.rotate(moved, 0 * z)).orthogonality_error < 1e-10


@pytest.mark.parametrize("h", [1e-4, 0.005, 0.0124, 0.0126, 0.05, 0.16, 10.0])
def test_the_coefficients_of_a_rotation_are_chebyshevs(h: float) -> None:
    """(a - cy)² + y(b - dy)² is 1 within h²/32 or h³/2048 on [0, h], and attains both bounds several times."""
    mean = np.array(h)  # of two eigenvalues that are equal
    a, b, c, d, shorter = geometry.rotation(mean, mean * 2**0.5, 2)
    assert shorter == pytest.approx(min(1, 0.16 / h))
    h = h * float(shorter)
    y = np.linspace(0, h, 1001)
    off = (a - c * y) ** 2 + y * (b - d * y) ** 2 - 1
    bound = h**2 / 32 if h <= geometry.SHORT else h**3 / 2048
    assert bound < 5e-6
    assert abs(off).max() <= bound * 1.001 + 1e-15
    at = off[[0, 500, 1000]] if h <= geometry.SHORT else off[[0, 250, 750, 1000]]
    np.testing.assert_allclose(at * np.sign(at[0]) * (-1.0) ** np.arange(len(at)), bound, rtol=1e-3, atol=2e-15)


@pytest.mark.parametrize("length", [0.01, 5.0])
def test_an_error_shrinks_while_turning(length: float) -> None:
    """By (DE + EDᵀ)/2 + DEDᵀ, D = R - I: to at most 0.56 of it at the longest turn, and the more the shorter it is."""
    n = 12
    w, noise = sample(n, n, seed=0), geometry.centre(normals(n, n, 2))
    k = geometry.generator(w, normals(n, n, 1))
    z = length * k / np.linalg.norm(k, 2)
    e = 1e-4
    off = w + e * noise / np.linalg.norm(noise, 2)
    before = np.linalg.norm(off @ off.T - np.eye(n), 2)
    moved = geometry.rotate(off, z)
    after = np.linalg.norm(moved @ moved.T - np.eye(n), 2)
    assert after <= min(0.56, 1.1 * length) * before + 5e-6


@pytest.mark.parametrize("n", [512, 700])
def test_large_symmetric_and_skew_products_are_the_plain_ones(n: int) -> None:
    a = torch.randn(2, n, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(geometry.mirrored(a, a.mT), a @ a.mT, atol=1e-11, rtol=0)
    skew = a @ a.flip(-1).mT - a.flip(-1) @ a.mT
    symmetric = skew @ skew
    torch.testing.assert_close(geometry.mirrored(symmetric, skew, -1), symmetric @ skew, atol=1e-4, rtol=1e-9)


@pytest.mark.parametrize(("m", "n"), [(4, 4), (3, 6), (6, 3)])
def test_which_retractions_keep_the_ones(m: int, n: int) -> None:
    """Polar, Newton–Schulz, Muon's quintic and Cayley do with a centred step; QR does not, nor any without centring."""
    plain = Plain(sample(m, n, seed=0))
    w, t = plain.w, 0.2 * plain.tangent(normals(m, n, 1))
    kept = {"polar": polar(w - t), "newton-schulz": geometry.slide(w, -t), "cayley": cayley(w, t)}
    q, r = np.linalg.qr(w - t if m >= n else (w - t).T)
    q = q * np.sign(np.diag(r))
    broken = {"qr": q if m >= n else q.T, "polar of an uncentred step": polar(w - t - 0.2 * normals(m, n, 2))}
    for name, moved in kept.items():
        assert check(moved).alignment_error < 1e-13, name
    for name, moved in broken.items():
        found = check(moved)
        assert found.orthogonality_error < 1e-12, name
        assert found.alignment_error > 1e-3, name
    direction = geometry.orthogonalized(t)
    np.testing.assert_allclose(direction, geometry.centre(direction), atol=1e-13)


def cayley(w: np.ndarray, t: np.ndarray) -> np.ndarray:
    """(I + A/2)⁻¹(I - A/2)W with the skew A of W and T: A W = T."""
    if w.shape[0] < w.shape[1]:
        return cayley(w.T, t.T).T
    p = t - w @ (w.T @ t) / 2
    a = p @ w.T - w @ p.T
    np.testing.assert_allclose(a @ w, t, atol=1e-13)
    eye = np.eye(len(w))
    return np.linalg.solve(eye + a / 2, (eye - a / 2) @ w)


@every_shape
def test_the_nearest_member_is_nearer_than_any_other(m: int, n: int) -> None:
    a = normals(m, n, 3)
    found, condition = geometry.nearest(a, np.linalg.svd)
    assert is_member(found)
    assert condition > 0
    least = np.linalg.norm(a - found)
    for seed in range(30):
        other = sample(m, n, seed=seed)
        assert least <= np.linalg.norm(a - other) + 1e-12
        near = geometry.slide(found, geometry.tangent(found, -0.05 * geometry.centre(other)))
        assert least <= np.linalg.norm(a - near) + 1e-7


def test_rank_deficiency_shows_in_the_condition() -> None:
    for a in (np.zeros((3, 4)), np.ones((3, 4)), np.diag([1.0, 1, 0, 0])):
        assert geometry.nearest(a, np.linalg.svd)[1] < 1e-14


STEPS: dict[str, Any] = {
    "adam": lambda w, g, o: geometry.adam_step(w, g, o, o * o, 3, 0.1)[0],
    "sgd": lambda w, g, o: geometry.sgd_step(w, g, o, 0.1, decay=0.9, nesterov=True)[0],
    "muon": lambda w, g, o: geometry.muon_step(w, g, o, 0.1)[0],
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 5), (2, 2, 5, 3)], ids=str)
def test_numpy_torch_and_jax_take_the_same_step(step: str, shape: tuple[int, ...]) -> None:
    """Batches of any number of dimensions, such as networks × layers, too."""
    jnp = pytest.importorskip("jax.numpy")
    *batch, m, n = shape
    w = sample(m, n, seed=0, batch=tuple(batch))
    g = np.random.default_rng(1).standard_normal(shape)
    o = geometry.centre(np.random.default_rng(2).standard_normal(shape))
    o = o - np.swapaxes(o, -1, -2) if m == n else o  # a generator
    expected = STEPS[step](w, g, o)
    ours = STEPS[step](*(torch.from_numpy(a) for a in (w, g, o)))
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-13)
    theirs = STEPS[step](*(jnp.asarray(a, "float32") for a in (w, g, o)))
    np.testing.assert_allclose(np.asarray(theirs), expected, atol=1e-5)
    assert is_member(expected, 1e-5)


@pytest.mark.parametrize(("m", "n"), [(5, 5), (4, 7), (7, 4)])
def test_without_the_ones_steps_are_those_of_the_stiefel_manifold(m: int, n: int) -> None:
    """From any semi-orthogonal matrix, by tangent projections and exact retractions."""
    w = np.linalg.qr(normals(max(m, n), min(m, n)))[0]
    w = w if m >= n else w.T
    first = second = np.zeros((m, n))
    theirs, m1, m2 = w, np.zeros((m, n)), np.zeros((m, n))
    for step in range(1, 4):
        g = normals(m, n, seed=step)
        w, first, second = geometry.adam_step(w, g, first, second, step, 1e-3, ones=False)
        if m == n:  # moments of the generator K, in coordinates √2·K
            g = (g @ theirs.T - theirs @ g.T) / 2**0.5
        m1, m2 = 0.9 * m1 + 0.1 * g, 0.999 * m2 + 0.001 * g**2
        m1 = m1 if m == n else geometry.tangent(theirs, m1)
        quotient = m1 / (1 - 0.9**step) / (np.sqrt(m2 / (1 - 0.999**step)) + 1e-8)
        if m == n:
            theirs = expm(-1e-3 * quotient / 2**0.5) @ theirs
        else:
            theirs = polar(theirs - 1e-3 * geometry.tangent(theirs, quotient))
    np.testing.assert_allclose(w, theirs, atol=1e-8)
    assert not is_member(w)
