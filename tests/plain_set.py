"""The set Õ(m,n) and its optimizers by the textbook: one float64 NumPy matrix at a time, with decompositions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

LONGEST = 0.4  # of a step, in the norm (Σσ⁴)^¼


def basis(k: int) -> np.ndarray:
    """An orthonormal basis, k × (k-1), of what is orthogonal to the ones."""
    return np.linalg.qr(np.eye(k) - 1 / k)[0][:, : k - 1]


def polar(a: np.ndarray) -> np.ndarray:
    u, _, v = np.linalg.svd(a, full_matrices=False)
    return u @ v


class Plain:
    """A member W = ξ_m ξ_nᵀ + M V Nᵀ by its coordinates V, semi-orthogonal of (m-1) × (n-1)."""

    def __init__(self, w: np.ndarray) -> None:
        self.m, self.n = w.shape
        self.M, self.N = basis(self.m), basis(self.n)
        self.V = self.M.T @ w @ self.N

    @property
    def w(self) -> np.ndarray:
        return 1 / np.sqrt(self.m * self.n) + self.M @ self.V @ self.N.T

    def centred(self, a: np.ndarray) -> np.ndarray:
        return self.M @ (self.M.T @ a @ self.N) @ self.N.T

    gradient = centred

    def tangent(self, a: np.ndarray) -> np.ndarray:
        z, v = self.M.T @ a @ self.N, self.V
        if self.m <= self.n:
            z, v = z.T, v.T
        z = z - v @ (v.T @ z + z.T @ v) / 2
        return self.M @ (z.T if self.m <= self.n else z) @ self.N.T

    def move(self, step: np.ndarray) -> None:
        length = (np.linalg.svd(step, compute_uv=False) ** 4).sum() ** 0.25
        step = step * min(1, LONGEST / max(length, 1e-300))
        self.V = polar(self.V - self.M.T @ step @ self.N)


class Turning:
    """A square member that is turned by generators, which are centred and skew and need no transport."""

    def __init__(self, w: np.ndarray) -> None:
        self.w = w

    def gradient(self, a: np.ndarray) -> np.ndarray:
        """K of the Riemannian gradient KW."""
        p = self.tangent(a @ self.w.T)
        return (p - p.T) / 2

    def tangent(self, k: np.ndarray) -> np.ndarray:
        c = np.eye(len(k)) - 1 / len(k)
        return c @ k @ c

    def move(self, k: np.ndarray) -> None:
        self.w = turned(self.w, k)


def member(w: np.ndarray) -> Any:
    return Turning(w) if len(w) == len(w.T) else Plain(w)


def turned(w: np.ndarray, k: np.ndarray) -> np.ndarray:
    """A square member turned by -K: each plane of K by an angle near its own, which is the one of `rotation`."""
    values, u = np.linalg.eigh(-1j * k)
    angles = -values
    y = angles**2
    h = y.mean() + np.sqrt(max(len(w) / 2 - 1, 0)) * y.std()
    f = min(1, LONGEST**2 / max(h, 1e-300))
    angles, y, h = np.sqrt(f) * angles, f * y, f * h
    if h <= 0.0125:
        a = np.sqrt(1 + h**2 / 32)
        b, c, d = np.sqrt(a - h / 4), 1 / 2, 0.0
    else:
        a, b, c, d = np.sqrt(1 - h**3 / 2048), 1 - h / 32 + h**2 / 256, 1 / 2 - h / 32, 1 / 8
    turn = np.exp(1j * np.arctan2(angles * (b - d * y), a - c * y))
    return ((u * turn) @ u.conj().T).real @ w


def muon(a: np.ndarray) -> np.ndarray:
    """Muon's quintic applied to the singular values."""
    u, s, v = np.linalg.svd(a, full_matrices=False)
    s = s / max(np.linalg.norm(s), 1e-300)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v


def adam(w: np.ndarray, gradients: Sequence[np.ndarray], lr: float) -> np.ndarray:
    plain, m, v = member(w), np.zeros_like(w), np.zeros_like(w)
    scale = np.sqrt(2) if len(w) == len(w.T) else 1.0  # orthonormal coordinates of generators
    for t, gradient in enumerate(gradients, 1):
        g = scale * plain.gradient(gradient)
        m, v = plain.tangent(0.9 * m + 0.1 * g), 0.999 * v + 0.001 * g**2
        quotient = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        plain.move(lr * plain.tangent(quotient) / scale)
    return plain.w


def sgd(w: np.ndarray, gradients: Sequence[np.ndarray], lr: float, momentum: float, nesterov: bool) -> np.ndarray:
    plain, m = member(w), np.zeros_like(w)
    for gradient in gradients:
        g = plain.tangent(plain.gradient(gradient))
        m = momentum * plain.tangent(m) + g
        plain.move(lr * (g + momentum * m if nesterov else m))
    return plain.w


def muon_steps(w: np.ndarray, gradients: Sequence[np.ndarray], lr: float) -> np.ndarray:
    plain, m = member(w), np.zeros_like(w)
    for gradient in gradients:
        g = plain.gradient(gradient)
        m = plain.tangent(0.95 * m + g)
        plain.move(lr * plain.tangent(muon(g + 0.95 * m)))
    return plain.w


Reference = Callable[[np.ndarray, Sequence[np.ndarray], float], np.ndarray]
REFERENCES: dict[str, Reference] = {
    "adam": adam,
    "sgd": lambda w, g, lr: sgd(w, g, lr, 0.0, False),
    "momentum": lambda w, g, lr: sgd(w, g, lr, 0.9, False),
    "nesterov": lambda w, g, lr: sgd(w, g, lr, 0.9, True),
    "muon": muon_steps,
}
