"""What `diagnose` predicts of linear layers, for weights of every scheme, and which scheme it tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from diagnosed import IMAGES, LABELS, mlp
from torch import nn

from stiefel_init.core.sample import Member
from stiefel_init.recipe.layers import CONV_MODES, Conv
from stiefel_init.theory import propagate
from stiefel_init.torch import diagnose, initialize_


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU])
def test_the_prediction_for_members_is_that_of_propagate(activation: type[nn.Module]) -> None:
    found = diagnose(mlp(20, activation=activation, width=48), IMAGES, LABELS)
    name = found.layers[0].activation
    assert name is not None
    mean, std = IMAGES.double().mean(1).numpy(), IMAGES.double().std(1, correction=0).numpy()
    p = propagate([64] + [48] * 20, mean=mean, std=std, activation=name)
    for column in ("pre_mean", "pre_std", "alpha", "active", "post_mean", "post_std"):
        predicted = [getattr(row, f"predicted_{column}") for row in found.layers[:-1]]
        np.testing.assert_allclose(predicted, getattr(p, column), rtol=1e-5)
        measured = [getattr(row, column) for row in found.layers[:-1]]
        np.testing.assert_allclose(measured, predicted, rtol=0.1)
    last = found.layers[-1]
    assert (last.predicted_active, last.predicted_gradient) == (None, None)
    assert last.predicted_pre_std == pytest.approx(last.pre_std, rel=0.2)
    rows: Any = found.layers[:-1]
    np.testing.assert_allclose([row.gradient for row in rows], [row.predicted_gradient for row in rows], rtol=0.1)


def test_the_prediction_for_other_weights_goes_by_their_own_variance() -> None:
    model = mlp(10, "he")
    with torch.no_grad():
        for layer in model[::2]:
            layer.weight *= 0.9
    found = diagnose(model, IMAGES)
    p = propagate([64] * 11, mean=float(IMAGES.mean()), std=float(IMAGES.std()), scheme="he")
    predicted = np.array([row.predicted_post_std for row in found.layers[:-1]])
    # 64² weights tell their variance to √(2/64²) = 2 %, of which half falls on the std; ten of them add up.
    np.testing.assert_allclose(predicted, p.post_std * 0.9 ** np.arange(1, 11), rtol=0.1)
    assert {row.scheme for row in found.layers} == {"other"}


def test_biases_and_shifted_weights_are_in_the_prediction() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 200))
    with torch.no_grad():
        model[0].weight += 0.01
        model[0].bias += torch.randn(300) + 0.5
    x = torch.randn(256, 400) + 1
    first, second = diagnose(model, x).layers
    assert first.predicted_pre_mean == pytest.approx(first.pre_mean, abs=0.05 * first.pre_std)
    for row in (first, second):
        assert row.predicted_pre_std == pytest.approx(row.pre_std, rel=0.1)
    assert first.predicted_active == pytest.approx(first.active, abs=0.02)


def test_lees_weights_are_known_and_predicted_as_such() -> None:
    found = diagnose(mlp(6, "lee", width=32), 0.3 + torch.randn(256, 64), LABELS)
    assert {row.scheme for row in found.layers} == {"lee"}
    p = propagate([64] + [32] * 6, mean=0.3, std=1.0, scheme="lee")
    rows: Any = found.layers[:-1]
    np.testing.assert_allclose([row.predicted_active for row in rows], p.active, atol=0.02)
    np.testing.assert_allclose([row.predicted_gradient for row in rows], [row.gradient for row in rows], rtol=0.2)


@pytest.mark.parametrize(
    ("scheme", "known"), [("stiefel", "stiefel"), ("orthogonal", "orthogonal"), ("xavier", "other")]
)
@pytest.mark.parametrize("conv", CONV_MODES)
def test_the_scheme_is_told_by_the_weights(scheme: str, known: str, conv: Conv) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 6, 3), nn.Flatten(2), nn.LSTM(64, 12))
    initialize_(model, scheme, conv=conv, seed=0)
    attention = nn.MultiheadAttention(8, 2)
    initialize_(attention, scheme, seed=0)
    x = torch.randn(4, 8, 8)
    rows = [*diagnose(model, torch.randn(4, 3, 8, 8)).layers, *diagnose(attention, (x, x, x)).layers]
    assert [row.kind for row in rows] == ["Conv2d", "ConvTranspose2d", "LSTM", "MultiheadAttention"]
    assert [row.scheme for row in rows] == [known] * 4


@pytest.mark.parametrize("member", ["permutation", "identity"])
def test_members_that_clip_nothing_are_predicted_as_such(member: Member) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(20) for m in (nn.Linear(64, 64), nn.ReLU())), nn.Linear(64, 10))
    initialize_(model, member=member, seed=0)
    initialize_(model[0], seed=1)  # the first layer mixes, as a rectangular one would
    found = diagnose(model, torch.randn(256, 64) + 0.3, torch.arange(256) % 10)
    rows: Any = found.layers[:-1]
    for row in rows:
        assert row.predicted_active == pytest.approx(row.active, abs=0.02)
        assert row.predicted_pre_std == pytest.approx(row.pre_std, rel=0.03)
        assert row.predicted_gradient == pytest.approx(row.gradient, rel=0.1)
    assert rows[-1].predicted_active < 0.7  # where a uniform member would have woken the units up


def test_a_signal_that_does_not_vary_has_no_predicted_alpha() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    for parameter in model[0].parameters():
        nn.init.zeros_(parameter)
    first, second = diagnose(model, torch.randn(16, 8, generator=torch.Generator().manual_seed(0))).layers
    assert first.alpha is None
    assert first.predicted_alpha is None
    assert second.predicted_alpha == pytest.approx(second.alpha)
