"""Every advice, followed to the letter: the code that it names is run, and the network then trains better."""

from __future__ import annotations

import copy
import math
import re
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


def initialize_cures(sick: nn.Module, cause: str) -> None:
    """This is the cause, and the advice, `initialize_`, followed."""
    causes, advice = only(diagnose(sick, IMAGES, LABELS))
    assert causes == {cause}
    cured = copy.deepcopy(sick)
    torch.manual_seed(0)
    run("stiefel_init.torch.initialize_(model)", advice, model=cured)
    assert diagnose(cured, IMAGES, LABELS).healthy
    better(sick, cured, IMAGES, LABELS)


@torch.no_grad()
def bias(model: Any) -> None:
    model[4].bias -= 100


@torch.no_grad()
def low_bias(model: Any) -> None:
    model[4].bias.fill_(-5)


@torch.no_grad()
def zero(model: Any) -> None:
    model[4].weight.zero_()


@torch.no_grad()
def large(model: Any) -> None:
    model[4].weight *= 1e4


@pytest.mark.parametrize(
    ("plant", "cause", "code"),
    [
        (bias, "biases", 'torch.nn.init.zeros_(model.get_submodule("4").bias)'),
        (low_bias, "biases", 'torch.nn.init.zeros_(model.get_submodule("4").bias)'),
        (zero, "weights", 'stiefel_init.torch.initialize_(model.get_submodule("4"), "stiefel")'),
        (large, "weights", 'stiefel_init.torch.initialize_(model.get_submodule("4"), "stiefel")'),
    ],
)
def test_a_fault_in_one_layer(plant: Callable[[Any], None], cause: str, code: str) -> None:
    sick = regressor(5)
    plant(sick)
    found = diagnose(sick, X, Y)
    causes, advice = only(found)
    assert causes == {cause}
    assert found.findings[0].layer == "4"
    cured = copy.deepcopy(sick)
    run(code, advice, model=cured)
    assert diagnose(cured, X, Y).healthy
    better(sick, cured, X, Y)


@pytest.mark.parametrize("value", [-1.0, -5.0, -100.0])
def test_biases_that_keep_every_layer_off(value: float) -> None:
    sick = regressor(5)
    for part in sick:
        if isinstance(part, nn.Linear):
            nn.init.constant_(part.bias, value)
    causes, advice = only(diagnose(sick, X, Y))
    assert causes == {"biases"}
    cured = copy.deepcopy(sick)
    code = 'for name, bias in model.named_parameters(): "bias" in name and torch.nn.init.zeros_(bias)'
    run(code, advice, model=cured)
    assert diagnose(cured, X, Y).healthy
    better(sick, cured, X, Y)


def uneven(x: Tensor) -> Tensor:
    return x * torch.tensor([1e6, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda x: 1e-6 * x, "inputs are small"),
        (lambda x: x + 100, "inputs are offset"),
        (uneven, "features are uneven"),
        (lambda x: 255 * x, "inputs are large"),
    ],
)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
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


