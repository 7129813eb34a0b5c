"""What `diagnose` concludes of healthy and sick networks; as sentences, data frame, list, HTML, JSON and picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diagnosed import IMAGES, LABELS, Residual, exploding, kinds, mlp
from torch import Tensor, nn

from stiefel_init import StiefelError
from stiefel_init.health import AT_INITIALIZATION as RULES
from stiefel_init.torch import Diagnosis, diagnose, initialize_


def test_a_deep_stiefel_network_is_healthy_and_told_why() -> None:
    found = diagnose(mlp(100), IMAGES, LABELS)
    assert found.healthy
    assert found.verdict[0].startswith("The network is healthy: the signal at layer 198 is 0.5")
    assert "activates 99.9 % of the units of layer 198" in found.verdict[0]
    assert "members of Õ(m,n)" in found.verdict[0]
    assert found.verdict[1] == "Every unit fires for some input."
    assert repr(found) == "<Diagnosis: 101 layers, healthy>"


def test_a_deep_he_network_repeats_itself() -> None:
    found = diagnose(mlp(100, "he"), IMAGES, LABELS)
    assert kinds(found) == ["units repeat"]
    assert f"effectively {found.layers[-2].distinct:.1f} distinct ones" in found.verdict[0]
    assert "stiefel_init.torch.initialize_(model)" in found.verdict[-1]


def test_a_deep_xavier_network_dies_and_its_gradient_too() -> None:
    found = diagnose(mlp(100, "xavier"), IMAGES, LABELS)
    assert kinds(found)[:2] == ["signal fades", "gradient vanishes"]
    spread = {row.layer: row.spread for row in found.layers}
    at = found.findings[0].layer
    before = str(int(at) - 2)
    assert spread[at] < 1 / RULES["signal fades"].threshold <= spread[before]
    gradients = [row.gradient or 0.0 for row in found.layers]
    factor = (gradients[0] / gradients[-1]) ** 0.01
    assert f"a factor {factor:.2g} per layer" in found.verdict[1]
    assert "stiefel_init.torch.initialize_(model)" in found.verdict[-1]


def test_a_shallow_he_network_is_healthy() -> None:
    assert diagnose(mlp(4, "he"), IMAGES, LABELS).healthy


def test_torchs_own_initialization_ends_in_a_constant() -> None:
    """Biases keep the activations' size, so that only the differences between inputs show that the signal is gone."""
    torch.manual_seed(0)
    layers = [module for _ in range(30) for module in (nn.Linear(64, 64), nn.ReLU())]
    found = diagnose(nn.Sequential(*layers, nn.Linear(64, 10)), IMAGES, LABELS)
    assert kinds(found)[:2] == ["signal dies", "gradient vanishes"]
    assert "activations differ between inputs by" in found.verdict[0]
    assert found.layers[-2].post_std > 0.1 * found.layers[0].post_std


def test_an_exploding_network() -> None:
    found = diagnose(exploding(2.0), IMAGES, LABELS)
    assert kinds(found)[0] == "signal explodes"
    size = {row.layer: row.size for row in found.layers}
    at = found.findings[0].layer
    assert size[at] > RULES["signal explodes"].threshold >= size[str(int(at) - 2)]
    assert "gradient explodes" in kinds(diagnose(exploding(2.0), IMAGES, torch.rand(256, 10)))


def test_a_network_that_overflows() -> None:
    found = diagnose(exploding(1e3), IMAGES, LABELS)
    assert kinds(found) == ["not finite"]
    first = next(row for row in found.layers if not np.isfinite(row.pre_std + row.post_std))
    assert found.findings[0].layer == first.layer
    json.loads(found.to_json(), parse_constant=lambda name: pytest.fail(name))


def test_a_layer_that_is_dead_for_all_inputs() -> None:
    model = mlp(6)
    with torch.no_grad():
        model[4].bias -= 100
    found = diagnose(model, IMAGES, LABELS)
    assert kinds(found)[0] == "signal dies"
    assert found.findings[0].layer == "4"
    assert "none of its 64 units fires" in found.verdict[0]


def test_layers_of_zeros_are_a_choice_that_is_mentioned() -> None:
    model = Residual()
    nn.init.zeros_(model.outer.weight)
    nn.init.zeros_(model.outer.bias)
    found = diagnose(model, torch.randn(64, 20), torch.randint(3, (64,)))
    assert found.healthy
    assert "The weights of 3 layers, outer first, begin at zero" in found.verdict[-1]


