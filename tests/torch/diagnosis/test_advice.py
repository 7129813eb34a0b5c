"""Every advice, followed to the letter: the code that it names is run, and the network then trains better."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diagnosed import IMAGES, LABELS, constant_loss, learn, mlp
from torch import Tensor, nn

import stiefel_init
import stiefel_init.torch
from stiefel_init.torch import Diagnosis, diagnose, initialize_

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(512, 6, generator=GENERATOR)
Y = (torch.sin(2 * X[:, :1]) + X[:, 1:2] * X[:, 2:3] / 2) / 0.87


def regressor(depth: int, scheme: str | None = None, activation: type[nn.Module] = nn.ReLU, features: int = 6) -> Any:
    """A plain network for X, initialized."""
    sizes = [features] + [32] * depth
    layers: list[nn.Module] = [module for n in sizes[:-1] for module in (nn.Linear(n, 32), activation())]
    model = nn.Sequential(*layers, nn.Linear(32, 1))
    initialize_(model, scheme, seed=0)
    return model


def only(found: Diagnosis) -> tuple[set[str], str]:
    """The causes of all findings, and their one advice."""
    told = found.findings or found.warnings
    (advice,) = {finding.advice for finding in told}
    return {finding.cause for finding in told}, advice


def run(code: str, advice: str, **names: Any) -> dict[str, Any]:
    """Run a piece of an advice."""
    assert code in advice
    scope = {"torch": torch, "math": math, "stiefel_init": stiefel_init, **names}
    exec(code, scope)
    return scope


def better(sick: nn.Module, cured: nn.Module, x: Tensor, y: Tensor, cured_x: Tensor | None = None) -> None:
    """The cured network removes most of the constant's loss, and far more of it than the sick one does."""
    enough = min(0.6 * constant_loss(y), 0.75 * learn(sick, x, y))
    assert learn(cured, x if cured_x is None else cured_x, y, enough=enough) < enough