@pytest.mark.parametrize(("scale", "offset"), [(1, 1000), (1e4, 0), (1e-4, 0)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_targets_of_another_scale(scale: float, offset: float, activation: Any) -> None:
    model, y = regressor(4, None, activation), scale * Y + offset
    causes, advice = only(diagnose(model, X, y))
    assert causes == {"targets"}
    standard = run("y = (y - y.mean()) / y.std()", advice, y=y)["y"]
    assert diagnose(model, X, standard).healthy
    sick, cured = learn(model, X, y) / constant_loss(y), learn(copy.deepcopy(model), X, standard)
    assert cured < 0.5
    assert cured < 0.75 * sick


@pytest.mark.parametrize(
    ("activation", "depth", "scheme"),
    [(nn.GELU, 50, "torch"), (nn.SiLU, 40, "stiefel"), (nn.Mish, 60, "stiefel"), (nn.Hardswish, 40, "torch")],
)
def test_an_activation_that_needs_a_level(activation: Any, depth: int, scheme: str) -> None:
    initialize_cures(mlp(depth, scheme, activation, width=32), "activation")


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


@pytest.mark.parametrize(("scheme", "depth"), [("xavier", 60), ("he", 100), ("orthogonal", 100)])
def test_weights_that_do_not_carry_a_signal(scheme: str, depth: int) -> None:
    initialize_cures(mlp(depth, scheme, width=32), "weights")


def test_weights_that_were_never_trained_are_not_told_from_trained_ones_without_targets() -> None:
    advice = diagnose(mlp(60, "xavier"), IMAGES).findings[0].advice
    assert advice.endswith("(and draws new weights: not for a network you have trained)")


class Recurrent(nn.Module):
    """Says at the end what it was told at the first step."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.memory, self.head = kind(4, 24, batch_first=True), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.memory(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_that_forgets(kind: Any) -> None:
    torch.manual_seed(0)
    steps = 100 if kind is nn.RNN else 60
    y = torch.randint(4, (128,))
    x = 0.3 * torch.randn(128, steps, 4)
    x[:, 0] += 2 * nn.functional.one_hot(y, 4)
    sick = Recurrent(kind)
    found = diagnose(sick, x, y)
    said = "steps are forgotten" if kind is nn.RNN else "gates forget"
    assert [(finding.kind, finding.layer) for finding in found.findings] == [(said, "memory")]
    causes, advice = only(found)
    assert causes == {"time steps"}
    cured = copy.deepcopy(sick)
    code = re.search(r"for name, bias .*|stiefel_init.torch.initialize_\(model\)", advice)
    assert code is not None
    run(code.group(), advice, model=cured)
    assert diagnose(cured, x, y).healthy
    better(sick, cured, x, y)


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


def test_an_output_that_follows_the_common_level() -> None:
    sick = regressor(10, "stiefel")
    found = diagnose(sick, X, Y)
    causes, advice = only(found)
    assert causes == {"weights"}
    assert found.findings[0].layer == "20"
    cured = copy.deepcopy(sick)
    torch.manual_seed(0)
    run("stiefel_init.torch.initialize_(model)", advice, model=cured)
    assert diagnose(cured, X, Y).healthy
    better(sick, cured, X, Y)


def test_units_that_are_all_equal() -> None:
    x = torch.linspace(-2, 2, 256).unsqueeze(1)
    y = torch.sin(3 * x) / 0.7
    sick = regressor(2, "stiefel", features=1)
    found = diagnose(sick, x, y)
    assert [(finding.kind, finding.layer) for finding in found.findings][:1] == [("units are equal", "0")]
    cured = copy.deepcopy(sick)
    torch.manual_seed(0)
    run("stiefel_init.torch.initialize_(model)", found.findings[0].advice, model=cured)
    assert diagnose(cured, x, y).healthy
    better(sick, cured, x, y)


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


BOTH = torch.cat((Y, torch.cos(X[:, :1] + X[:, 3:4])), 1)


@pytest.mark.parametrize(("outputs", "y"), [(1, Y), (2, BOTH)])
def test_a_residual_network_that_explodes(outputs: int, y: Tensor) -> None:
    sick = residual(25, outputs)
    found = diagnose(sick, X, y)
    assert "signal explodes" in [finding.kind for finding in found.findings]
    _, advice = only(found)
    cured = copy.deepcopy(sick)
    run("stiefel_init.torch.initialize_(model)", advice, model=cured)
    assert diagnose(cured, X, y).healthy
    better(sick, cured, X, y)


def test_a_residual_network_that_explodes_is_normalized() -> None:
    sick = residual(12, 2)
    causes, advice = only(diagnose(sick, X, BOTH))
    assert causes == {"depth"}
    assert "put a normalization, torch.nn.LayerNorm, in front of the first layer of every block" in advice
    better(sick, residual(12, 2, normalize=True), X, BOTH)


@pytest.mark.parametrize("y", [BOTH, (X[:, 0] > 0).long()])
def test_outputs_that_are_too_large_for_their_targets(y: Tensor) -> None:
    """The loss is huge at the start, and the targets are as they should be."""
    sick: Any = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    initialize_(sick, seed=0)
    sick[4].weight.data *= 1e3
    found = diagnose(sick, X, y)
    causes, advice = only(found)
    assert causes == {"weights"}
    assert {finding.layer for finding in found.findings} == {"4"}
    cured = copy.deepcopy(sick)
    run('stiefel_init.torch.initialize_(model.get_submodule("4"), "stiefel")', advice, model=cured)
    better(sick, cured, X, y)


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
    torch.manual_seed(0)
    y = torch.randint(4, (64,))
    x = 0.3 * torch.randn(64, 150, 4)
    x[:, 0] += 2 * nn.functional.one_hot(y, 4)
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
