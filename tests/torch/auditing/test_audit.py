"""The audit: it names the law that a parameter was drawn from, and raises an alarm where something is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from conftest import assert_refused
from torch import Tensor, nn

from stiefel_init.torch import audit, initialize_
from stiefel_init.torch.auditing import FALSE_ALARM

LAWS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "torch's own": (lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5)), "uniform ±0.12"),
    "xavier": (nn.init.xavier_uniform_, "xavier"),
    "he": (lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"), "(he)"),
    "gpt-2": (lambda w: nn.init.normal_(w, std=0.02), "normal, deviation 0.02"),
    "truncated": (lambda w: nn.init.trunc_normal_(w, std=0.5, a=-1.0, b=1.0), "cut at ±"),
    "orthogonal": (lambda w: nn.init.orthogonal_(w, gain=1.5), "orthogonal × 1.5"),
    "identity": (nn.init.eye_, "identity"),
    "constant": (lambda w: nn.init.constant_(w, 0.25), "all 0.25"),
}


def layer(fill: Callable[[Tensor], object], outputs: int = 64, inputs: int = 64) -> nn.Linear:
    module = nn.Linear(inputs, outputs, bias=False)
    fill(module.weight.data)
    return module


@pytest.mark.parametrize("law", LAWS)
def test_each_law_is_recognized(law: str) -> None:
    torch.manual_seed(0)
    fill, words = LAWS[law]
    assert words in audit(layer(fill))["weight"].law


SCHEMES = {
    "stiefel": "member of the set",
    "orthogonal 2": "orthogonal × 2",
    "permutation": "permutation",
    "identity": "identity",
    "zero": "identity",
    "torch": "torch's own",
    "he": "(he)",
    "xavier": "xavier",
    "truncated-normal": "cut at ±0.0",
    "looks-linear": "mirrored pairs",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_initialize_drew_is_found_again(scheme: str) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    initialize_(model, scheme, seed=0)
    assert SCHEMES[scheme] in audit(model)["2.weight"].law
    assert not audit(model).alarms


def test_the_laws_do_not_pass_for_each_other() -> None:
    """4096 entries tell uniform, normal and truncated normal apart: each is named alone."""
    torch.manual_seed(1)
    for name in ("torch's own", "he", "truncated"):
        assert " or normal" not in audit(layer(LAWS[name][0]))["weight"].law
        assert " or uniform" not in audit(layer(LAWS[name][0]))["weight"].law


@pytest.mark.parametrize("name", ["torch's own", "he", "truncated"])
def test_a_right_law_is_seldom_denied(name: str) -> None:
    """Of 400 parameters of 16 × 16, more than 2 denials have probability below 1e-5 at the stated rate of 1e-4."""
    assert FALSE_ALARM == 1e-4
    torch.manual_seed(2)
    rows = [audit(layer(LAWS[name][0], 16, 16))["weight"] for _ in range(400)]
    assert sum(row.law == "no law known here" for row in rows) <= 2
    assert not any(row.alarm for row in rows)


@pytest.mark.parametrize(
    "mixture",
    [lambda w: w.cauchy_(), lambda w: w.exponential_(), lambda w: w.bernoulli_(0.5).mul_(w.new_empty(1).normal_())],
    ids=["heavy tails", "one-sided", "two values"],
)
def test_other_laws_are_not_taken_for_one_of_these(mixture: Callable[[Tensor], object]) -> None:
    torch.manual_seed(3)
    assert audit(layer(mixture))["weight"].law == "no law known here"


def test_kernels_at_their_centre_and_as_a_whole() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    initialize_(model, "delta-orthogonal", seed=0)
    assert audit(model)["0.weight"].law == "orthogonal at the centre"
    nn.init.orthogonal_(model.get_parameter("0.weight"))
    assert audit(model)["0.weight"].law == "orthogonal"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: w[0, 0].fill_(math.nan), "not finite"),
        (lambda w: w[0, 0].fill_(1e30), "1.0e+30"),
        (lambda w: w[0, 0].fill_(1e-42), "too small for its dtype"),
        (lambda w: w.zero_(), "all zeros"),
        (lambda w: w[3].copy_(w[7]), "1 of 64 units repeat another"),
    ],
)
def test_what_looks_wrong_raises_an_alarm(spoil: Callable[[Tensor], object], words: str) -> None:
    torch.manual_seed(4)
    module = layer(LAWS["he"][0])
    spoil(module.weight.data)
    assert words in audit(module)["weight"].alarm


def test_two_parameters_with_the_same_values_raise_one_and_tied_ones_do_not() -> None:
    torch.manual_seed(5)
    first, second, third = (layer(LAWS["he"][0]) for _ in range(3))
    second.weight.data.copy_(first.weight.data)
    third.weight = first.weight
    model = nn.Sequential(first, second, third)
    assert [row.name for row in audit(model).alarms] == ["1.weight"]
    assert audit(model)["1.weight"].alarm == "equal to 0.weight"


def test_pytorch_models_as_they_come_look_right() -> None:
    torch.manual_seed(6)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16, 10))
    report = audit(model)
    assert not report.alarms
    assert report["1.weight"].law == "ones"
    assert "torch's own" in report["0.weight"].law
    assert "Nothing looks wrong." in str(report)


def test_a_report_has_one_line_for_layers_that_are_alike() -> None:
    torch.manual_seed(7)
    model = nn.Sequential(*(part for _ in range(100) for part in (nn.Linear(32, 32), nn.ReLU())))
    nn.init.zeros_(model.get_parameter("50.weight"))
    lines = str(audit(model)).splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("0…198.weight (99)") for line in lines)
    assert any(line.startswith("50.weight") and "never initialized?" in line for line in lines)


def test_a_report_of_a_large_model_is_short_and_narrow() -> None:
    torch.manual_seed(8)
    parts = {
        f"a_stage_with_a_very_long_name_of_its_own_{width}": nn.ModuleDict(
            {f"block_of_{kind}": nn.Linear(width, width) for kind in ("attention", "mixing", "gates")}
        )
        for width in range(16, 48)
    }
    model = nn.ModuleDict(parts)
    nn.init.constant_(model.get_parameter(f"{[*parts][3]}.block_of_gates.weight"), float("nan"))
    lines = str(audit(model)).splitlines()
    assert lines[0].startswith("1 of 192 parameters look")
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100


def test_a_model_without_values_is_refused() -> None:
    assert_refused(lambda: audit(nn.Linear(3, 3, device="meta")), ["weight has no values yet"])
    assert_refused(lambda: audit("model"), ["model is a str"])  # type: ignore[arg-type]
