"""`check_depths`: one point for each start and depth, and the picture."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from diagnosed import IMAGES, LABELS
from torch import nn

from stiefel_init import StiefelError
from stiefel_init.torch import check_depths, diagnose, initialize_


def make(depth: int) -> nn.Sequential:
    layers = [module for at in range(depth) for module in (nn.Linear(64 if at == 0 else 32, 32), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def test_each_point_is_what_diagnose_says_of_that_network() -> None:
    found = check_depths(make, IMAGES, LABELS, depths=(4, 20), starts=("he", "best"), seed=3)
    assert [(point.start, point.depth) for point in found.points] == [("he", 4), ("he", 20), ("best", 4), ("best", 20)]
    model = make(20)
    initialize_(model, "he", seed=3)
    rows = diagnose(model, IMAGES, LABELS).layers
    point = found.points[1]
    assert (point.std, point.spread, point.active) == (rows[-2].post_std, rows[-2].spread, rows[-2].active)
    assert point.distinct == rows[-2].distinct
    assert point.gradient == (rows[0].gradient or 0) / (rows[-1].gradient or 1)


def test_lines_of_the_members_are_flat_up_to_a_thousand_layers_and_those_of_torch_are_not() -> None:
    """Two draws of a network 32 wide: their last layers differ by a seventh or so."""
    found = check_depths(make, IMAGES, LABELS, depths=(10, 1000))
    torch_start, best = found.points[:2], found.points[2:]
    assert torch_start[1].finding
    assert torch_start[1].spread < 1e-3 * torch_start[0].spread
    assert not best[1].finding
    assert best[1].spread == pytest.approx(best[0].spread, rel=0.3)
    assert best[1].gradient == pytest.approx(best[0].gradient, rel=0.5)


def test_the_random_state_and_the_starts_are_the_callers() -> None:
    state = torch.random.get_rng_state()
    seen: list[int] = []

    def mine(model: Any) -> None:
        seen.append(len(model))

    found = check_depths(make, IMAGES, depths=[3, 3, 5], starts={"mine": mine})
    assert torch.equal(torch.random.get_rng_state(), state)
    assert seen == [7, 11]
    assert [point.gradient for point in found.points] == [None, None]


def test_table_text_and_picture() -> None:
    found = check_depths(make, IMAGES, LABELS, depths=(3, 60))
    assert list(found.table["depth"]) == [3, 60, 3, 60]
    assert len(found) == 4
    assert repr(found) == "<Depths: built, best at depths 3, 60>"
    assert "healthy" in str(found)
    assert "signal dies" in str(found)
    figure = found.plot()
    axes = figure.axes
    figure.savefig(io.BytesIO(), dpi=30)  # a layout that fails is told as a warning, which is an error here
    assert figure.legends[0].get_texts()[-1].get_text() == "called sick"
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["3", "60"]
    assert [axis.get_title() for axis in axes][-1] == "gradient, first / last layer"
    assert axes[0].get_xscale() == axes[0].get_yscale() == "log"
    assert len(check_depths(make, IMAGES, depths=(3,)).plot().axes) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depths": ()}, "depths="),
        ({"depths": (0,)}, "whole numbers"),
        ({"depths": 5}, "whole numbers"),
        ({"starts": ()}, "starts="),
        ({"starts": {"mine": 3}}, "functions"),
        ({"starts": ("nonsense",), "depths": (3,)}, "nonsense"),
    ],
)
def test_what_cannot_be_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(StiefelError, match=message):
        check_depths(make, IMAGES, **options)


def test_make_must_return_a_module() -> None:
    with pytest.raises(StiefelError, match=r"make\(10\) returned a int"):
        check_depths(lambda depth: depth, IMAGES)  # type: ignore[arg-type, return-value]
