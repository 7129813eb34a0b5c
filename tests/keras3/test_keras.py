"""`stiefel_init.keras` in real layers and models, on the JAX and the PyTorch backend of Keras."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from conftest import ALL_SCHEMES, assert_refused

from stiefel_init import check, draw, sample, schemes
from stiefel_init.keras import Initializer, Stiefel
from stiefel_init.keras.optim import Aligned
from stiefel_init.torch import draw_
from stiefel_init.torch.optim import project

BACKEND = keras.backend.backend()
# Keras' own arrays do not know NumPy 2's `copy` yet.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
OTHER = {"jax": "torch", "torch": "jax"}[BACKEND]


@pytest.mark.skipif("STIEFEL_OTHER_BACKEND" in os.environ, reason="this is the run on the other backend")
@pytest.mark.slow
def test_every_test_here_passes_on_the_other_backend_too() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", str(Path(__file__).parent)]
    environment = os.environ | {"KERAS_BACKEND": OTHER, "STIEFEL_OTHER_BACKEND": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def values(x: Any) -> np.ndarray:
    """The numbers of a tensor or a variable."""
    return keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(x))


def matrix(kernel: Any) -> np.ndarray:
    """The m × n matrix of a kernel of shape (n, m)."""
    return values(kernel).T


def per_pixel(layer: keras.layers.Layer, x: np.ndarray, W: np.ndarray) -> None:
    """The layer does to each pixel what W does."""
    np.testing.assert_allclose(values(layer(x)), x @ W.T, atol=1e-5)


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 5e-6), ("float64", 1e-12)])
def test_the_call_number_is_the_name_of_the_matrix(dtype: str, atol: float) -> None:
    init = Stiefel(gain=2, seed=5)
    for call, (m, n) in enumerate([(6, 9), (6, 9), (300, 280)]):
        with jax_with_float64():
            kernel = matrix(init((n, m), dtype))
        assert kernel.dtype == dtype
        np.testing.assert_allclose(kernel, 2 * sample(m, n, seed=5, name=str(call), dtype=dtype), rtol=0, atol=atol)


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_every_scheme_by_its_name(scheme: str) -> None:
    """Without a seed each call is new."""
    fresh = Initializer(scheme)
    fixed = scheme in ("lee", "lee direct", "identity", "idinit", "zero", "sinusoidal")
    assert np.array_equal(values(fresh((12, 6))), values(fresh((12, 6)))) == fixed
    assert values(fresh((0, 6))).shape == (0, 6)


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_every_scheme_is_saved_by_its_text(scheme: str) -> None:
    init = Initializer(scheme, 1.5, seed=3, groups=2)
    config, saved = init.get_config(), keras.initializers.serialize(init)
    assert saved["registered_name"] == "stiefel_init>Initializer"
    assert (config["gain"], config["seed"], config["groups"]) == (1.5, 3, 2)
    again = keras.initializers.get(saved)
    assert isinstance(again, Initializer)
    assert again.get_config() == init.clone().get_config() == config
    assert again.scheme == init.scheme
    np.testing.assert_array_equal(values(again((6, 8))), values(init((6, 8))))


def jax_with_float64() -> Any:
    if BACKEND != "jax":
        return nullcontext()
    import jax

    return jax.enable_x64(True)


def network(init: keras.initializers.Initializer, depth: int = 3) -> keras.Model:
    layers = [keras.layers.Dense(8, activation="relu", kernel_initializer=init) for _ in range(depth)]
    return keras.Sequential([keras.Input((8,)), *layers])


def test_without_a_seed_keras_global_seed_decides() -> None:
    init = Stiefel()
    drawn = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        drawn.append(values(init((8, 8))))
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert abs(drawn[1] - drawn[2]).max() > 0.01


@pytest.mark.parametrize("size", [1, 3, 4])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_does_to_each_pixel_what_its_matrix_does(rank: int, size: int) -> None:
    layer_class = [keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D][rank - 1]
    layer = layer_class(6, size, padding="same", kernel_initializer=Stiefel(seed=1))
    x = np.random.default_rng(0).standard_normal((2, *(5,) * rank, 4), np.float32)
    per_pixel(layer, x, sample(6, 4, seed=1, name="0"))


def test_a_transposed_convolution_has_a_member_too() -> None:
    layer = keras.layers.Conv2DTranspose(6, 3, padding="same", kernel_initializer=Stiefel(seed=1))
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 4), np.float32)
    per_pixel(layer, x, sample(4, 6, seed=1, name="0").T)  # its kernel is (…, outputs, inputs), and Õ(4,6)ᵀ = Õ(6,4)


def test_a_depthwise_convolution_passes_every_channel() -> None:
    x = np.random.default_rng(0).standard_normal((2, 5, 5, 4), np.float32)
    init = Stiefel(groups="depthwise")
    one = keras.layers.DepthwiseConv2D(3, padding="same", depthwise_initializer=init)
    three = keras.layers.DepthwiseConv2D(3, padding="same", depth_multiplier=3, depthwise_initializer=init)
    np.testing.assert_allclose(values(one(x)), x, atol=1e-6)
    np.testing.assert_allclose(values(three(x)), x.repeat(3, -1) / math.sqrt(3), atol=1e-6)


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
def test_a_depthwise_kernel_has_a_matrix_for_each_channel(scheme: str) -> None:
    """(3, 6 channels, 2 outputs each): entry by entry with the fans of its window, or at its centre."""
    kernel = values(Initializer(scheme, seed=1, groups="depthwise")((3, 6, 2)))
    if schemes.get(scheme).entrywise:
        window = draw_(torch.empty(6, 2, 1, 3), scheme, seed=1, name="0", batch_dims=1)[:, :, 0]
        np.testing.assert_allclose(kernel, window.permute(2, 0, 1), rtol=1e-5, atol=1e-6)
    else:
        matrices = draw(scheme, 2, 1, batch=6, seed=1, name="0")
        np.testing.assert_allclose(kernel[1], matrices[..., 0], atol=1e-6)
        assert not kernel[[0, 2]].any()


@pytest.mark.parametrize(("layer_class", "gates"), [(keras.layers.LSTM, 4), (keras.layers.GRU, 3)])
def test_each_gate_of_a_recurrent_layer_has_its_own_matrix(layer_class: Any, gates: int) -> None:
    init = Stiefel(groups=gates)
    layer = layer_class(5, kernel_initializer=init, recurrent_initializer=init)
    layer.build((None, 7, 3))
    for kernel in (layer.cell.kernel, layer.cell.recurrent_kernel):
        gate = np.split(matrix(kernel), gates)
        assert all(check(W).ok for W in gate)
        assert abs(gate[0] - gate[1]).max() > 0.01


@pytest.mark.parametrize("policy", ["bfloat16", "float16", "mixed_bfloat16", "mixed_float16"])
def test_dtype_policies(policy: str) -> None:
    layer = keras.layers.Dense(6, kernel_initializer=Stiefel(), dtype=policy)
    layer.build((None, 9))
    assert layer.kernel.dtype == keras.DTypePolicy(policy).variable_dtype
    kernel = matrix(keras.ops.cast(layer.kernel, "float32"))
    assert check(kernel, tol=0.02 if policy == "bfloat16" else 2e-3).ok


def test_saved_and_loaded_models(tmp_path: Path) -> None:
    model = network(Stiefel(gain=1.5, seed=3))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for a, b in zip(model.layers, loaded.layers):
        np.testing.assert_array_equal(values(a.kernel), values(b.kernel))
        assert isinstance(b.kernel_initializer, Stiefel)
        assert b.kernel_initializer.get_config() == {"gain": 1.5, "seed": 3, "groups": 1}


@pytest.mark.parametrize(
    ("options", "arguments", "words"),
    [
        ({"scheme": "glorot"}, ((2, 3),), ["scheme='glorot'", "'stiefel'"]),
        ({"scheme": "orthogonal inf"}, ((2, 3),), ["gain=inf"]),
        ({"gain": math.inf}, ((2, 3),), ["gain=inf"]),
        ({"seed": -1}, ((2, 3),), ["seed=-1"]),
        ({"seed": 0.5}, ((2, 3),), ["seed=0.5"]),
        ({"groups": 0}, ((2, 3),), ["groups=0"]),
        ({"groups": "all"}, ((2, 3),), ["groups='all'"]),
        ({"groups": 2}, ((2, 3),), ["groups=2", "3 outputs"]),
        ({}, ((3,),), ["shape=(3,)", "two or more"]),
        ({}, ((3, -1),), ["shape[1]=-1"]),
        ({}, ((3, 2), "int32"), ["int32", "bfloat16"]),
    ],
)
def test_bad_input_is_told_in_one_sentence(options: dict, arguments: tuple, words: list[str]) -> None:
    kinds: tuple[Any, ...] = (Initializer,) if "scheme" in options else (Initializer, Stiefel)
    for kind in kinds:
        assert_refused(lambda: kind(**options)(*arguments), words)  # noqa: B023


# The constraint that keeps kernels in the set while any optimizer trains them.


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (1, 4), (4, 1), (3, 5), (5, 3), (2, 2, 3, 4)], ids=str)
def test_a_kernel_becomes_its_nearest_member(shape: tuple[int, ...]) -> None:
    kernel = np.random.default_rng(0).standard_normal(shape).astype("float32")
    found = values(Aligned()(kernel))
    assert found.shape == shape
    flat = kernel.reshape(-1, shape[-1]) if kernel.size else kernel
    np.testing.assert_allclose(found.reshape(flat.shape), project(torch.from_numpy(flat)).weight, atol=1e-5)


def test_a_model_trains_on_the_set_and_is_saved_with_it(tmp_path: Path) -> None:
    keras.utils.set_random_seed(0)
    layer = keras.layers.Dense(6, kernel_initializer=Stiefel(), kernel_constraint=Aligned(), activation="relu")
    model = keras.Sequential([keras.Input((8,)), layer, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")
    x = np.random.default_rng(0).standard_normal((64, 8)).astype("float32")
    before = np.array(values(layer.kernel))
    model.fit(x, x[:, :1], epochs=3, verbose=0)
    after = np.array(values(layer.kernel))
    assert abs(after - before).max() > 0.05
    assert check(after, tol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.layers[0].kernel_constraint, Aligned)


def test_a_bias_is_refused() -> None:
    assert_refused(lambda: Aligned()(np.ones(3)), ["(3,)", "two or more axes"])
