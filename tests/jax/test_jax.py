"""`stiefel_init.jax`: the contract of JAX's initializers, the set, the schemes' laws, and libraries built on JAX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import COUNT, DRAWN_SCHEMES, FALSE_ALARM, SHAPES, assert_refused, beta_pvalue
from scipy import stats

from stiefel_init import check, sample, schemes
from stiefel_init.jax import initializer, initializers, stiefel

KEY = jax.random.key(0)
OTHERS = [scheme for scheme in DRAWN_SCHEMES if scheme != "stiefel"]


def matrix(kernel: Any) -> np.ndarray:
    """The m × n matrix of a dense kernel, (…, n, m)."""
    return np.asarray(kernel).mT


# The native stream takes XLA half a second to compile for each new shape, so it gets fewer of them.
@pytest.mark.parametrize(
    ("shape", "seed"), [*((shape, 0) for shape in SHAPES), *((shape, None) for shape in SHAPES[3:9:2])], ids=str
)
def test_kernels_are_members_of_the_set(shape: tuple[int, int], seed: int | None) -> None:
    m, n = shape
    kernel = stiefel(seed=seed)(KEY, (n, m))
    assert kernel.shape == (n, m)
    assert kernel.dtype == jnp.float32
    assert check(matrix(kernel)).ok, check(matrix(kernel))


@pytest.mark.parametrize(
    ("dtype", "seed"),
    [(jnp.float64, 0), (jnp.bfloat16, 0), (jnp.float16, 0), ("float32", 0), (None, 0), (jnp.float64, None)],
)
def test_every_float_dtype(dtype: Any, seed: int | None) -> None:
    with jax.enable_x64(True):
        kernel = stiefel(seed=seed)(KEY, (11, 6), dtype)
        assert kernel.dtype == jnp.zeros((), dtype).dtype
    assert check(matrix(kernel)).ok, check(matrix(kernel))


@pytest.mark.parametrize(("shape", "seed"), [((300, 300), None), ((600, 280), 0), ((1100, 1030), 0)], ids=str)
def test_errors_stay_at_rounding_over_several_blocks(shape: tuple[int, int], seed: int | None) -> None:
    result = check(matrix(stiefel(seed=seed)(KEY, shape)))
    assert result.orthogonality_error <= 2e-6
    assert result.alignment_error <= 5e-7


def test_without_x64_a_float64_is_what_jax_makes_of_it() -> None:
    with pytest.warns(UserWarning, match="float64"):
        assert stiefel()(KEY, (8, 8), jnp.float64).dtype == jnp.float32


@contextmanager
def strict() -> Iterator[None]:
    """JAX at its strictest: nothing is promoted, and no result may be NaN."""
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"), jax.debug_nans(True):
        yield


def is_right(W: np.ndarray, scheme: str) -> bool:
    """Whether the matrices are finite, and members of the set where the scheme draws members."""
    member = scheme in ("stiefel", "permutation", "identity", "rotation")
    return bool(np.isfinite(W.astype(np.float32)).all() and (check(W).ok or not member))


def some(cases: Sequence[Any], *, every: int) -> list[Any]:
    """The first of so many cases; the others take XLA seconds to compile, and are slow."""
    return [case if i % every == 0 else pytest.param(case, marks=pytest.mark.slow) for i, case in enumerate(cases)]


@pytest.mark.parametrize("scheme", some(("stiefel", *OTHERS), every=4))
@pytest.mark.parametrize("seed", [None, 3])
def test_every_scheme_has_the_contract_of_jaxs_initializers(scheme: str, seed: int | None) -> None:
    """Under jit and vmap, in every dtype, strictly; the gain multiplies; a key is used as JAX uses keys."""
    init = initializer(scheme, seed=seed)
    fixed = seed is not None or scheme in ("lee", "identity", "idinit", "zero", "sinusoidal")
    with strict():
        plain = init(KEY, (8, 8))
        assert (plain.shape, plain.dtype) == ((8, 8), jnp.float32)
        assert is_right(matrix(plain), scheme)
        np.testing.assert_array_equal(init(KEY, (8, 8)), plain)
        assert bool((init(jax.random.key(1), (8, 8)) == plain).all()) == fixed
        keys = jax.random.split(KEY, 3)
        many = jax.jit(jax.vmap(lambda key: init(key, (8, 8))))(keys)
        np.testing.assert_allclose(many, [init(key, (8, 8)) for key in keys], atol=2e-6)
        np.testing.assert_array_equal(init(jax.random.PRNGKey(0), (8, 8)), plain)
        np.testing.assert_allclose(initializer(scheme, 2.0, seed=seed)(KEY, (8, 8)), 2 * plain, rtol=1e-6, atol=1e-7)
        assert init(KEY, (8, 0)).shape == (8, 0)
        half = init(KEY, (8, 8), jnp.bfloat16)
        assert half.dtype == jnp.bfloat16
        assert is_right(matrix(half), scheme)
        np.testing.assert_allclose(half.astype(jnp.float32), plain, rtol=2**-8, atol=1e-6)
        batch = matrix(initializer(scheme, batch_axis=0, seed=seed)(KEY, (3, 8, 4), jnp.bfloat16))
        assert (batch.shape, batch.dtype) == ((3, 4, 8), jnp.bfloat16)
        assert is_right(batch, scheme)


def test_stiefel_is_the_initializer_of_that_name() -> None:
    for seed in (None, 0):
        expected = initializer("stiefel", 1.5, in_axis=-1, out_axis=-2, seed=seed, name="w")(KEY, (6, 9))
        for init in (
            stiefel(1.5, in_axis=-1, out_axis=-2, seed=seed, name="w"),
            initializer(schemes.Stiefel(), 1.5, in_axis=-1, out_axis=-2, seed=seed, name="w"),
        ):
            np.testing.assert_array_equal(init(KEY, (6, 9)), expected)


def primitives(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr, those of the functions it calls too."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            if hasattr(value, "jaxpr"):
                yield from primitives(value.jaxpr)


@pytest.mark.parametrize("seed", [None, 0])
def test_no_factorization_and_full_precision_products(seed: int | None) -> None:
    def equations(init: Any) -> list[Any]:
        return list(primitives(jax.make_jaxpr(lambda key: init(key, (300, 300), jnp.float32))(KEY).jaxpr))

    factorization = re.compile("(ge|or|un)?qrf?|householder.*|.*svd.*|eig.*|lu.*|cholesky|schur")
    ours = equations(stiefel(seed=seed))
    assert not [e for e in ours if factorization.fullmatch(e.primitive.name)]
    assert [e for e in equations(jax.nn.initializers.orthogonal()) if factorization.fullmatch(e.primitive.name)]
    products = [e for e in ours if e.primitive.name == "dot_general"]
    assert products
    highest = jax.lax.Precision.HIGHEST
    assert all(e.params["precision"] in (highest, (highest, highest)) for e in products)


@pytest.mark.parametrize(
    ("shape", "seed"),
    [*((shape, 0) for shape in [(2, 2), (3, 3), (2, 5), (5, 2)]), ((2, 2), None), ((3, 3), None), ((5, 2), None)],
    ids=str,
)
def test_the_law_is_uniform(shape: tuple[int, int], seed: int | None) -> None:
    m, n = shape
    W = matrix(stiefel(batch_axis=0, seed=seed)(KEY, (COUNT, n, m))).astype(np.float64)
    if shape != (2, 2):  # there aᵀWb is ±1 and only its sign is random
        assert beta_pvalue(W) > FALSE_ALARM / 8
    if m == n:
        assert stats.binomtest(int((np.linalg.det(W) > 0).sum()), COUNT).pvalue > FALSE_ALARM


def test_permutations_from_a_key_are_equally_likely() -> None:
    """All 24 of 4 units: χ²."""
    W = matrix(initializer("permutation", batch_axis=0)(KEY, (COUNT, 4, 4)))
    counts = np.unique(W.argmax(2) @ (4 ** np.arange(4)), return_counts=True)[1]
    assert len(counts) == 24
    assert ((counts - COUNT / 24) ** 2 / (COUNT / 24)).sum() < stats.chi2(23).isf(FALSE_ALARM)


@pytest.mark.parametrize("aligned", [True, False])
def test_a_generator_that_returns_zeros_still_gives_members(aligned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.random, "normal", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    source = initializers._Fresh(3, 3, 2, 1, np.dtype(np.float32), KEY)
    found = check(jax.jit(lambda: source.semi_orthogonal(aligned=aligned))())
    assert found.orthogonality_error <= found.tolerance
    assert found.ok or not aligned


@pytest.mark.parametrize(
    ("shape", "options", "order"),
    [
        ((5, 3), {}, "im"),
        ((3, 5), {"in_axis": -1, "out_axis": -2}, "mi"),
        ((4, 5, 3), {"batch_axis": 0}, "bim"),
        ((5, 4, 3), {"batch_axis": (1,), "in_axis": 0}, "ibm"),
        ((3, 5, 4), {"batch_axis": [-1], "in_axis": 1, "out_axis": 0}, "mib"),
    ],
)
def test_axes_put_each_matrix_in_its_place(shape: tuple, options: dict, order: str) -> None:
    kernel = stiefel(seed=1, name="w", **options)(None, shape)
    batch = "b" if "b" in order else ""
    expected = sample(3, 5, batch=(4,) if batch else (), seed=1, name="w")
    np.testing.assert_allclose(np.einsum(f"{order}->{batch}mi", kernel), expected, atol=1e-6)


def test_several_axes_count_as_one() -> None:
    heads = np.asarray(stiefel(seed=1, in_axis=0, out_axis=(1, 2))(None, (6, 2, 4)))
    np.testing.assert_allclose(heads.reshape(6, 8).T, sample(8, 6, seed=1), atol=1e-6)
    merged = np.asarray(stiefel(seed=1, in_axis=(1, 0), out_axis=2)(None, (2, 4, 6)))
    np.testing.assert_allclose(merged.transpose(1, 0, 2).reshape(8, 6).T, sample(6, 8, seed=1), atol=1e-6)
    batches = np.asarray(stiefel(seed=1, batch_axis=(1, 0))(None, (2, 3, 4, 5)))
    np.testing.assert_allclose(batches.transpose(1, 0, 3, 2), sample(5, 4, batch=(3, 2), seed=1), atol=1e-6)


@pytest.mark.parametrize("window", [(1,), (3,), (4,), (3, 3), (5, 2), (3, 1, 3), (0, 3)], ids=str)
def test_a_convolution_has_its_matrix_at_the_centre(window: tuple[int, ...]) -> None:
    kernel = np.asarray(stiefel(seed=2)(None, (*window, 4, 6)))
    assert kernel.shape == (*window, 4, 6)
    if 0 not in window:
        centre = tuple((k - 1) // 2 for k in window)
        np.testing.assert_allclose(kernel[centre].T, sample(6, 4, seed=2), atol=1e-6)
        assert np.count_nonzero(kernel) == np.count_nonzero(kernel[centre])


@pytest.mark.parametrize(
    ("options", "arguments", "words"),
    [
        ({"scheme": "glorot"}, None, ["scheme='glorot'", "'stiefel'"]),
        ({"scheme": "rotation -1"}, None, ["spread=-1"]),
        ({"gain": math.nan}, None, ["gain=nan"]),
        ({"gain": "two"}, None, ["gain='two'"]),
        ({"seed": -1}, None, ["seed=-1"]),
        ({"seed": 1.5}, None, ["seed=1.5"]),
        ({}, (KEY, (5,)), ["shape=(5,)", "two or more"]),
        ({}, (KEY, ()), ["shape=()"]),
        ({}, (KEY, (5, -1)), ["shape[1]=-1"]),
        ({}, (KEY, (5, 2.0)), ["shape[1]=2.0"]),
        ({}, (KEY, (5, 3), jnp.int32), ["int32", "float64, float32, bfloat16, float16"]),
        ({}, (KEY, (5, 3), jnp.complex64), ["complex64"]),
        ({}, (KEY, (5, 3), "nonsense"), ["nonsense"]),
        ({}, (None, (5, 3)), ["key=None", "seed"]),
        ({"in_axis": 2}, (KEY, (5, 3)), ["in_axis=2", "(5, 3)"]),
        ({"out_axis": "last"}, (KEY, (5, 3)), ["out_axis='last'"]),
        ({"batch_axis": (0, -4)}, (KEY, (5, 3, 2)), ["batch_axis=(0, -4)"]),
        ({"in_axis": -1}, (KEY, (5, 3)), ["in_axis=-1", "out_axis=-1", "once"]),
        ({"batch_axis": (0, 0)}, (KEY, (5, 3, 2)), ["batch_axis=(0, 0)"]),
        ({"in_axis": ()}, (KEY, (5, 3)), ["in_axis=()", "at least one"]),
    ],
)
def test_bad_input_is_told_in_one_sentence(options: dict, arguments: tuple | None, words: list[str]) -> None:
    builders: tuple[Any, ...] = (initializer,) if "scheme" in options else (initializer, stiefel)
    for build in builders:
        assert_refused(lambda: build(**options)(*(arguments or (KEY, (2, 3)))), words)  # noqa: B023


def test_a_grouped_convolution_is_a_batch_in_its_output_axis() -> None:
    groups = 4

    def init(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        *front, out = shape
        draw = stiefel(in_axis=-3, batch_axis=-2, seed=0)
        return draw(key, (*front, groups, out // groups), dtype).reshape(shape)

    layer = linen.Conv(16, (3, 3), feature_group_count=groups, use_bias=False, padding="CIRCULAR", kernel_init=init)
    images = jax.random.normal(KEY, (5, 6, 6, 8))
    out, _ = layer.init_with_output(KEY, images)
    norm = partial(jnp.linalg.norm, axis=1)
    np.testing.assert_allclose(norm(out.reshape(5, -1)), norm(images.reshape(5, -1)), rtol=1e-5)


def test_dtype_at_construction_and_out_sharding_are_accepted() -> None:
    init = stiefel(dtype=jnp.bfloat16)
    assert init(jax.random.key(0), (3, 4)).dtype == jnp.bfloat16
    assert init(jax.random.key(0), (3, 4), jnp.float32).dtype == jnp.float32
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        kernel: Any = stiefel()(jax.random.key(0), (4, 6), out_sharding=jax.P("x", None))
    assert kernel.sharding.spec == jax.P("x", None)
    np.testing.assert_array_equal(kernel, stiefel()(jax.random.key(0), (4, 6)))
