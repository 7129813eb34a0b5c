"""`restore_`: trained weights go towards what `initialize_` would draw; a model that it refuses stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_refused
from paper.studies import continual
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from stiefel_init import check
from stiefel_init.torch import initialize_, restore_
from stiefel_init.torch.restoring import target


def trained(layers: int = 8, width: int = 8, seed: int = 0) -> nn.Sequential:
    """A plain network whose weights are no longer in the set."""
    torch.manual_seed(seed)
    hidden = [part for _ in range(layers - 2) for part in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(nn.Linear(12, width), nn.ReLU(), *hidden, nn.Linear(width, 3))
    initialize_(model, seed=seed)
    return shaken(model)


def shaken(model: nn.Module, by: float = 0.3) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += by * torch.randn_like(parameter)
    return model


def gram(weight: Tensor) -> Tensor:
    wide = weight if weight.shape[0] <= weight.shape[1] else weight.mT
    return wide @ wide.mT


def test_weights_go_the_given_part_of_the_way_to_the_nearest_of_what_initialize_would_draw() -> None:
    whole, half, same, model = (trained() for _ in range(4))
    plan = restore_(whole, strength=1)
    restore_(half, strength=0.5)
    restore_(same, strength=0)
    for name, parameter in model.named_parameters():
        old, new = parameter.detach(), whole.get_parameter(name).detach()
        assert torch.equal(same.get_parameter(name), old)
        torch.testing.assert_close(half.get_parameter(name).detach(), (old + new) / 2)
        if name.endswith("bias"):
            assert not new.any()
            assert plan[name].action == "zeros"
        elif name == "14.weight":
            torch.testing.assert_close(gram(new), torch.eye(3), atol=1e-6, rtol=0)
            assert plan[name].action == "nearest orthogonal 3×8"
        else:
            assert check(new)
            assert plan[name].action.startswith("nearest member 8×")
            others = (target(torch.randn(8, old.shape[1]), on_set=True) for _ in range(20))
            assert (new - old).norm() < min(float((other - old).norm()) for other in others)


def test_short_networks_keep_the_size_that_initialize_gives_them() -> None:
    model = trained(layers=3, width=32)
    drawn = trained(layers=3, width=32)
    initialize_(drawn, seed=1)
    plan = restore_(model, strength=1)
    assert plan["2.weight"].action == "nearest orthogonal 32×32"
    for name in ("0.weight", "2.weight", "4.weight"):
        expected = gram(drawn.get_parameter(name))
        torch.testing.assert_close(gram(model.get_parameter(name)).trace(), expected.trace(), rtol=0.05, atol=0)


class Several(nn.Module):
    """Layers that hold several matrices, kernels, and what is to be left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.kernel = nn.Conv1d(8, 8, 3, padding=1)
        self.out = nn.Linear(8, 7)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.table(x)
        x = x + self.attention(self.norm(x), self.norm(x), self.norm(x))[0]
        return self.out(self.kernel(self.frozen(x).mT).mT)


def test_each_matrix_of_a_layer_is_restored_and_other_parameters_are_left_alone() -> None:
    torch.manual_seed(0)
    model = shaken(Several())
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    plan = restore_(model, strength=1, inputs=torch.zeros(2, 5, dtype=torch.long))
    for name in ("table.weight", "norm.weight", "norm.bias", "frozen.weight", "frozen.bias"):
        assert torch.equal(model.get_parameter(name), before[name]), name
        assert plan[name].action == "left alone"
    for weight in model.attention.in_proj_weight.chunk(3):
        size = gram(weight).diagonal().mean()
        torch.testing.assert_close(gram(weight) / size, torch.eye(8), atol=1e-5, rtol=0)
    kernel = model.kernel.weight.flatten(1)
    torch.testing.assert_close(gram(kernel) / gram(kernel)[0, 0], torch.eye(8), atol=1e-5, rtol=0)
    assert torch.isfinite(model(torch.zeros(2, 5, dtype=torch.long))).all()


def test_a_dry_run_tells_the_same_and_changes_nothing() -> None:
    model = trained()
    plan = restore_(model, dry_run=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trained().parameters()))
    assert str(plan) == str(restore_(model))
    assert all(not torch.equal(a, b) for a, b in zip(model.parameters(), trained().parameters()))


def with_weight(value: float) -> nn.Module:
    model = trained()
    with torch.no_grad():
        model[4].weight[:] = value * torch.randn(8)[:, None]
    return model


def parametrized() -> nn.Module:
    model = trained()
    parametrizations.weight_norm(model[2])
    return model


REFUSED: dict[str, tuple[Callable[[], Any], dict[str, Any], list[str]]] = {
    "no module": (lambda: [nn.Linear(2, 2)], {}, ["list", "torch.nn.Module"]),
    "strength": (trained, {"strength": 1.5}, ["strength=1.5", "from 0 to 1"]),
    "strength that is no number": (trained, {"strength": True}, ["strength=True"]),
    "skip": (trained, {"skip": "haed.*"}, ["'haed.*'", "matches no parameter"]),
    "NaN": (lambda: with_weight(float("nan")), {}, ["4.weight", "NaN"]),
    "rank one": (lambda: with_weight(1.0), {}, ["4.weight", "rank below 7"]),
    "meta": (lambda: trained().to("meta"), {}, ["0.weight", "meta", "skip='0.weight'"]),
    "parametrized": (parametrized, {}, ["2.weight is parametrized", "skip='2.weight'"]),
    "inputs": (trained, {"inputs": torch.ones(2, 5)}, ["inputs"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence_and_nothing_is_changed(case: str) -> None:
    make, options, words = REFUSED[case]
    model = make()
    before = [p.clone() for p in model.parameters()] if isinstance(model, nn.Module) else []
    assert_refused(lambda: restore_(model, **options), words)
    for old, new in zip(before, model.parameters() if before else ()):
        assert new.is_meta or torch.equal(old.nan_to_num(), new.nan_to_num())


def test_the_study_restores_as_the_library_does() -> None:
    cell = continual.Cell("restore", 1e-3, 0.5, 3)
    networks = continual.Networks([cell])
    networks.flat += 0.1 * torch.randn(networks.flat.shape, generator=torch.Generator().manual_seed(0))
    sizes = [(each.shape[1:]) for each in networks.p[::2]]
    layers = [part for m, n in sizes for part in (nn.Linear(n, m), nn.ReLU())]
    model = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, held in zip(model.parameters(), networks.p):
            parameter.copy_(held[0].reshape(parameter.shape))
    restore_(model, strength=0.5)
    networks.between(1, torch.zeros(1, 4, 196))
    for parameter, held in zip(model.parameters(), networks.p):
        torch.testing.assert_close(parameter.detach(), held[0].reshape(parameter.shape), atol=1e-5, rtol=1e-4)