class Recurrent(nn.Module):
    """Says at the end what it was told at the first step."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.memory, self.head = kind(4, 24, batch_first=True), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.memory(x)[0][:, -1])


class Norm(nn.Module):
    """x + f(norm(x)), the norm optional."""

    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32) if normalize else nn.Identity()
        self.inner, self.outer = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(self.norm(x))))


def residual(depth: int, outputs: int, *, normalize: bool = False) -> Any:
    """A residual network in which every layer is a member, so that it explodes unless it is normalized."""
    blocks = (Norm(normalize) for _ in range(depth))
    model = nn.Sequential(nn.Linear(6, 32), *blocks, nn.Linear(32, outputs))
    initialize_(model, recipe="paper", seed=0)
    return model


def changed(model: Any, change: Callable[[Any], Any]) -> Any:
    with torch.no_grad():
        change(model)
    return model


def silenced(value: float) -> Any:
    """Every layer off."""
    return changed(regressor(5), lambda model: [part.bias.fill_(value) for part in model[::2]])


def large_head() -> Any:
    model: Any = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    initialize_(model, seed=0)
    return changed(model, lambda model: model[4].weight.mul_(1e3))


def told_once(steps: int, inputs: int = 128) -> tuple[Tensor, Tensor]:
    """Sequences that tell their class at the first step."""
    torch.manual_seed(0)
    y = torch.randint(4, (inputs,))
    x = 0.3 * torch.randn(inputs, steps, 4)
    x[:, 0] += 2 * nn.functional.one_hot(y, 4)
    return x, y


def forgetting(kind: Any) -> Any:
    torch.manual_seed(0)
    return Recurrent(kind)


BOTH = torch.cat((Y, torch.cos(X[:, :1] + X[:, 3:4])), 1)
LINE = torch.linspace(-2, 2, 256).unsqueeze(1)
ALL = "stiefel_init.torch.initialize_(model)"
FOURTH = 'stiefel_init.torch.initialize_(model.get_submodule("4"), "stiefel")'
NO_BIAS = 'torch.nn.init.zeros_(model.get_submodule("4").bias)'
NO_BIASES = 'for name, bias in model.named_parameters(): "bias" in name and torch.nn.init.zeros_(bias)'
OPEN = 'for name, bias in model.get_submodule("memory").named_parameters(): "bias_ih" in name and '
CASES: dict[str, tuple[Callable[[], Any], Any, str, str]] = {
    "large negative biases": (lambda: changed(regressor(5), lambda m: m[4].bias.sub_(100)), (X, Y), "biases", NO_BIAS),
    "low biases": (lambda: changed(regressor(5), lambda m: m[4].bias.fill_(-5)), (X, Y), "biases", NO_BIAS),
    "a layer of zeros": (lambda: changed(regressor(8), lambda m: m[4].weight.zero_()), (X, Y), "weights", FOURTH),
    "a large layer": (lambda: changed(regressor(5), lambda m: m[4].weight.mul_(1e4)), (X, Y), "weights", FOURTH),
    "all layers off": (lambda: silenced(-1.0), (X, Y), "biases", NO_BIASES),
    "all layers far off": (lambda: silenced(-100.0), (X, Y), "biases", NO_BIASES),
    "GELU": (lambda: mlp(50, "torch", nn.GELU, width=32), (IMAGES, LABELS), "activation", ALL),
    "SiLU": (lambda: mlp(30, "stiefel", nn.SiLU, width=32), (IMAGES, LABELS), "activation", ALL),
    "Mish": (lambda: mlp(60, "stiefel", nn.Mish, width=32), (IMAGES, LABELS), "activation", ALL),
    "Hardswish": (lambda: mlp(40, "torch", nn.Hardswish, width=32), (IMAGES, LABELS), "activation", ALL),
    "xavier": (lambda: mlp(60, "xavier", width=32), (IMAGES, LABELS), "weights", ALL),
    "he": (lambda: mlp(100, "he", width=32), (IMAGES, LABELS), "weights", ALL),
    "orthogonal": (lambda: mlp(100, "orthogonal", width=32), (IMAGES, LABELS), "weights", ALL),
    "LSTM": (lambda: forgetting(nn.LSTM), told_once(60), "time steps", OPEN + "bias.data.chunk(4)[1].fill_(4.09)"),
    "GRU": (lambda: forgetting(nn.GRU), told_once(60), "time steps", OPEN + "bias.data.chunk(3)[1].fill_(4.09)"),
    "RNN": (lambda: forgetting(nn.RNN), told_once(100), "time steps", ALL),
    "a common output": (lambda: regressor(10, "stiefel"), (X, Y), "weights", ALL),
    "equal units": (lambda: regressor(2, "stiefel", features=1), (LINE, torch.sin(3 * LINE) / 0.7), "weights", ALL),
    "a residual network": (lambda: residual(25, 2), (X, BOTH), "depth", ALL),
    "a residual network of one output": (lambda: residual(25, 1), (X, Y), "weights", ALL),
    "a large head": (large_head, (X, BOTH), "weights", FOURTH),
}
FIRST = {
    "large negative biases": "4", "low biases": "4", "a layer of zeros": "4", "a large layer": "4", "LSTM": "memory",
    "GRU": "memory", "RNN": "memory", "a common output": "20", "equal units": "0", "a large head": "4",
}  # fmt: skip
"""The layer that is named."""
SLOW = {"Mish", "Hardswish", "orthogonal", "GRU", "a residual network of one output"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_the_advice_is_followed_and_cures(name: str) -> None:
    make, (x, y), cause, code = CASES[name]
    sick = make()
    found = diagnose(sick, x, y)
    assert {finding.cause for finding in found.findings} == {cause}
    advice = found.findings[0].advice
    assert {finding.advice for finding in found.findings} == {advice} or name == "equal units"
    assert found.findings[0].layer == FIRST.get(name, found.findings[0].layer)
    cured = copy.deepcopy(sick)
    torch.manual_seed(0)
    run(code, advice, model=cured)
    assert diagnose(cured, x, y).healthy
    better(sick, cured, x, y)


@pytest.mark.parametrize(
    ("change", "kind", "activation"),
    [
        (lambda x: 1e-6 * x, "inputs are small", nn.ReLU),
        (lambda x: x + 100, "inputs are offset", nn.Tanh),
        (lambda x: x * torch.tensor([1e6, 1, 1, 1, 1, 1]), "features are uneven", nn.ReLU),
        (lambda x: 255 * x, "inputs are large", nn.Tanh),
    ],
)
def test_inputs_of_another_scale(change: Callable[[Tensor], Tensor], kind: str, activation: Any) -> None:
    model, x = regressor(4, None, activation), change(X)
    found = diagnose(model, x, Y)
    causes, advice = only(found)
    assert causes == {"inputs"}
    assert kind in {finding.kind for finding in (*found.findings, *found.warnings)} or kind == "inputs are large"
    code = "x = x.double(); x = ((x - x.mean(0)) / (x.std(0) + 1e-12)).float()"
    standard = run(code, advice, x=x)["x"]
    assert diagnose(model, standard, Y).healthy
    better(model, copy.deepcopy(model), x, Y, standard)


def test_inputs_too_low_for_the_units_to_fire() -> None:
    model, x = mlp(10), IMAGES - 3
    causes, advice = only(diagnose(model, x, LABELS))
    assert causes == {"inputs"}
    shifted = run("x = x - x.mean() + 2 * x.std()", advice, x=x)["x"]
    assert diagnose(model, shifted, LABELS).healthy
    better(model, copy.deepcopy(model), x, LABELS, shifted)


@pytest.mark.parametrize(("scale", "offset", "activation"), [(1, 1000, nn.ReLU), (1e4, 0, nn.Tanh), (1e-4, 0, nn.ReLU)])
def test_targets_of_another_scale(scale: float, offset: float, activation: Any) -> None:
    model, y = regressor(4, None, activation), scale * Y + offset
    causes, advice = only(diagnose(model, X, y))
    assert causes == {"targets"}
    standard = run("y = (y - y.mean()) / y.std()", advice, y=y)["y"]
    assert diagnose(model, X, standard).healthy
    sick, cured = learn(model, X, y) / constant_loss(y), learn(copy.deepcopy(model), X, standard)
    assert cured < 0.5
    assert cured < 0.75 * sick


@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_the_level_of_a_network_that_is_too_deep_for_it_is_not_blamed(scale: float) -> None:
    found = diagnose(mlp(120, None, nn.SiLU, width=32), scale * IMAGES, LABELS)
    assert {finding.cause for finding in found.findings} == {"activation"}
    low = mlp(120, None, nn.SiLU, width=32)
    low[0].bias.data.fill_(-30.0)
    assert {finding.cause for finding in diagnose(low, IMAGES, LABELS).findings} == {"biases"}


def without_biases(model: nn.Sequential) -> nn.Sequential:
    """So that no start can raise the level."""
    for part in model:
        if isinstance(part, nn.Linear):
            part.register_parameter("bias", None)
    return model


@pytest.mark.parametrize(
    "sick", [mlp(10, None, nn.Sigmoid, width=32), without_biases(mlp(40, None, nn.SiLU, width=32))]
)
def test_an_activation_that_no_start_helps(sick: nn.Sequential) -> None:
    activation: Any = type(sick[1])
    causes, advice = only(diagnose(sick, IMAGES, LABELS))
    assert causes == {"activation"}
    assert "replace it with torch.nn.ReLU() and call stiefel_init.torch.initialize_(model)" in advice
    cured = nn.Sequential(*(nn.ReLU() if isinstance(part, activation) else copy.deepcopy(part) for part in sick))
    initialize_(cured, seed=0)
    assert diagnose(cured, IMAGES, LABELS).healthy
    better(sick, cured, IMAGES, LABELS)


class Skip(nn.Module):
    """x + f(x)."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def test_residual_connections_carry_the_signal_past_an_activation() -> None:
    sick = without_biases(mlp(50, None, nn.SiLU, width=32))
    _, advice = only(diagnose(sick, IMAGES, LABELS))
    assert "or add residual connections, x + f(x), around every one or two layers" in advice
    parts = list(copy.deepcopy(sick))
    blocks = (Skip(*parts[at : at + 2]) for at in range(2, 100, 2))
    better(sick, nn.Sequential(*parts[:2], *blocks, parts[-1]), IMAGES, LABELS)


