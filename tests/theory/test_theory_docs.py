"""What docs/theory.md says: its tables are its record's, its code runs, its pictures are drawn, the slips are slips."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from conftest import PAPER_SCHEMES
from scipy import stats
from scipy.special import ndtr

import stiefel_init.torch
from stiefel_init import sample
from stiefel_init.theory import finite_width, propagate, rectified_moments

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text()
NUMBERS = json.loads((ROOT / "docs" / "theory_numbers.json").read_text())
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_made_from_the_record() -> None:
    module = example("signal_and_gradient")
    assert module.with_tables(PAGE, NUMBERS) == PAGE
    assert all(table(NUMBERS) in PAGE for table in module.TABLES.values())


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_code_runs(block: str) -> None:
    exec(compile(block, "docs/theory.md", "exec"), {})


def test_the_predictions_in_the_record_are_those_of_today() -> None:
    for found in NUMBERS["data"].values():
        for scheme in PAPER_SCHEMES:
            p = propagate([784] + [64] * 100, mean=found["mean"], std=found["std"], scheme=scheme)
            at = np.array(NUMBERS["layers"]) - 1
            recorded = found["schemes"][scheme]["pooled"]
            np.testing.assert_allclose(recorded["mean"], p.post_mean[at], rtol=1e-3)
            np.testing.assert_allclose(recorded["std"], p.post_std[at], rtol=1e-3)
            np.testing.assert_allclose(recorded["active"], p.active[at], rtol=1e-3)


def test_the_page_is_right_about_images() -> None:
    """What its text says of its tables."""
    excess = []
    for found in NUMBERS["data"].values():
        stiefel = found["schemes"]["stiefel"]
        for quantity in ("mean", "std", "active", "gradient"):
            np.testing.assert_allclose(stiefel["measured"][quantity], stiefel["own"][quantity], rtol=0.02)
        excess.append(100 * (stiefel["measured"]["std"][-1] / stiefel["pooled"]["std"][-1] - 1))
        assert min(found["schemes"]["lee"]["measured"]["active"]) > 0.999
        for scheme in ("he", "xavier", "orthogonal", "random"):
            columns = found["schemes"][scheme]
            np.testing.assert_allclose(columns["measured"]["std"][0], columns["pooled"]["std"][0], rtol=0.06)
            np.testing.assert_allclose(columns["pooled"]["std"], columns["own"]["std"], rtol=0.03)
    text = " ".join(PAGE.split())
    assert f"{excess[0]:.0f} % (MNIST) and {excess[1]:.0f} % (Fashion-MNIST) above" in text


def test_the_page_is_right_about_typical_networks() -> None:
    text = " ".join(PAGE.split())
    for scheme, words in (
        ("he", "e^{{-D}} is {:.2f}, {:.2f} and {:.2f} at"),
        ("orthogonal", ": {:.2f}, {:.2f} and {:.2f})"),
    ):
        p = propagate([784] + [64] * 100, mean=0.1, std=0.3, scheme=scheme)
        shift = finite_width(p).log_shift[[9, 49, 99]]
        assert words.format(*np.exp(shift)) in text
        for found in NUMBERS["data"].values():  # 20 networks: the log of the scale to √(D/20), at 4 of them
            columns = found["schemes"][scheme]
            log = np.log(np.divide(columns["measured"]["std"], columns["own"]["std"])[1:])
            assert (np.abs(log - shift) < 4 * np.sqrt(-shift / NUMBERS["networks"]) + 0.1).all()
    assert f"at α = -3.5 and N = 64 that is {100 * ndtr(3.5) ** 64:.1f} %" in text


def test_the_finite_width_term_covers_what_was_measured() -> None:
    for row in NUMBERS["isotropic"]:
        for quantity in ("mean", "std", "active"):
            assert abs(row[quantity]) <= row[f"{quantity}_term"] + 3 * row[f"{quantity}_error"], (row, quantity)


def test_figure_2_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "figure2.png"
    monkeypatch.setattr(sys, "argv", ["figure2.py", "--samples", "50000", str(path)])
    example("figure2").main()
    assert path.read_bytes().startswith(b"\x89PNG")
    distances = [float(d) for d in re.findall(r"Gaussian (\d\.\d+)", capsys.readouterr().out)]
    assert len(distances) == 3
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.015


@pytest.mark.parametrize("chosen", [["--dataset", "digits"], []])
def test_signal_and_gradient_are_drawn_of_digits_where_there_is_no_mnist(
    chosen: list[str], tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "picture.png"
    monkeypatch.delenv("STIEFEL_INIT_DATA", raising=False)
    options = [*chosen, "--networks", "2", "--images", "40", "--output", str(path)]
    monkeypatch.setattr(sys, "argv", ["signal_and_gradient.py", *options])
    example("signal_and_gradient").main()
    assert path.read_bytes().startswith(b"\x89PNG")
    output = capsys.readouterr().out
    assert output.startswith("MNIST was not found") == (not chosen)
    assert "digits: pixels have mean" in output
    assert all(scheme in output for scheme in PAPER_SCHEMES)


def test_images_that_are_not_there_are_named(tmp_path: Path) -> None:
    module = example("signal_and_gradient")
    with pytest.raises(SystemExit, match="needs --data"):
        module.load("mnist", None, 10)
    with pytest.raises(SystemExit, match="There is no"):
        module.load("mnist", tmp_path, 10)


# Slips of the paper, as docs/errata.md lists them.


def test_slip_the_rectified_laws_parameters_are_not_its_moments() -> None:
    """Proposition 4 calls the mean and variance of x^(ℓ) the parameters of its law; those are y^(ℓ)'s."""
    p = propagate([64] * 4, mean=0.3, std=1.0)
    assert p.post_mean[0] == pytest.approx(0.5668, abs=1e-4)
    assert p.pre_mean[0] == pytest.approx(0.3)
    again = rectified_moments(p.post_mean[0], p.post_std[0])  # taken at its word, x^(1) would have these moments
    assert abs(again[0] - p.post_mean[0]) > 0.05


