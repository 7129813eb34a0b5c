"""One seed, one answer: every scheme gives the same weights in NumPy, PyTorch, JAX and Keras; the docs' code runs."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import torch
from conftest import ALL_SCHEMES, DRAWN_SCHEMES
from torch import nn

from stiefel_init import draw, sample, schemes
from stiefel_init.core import stream as _stream
from stiefel_init.jax import initializer
from stiefel_init.keras import Initializer
from stiefel_init.torch import draw_, initialize_
from stiefel_init.torch.sampling.source import fill_

EVERY_SCHEME = sorted({*ALL_SCHEMES, *DRAWN_SCHEMES})
LIMIT = {"float32": 5e-6, "float64": 1e-12}
Draw = Callable[[str, int, int, tuple[int, ...], int, str, str], np.ndarray]  # scheme, m, n, batch, seed, name, dtype
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras and NumPy 2


def _numpy(scheme: str, m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
    return draw(scheme, m, n, batch=batch, seed=seed, name=name, dtype=dtype)


def _torch(scheme: str, m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
    keys = _stream.fold(_stream.key(seed, name), np.arange(math.prod(batch)).reshape(batch))
    return fill_(torch.empty(*batch, m, n, dtype=getattr(torch, dtype)), schemes.get(scheme), keys=keys).numpy()


def _torch_in_place(
    scheme: str, m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str
) -> np.ndarray:
    out = torch.empty(*batch, m, n, dtype=getattr(torch, dtype))
    return draw_(out, scheme, seed=seed, name=name, batch_dims=len(batch)).numpy()


def _jax(jit: bool) -> Draw:
    def drawn(scheme: str, m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
        init = initializer(scheme, batch_axis=tuple(range(len(batch))), seed=seed, name=name)
        with jax.enable_x64(dtype == "float64"):
            shape = (*batch, n, m)
            kernel = jax.jit(lambda: init(None, shape, dtype))() if jit else init(None, shape, dtype)
        return np.asarray(kernel).mT

    return drawn


def _keras(scheme: str, m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> np.ndarray:
    """A batch lies side by side in the outputs, as a convolution's groups do; the name is the call's number."""
    groups = math.prod(batch)
    init = Initializer(scheme, seed=seed, groups=groups)
    for _ in range(int(name)):
        init((1, groups))
    with jax.enable_x64(dtype == "float64"):
        kernel = keras.ops.convert_to_numpy(init((n, groups * m), dtype))
    return kernel.reshape(n, groups, m).transpose(1, 2, 0).reshape(*batch, m, n)


FRAMEWORKS: dict[str, Draw] = {
    "numpy": _numpy,
    "torch": _torch,
    "torch in place": _torch_in_place,
    "jax": _jax(False),
    "jax.jit": _jax(True),
    "keras": _keras,
}


def agree(drawn: dict[str, np.ndarray], shape: tuple[int, ...], dtype: str) -> None:
    """All are of the shape and dtype, and the same to rounding of their largest entry, or of 1 if that is less."""
    limit = LIMIT[dtype] * max(1.0, *(float(abs(one).max()) for one in drawn.values()))
    for one, other in combinations(drawn, 2):
        assert drawn[one].shape == drawn[other].shape == shape
        assert drawn[one].dtype == drawn[other].dtype == dtype
        assert abs(drawn[one] - drawn[other]).max() <= limit, (one, other)


@pytest.mark.parametrize(
    ("m", "n", "batch", "seed", "name", "dtype"),
    [
        *((1, 1, (), 0, "0", dtype) for dtype in LIMIT),
        *((1, 5, (), 0, "0", dtype) for dtype in LIMIT),
        *((5, 1, (3,), 1, "1", dtype) for dtype in LIMIT),
        *((2, 2, (100,), 2, "0", dtype) for dtype in LIMIT),
        *((7, 4, (2, 3), 3, "2", dtype) for dtype in LIMIT),
        (64, 784, (), 10**30, "0", "float32"),
        (300, 280, (), 4, "1", "float64"),  # of two blocks, in either precision
        (513, 300, (2,), 5, "0", "float32"),
    ],
)
def test_any_two_frameworks_agree(m: int, n: int, batch: tuple[int, ...], seed: int, name: str, dtype: str) -> None:
    drawn = {framework: one("stiefel", m, n, batch, seed, name, dtype) for framework, one in FRAMEWORKS.items()}
    agree(drawn, (*batch, m, n), dtype)


SHAPES = [(1, 1), (1, 5), (5, 1), (3, 12), (12, 3), (3, 5), (64, 784)]
GRID = [
    pytest.param(scheme, shape, "float32", marks=() if shape == (12, 3) or scheme == "stiefel" else pytest.mark.slow)
    for scheme in EVERY_SCHEME
    for shape in SHAPES
]


@pytest.mark.parametrize(
    ("scheme", "shape", "dtype"), [*GRID, *((scheme, (12, 3), "float64") for scheme in EVERY_SCHEME)], ids=str
)
def test_every_scheme_is_the_same_in_every_framework(scheme: str, shape: tuple[int, int], dtype: str) -> None:
    names = [name for name in FRAMEWORKS if name != "jax.jit"]
    agree({name: FRAMEWORKS[name](scheme, *shape, (2,), 3, "1", dtype) for name in names}, (2, *shape), dtype)


@pytest.mark.parametrize("scheme", EVERY_SCHEME)
def test_every_scheme_is_the_same_in_half_precision_to_its_rounding(scheme: str) -> None:
    exact = draw(scheme, 12, 6, seed=4, name="0")
    halves: dict[str, Any] = {
        "torch": draw_(torch.empty(12, 6, dtype=torch.bfloat16), scheme, seed=4, name="0").float(),
        "jax": initializer(scheme, seed=4, name="0")(None, (6, 12), "bfloat16").astype("float32").T,
        "keras": keras.ops.convert_to_numpy(
            keras.ops.cast(Initializer(scheme, seed=4)((6, 12), "bfloat16"), "float32")
        ).T,
    }
    for name, half in halves.items():
        np.testing.assert_allclose(np.asarray(half), exact, rtol=2**-8, atol=5e-6, err_msg=name)


# inputs, outputs, groups, window
Kernel = tuple[int, int, int, tuple[int, ...]]
KERNELS: list[Kernel] = [(8, 4, 1, (3, 4)), (4, 12, 2, (3, 2)), (6, 6, 6, (3,))]
MARKED_KERNELS = [KERNELS[1], *(pytest.param(kernel, marks=pytest.mark.slow) for kernel in KERNELS[::2])]


def torch_kernel(scheme: str, inputs: int, outputs: int, groups: int, window: tuple[int, ...]) -> np.ndarray:
    """The kernel of `initialize_`, (outputs, inputs / groups, *window), whose name is "weight"."""
    kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(window) - 1]
    layer = kind(inputs, outputs, window, groups=groups, stride=1, padding=1)
    initialize_(layer, scheme, seed=7)
    return layer.weight.detach().numpy()


def jax_kernel(name: str, scheme: str, inputs: int, outputs: int, groups: int, window: tuple[int, ...]) -> np.ndarray:
    """The same with JAX, from its kernel (*window, inputs / groups, groups, outputs / groups)."""
    init = initializer(scheme, in_axis=-3, batch_axis=-2, seed=7, name=name)
    kernel = np.asarray(init(None, (*window, inputs // groups, groups, outputs // groups)))
    return np.moveaxis(kernel.reshape(*window, inputs // groups, outputs), (-1, -2), (0, 1))


def keras_kernel(scheme: str, inputs: int, outputs: int, groups: int, window: tuple[int, ...]) -> np.ndarray:
    """The same with Keras, from its kernel (*window, inputs / groups, outputs), whose name is "0"."""
    kernel = Initializer(scheme, seed=7, groups=groups)((*window, inputs // groups, outputs))
    return np.moveaxis(keras.ops.convert_to_numpy(kernel), (-1, -2), (0, 1))


@pytest.mark.parametrize("scheme", ALL_SCHEMES)
@pytest.mark.parametrize("kernel", MARKED_KERNELS, ids=str)
def test_every_scheme_fills_convolution_kernels_alike(scheme: str, kernel: Kernel) -> None:
    same_kernels(scheme, kernel)


def same_kernels(scheme: str, kernel: Kernel) -> None:
    """PyTorch, JAX and Keras give the same kernel, PyTorch in both its ways where it is all of it drawn."""
    inputs, outputs, groups, window = kernel
    shape = (outputs, inputs // groups, *window)
    ours = torch_kernel(scheme, *kernel)
    agree({"torch": ours, "jax": jax_kernel("weight", scheme, *kernel)}, shape, "float32")
    agree({"keras": keras_kernel(scheme, *kernel), "jax": jax_kernel("0", scheme, *kernel)}, shape, "float32")
    if schemes.get(scheme).entrywise or math.prod(window) == 1:
        stacked = torch.empty(groups, outputs // groups, *shape[1:])
        draw_(stacked, scheme, seed=7, name="weight", batch_dims=1)
        agree({"torch": ours, "draw_": stacked.numpy().reshape(shape)}, shape, "float32")


@pytest.mark.slow
def test_the_number_of_threads_does_not_matter(tmp_path: Path) -> None:
    """Three threads there, and here as many as there are; one in `make test`."""
    code = """if True:
        import sys
        import numpy as np, torch
        from test_frameworks import FRAMEWORKS
        torch.set_num_threads(3)
        np.savez(sys.argv[1], **{k: one("stiefel", 700, 600, (), 8, "0", "float32") for k, one in FRAMEWORKS.items()})
    """
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "3")
    run(["-c", code, str(tmp_path / "drawn.npz")], {**variables, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=true"})
    expected = sample(700, 600, seed=8, name="0", dtype=np.float32)
    drawn = np.load(tmp_path / "drawn.npz")
    assert set(drawn) == set(FRAMEWORKS)
    for name, one in FRAMEWORKS.items():
        here = one("stiefel", 700, 600, (), 8, "0", "float32")
        assert abs(drawn[name] - expected).max() <= LIMIT["float32"], name
        assert abs(here - expected).max() <= LIMIT["float32"], name


def run(arguments: list[str], variables: dict[str, str]) -> None:
    """Python, in a process of its own, with these environment variables and the modules that are found here."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | variables
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


