"""What the tests share: shapes and names, a plain textbook sampler, all samplers, tests of their distribution."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Some virtual machines announce AMX tiles and end a program that uses them; oneDNN's bfloat16 products would.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ.setdefault("KERAS_BACKEND", "torch")  # read once, when Keras is first imported
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # tests run briefly what takes long to compile

import numpy as np
import pytest
import torch
from scipy import stats

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the GPU kernels run on this CPU, statement by statement

try:
    from triton.runtime import interpreter as _interpreter
except ImportError:
    _interpreter = None

import stiefel_init
import stiefel_init.schemes
import stiefel_init.torch
from stiefel_init import StiefelError
from stiefel_init.core import stream as _stream
from stiefel_init.core.validate import Method
from stiefel_init.schemes import Stiefel, get
from stiefel_init.torch.sampling import householder, source

sys.path += [str(Path(__file__).parent / folder) for folder in ("lab", "recipe")]
pytest_plugins = ("laboratory", "data_room")  # what the tests of the laboratory share


def pytest_collection() -> None:
    """Nothing that is imported or collected becomes garbage, so nobody need look for it."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Now the tests run; what is there by now stays."""
    gc.freeze()
    gc.enable()


# Triton's interpreter replaces all of its language whenever a kernel calls a function; once will do.
_known = all(hasattr(_interpreter, name) for name in ("_patch_lang", "_LangPatchScope", "tl"))
if _known and os.environ.get("TRITON_INTERPRET") == "1":
    _interpreter._patch_lang(SimpleNamespace(__globals__={"language": _interpreter.tl, "core": _interpreter.tl.core}))
    _interpreter._patch_lang = lambda function: _interpreter._LangPatchScope()

# Zero and one first: that is where formulas break.
SHAPES = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (7, 7), (6, 11), (11, 6), (64, 64)]
METHODS: tuple[Method, ...] = ("householder", "algorithm1", "algorithm2")
PAPER_SCHEMES = ("stiefel", "lee", "he", "xavier", "orthogonal", "random")  # those the paper compares
REGISTERED = tuple(stiefel_init.schemes.get(name) for name in stiefel_init.schemes.names())
DRAWN_SCHEMES = tuple(str(scheme) for scheme in REGISTERED if not isinstance(scheme, stiefel_init.schemes.Start))
ALL_SCHEMES = (  # those for every layer of every model
    *(text for text in DRAWN_SCHEMES if not (get(text).positional or get(text).activations)),
    "rotation 1",
    "lee direct",
    "orthogonal 2",
)
TORCH_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

FALSE_ALARM = 1e-6  # the probability with which a test of a distribution rejects the right one
COUNT = 4000  # matrices drawn for it

Sampler = Callable[[int, int, int, int], np.ndarray]  # (count, m, n, seed) -> (count, m, n)


def one_sentence(error: pytest.ExceptionInfo) -> str:
    """What an exception says, which must be one line that ends in a full stop."""
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def assert_refused(call: Callable[[], Any], words: Sequence[str]) -> None:
    """The call must fail with one sentence that has all these words in it."""
    with pytest.raises(StiefelError) as error:
        call()
    sentence = one_sentence(error)
    assert all(word in sentence for word in words), sentence


def assert_refused_unchanged(model: Any, scheme: str | None, words: Sequence[str], **options: Any) -> None:
    """`initialize_` refuses the scheme or an option, and the model is as before."""
    from stiefel_init.torch import initialize_

    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert_refused(lambda: initialize_(model, scheme, **options), words)
    assert all(bool((a == b).all()) for a, b in zip(before, model.parameters()))


