"""Keras' constraint: kernels stay in the set while any optimizer trains them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import assert_refused

keras = pytest.importorskip("keras")

from stiefel_init import check  # noqa: E402
from stiefel_init.keras import Stiefel  # noqa: E402
from stiefel_init.keras.optim import Aligned  # noqa: E402
from stiefel_init.torch.optim import project  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras and NumPy 2


@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (1, 4), (4, 1), (3, 5), (5, 3), (2, 2, 3, 4)], ids=str)
def test_a_kernel_becomes_its_nearest_member(shape: tuple[int, ...]) -> None:
    kernel = np.random.default_rng(0).standard_normal(shape).astype("float32")
    found = keras.ops.convert_to_numpy(Aligned()(kernel))
    assert found.shape == shape
    matrix = kernel.reshape(-1, shape[-1]) if kernel.size else kernel
    np.testing.assert_allclose(found.reshape(matrix.shape), project(torch.from_numpy(matrix)).weight, atol=1e-5)


def test_a_model_trains_on_the_set_and_is_saved_with_it(tmp_path: object) -> None:
    keras.utils.set_random_seed(0)
    layer = keras.layers.Dense(6, kernel_initializer=Stiefel(), kernel_constraint=Aligned(), activation="relu")
    model = keras.Sequential([keras.Input((8,)), layer, keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.05), loss="mse")
    x = np.random.default_rng(0).standard_normal((64, 8)).astype("float32")
    before = np.array(keras.ops.convert_to_numpy(layer.kernel))
    model.fit(x, x[:, :1], epochs=3, verbose=0)
    after = np.array(keras.ops.convert_to_numpy(layer.kernel))
    assert abs(after - before).max() > 0.05
    assert check(after, tol=1e-5)
    model.save(f"{tmp_path}/model.keras")
    loaded = keras.models.load_model(f"{tmp_path}/model.keras")
    assert isinstance(loaded.layers[0].kernel_constraint, Aligned)


def test_a_bias_is_refused() -> None:
    assert_refused(lambda: Aligned()(np.ones(3)), ["(3,)", "two or more axes"])
