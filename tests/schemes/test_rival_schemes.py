"""Rivals: each scheme has the property that defines it, on whole networks of PyTorch and by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import FALSE_ALARM, assert_refused, assert_refused_unchanged
from scipy import stats
from torch import Tensor, nn

from stiefel_init import draw, schemes
from stiefel_init.schemes import Position
from stiefel_init.theory import activation_moments
from stiefel_init.torch import TailoredReLU, initialize_

DEPTH, WIDTH = 12, 16


def plain(
    activation: Callable[[], nn.Module], depth: int = DEPTH, inputs: int = WIDTH, outputs: int = WIDTH
) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(inputs, WIDTH), activation()]
        inputs = WIDTH
    return nn.Sequential(*layers, nn.Linear(inputs, outputs)).double()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.outer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(x)))


def residual(blocks: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, WIDTH), *(Block() for _ in range(blocks)), nn.Linear(WIDTH, 3)).double()


def batch(inputs: int = WIDTH, rows: int = 64) -> Tensor:
    return torch.randn(rows, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_looks_linear_networks_are_linear() -> None:
    model = plain(nn.ReLU, inputs=WIDTH // 2, outputs=WIDTH // 2)
    initialize_(model, "looks-linear", seed=0)
    x, y = batch(WIDTH // 2), batch(WIDTH // 2).flip(0)
    torch.testing.assert_close(model(x + 2 * y), model(x) + 2 * model(y))
    torch.testing.assert_close(model(-x), -model(x))
    jacobian = torch.autograd.functional.jacobian(model, x[0])
    torch.testing.assert_close(torch.linalg.svdvals(jacobian), torch.ones(WIDTH // 2).double())


def test_an_odd_unit_of_a_looks_linear_layer_has_no_weights() -> None:
    odd = draw("looks-linear", 5, 7, seed=0)
    assert not odd[-1].any()
    assert not odd[:, -1].any()
    np.testing.assert_array_equal(odd[:2], -odd[2:4])


def test_tat_keeps_the_mean_square_and_the_angle_it_is_made_for() -> None:
    """50 layers, 256 wide: orthogonal inputs end at a correlation of 0.9, up to what finite width leaves."""
    mean, std = activation_moments(0.0, 1.0, "tat", depth=50)
    assert math.isclose(mean**2 + std**2, 1, rel_tol=1e-9)
    width, depth = 256, 50
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), TailoredReLU(depth))]
    model = nn.Sequential(*layers).double()
    x = 7 * torch.linalg.qr(batch(width, width))[0][:32] * math.sqrt(width)
    initialize_(model, "tat", inputs=x, seed=0)
    out = model(x).detach()
    directions = nn.functional.normalize(out)
    apart = (directions @ directions.T)[~torch.eye(32, dtype=torch.bool)]
    assert abs(float(apart.mean()) - 0.9) < 0.03


def test_lsuv_gives_every_layer_unit_deviation_on_the_batch() -> None:
    model, x = plain(nn.ReLU), 5 * batch() + 1
    initialize_(model, "lsuv", inputs=x, seed=0)
    for layer in model:
        x = layer(x)
        if isinstance(layer, nn.Linear):
            assert math.isclose(float(x.detach().std(correction=0)), 1, rel_tol=1e-9)
            w = layer.weight.detach()
            gram = w @ w.T
            torch.testing.assert_close(gram, gram[0, 0] * torch.eye(WIDTH).double(), rtol=1e-9, atol=1e-9)


def test_lsuv_leaves_a_model_alone_that_does_not_run_on_the_batch() -> None:
    model = plain(nn.ReLU)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert_refused(lambda: initialize_(model, "lsuv", inputs=batch(3)), ["does not run"])
    assert_refused(lambda: initialize_(model, "lsuv", inputs=torch.ones(1, WIDTH).double() * 0), ["deviation 0"])
    assert_refused(lambda: initialize_(model, "lsuv"), ["inputs="])
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))


def test_torch_is_what_torch_does() -> None:
    """Weights and biases of nn.Linear and of ours have one law; false alarm 1e-6 each."""
    torch.manual_seed(0)
    theirs, ours = nn.Linear(50, 4000), nn.Linear(50, 4000)
    initialize_(ours, "torch", seed=0)
    for a, b in zip(theirs.parameters(), ours.parameters()):
        assert stats.ks_2samp(a.detach().ravel(), b.detach().ravel()).pvalue > FALSE_ALARM
        assert float(b.detach().abs().max()) <= 1 / math.sqrt(50)


def test_truncated_normal_has_its_law() -> None:
    drawn = draw("truncated-normal 0.5", 200, 300, seed=0)
    assert np.abs(drawn).max() <= 1
    assert stats.kstest(drawn.ravel(), stats.truncnorm(-2, 2, scale=0.5).cdf).pvalue > FALSE_ALARM
    variance = schemes.get("truncated-normal 0.5").distribution(200, 300).variance
    assert math.isclose(float(stats.truncnorm(-2, 2, scale=0.5).var()), variance, rel_tol=1e-9)


def test_gpt2_divides_the_ends_of_branches_by_the_root_of_their_number() -> None:
    model = residual(16)
    model.append(nn.Identity())
    initialize_(model, "gpt-2", seed=0)
    block = model[1]
    assert isinstance(block, Block)
    ratio = float(block.inner.weight.detach().std() / block.outer.weight.detach().std())
    assert 3 < ratio < 5.3  # 4, of 256 entries each: five standard errors
    table = nn.Embedding(500, 40)
    initialize_(nn.Sequential(table, nn.Linear(40, 4)), "gpt-2", seed=0)
    assert abs(float(table.weight.detach().std()) / 0.02 - 1) < 0.025


def test_mup_makes_the_output_smaller_by_the_root_of_the_width() -> None:
    model = plain(nn.ReLU, depth=2, outputs=400)
    initialize_(model, "mup", seed=0)
    assert abs(float(model.get_parameter("4.weight").detach().std()) * WIDTH - 1) < 0.05
    assert abs(float(model.get_parameter("2.weight").detach().std()) * math.sqrt(WIDTH) - 1) < 0.25


@pytest.mark.parametrize(("m", "n"), [(1, 1), (3, 3), (3, 5), (5, 3), (8, 4), (64, 48), (65, 64)])
def test_zero_is_the_identity_or_a_hadamard_corner_and_idinit_repeats_the_identity(m: int, n: int) -> None:
    w, p = draw("idinit", m, n), min(m, n)
    assert all(w[i, j] == (i % p == j % p) for i in range(m) for j in range(n))
    w = draw("zero", m, n, dtype=np.float64)
    if m <= n:
        np.testing.assert_array_equal(w, np.eye(m, n))
        return
    assert len(np.unique(np.abs(w))) == 1
    if m & (m - 1) == 0:
        np.testing.assert_allclose(w.T @ w, np.eye(n), atol=1e-12)


@pytest.mark.parametrize(("m", "n"), [(8, 32), (5, 12), (10, 64), (12, 5), (6, 6)])
def test_sinusoidal_rows_are_waves_of_their_own(m: int, n: int) -> None:
    w = draw("sinusoidal", m, n, dtype=np.float64)
    assert float(np.mean(w**2)) == pytest.approx(2 / (m + n))
    spectrum = np.abs(np.fft.fft(w, axis=1)) > 1e-9
    for row, frequencies in enumerate(spectrum, start=1):  # unit i has frequency i, and nothing else
        assert set(np.flatnonzero(frequencies)) <= {row % n, -row % n}
    if 2 * m < n:  # no frequency occurs twice: orthogonal rows of one length
        np.testing.assert_allclose(w @ w.T, np.eye(m) * 2 * n / (m + n), atol=1e-12)
    phases = np.angle(np.fft.fft(w, axis=1)[np.arange(m), np.arange(1, m + 1) % n])
    if 2 * m < n:  # sin 2π(ij/n + i/m) at j = 1, 2, … has the phase 2π i(1/n + 1/m) - π/2
        i = np.arange(1, m + 1)
        np.testing.assert_allclose(np.exp(1j * phases), np.exp(2j * np.pi * i * (1 / n + 1 / m) - 0.5j * np.pi))


def test_sinusoidal_waves_that_vanish_are_zero() -> None:
    assert not draw("sinusoidal", 1, 1).any()
    assert not draw("sinusoidal", 2, 2).any()
    assert not draw("sinusoidal", 64, 64, dtype=np.float64)[[31, 63]].any()


def test_tanh_init_is_the_identity_and_a_little_noise() -> None:
    noise = draw("tanh-init", 200, 200, seed=0) - np.eye(200)
    assert stats.kstest(noise.ravel() * math.sqrt(200) / 0.085, "norm").pvalue > FALSE_ALARM
    tall = draw("tanh-init 0", 5, 2, seed=0)
    np.testing.assert_array_equal(tall, [[1, 0], [0, 1], [1, 0], [0, 1], [1, 0]])


def test_delta_orthogonal_convolutions_keep_the_norm_of_an_image() -> None:
    model = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(4))).double()
    initialize_(model, "delta-orthogonal", seed=0)
    image = batch(8 * 36, 3).reshape(3, 8, 6, 6)
    torch.testing.assert_close(model(image).norm(), image.norm())
    assert_refused(lambda: initialize_(model, "delta-orthogonal", conv="flatten"), ["centre", "conv='flatten'"])


def test_fixup_branches_are_zero_at_the_end_and_scaled_inside() -> None:
    model = residual(16)
    initialize_(model, "fixup", seed=0)
    x = batch(5)
    stem = model[0](x)
    torch.testing.assert_close(model[:-1](x), stem)
    assert not model(x).any()
    inner = torch.cat([block.inner.weight.detach() for block in model if isinstance(block, Block)])
    assert abs(float(inner.std()) / math.sqrt(2 / WIDTH) - 16**-0.5) < 0.02
    assert str(schemes.get("fixup").at(Position(branches=16, branch=3))) == "he-scaled 0.5"


@pytest.mark.parametrize(
    ("scheme", "build", "words"),
    [
        ("looks-linear", lambda: plain(nn.GELU), ["relu", "gelu"]),
        ("tanh-init", lambda: plain(nn.ReLU), ["tanh", "relu"]),
        ("tat", lambda: plain(nn.LeakyReLU), ["TailoredReLU"]),
        ("fixup", lambda: plain(nn.ReLU), ["residual"]),
        ("looks-linear", lambda: nn.ModuleList([nn.Linear(2, 2)]), ["inputs="]),
    ],
)
def test_schemes_are_refused_where_they_do_not_belong(
    scheme: str, build: Callable[[], nn.Module], words: list[str]
) -> None:
    assert_refused_unchanged(build(), scheme, words)


@pytest.mark.parametrize("scheme", ["lsuv", "fixup", "skip-init"])
def test_starts_of_whole_models_draw_no_single_matrix(scheme: str) -> None:
    assert_refused(lambda: draw(scheme, 3, 3), [scheme, "initialize_"])
