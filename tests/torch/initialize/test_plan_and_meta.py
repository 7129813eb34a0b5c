"""The plan of `initialize_`, as a table and as a dry run; and models on the meta device."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pytest
import torch
from conftest import ALL_SCHEMES, Picture, same, values
from every_layer import initialize_
from torch import nn


@pytest.mark.parametrize(("scheme", "seed"), [*((scheme, 0) for scheme in ALL_SCHEMES), ("stiefel", None)])
def test_a_dry_run_makes_the_same_plan_and_changes_nothing(scheme: str, seed: int | None) -> None:
    model = Picture()
    before, state = values(model), torch.get_rng_state()
    dry = initialize_(model, scheme, seed=seed, dry_run=True)
    assert same(before, values(model))
    assert torch.equal(state, torch.get_rng_state())
    assert initialize_(model, scheme, seed=seed) == dry


def test_a_plan_is_a_table() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Embedding(5, 2))
    plan = initialize_(model)
    assert str(plan).splitlines() == [
        "1 of 5 parameters drawn, 3 zeros or ones, 1 left alone.",
        "parameter   shape         what is done               orthonormal  why",
        "0.weight    (8, 3, 3, 3)  stiefel 8×3 at the centre  columns",
        "*.bias (2)  (8,)          zeros                      —",
        "1.weight    (8,)          ones                       —",
        "2.weight    (5, 2)        left alone                 —            an embedding",
    ]
    assert repr(plan) == "Plan of 5 parameters; print it for the table"
    frame = pd.DataFrame(plan.to_dict())
    assert list(frame) == list(pd.DataFrame(list(plan))) == ["name", "shape", "action", "orthonormal", "reason"]
    assert list(frame.name) == [name for name, _ in model.named_parameters()]
    with pytest.raises(KeyError):
        plan["3.weight"]
    assert str(initialize_(nn.Sequential())).startswith("0 of 0 parameters drawn.\nparameter")


class Stage(nn.Module):
    """Blocks of a width of their own, with long names."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a_block_of_this_stage_of_the_encoder = nn.ModuleList(
            nn.ModuleDict({"a_linear_layer_with_a_name": nn.Linear(width, width), "out": nn.Linear(width, width)})
            for _ in range(9)
        )


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(*(part for _ in range(1000) for part in (nn.Linear(8, 8), nn.ReLU()))),
        nn.Sequential(*(nn.Linear(8 + k % 30, 8 + (k + 1) % 30) for k in range(300))),
        nn.ModuleDict({f"stage_{width}": Stage(width) for width in range(8, 40)}),
        nn.ModuleDict({f"part_{letter}": Stage(8) for letter in "abcdefghijklmnopqrstuvwxyz"}),
        nn.ModuleDict({3 * letter: nn.Linear(8, 8) for letter in "abcdefghijklmnopqrstuvwxyz"}),
    ],
    ids=["1,000 layers", "thirty widths", "stages", "parts", "names"],
)
def test_a_plan_of_any_depth_is_short_and_narrow(model: nn.Module) -> None:
    lines = str(initialize_(model, dry_run=True)).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 100
    assert re.fullmatch(r"[\d,]+ of [\d,]+ parameters drawn, [\d,]+ zeros or ones\.", lines[0])


# The meta device.


def everything() -> Any:
    model: Any = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.InstanceNorm2d(8, affine=True, track_running_stats=True),
        nn.PReLU(),
        nn.Embedding(9, 8, padding_idx=2),
        nn.TransformerEncoderLayer(8, 2, 16),
        nn.LSTM(8, 4),
        nn.Linear(4, 9),
        nn.Linear(8, 9, bias=False),
    )
    model[8].weight = model[4].weight
    return model


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("seed", [None, 4])
def test_a_model_on_meta_gets_memory_and_values_in_one_call(seed: int | None, device: str | None) -> None:
    with torch.device("meta"):
        model = everything()
    plan = initialize_(model, seed=seed, dry_run=True, device=device)
    assert all(tensor.is_meta for tensor in model.state_dict().values())
    assert initialize_(model, seed=seed, device=device) == plan
    assert model[8].weight is model[4].weight
    assert plan["4.weight"][2:] == ("N(0, 1)", "—", "an embedding")
    assert (model[4].weight[2] == 0).all()
    assert model[4].weight.std().item() == pytest.approx(1, abs=0.5)
    for parameter in model.parameters():
        assert parameter.device.type == "cpu"
        assert parameter.requires_grad
    real = everything()
    initialize_(real, seed=seed)
    expected, found = values(real), values(model)
    for name in expected.keys() - {"4.weight", "8.weight"} if seed is not None else ["1.running_var", "3.weight"]:
        assert torch.equal(found[name], expected[name]), name
    model[6](model[5](model[4](torch.zeros(3, 2, dtype=torch.int64))))[0].sum().backward()


def test_what_has_values_keeps_them_while_the_rest_leaves_meta() -> None:
    model: Any = Picture().to("meta")
    model.register_buffer("mean", torch.full((3,), 0.5))
    model.cls_token = nn.Parameter(torch.ones(1, 1, 8))
    model.gamma = nn.Parameter(torch.ones(8))
    initialize_(model, seed=0)
    assert (model.cls_token == 1).all()
    assert (model.mean == 0.5).all()
    assert torch.isfinite(model(torch.rand(2, 3, 8, 8))).all()