def test_few_inputs_are_not_judged_for_dead_units() -> None:
    found = diagnose(mlp(5, "he"), IMAGES[:1], LABELS[:1])
    assert found.healthy
    assert "1 input cannot show dead or redundant units" in found.verdict[-1]
    assert found.layers[0].distinct is None


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (
            nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)),
            torch.randn(64, 1),
        ),
        (
            nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 1, 1)),
            torch.rand(8, 1, 9, 9),
        ),
    ],
)
def test_equal_units_are_named_and_cured(model: nn.Module, inputs: Tensor) -> None:
    initialize_(model, recipe="paper", seed=0)
    found = diagnose(model, inputs)
    assert [(finding.kind, finding.layer) for finding in found.findings] == [("units are equal", "0")]
    assert "units of layer 0 are equal" in found.verdict[0]
    assert "The output of layer 4 follows the common level" in found.verdict[1]
    assert any("initialize_(model), which sets them apart" in sentence for sentence in found.verdict)
    initialize_(model, seed=0)
    cured = diagnose(model, inputs)
    assert cured.healthy
    assert not cured.warnings


def test_one_feature_is_no_reason_to_call_other_starts_ill() -> None:
    model = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    initialize_(model, "he", seed=0)
    assert diagnose(model, torch.randn(64, 1)).healthy


@pytest.fixture(scope="module")
def sick() -> Diagnosis:
    return diagnose(mlp(40, "xavier"), IMAGES, LABELS)


def test_the_table_is_a_data_frame(sick: Diagnosis) -> None:
    table = sick.table
    assert len(table) == 41
    assert table["active"].dtype == float
    assert np.isnan(table["active"].iloc[-1])
    assert table["pre_std"].tolist() == [row.pre_std for row in sick.layers]
    assert list(table.columns) == list(sick.records()[0])


def test_without_pandas_the_table_is_a_list(sick: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert sick.table == sick.records()


def test_without_matplotlib_plot_says_so(sick: Diagnosis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stiefel_init.torch.observe.pictures", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(StiefelError, match="pip install matplotlib"):
        sick.plot()


def test_it_prints_sentences_and_a_table_that_folds_layers_that_are_alike(sick: Diagnosis) -> None:
    lines = str(sick).splitlines()
    assert " ".join(" ".join(lines[: lines.index("")]).split()) == " ".join(sick.verdict)
    header, *rows = lines[lines.index("") + 1 :]
    assert header.split()[:3] == ["layer", "weight", "activation"]
    assert [row.split("  ")[0] for row in rows] == ["0…78 (40)", "80"]
    first, last = sick.layers[0], sick.layers[39]
    assert f"{first.post_std:.2g} → {last.post_std:.2g}" in rows[0]
    assert max(map(len, lines)) <= 100


def test_html_names_the_layers_safely() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("<b>", nn.Linear(3, 3))

        def forward(self, x: Tensor) -> Tensor:
            return self.get_submodule("<b>")(x)

    text = diagnose(Own(), torch.randn(20, 3))._repr_html_()
    assert "&lt;b&gt;" in text
    assert "<b>" not in text


def test_json_has_everything(sick: Diagnosis) -> None:
    content = json.loads(sick.to_json())
    assert content["healthy"] is False
    assert tuple(content["verdict"]) == sick.verdict
    assert content["findings"][0]["layer"] == sick.findings[0].layer
    assert content["layers"] == sick.records()
    assert content["findings"][0]["cause"] == "weights"
    assert content["fit"]["loss"] == sick.loss
    assert content["inputs"]["features"] == 64


def test_the_plot_is_a_figure_of_its_own(sick: Diagnosis, tmp_path: Path) -> None:
    before = set(sys.modules)
    figure = sick.plot()
    assert "matplotlib.pyplot" not in set(sys.modules) - before
    assert [axis.get_title() for axis in figure.axes][-1] == "gradient norm"
    lines: Any = figure.axes[0].get_lines()
    assert lines[0].get_ydata().tolist() == [row.post_std for row in sick.layers]
    names = {row.label for row in sick.layers}
    for axis in figure.axes:
        labels = [label.get_text() for label in axis.get_xticklabels()]
        assert len(labels) == 12
        assert set(labels) <= names  # as in the sentences
    figure.savefig(tmp_path / "a.png")
    for found in (diagnose(mlp(2), IMAGES), diagnose(exploding(1e3), IMAGES)):
        found.plot().savefig(tmp_path / "b.png")
