"""The columns that need probes or an optimizer, against exact computations on small networks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from diagnosed import IMAGES, LABELS, mlp
from torch import Tensor, nn

from stiefel_init import StiefelError
from stiefel_init.torch import diagnose

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
Y = torch.arange(32) % 5


def small(activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(6, 12), activation(), nn.Linear(12, 9), activation(), nn.Linear(9, 5)
    )  # fmt: skip


def exact(model: nn.Sequential, at: int) -> tuple[float, float]:
    """Size and spread of the Jacobian from the output of the layer `at` on, by all its singular values."""
    below, above = model[: at + 1], model[at + 1 :]
    square = fourth = product = 0.0
    for row in below(X).detach():
        singular = torch.linalg.svdvals(torch.autograd.functional.jacobian(above, row)).double()
        number = len(singular)
        square += float(singular.square().sum()) / number / len(X)
        fourth += float(singular.pow(4).sum())
        product += float(singular.square().sum()) ** 2
    return square**0.5, number * fourth / product


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_the_jacobian_is_that_of_an_exact_computation(activation: type[nn.Module]) -> None:
    """600 probes of 32 inputs: the estimates' own deviations are below 1 % and 2 %; four of them are allowed."""
    model = small(activation)
    torch.manual_seed(0)
    rows = diagnose(model, X, probes=600).layers
    for row, at in zip(rows[:2], (0, 2)):
        size, spread = exact(model, at)
        assert row.jacobian == pytest.approx(size, rel=0.04)
        assert row.jacobian_spread == pytest.approx(spread, rel=0.08)
    assert rows[2].jacobian == pytest.approx(1, rel=0.04)
    assert rows[2].jacobian_spread == pytest.approx(1, rel=0.08)
    assert all(row.signal_to_noise is None and row.gradient is None for row in rows)


def test_an_isometry_has_no_spread_and_a_projection_has_much() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, bias=False))
    nn.init.orthogonal_(model[1].weight)
    assert diagnose(model, torch.randn(64, 8), probes=64).layers[0].jacobian_spread == pytest.approx(1, abs=0.05)
    with torch.no_grad():
        model[1].weight.copy_(torch.outer(torch.randn(8), torch.randn(8)))
    assert diagnose(model, torch.randn(64, 8), probes=64).layers[0].jacobian_spread == pytest.approx(8, rel=0.1)


def per_input(model: nn.Module, weight: Tensor) -> Tensor:
    """The gradient of each input's loss."""
    losses = (nn.functional.cross_entropy(model(x.unsqueeze(0)), y.unsqueeze(0)) for x, y in zip(X, Y))
    return torch.stack([torch.autograd.grad(loss, weight)[0].flatten() for loss in losses]).double()


def test_signal_to_noise_is_that_of_the_gradients_of_single_inputs() -> None:
    model: Any = small()
    rows = diagnose(model, X, Y, probes=32).layers  # as many parts as inputs
    for row, at in zip(rows, (0, 2, 4)):
        gradients = per_input(model, model[at].weight)
        mean = gradients.mean(0)
        noise = (gradients - mean).square().sum() / 31 / 32
        assert row.signal_to_noise == pytest.approx(max(0.0, float(mean.square().sum() / noise) - 1), rel=1e-3)


def test_equal_inputs_have_more_signal_than_random_labels() -> None:
    model = mlp(3)
    clear = diagnose(model, IMAGES, torch.zeros(256, dtype=torch.long), probes=8).layers[-1].signal_to_noise
    torch.manual_seed(0)
    noisy = diagnose(model, IMAGES, LABELS[torch.randperm(256)], probes=8).layers[-1].signal_to_noise
    assert clear is not None
    assert noisy is not None
    assert clear > 30 * noisy


def test_probes_change_nothing_else_and_are_printed() -> None:
    model = mlp(3, None, nn.Tanh)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain, probed = diagnose(model, IMAGES, LABELS), diagnose(model, IMAGES, LABELS, probes=4)
    assert [row.gradient for row in plain.layers] == [row.gradient for row in probed.layers]
    assert plain.verdict == probed.verdict
    assert plain.layers[0].jacobian is plain.layers[0].jacobian_spread is plain.layers[0].signal_to_noise is None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    for column in ("signal/noise", "jacobian", "σ spread", "saturated"):
        assert column in str(probed)
    assert "jacobian" not in str(plain)


class Tokens(nn.Module):
    """Mixes what is batch first with an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.norm = nn.Embedding(9, 8), nn.GRU(8, 8, batch_first=True), nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.rnn(self.embed(tokens))[0][:, -1]))


def test_layers_of_tokens_and_batch_norm() -> None:
    model = Tokens()
    running = model.norm.running_mean.clone()  # type: ignore[union-attr]
    found = diagnose(model, torch.randint(9, (32, 5)), torch.arange(32) % 3, probes=4)
    assert all(row.jacobian is not None and row.signal_to_noise is not None for row in found.layers)
    assert torch.equal(model.norm.running_mean, running)  # type: ignore[arg-type]


def test_a_batch_that_cannot_be_cut_has_no_ratio() -> None:
    found = diagnose(small(), X[:3], Y[:3], probes=4)
    assert all(row.signal_to_noise is None and row.jacobian is not None for row in found.layers)


@pytest.mark.parametrize("probes", [-1, 1, 2.0, True])
def test_too_few_probes(probes: Any) -> None:
    with pytest.raises(StiefelError, match="give 2 or more"):
        diagnose(small(), X, Y, probes=probes)


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 3),
        (lambda p: torch.optim.Adam(p, lr=1e-3), 0),
        (lambda p: torch.optim.AdamW(p, lr=1e-2), 3),
    ],
)
def test_the_update_is_that_of_the_next_step(make: Any, steps: int) -> None:
    model = mlp(3, "he")
    model[2].requires_grad_(False)
    optimizer = make(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
        optimizer.step()

    for _ in range(steps):
        step()
    optimizer.zero_grad()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    rows = diagnose(model, IMAGES, LABELS, optimizer=optimizer).layers
    after = (model.state_dict(), optimizer.state_dict())
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [row.update is None for row in rows] == [False, True, False, False]
    old = [model[at].weight.detach().clone() for at in (0, 4, 6)]
    step()
    for row, weight, at in zip((rows[0], rows[2], rows[3]), old, (0, 4, 6)):
        moved = (model[at].weight.detach() - weight).norm() / weight.norm()
        assert row.update == pytest.approx(float(moved), rel=1e-4)


def test_gradients_are_the_same_with_an_optimizer() -> None:
    model = mlp(3, "he")
    optimizer = torch.optim.Adam(model.parameters())
    plain, told = diagnose(model, IMAGES, LABELS), diagnose(model, IMAGES, LABELS, optimizer=optimizer)
    assert [row.gradient for row in plain.layers] == [row.gradient for row in told.layers]
    assert all(row.update is None for row in plain.layers)
    assert "update" in str(told)
    assert "update" not in str(plain)


def test_an_optimizer_needs_targets() -> None:
    model = mlp(2)
    with pytest.raises(StiefelError, match="optimizer was given without targets"):
        diagnose(model, IMAGES, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