def test_slip_alpha_and_the_active_fraction_are_those_of_the_pre_activations() -> None:
    """α_ℓ = √(N_{ℓ-1}/N_ℓ)·α_{ℓ-1} would keep α at 0.3 in square layers; it grows: μ, σ on the right are those of x.

    P(x^(1) > 0) is Φ of y^(1)'s mean/std, 0.62 here; with x^(1)'s own, as the text defines μ_ℓ and σ_ℓ, 0.80.
    """
    p = propagate([64] * 3, mean=0.3, std=1.0)
    assert p.alpha[1] == pytest.approx(p.post_mean[0] / p.post_std[0])
    assert p.alpha[1] > 2.5 * p.alpha[0]
    assert p.active[0] == pytest.approx(0.618, abs=1e-3)
    assert ndtr(p.post_mean[0] / p.post_std[0]) == pytest.approx(0.797, abs=1e-3)


def test_slip_he_divides_by_the_inputs() -> None:
    """The text has W_ij ~ N(0, 2/m) for W with m rows; with m = 64 outputs and n = 784 inputs that is 12 times 2/n."""
    W = stiefel_init.torch.he_(torch.empty(64, 784, dtype=torch.float64), generator=torch.Generator().manual_seed(0))
    assert float(W.var()) == pytest.approx(2 / 784, rel=0.05)


def test_slip_the_variance_ratio_needs_square_layers() -> None:
    def printed(a: float) -> float:
        phi = stats.norm.pdf(a)
        return (1 + a * a) * ndtr(a) + a * phi - (phi + a * ndtr(a)) ** 2

    assert propagate([64, 64], mean=0.3, std=1.0).variance_ratio[0] == pytest.approx(printed(0.3))
    narrowing = propagate([784, 64], mean=0.3, std=1.0).variance_ratio[0]
    assert abs(narrowing - printed(0.3)) > 0.25
    assert narrowing == pytest.approx(printed(0.3 * 3.5))


def test_slip_an_entry_of_a_member_can_be_one() -> None:
    """Theorem 5's proof has max |W_ij| < 1; Õ(2,2) holds the identity and the swap, nothing else."""
    assert np.abs(sample(2, 2, batch=50, seed=0)).max((1, 2)) == pytest.approx(np.ones(50))


def test_slip_theorem_4s_first_step_is_an_inequality() -> None:
    """max |W| ≥ t + 1/√(mn) and max |LQ| ≥ t are different events; the first implies the second."""
    W = sample(3, 20, batch=4000, seed=0)
    t = 0.66
    first = np.abs(W).max((1, 2)) >= t + 1 / math.sqrt(60)
    second = np.abs(W - 1 / math.sqrt(60)).max((1, 2)) >= t
    assert not (first & ~second).any()
    assert second.sum() > 1.3 * first.sum() > 0


def test_slip_the_gradient_recursion_is_that_of_the_activations() -> None:
    """δ^(ℓ) = W^(ℓ+1)ᵀ D^(ℓ+1) δ^(ℓ+1) holds for ∂L/∂x, not, as the text says, for ∂L/∂y."""
    generator = torch.Generator().manual_seed(0)
    w1, w2 = (stiefel_init.torch.sample(5, 5, dtype=torch.float64, generator=generator) for _ in range(2))
    y1 = w1 @ torch.randn(5, generator=generator, dtype=torch.float64)
    y1.requires_grad_()
    x1 = torch.relu(y1)
    y2 = w2 @ x1
    x2 = torch.relu(y2)
    by_y1, by_x1, by_y2, by_x2 = torch.autograd.grad(x2.square().sum(), (y1, x1, y2, x2))
    d1, d2 = ((v > 0).double() for v in (y1, y2))
    assert torch.allclose(by_x1, w2.T @ (d2 * by_x2))
    assert not torch.allclose(by_y1, w2.T @ (d2 * by_y2))
    assert torch.allclose(by_y1, d1 * (w2.T @ by_y2))