def test_weights_that_were_never_trained_are_not_told_from_trained_ones_without_targets() -> None:
    advice = diagnose(mlp(60, "xavier"), IMAGES).findings[0].advice
    assert advice.endswith("(and draws new weights: not for a network you have trained)")


def test_layers_without_activations() -> None:
    sick = nn.Sequential(nn.Linear(6, 32), nn.Linear(32, 32), nn.Linear(32, 1))
    initialize_(sick, seed=0)
    found = diagnose(sick, X, Y)
    assert [finding.kind for finding in found.findings] == ["network is linear"]
    causes, advice = only(found)
    assert causes == {"activation"}
    assert "put an activation, such as torch.nn.ReLU(), between the layers" in advice
    first, second, last = copy.deepcopy(sick)
    better(sick, nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last), X, Y)


def test_a_training_that_diverged() -> None:
    sick = mlp(6, None, width=32)
    learn(sick, IMAGES, LABELS, rates=(2.0,), steps=40, keep=True)
    causes, advice = only(diagnose(sick, IMAGES, LABELS))
    assert causes == {"training"}
    cured = copy.deepcopy(sick)
    torch.manual_seed(0)
    run("stiefel_init.torch.initialize_(model)", advice, model=cured)
    assert "a learning rate ten times lower" in advice
    better(sick, cured, IMAGES, LABELS)
    with torch.no_grad():
        sick[4].weight[0, 0] = torch.nan
    found = diagnose(sick, IMAGES, LABELS)
    assert [(finding.kind, finding.layer, finding.cause) for finding in found.findings] == [
        ("not finite", "4", "training")
    ]


