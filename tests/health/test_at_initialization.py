"""The rules as functions of numbers alone: no model is needed."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import pytest

from stiefel_init.health import AT_INITIALIZATION as RULES
from stiefel_init.health import Evidence, Fit, Inputs, Layer, judge

_USUAL: dict[str, Any] = {
    "layer": "0", "call": 1, "kind": "Linear", "shape": "8×8", "activation": "relu", "units": 8, "samples": 64,
    "pre_mean": 0.0, "pre_std": 1.0, "pre_spread": 1.0, "post_mean": 0.4, "post_std": 0.6, "spread": 0.5,
    "dead": 0, "active": 0.5, "bend": 1.0, "distinct": 6.0, "gradient": 1.0, "weight_gradient": 1.0,
    "common_gradient": 0.1, "zero_weights": False, "row_norm": 1.4, "level": 0.1, "bias_mean": 0.0, "bias_std": 0.0,
    "scheme": "other",
}  # fmt: skip
ROW = Layer(**{field.name: _USUAL.get(field.name) for field in fields(Layer)})  # type: ignore[arg-type]
INPUTS = Inputs(
    mean=0.0, std=1.0, samples=64, features=8, largest_std=1.2, median_std=1.0, distinct=7.0, same=0.0
)  # fmt: skip
FIT = Fit(loss=2.3, constant_loss=2.3)
HARD, EASY = replace(FIT, readable=0.1), replace(FIT, readable=0.7)


def network(depth: int = 4, **change: Any) -> tuple[Layer, ...]:
    """Healthy rows and an output; `change` changes the third of them."""
    rows = [replace(ROW, layer=str(at)) for at in range(depth)]
    rows[2] = replace(rows[2], **change)
    return (*rows, replace(ROW, layer="out", activation=None, dead=None, bend=None, units=3))


def later(**change: Any) -> tuple[Layer, ...]:
    """`change` changes the last two hidden rows."""
    rows = network()
    return (*rows[:2], *(replace(row, **change) for row in rows[2:4]), rows[4])


def deep(**change: Any) -> tuple[Layer, ...]:
    """`later` behind forty healthy hidden rows."""
    rows = later(**change)
    return (rows[0], *(replace(rows[1], layer=f"1.{at}") for at in range(40)), *rows[2:])


def found(layers: tuple[Layer, ...] = (), **ends: Any) -> list[tuple[str, str, str]]:
    """Kind, layer and cause of the findings."""
    verdict = judge(Evidence(layers or network(), **{"inputs": INPUTS, "fit": FIT, **ends}))
    return [(one.kind, one.layer, one.cause) for one in verdict.findings]


def regression(**numbers: float) -> Fit:
    usual = {"output_mean": 0.0, "output_std": 1.0, "target_mean": 0.0, "target_std": 1.0}
    return Fit(loss=2.0, constant_loss=1.0, **{**usual, **numbers})


def test_a_healthy_network_has_no_findings_and_no_warnings() -> None:
    verdict = judge(Evidence(network(), INPUTS, FIT))
    assert verdict.findings == verdict.warnings == ()


@pytest.mark.parametrize(
    "layers",
    [
        deep(spread=1e-6),
        deep(spread=5e-9, post_std=5e-9, post_mean=5e-9),
        deep(distinct=0.5),
        later(spread=1e-3, activation="sigmoid", dead=None, saturated=0.0),
        network(activation="tanh", dead=None, saturated=0.95),
    ],
)
def test_easy_targets_need_little_signal(layers: tuple[Layer, ...]) -> None:
    rows = tuple(replace(row, activation=layers[-2].activation) for row in layers[:-1])
    assert not judge(Evidence((*rows, layers[-1]), INPUTS, EASY)).findings
    assert judge(Evidence((*rows, layers[-1]), INPUTS, HARD)).findings


@pytest.mark.parametrize("change", [{"spread": 1e-6}, {"distinct": 0.5}])
def test_shallow_networks_make_up_for_what_deep_ones_do_not(change: dict[str, float]) -> None:
    assert not found(later(**change), fit=HARD)
    assert found(deep(**change), fit=HARD)


@pytest.mark.parametrize("size", [5.0, 100.0])
def test_deep_networks_are_not_sick_of_a_little(size: float) -> None:
    """As residual networks whose activations have a common level."""
    assert not found(deep(post_mean=size), fit=HARD)


def test_offset_inputs_that_reach_the_last_layer() -> None:
    offset = replace(INPUTS, same=0.99)
    assert not found(later(spread=0.2), fit=HARD, inputs=offset)
    assert found(later(spread=0.02), fit=HARD, inputs=offset) == [("offset stays", "", "inputs")]
    assert not found(later(spread=0.02), fit=HARD)


@pytest.mark.parametrize(("size", "sick"), [(5e9, False), (5e10, True)])
def test_easy_targets_need_little_gradient(size: float, sick: bool) -> None:
    rows = (replace(network()[0], gradient=1 / size), *network()[1:])
    assert bool(found(rows, fit=EASY)) is sick
    assert found(rows, fit=HARD)


@pytest.mark.parametrize(
    ("layers", "ends", "expected"),
    [
        (later(spread=0.0, post_std=0.0), {}, ("signal dies", "2", "weights")),
        (later(spread=1e-10, post_mean=1e-10, post_std=1e-10), {}, ("signal fades", "2", "weights")),
        (later(post_mean=1e5), {}, ("signal explodes", "2", "weights")),
        (deep(distinct=0.5), {}, ("units repeat", "2", "weights")),
        (later(spread=1e-10, post_std=1e-10, post_mean=1e-10, scheme="stiefel"), {}, ("signal fades", "2", "depth")),
        (network(dead=8), {}, ("units are dead", "2", "weights")),
        (network(activation="tanh", dead=None, saturated=0.95), {}, ("units are stuck", "2", "weights")),
        (network(first_step=1e-12, steps=300, kind="LSTM"), {}, ("gates forget", "2", "time steps")),
        (network(first_step=1e-6, steps=30, kind="GRU"), {}, ("gates are closed", "2", "time steps")),
        (network(first_step=1e-20, steps=300, kind="RNN"), {}, ("steps are forgotten", "2", "time steps")),
        (network(pre_std=math.inf), {}, ("not finite", "2", "weights")),
        (network(row_norm=math.nan), {}, ("not finite", "2", "training")),
        (network(dead=8, bias_mean=-100.0), {}, ("units are dead", "2", "biases")),
        (network(dead=8, row_norm=1e-4), {}, ("units are dead", "2", "weights")),
        ((), {"inputs": replace(INPUTS, std=1e-4)}, ("inputs are small", "", "inputs")),
        ((), {"inputs": replace(INPUTS, largest_std=1e5)}, ("features are uneven", "", "inputs")),
        ((), {"inputs": replace(INPUTS, same=0.9999)}, ("inputs are offset", "", "inputs")),
        ((), {"fit": regression(target_mean=50.0)}, ("targets are offset", "out", "targets")),
        ((), {"fit": regression(target_std=1e4)}, ("targets are large", "out", "targets")),
        ((), {"fit": regression(target_std=1e-3)}, ("targets are small", "out", "targets")),
        ((), {"fit": regression(output_std=1e3)}, ("targets are small", "out", "weights")),
        ((), {"fit": Fit(loss=1e4, constant_loss=None, zero_loss=0.7)}, ("loss is huge", "out", "weights")),
        (deep(spread=1e-6), {"fit": HARD}, ("signal drowns", "2", "weights")),
        (deep(spread=5e-9, post_std=5e-9, post_mean=5e-9), {"fit": HARD}, ("signal is faint", "2", "weights")),
        ((), {"inputs": replace(INPUTS, same=0.99), "curvature": 1e-6}, ("inputs are far off", "0", "inputs")),
        ((), {"fit": Fit(loss=1e4, constant_loss=2.3)}, ("loss is huge", "out", "weights")),
    ],
)
def test_each_rule_names_its_layer_and_its_cause(
    layers: tuple[Layer, ...], ends: dict[str, Any], expected: tuple[str, str, str]
) -> None:
    assert found(layers, **ends) == [expected]


def test_gradients_that_vanish_and_explode() -> None:
    rows = network()
    for factor, kind in ((1e-4, "gradient vanishes"), (1e3, "gradient explodes")):
        scaled = tuple(replace(row, gradient=factor ** (4 - at)) for at, row in enumerate(rows))
        assert found(scaled)[0][0] == kind
    assert found(tuple(replace(row, gradient=0.0) for row in rows))[0][0] == "loss has no slope"


def test_a_network_that_has_learned_is_left_in_peace() -> None:
    layers = later(distinct=0.5, dead=8)
    assert found(layers)
    verdict = judge(Evidence(layers, INPUTS, Fit(loss=0.01, constant_loss=2.3)))
    assert verdict.findings == verdict.warnings == ()
    assert verdict.sentences == ("The network has learned: its loss is 0.01, that of the best constant output 2.3.",)


def test_a_layer_of_zeros_is_the_cause_unless_its_first_step_wakes_it() -> None:
    rows = [*network()]
    rows[1] = replace(rows[1], zero_weights=True, spread=0.0, weight_gradient=0.0)
    rows[2:] = [replace(row, spread=0.0, post_std=0.0, post_mean=0.0) for row in rows[2:]]
    assert found(tuple(rows))[0] == ("signal dies", "1", "weights")
    rows[1] = replace(rows[1], weight_gradient=0.3)
    assert found(tuple(rows)) == []


def test_between_the_limits_there_is_a_warning() -> None:
    for kind, value in (("signal dies", 1e4), ("signal fades", 1e6)):
        assert RULES[kind].warning < value < RULES[kind].threshold
    verdict = judge(Evidence(later(spread=5e-5), INPUTS, FIT))
    assert [one.kind for one in verdict.warnings] == ["signal dies"]
    assert verdict.findings == ()
    assert verdict.sentences[0].startswith("The network is healthy")