def plain_member(x: np.ndarray, *, signs: bool = True, aligned: bool = True) -> np.ndarray:
    """A p × q member from the Gaussian vectors in the rows of `x`, by the textbook: one dense reflection at a time.

    With `aligned=False` it is a Haar semi-orthogonal matrix, which has no regard for the ones. With `signs=False` the
    sign correction is left out, which gives matrices that are not uniformly distributed.
    """
    p, q = x.shape
    frame = np.eye(q)
    correction = np.ones(p)
    for j in range(p):
        v = np.ones(q) if aligned and j == 0 else np.where(np.arange(q) < j, 0.0, x[j])
        correction[j] = np.copysign(1, v[j])
        v[j] += np.copysign(np.linalg.norm(v), v[j])
        frame = frame @ (np.eye(q) - 2 * np.outer(v, v) / (v @ v))
    left = -np.eye(p)
    if aligned:
        u = np.full(p, p**-0.5)
        u[0] += 1
        left = np.eye(p) - 2 * np.outer(u, u) / (u @ u)
    return left @ np.diag(correction if signs else np.ones(p)) @ frame[:, :p].T


def _directions(k: int) -> list[np.ndarray]:
    """Unit vectors orthogonal to the ones: the projected first axis, where a wrong sign shows, and a generic one."""
    vectors = [np.eye(k)[0], np.cos(np.arange(k) ** 2)]
    return [(v - v.mean()) / np.linalg.norm(v - v.mean()) for v in vectors]


def _least_pvalue(W: np.ndarray, left: Sequence[np.ndarray], right: Sequence[np.ndarray], dimension: int) -> float:
    """Of the tests that aᵀWb is symmetric and (aᵀWb)² is Beta(1/2, (dimension-1)/2), over all pairs of a and b."""
    worst = 1.0
    for a, b in itertools.product(left, right):
        t = np.einsum("i,kij,j->k", a, W, b)
        worst = min(worst, stats.binomtest(int((t > 0).sum()), len(t)).pvalue)
        if dimension > 1:
            worst = min(worst, stats.kstest(t**2, stats.beta(0.5, (dimension - 1) / 2).cdf).pvalue)
        else:
            np.testing.assert_allclose(t**2, 1, atol=1e-12)
    return worst


def beta_pvalue(W: np.ndarray) -> float:
    """(aᵀWb)² is Beta(1/2, (max(m,n)-2)/2), and aᵀWb is symmetric, for unit a ⟂ ξ_m, b ⟂ ξ_n: the least of 8 p-values.

    With W = ξ_mξ_nᵀ + M V Nᵀ, V is a Haar semi-orthogonal (m-1)×(n-1) matrix.
    """
    m, n = W.shape[-2:]
    return _least_pvalue(W, _directions(m), _directions(n), max(m, n) - 1)


def haar_pvalue(W: np.ndarray) -> float:
    """(aᵀWb)² is Beta(1/2, (max(m,n)-1)/2), and aᵀWb is symmetric, for all unit a, b: the least of 18 p-values.

    a and b are the first axes, where a wrong sign shows, the last ones, and the ones, which a member of Õ(m,n) keeps.
    """
    left, right = ((np.eye(k)[0], np.eye(k)[-1], np.full(k, k**-0.5)) for k in W.shape[-2:])
    return _least_pvalue(W, left, right, max(W.shape[-2:]))


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "first entry": lambda W: W[:, 0, 0],
    "last of the first column": lambda W: W[:, -1, 0],
    "largest": lambda W: W.max((1, 2)),
    "least": lambda W: W.min((1, 2)),
    "sum": lambda W: W.sum((1, 2)),
    "fourth powers": lambda W: (W**4).sum((1, 2)),
}


def assert_same_distribution(ours: np.ndarray, theirs: np.ndarray, *statistics: str) -> None:
    """Of these statistics of two samples of matrices, by Kolmogorov–Smirnov; FALSE_ALARM in all."""
    for name in statistics:
        pvalue = stats.ks_2samp(STATISTICS[name](ours), STATISTICS[name](theirs)).pvalue
        assert pvalue > FALSE_ALARM / len(statistics), name


def values(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """A copy of everything the model holds."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    """Whether two such copies are equal."""
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


class Picture(torch.nn.Module):
    """A vision transformer's parameters: layers, and its own tokens and scales."""

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = torch.nn.Parameter(torch.full((1, 1, 8), 0.3))
        self.patches = torch.nn.Conv2d(3, 8, 4, stride=4)
        self.block = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.gamma = torch.nn.Parameter(torch.full((8,), 1e-5))
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).mT
        tokens = torch.cat((self.cls_token.expand(len(x), -1, -1), tokens), 1)
        return self.head(self.gamma * self.block(tokens)[:, 0])


