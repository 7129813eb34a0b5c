"""One seed, one answer: NumPy, PyTorch, JAX and Keras give the same matrix; and the docs' snippets run."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")  # read once, when Keras is first imported

import jax
import keras
import numpy as np
import pytest
import torch

from stiefel_init import _stream, sample
from stiefel_init.jax import stiefel
from stiefel_init.keras import Stiefel
from stiefel_init.torch import _sample, initialize_

LIMIT = {"float32": 5e-6, "float64": 1e-12}
Draw = Callable[[int, int, tuple[int, ...], int, str, str], np.ndarray]  # m, n, batch, seed, name, dtype
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras and NumPy 2


def _numpy(m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
    return sample(m, n, batch=batch, seed=seed, name=name, dtype=dtype)


def _torch(m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
    keys = _stream.fold(_stream.key(seed, name), np.arange(math.prod(batch)).reshape(batch))
    return _sample.fill_seeded_(torch.empty(*batch, m, n, dtype=getattr(torch, dtype)), keys).numpy()


def _jax(jit: bool) -> Draw:
    def draw(m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
        init = stiefel(batch_axis=tuple(range(len(batch))), seed=seed, name=name)
        with jax.enable_x64(dtype == "float64"):
            shape = (*batch, n, m)
            kernel = jax.jit(lambda: init(None, shape, dtype))() if jit else init(None, shape, dtype)
        return np.asarray(kernel).mT

    return draw


def _keras(m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
    """A batch lies side by side in the outputs, as a convolution's groups do; the name is the call's number."""
    groups = math.prod(batch)
    init = Stiefel(seed=seed, groups=groups)
    for _ in range(int(name)):
        init((1, groups))
    with jax.enable_x64(dtype == "float64"):
        kernel = keras.ops.convert_to_numpy(init((n, groups * m), dtype))
    return kernel.reshape(n, groups, m).transpose(1, 2, 0).reshape(*batch, m, n)


FRAMEWORKS: dict[str, Draw] = {
    "numpy": _numpy,
    "torch": _torch,
    "jax": _jax(False),
    "jax.jit": _jax(True),
    "keras": _keras,
}


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize(
    ("m", "n", "batch", "seed", "name"),
    [
        (1, 1, (), 0, "0"),
        (1, 5, (), 0, "0"),
        (5, 1, (3,), 1, "1"),
        (2, 2, (100,), 2, "0"),
        (7, 4, (2, 3), 3, "2"),
        (64, 784, (), 10**30, "0"),
        (300, 280, (), 4, "1"),
        (513, 300, (2,), 5, "0"),
    ],
)
def test_any_two_frameworks_agree(m: int, n: int, batch: tuple, seed: int, name: str, dtype: str) -> None:
    drawn = {framework: draw(m, n, batch, seed, name, dtype) for framework, draw in FRAMEWORKS.items()}
    for one, other in combinations(drawn, 2):
        assert drawn[one].shape == drawn[other].shape == (*batch, m, n)
        assert drawn[one].dtype == drawn[other].dtype == dtype
        assert abs(drawn[one] - drawn[other]).max() <= LIMIT[dtype], (one, other)


@pytest.mark.parametrize("seeds", [((0, "a"), (1, "a")), ((0, "a"), (0, "b")), ((0, ""), (0, "0"))], ids=str)
def test_another_seed_or_name_is_another_matrix(seeds: tuple) -> None:
    for draw in (_numpy, _torch, _jax(False)):
        first, second = (draw(8, 8, (), *pair, "float32") for pair in seeds)
        assert abs(first - second).max() > 0.01


def test_a_torch_model_and_jax_kernels_of_the_same_names() -> None:
    layers = torch.nn.ModuleDict({"first": torch.nn.Linear(9, 6), "conv": torch.nn.Conv2d(4, 8, 3)})
    initialize_(layers, seed=6)
    first = stiefel(seed=6, name="first.weight", in_axis=1, out_axis=0)(None, (6, 9))
    conv = stiefel(seed=6, name="conv.weight", in_axis=1, out_axis=0)(None, (8, 4, 3, 3))
    np.testing.assert_allclose(layers["first"].weight.detach(), first, rtol=0, atol=5e-6)
    np.testing.assert_allclose(layers["conv"].weight.detach(), conv, rtol=0, atol=5e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_does_not_matter(threads: int, tmp_path: Path) -> None:
    code = """if True:
        import os, sys
        import numpy as np, torch
        from test_frameworks import FRAMEWORKS
        torch.set_num_threads(int(sys.argv[1]))
        np.savez(sys.argv[2], **{k: draw(700, 600, (), 8, "0", "float32") for k, draw in FRAMEWORKS.items()})
    """
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    eigen = f"--xla_cpu_multi_thread_eigen={'false' if threads == 1 else 'true'}"
    run(["-c", code, str(threads), str(tmp_path / "drawn.npz")], {**variables, "XLA_FLAGS": eigen})
    expected = sample(700, 600, seed=8, name="0", dtype=np.float32)
    drawn = np.load(tmp_path / "drawn.npz")
    assert set(drawn) == set(FRAMEWORKS)
    for name in drawn:
        assert abs(drawn[name] - expected).max() <= LIMIT["float32"], name


def run(arguments: list[str], variables: dict[str, str]) -> None:
    """Python, in a process of its own, with these environment variables and the modules that are found here."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | variables
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


DOCS = Path(__file__).parents[1] / "docs" / "frameworks.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
KERAS = [block for block in BLOCKS if "keras" in block]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in KERAS])
def test_a_snippet_of_the_docs_runs(block: str) -> None:
    exec(compile(block, str(DOCS), "exec"), {})


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_keras_snippets_of_the_docs_run(backend: str) -> None:
    assert KERAS
    run(["-c", "\n".join(KERAS)], {"KERAS_BACKEND": backend})


def test_the_docs_have_a_snippet_for_every_framework() -> None:
    text = "".join(BLOCKS)
    for module in ("stiefel_init.torch", "stiefel_init.jax", "stiefel_init.keras", "stiefel_init.sklearn"):
        assert f"from {module} import" in text
    assert all(name in text for name in ("stiefel_init.sample", "flax.linen", "flax import nnx", "equinox"))