DOCS = Path(__file__).parents[1] / "docs"
BLOCKS = [
    block
    for page in ("frameworks.md", "single-weights.md")
    for block in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
]
KERAS = [block for block in BLOCKS if "keras" in block]


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning", "ignore:.*does not have many workers", "ignore:.*litlogger"
)
@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in KERAS])
def test_a_snippet_of_the_docs_runs(block: str) -> None:
    ends(executed(block))


def executed(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, str(DOCS), "exec"), names)
    return names


def ends(names: dict[str, Any]) -> None:
    """Of a recipe with a plan the last matrix is the head, and the first the stem unless embeddings read the input."""
    if plan := names.get("plan", getattr(names.get("module"), "plan", None)):
        drawn = [row for row in plan if row.action not in ("zeros", "ones", "left alone")]
        assert [row for row in plan if row.reason.startswith("head")] == drawn[-1:], plan
        assert [row for row in plan if row.reason.startswith("stem")] in (drawn[:1], []), plan
        assert drawn[0].reason.startswith("stem") or any("embedding" in row.reason for row in plan), plan


@pytest.mark.parametrize("backend", [pytest.param("jax", marks=pytest.mark.slow), "torch"])
def test_the_keras_snippets_of_the_docs_run(backend: str) -> None:
    assert KERAS
    code = "\n".join(KERAS)
    if backend == keras.backend.backend():
        ends(executed(code))
    else:
        run(["-c", code], {"KERAS_BACKEND": backend})


def test_the_docs_have_a_snippet_for_every_framework() -> None:
    text = "".join(BLOCKS)
    for module in ("stiefel_init.torch", "stiefel_init.jax", "stiefel_init.keras", "stiefel_init.sklearn"):
        assert f"from {module} import" in text
    names = (
        "stiefel_init.sample",
        "flax.linen",
        "flax import nnx",
        "equinox",
        "lightning",
        "from_config",
        "param_groups",
    )
    assert all(name in text for name in names)
    assert all(block.index("KERAS_BACKEND") < block.index("import keras") for block in KERAS if "import keras" in block)