def test_a_trained_network_is_left_in_peace() -> None:
    model = mlp(6, "he", width=32)
    learn(model, IMAGES, LABELS, steps=300, keep=True)
    found = diagnose(model, IMAGES, LABELS)
    assert found.healthy
    assert not found.warnings
    assert "The network has learned" in found.verdict[0]
    assert "initialize" not in " ".join(found.verdict)


def test_a_residual_network_that_explodes_is_normalized() -> None:
    sick = residual(12, 2)
    causes, advice = only(diagnose(sick, X, BOTH))
    assert causes == {"depth"}
    assert "put a normalization, torch.nn.LayerNorm, in front of the first layer of every block" in advice
    better(sick, residual(12, 2, normalize=True), X, BOTH)


def test_a_huge_loss_of_the_users_own_is_seen() -> None:
    sick = regressor(3)
    sick[6].weight.data *= 1e4
    y = (X[:, :1] > 0).float()
    found = diagnose(sick, X, y, loss=lambda out, aim: nn.functional.binary_cross_entropy_with_logits(out, aim))
    assert "loss is huge" in [finding.kind for finding in found.findings]
    assert "that of outputs of zero" in found.verdict[0]


def test_members_that_are_too_deep_for_their_activation() -> None:
    sick = without_biases(mlp(20, None, nn.SiLU, width=32))
    causes, advice = only(diagnose(sick, IMAGES, LABELS))
    assert causes == {"depth"}
    assert advice == "add residual connections, x + f(x), around every one or two layers"
    parts = list(copy.deepcopy(sick))
    blocks = (Skip(*parts[at : at + 2]) for at in range(2, 40, 2))
    better(sick, nn.Sequential(*parts[:2], *blocks, parts[-1]), IMAGES, LABELS)


def test_a_plain_recurrent_layer_with_good_weights_gets_no_advice_and_trains() -> None:
    x, y = told_once(150, 64)
    model = Recurrent(nn.RNN)
    initialize_(model, seed=0)
    found = diagnose(model, x, y)
    assert found.healthy
    assert [(warning.kind, warning.advice) for warning in found.warnings] == [("steps are forgotten", "")]
    assert not any("What to do" in sentence for sentence in found.verdict)
    enough = 0.3 * constant_loss(y)
    assert learn(model, x, y, steps=200, enough=enough) < enough


def test_images_of_another_scale() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10)
    )  # fmt: skip
    initialize_(model, seed=0)
    x = 1e-6 * IMAGES.unflatten(1, (1, 8, 8))
    causes, advice = only(diagnose(model, x, LABELS))
    assert causes == {"inputs"}
    code = "x = x.double(); x = ((x - x.mean(0)) / (x.std(0) + 1e-12)).float()"
    standard = run(code, advice, x=x)["x"]
    assert diagnose(model, standard, LABELS).healthy
    better(model, copy.deepcopy(model), x, LABELS, standard)
