"""What a scheme may rely on in its source, in every framework: sizes, shapes, precisions, laws, and seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
import torch
from conftest import FALSE_ALARM
from scipy import stats
from torch import nn

from stiefel_init import draw
from stiefel_init.jax import initializer
from stiefel_init.keras import Initializer
from stiefel_init.schemes import Scheme, Source
from stiefel_init.torch import draw_, initialize_

Seen = tuple[int, int, int, int]  # count, m, n, fan_out
KEY = jax.random.key(0)


class Look(Scheme):
    """Notes the sizes of the sources that it is given."""

    name = "look"

    def __init__(self, entrywise: bool = False) -> None:
        object.__setattr__(self, "seen", [])
        object.__setattr__(self, "entrywise", entrywise)

    def __hash__(self) -> int:
        return id(self)

    def draw(self, source: Source) -> Any:
        for one in (source, source.precise()):
            self.seen.append((one.count, one.m, one.n, one.fan_out))  # type: ignore[attr-defined]
        return source.normals(source.m, source.n)


def sizes(call: Callable[[Look], Any], entrywise: bool = False) -> Seen:
    """Those of the one source that `call` makes, which are those of its precise form."""
    look = Look(entrywise)
    call(look)
    first, precise = look.seen  # type: ignore[attr-defined]
    assert first == precise
    return first


KERNEL, GROUPED = (3, 5, 4, 2, 3), nn.Conv2d(8, 6, (3, 5), groups=2)
IN_JAX: dict[str, Any] = {"in_axis": -3, "batch_axis": -2}
SIZES: list[tuple[Callable[..., Any], Seen]] = [
    (lambda s, **o: draw(s, 3, 5, **o), (1, 3, 5, 3)),
    (lambda s, **o: draw(s, 3, 5, batch=(2, 4), **o), (8, 3, 5, 3)),
    (lambda s, **o: draw_(torch.empty(3, 5), s, **o), (1, 3, 5, 3)),
    (lambda s, **o: draw_(torch.empty(2, 4, 3, 5), s, batch_dims=2, **o), (8, 3, 5, 3)),
    (lambda s, **o: initialize_(nn.Linear(5, 3), s, **o), (1, 3, 5, 3)),
    (lambda s, **o: initialize_(nn.GRUCell(5, 3, bias=False), s, skip="weight_hh", **o), (3, 3, 5, 3)),
    (lambda s, **o: initializer(s, **o)(KEY, (5, 3)), (1, 3, 5, 3)),
    (lambda s, **o: initializer(s, batch_axis=0, **o)(KEY, (4, 5, 3)), (4, 3, 5, 3)),
    (lambda s, **o: Initializer(s, **o)((5, 3)), (1, 3, 5, 3)),
    # a matrix at the centre of a kernel, whose places its fans do not count
    (lambda s, **o: initialize_(GROUPED, s, **o), (2, 3, 4, 3)),
    (lambda s, **o: Initializer(s, groups=2, **o)((3, 5, 4, 6)), (2, 3, 4, 3)),
    (lambda s, **o: initializer(s, **IN_JAX, **o)(KEY, KERNEL), (2, 3, 4, 3)),
]
ENTRYWISE: list[Callable[..., Any]] = [
    lambda s, **o: initialize_(GROUPED, s, **o),
    lambda s, **o: draw_(torch.empty(2, 3, 4, 3, 5), s, batch_dims=1, **o),
    lambda s, **o: initializer(s, **IN_JAX, **o)(KEY, KERNEL),
    lambda s, **o: Initializer(s, groups=2, **o)((3, 5, 4, 6)),
]


@pytest.mark.parametrize("seed", [None, 0])
def test_the_sizes_of_matrices(seed: int | None) -> None:
    for call, expected in SIZES:
        assert sizes(partial(call, seed=seed)) == expected
    for call in ENTRYWISE:  # of a kernel drawn entry by entry both fans count its places
        assert sizes(partial(call, seed=seed), True) == (2, 3, 4 * 15, 3 * 15)


@dataclass(frozen=True)
class Ask(Scheme):
    """Asks the source for something and looks at it."""

    name = "ask"
    look: Callable[[Source], Any] = lambda source: None

    def draw(self, source: Source) -> Any:
        self.look(source)
        return source.normals(source.m, source.n)


def ask(look: Callable[[Source], Any], dtype: str, batch: tuple[int, ...], seed: int | None) -> None:
    """Hand `look` the source of 4 × 6 matrices in every framework."""
    scheme = Ask(look)
    if dtype != "bfloat16":
        draw(scheme, 4, 6, batch=batch, seed=seed, dtype=dtype)
    draw_(torch.empty(*batch, 4, 6, dtype=getattr(torch, dtype)), scheme, batch_dims=len(batch), seed=seed)
    turned = torch.empty(*batch, 6, 4, dtype=getattr(torch, dtype)).mT
    draw_(turned, scheme, batch_dims=len(batch), seed=seed)
    axes = tuple(range(len(batch)))
    with jax.enable_x64(dtype == "float64"):
        initializer(scheme, batch_axis=axes, seed=seed)(KEY, (*batch, 6, 4), dtype)


@pytest.mark.parametrize(
    ("dtype", "batch", "seed"),
    [
        ("float64", (), 0),
        ("float32", (2, 3), None),
        ("bfloat16", (), 0),
        ("float16", (3,), None),
    ],
)
def test_what_a_source_gives_is_a_batch_in_the_precision_of_the_computation(
    dtype: str, batch: tuple[int, ...], seed: int | None
) -> None:
    count = int(np.prod(batch))
    working = "float64" if dtype == "float64" else "float32"

    def look(source: Source) -> None:
        def told(array: Any) -> tuple[tuple[int, ...], str]:
            return tuple(array.shape), str(array.dtype).removeprefix("torch.")

        assert told(source.normals(2, 7)) == ((count, 2, 7), working)
        assert told(source.uniforms(2, 7)) == ((count, 2, 7), working)
        assert tuple(source.orders(5).shape) == (count, 5)
        for aligned in (True, False):
            assert told(source.semi_orthogonal(aligned=aligned)) == ((count, 4, 6), working)
        assert told(source.array(np.eye(3))) == ((3, 3), working)
        assert "int" in told(source.array(np.arange(3)))[1]
        square = source.normals(3, 3)
        assert told(source.expm1_skew(square - square.mT, 20.0)) == ((count, 3, 3), working)
        legacy: Any = source
        assert legacy.turn == legacy.expm1_skew  # its name in release 0.2
        precise = source.precise()
        finest = working if source.xp.__name__ == "jax.numpy" else "float64"
        assert told(precise.normals(2, 7)) == ((count, 2, 7), finest)
        assert told(precise.semi_orthogonal(aligned=True)) == ((count, 4, 6), finest)
        assert told(precise.array(np.eye(3)))[1] == finest

    ask(look, dtype, batch, seed)


@pytest.mark.parametrize("seed", [None, 0])
def test_every_draw_of_a_source_has_numbers_of_its_own(seed: int | None) -> None:
    """The correlation of any two of four draws, and of their squares, is within 5.5 standard errors of 0."""
    limit = stats.norm.isf(FALSE_ALARM / 2 / 36)  # six correlations, of two kinds, in three frameworks

    @dataclass(frozen=True)
    class Four(Scheme):
        """Four draws side by side."""

        name = "four"

        def draw(self, source: Source) -> Any:
            m, n = source.m, source.n // 4
            first, second = source.normals(m, n), source.uniforms(m, n)
            return source.xp.concatenate((first, second, source.uniforms(m, n), source.normals(m, n)), -1)

    for W in (
        draw(Four(), 100, 800, seed=np.random.default_rng(0) if seed is None else seed),
        draw_(torch.empty(100, 800), Four(), seed=seed, generator=torch.Generator().manual_seed(0)).numpy(),
        np.asarray(initializer(Four(), seed=seed)(KEY, (800, 100)).T),
    ):
        draws = W.astype(np.float64).reshape(100, 4, 200).transpose(1, 0, 2).reshape(4, -1)
        for z in (draws, draws**2):
            correlation = np.corrcoef(z) - np.eye(4)
            assert abs(correlation).max() < limit / np.sqrt(draws.shape[1]), correlation.round(3)


@pytest.mark.parametrize("seed", [None, 0])
def test_two_matrices_of_one_source_are_two(seed: int | None) -> None:
    """The first is not changed by the drawing of the second."""

    @dataclass(frozen=True)
    class Difference(Scheme):
        name = "difference"

        def draw(self, source: Source) -> Any:
            first = source.semi_orthogonal(aligned=True)
            return first - source.semi_orthogonal(aligned=True)

    for W in (
        draw(Difference(), 6, 6, batch=20, seed=np.random.default_rng(0) if seed is None else seed),
        draw_(torch.empty(20, 6, 6), Difference(), batch_dims=1, seed=seed).numpy(),
        np.asarray(initializer(Difference(), batch_axis=0, seed=seed)(KEY, (20, 6, 6))),
    ):
        assert (abs(W).max((1, 2)) > 0.1).all()
        np.testing.assert_allclose(W.sum(2), 0, atol=1e-5)  # both carry ones to ones