_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": torch.nn.LeakyReLU(),
    "prelu": torch.nn.PReLU(dtype=torch.float64),
    "elu": torch.nn.ELU(),
    "selu": torch.nn.SELU(),
}
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def quadrature(mean: float, std: float) -> tuple[torch.Tensor, np.ndarray]:
    """Points y and weights of N(mean, std²): 40 to a panel, panels that end at 0 and are short where e^y bends."""
    low, high = mean - 12 * std, mean + 12 * std
    edges = np.unique(np.concatenate((np.linspace(low, high, 61), np.arange(-40.0, 1.0))).clip(low, high))
    half = np.diff(edges)[:, None] / 2
    y = (edges[:-1, None] + half * (1 + _NODES)).ravel()
    return torch.from_numpy(y), (half * _WEIGHTS).ravel() * stats.norm(mean, std).pdf(y)


def value_and_slope(activation: str, y: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    """Of an activation, as PyTorch has them."""
    y = y.detach().requires_grad_()
    x = _TORCH[activation](y)
    (slope,) = torch.autograd.grad(x.sum(), y)
    return x.detach(), slope.numpy()


def _numbers(out: torch.Tensor, generator: torch.Generator) -> householder.Numbers:
    return source._Fresh(out, out.dtype, 1, generator)._numbers(slice(0, len(out)))


def _numpy(count: int, m: int, n: int, seed: int, **options: Any) -> np.ndarray:
    return stiefel_init.sample(m, n, batch=count, seed=np.random.default_rng(seed), **options)


def _torch(count: int, m: int, n: int, seed: int, **options: Any) -> np.ndarray:
    generator = torch.Generator().manual_seed(seed)
    return stiefel_init.torch.sample(m, n, batch=count, dtype=torch.float64, generator=generator, **options).numpy()


def _torch_path(count: int, m: int, n: int, seed: int, *, path: str) -> np.ndarray:
    """By LAPACK or by blocks, of one matrix or of a batch, whatever is fastest for such a shape."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.empty(count, min(m, n), max(m, n), dtype=torch.float64)
    for part in [out] if path == "batched-blocks" else out:
        if path == "lapack":
            householder._lapack(part, _numbers(out, generator), aligned=True)
        else:
            householder._compact_wy(part, 2, _numbers(out, generator), aligned=True)
    return (out if m <= n else out.mT).numpy()


def _torch_stream(count: int, m: int, n: int, seed: int) -> np.ndarray:
    keys = _stream.fold(_stream.key(seed, "torch"), np.arange(count))
    return source.fill_(torch.empty(count, m, n, dtype=torch.float64), Stiefel(), keys=keys).numpy()


# Every way to fill a tensor in place: the paper's schemes by functions of their own, and all by `draw_`.
FILLERS: dict[str, Callable[..., torch.Tensor]] = {
    **{f"{name}_": getattr(stiefel_init.torch, f"{name}_") for name in PAPER_SCHEMES},
    **{scheme: partial(stiefel_init.torch.draw_, scheme=scheme) for scheme in ALL_SCHEMES},
}

SAMPLERS: dict[str, Sampler] = {
    **{f"numpy-{method}": partial(_numpy, method=method) for method in METHODS},
    "numpy-stream": lambda count, m, n, seed: stiefel_init.sample(m, n, batch=count, seed=seed),
    "torch-stream": _torch_stream,
    **{f"torch-{method}": partial(_torch, method=method) for method in METHODS},
    **{f"torch-{path}": partial(_torch_path, path=path) for path in ("lapack", "blocks", "batched-blocks")},
}


@pytest.fixture(params=SAMPLERS, scope="session")
def sampler(request: pytest.FixtureRequest) -> Sampler:
    """Every way the product draws a member."""
    return SAMPLERS[request.param]
