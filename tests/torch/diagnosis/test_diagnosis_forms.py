"""A diagnosis as a data frame, a list, text, HTML, JSON and a picture."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diagnosed import IMAGES, LABELS, exploding, mlp
from torch import Tensor, nn

from stiefel_init import StiefelError
from stiefel_init.torch import Diagnosis, diagnose


@pytest.fixture(scope="module")
def sick() -> Diagnosis:
    return diagnose(mlp(40, "xavier"), IMAGES, LABELS)


def test_the_table_is_a_data_frame(sick: Diagnosis) -> None:
    table = sick.table
    assert len(table) == 41
    assert table["predicted_active"].dtype == float
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


def test_it_prints_sentences_and_a_table(sick: Diagnosis) -> None:
    lines = str(sick).splitlines()
    count = len(sick.verdict)
    assert tuple(lines[:count]) == sick.verdict
    assert lines[count] == ""
    assert lines[count + 1].split()[:3] == ["layer", "weight", "activation"]
    assert len(lines) == count + 2 + 25  # 24 rows and a line of dots
    assert len({len(line) for line in lines[count + 1 :]}) == 1


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
    assert text.count("<tr") == 2


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
    measured, predicted = lines[:2]
    assert measured.get_ydata().tolist() == [row.post_std for row in sick.layers]
    assert predicted.get_ydata().tolist()[:-1] == [row.predicted_post_std for row in sick.layers[:-1]]
    names = {row.label for row in sick.layers}
    for axis in figure.axes:
        labels = [label.get_text() for label in axis.get_xticklabels()]
        assert len(labels) == 12
        assert set(labels) <= names  # as in the sentences
    figure.savefig(tmp_path / "a.png")
    for found in (diagnose(mlp(2), IMAGES), diagnose(exploding(1e3), IMAGES)):
        found.plot().savefig(tmp_path / "b.png")
