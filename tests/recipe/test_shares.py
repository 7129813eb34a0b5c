"""One number for the learning rate: what `param_groups` makes of it for layers of all roles, widths and depths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from paper.networks import GPT, PlainCNN, mlp
from paper.zoo.pictures import resnet
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from stiefel_init import StiefelError
from stiefel_init.torch import initialize_, param_groups
from stiefel_init.torch.optim import StiefelAdam, StiefelMuon
from stiefel_init.torch.trial import warm_cosine


def scales(model: nn.Module, **options: Any) -> dict[str, float]:
    """The multiplier of each parameter, by name."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = param_groups(model, 1e-3, **options)
    assert all(math.isclose(group["lr"], 1e-3 * group["lr_scale"]) for group in groups)
    return {names[id(parameter)]: group["lr_scale"] for group in groups for parameter in group["params"]}


def plain(depth: int, width: int = 64) -> nn.Sequential:
    """`depth` hidden layers."""
    return mlp(784, 10, depth + 1, width)


def test_the_base_learns_at_the_number_itself_and_its_ends_ten_times_as_fast() -> None:
    found = scales(plain(10))
    assert {found[f"{2 * at}.weight"] for at in range(1, 10)} == {1.0}
    assert (found["0.weight"], found["20.weight"]) == (10.0, 10.0)


@pytest.mark.parametrize(("depth", "width"), [(2, 64), (100, 64), (300, 64), (10, 16), (10, 256), (30, 128)])
def test_hidden_layers_slow_down_as_one_over_width_and_depth_and_the_first_never(depth: int, width: int) -> None:
    found = scales(plain(depth, width))
    assert found["2.weight"] == pytest.approx(64 / width * 10 / depth, rel=1e-3)
    assert found["2.bias"] == pytest.approx(10 / depth, rel=1e-3), "a bias has one input"
    assert found["0.weight"] == 10
    assert found[f"{2 * depth}.weight"] == 10 * min(1, 64 / width)


def test_residual_branches_slow_down_as_the_root_of_their_number() -> None:
    few, many = (scales(GPT(width=64, blocks=blocks, tokens=16))["blocks.0.fc1.weight"] for blocks in (5, 20))
    assert few == 0.5  # 64 × 256: √4 of a square one
    assert few / many == pytest.approx(2, rel=1e-3)


@pytest.mark.parametrize(
    "model", [plain(3), PlainCNN(7), resnet(False, nn.BatchNorm2d), nn.TransformerEncoderLayer(16, 2), GPT(32, 2, 8)]
)
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "muon"])
def test_every_parameter_is_in_one_group_and_names_are_not_given_twice(model: nn.Module, optimizer: Any) -> None:
    groups = param_groups(model, 0.1, optimizer=optimizer)
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(id(parameter) for parameter in model.parameters())
    names = [group["name"] for group in groups]
    assert len(set(names)) == len(names)  # Lightning's LearningRateMonitor asks for that
    assert all(0 < group["lr_scale"] <= 10 for group in groups)


def test_the_first_layer_behind_an_embedding_reads_no_input_even_where_nothing_can_be_traced() -> None:
    class Untraceable(GPT):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x if x.sum() > 0 else x + 1)

    found = scales(Untraceable(64, 5, 8))
    assert found["blocks.0.attention.qkv.weight"] == found["blocks.4.attention.qkv.weight"] < 2
    assert found["head.weight"] == 10


def test_gradient_descent_is_told_of_depth_alone() -> None:
    found = scales(plain(100, 256), optimizer="sgd")
    assert (found["0.weight"], found["2.weight"], found["200.weight"]) == (1.0, 0.1, 1.0)


def test_muon_gets_the_matrices_between_hidden_layers_and_the_rest_the_rates_of_its_adam() -> None:
    model = plain(20, 128)
    groups = param_groups(model, 0.02, optimizer="muon")
    turned = [parameter for group in groups if group["use_muon"] for parameter in group["params"]]
    assert {tuple(parameter.shape) for parameter in turned} == {(128, 128)}
    adam = scales(model)
    assert {name: scale * 20 for name, scale in scales(model, optimizer="muon").items() if name != "2.weight"} == {
        name: pytest.approx(10.0 if "weight" in name and 0 < int(name.split(".")[0]) < 40 else scale, rel=1e-3)
        for name, scale in adam.items()
        if name != "2.weight"
    }
    initialize_(model, "stiefel", seed=0)
    StiefelMuon([group | {"on_set": group["use_muon"]} for group in groups])


def test_decay_takes_as_much_from_every_matrix_in_a_step_and_nothing_from_vectors() -> None:
    groups = param_groups(GPT(32, 3, 8), 3e-3, weight_decay=0.1)
    for group in groups:
        is_matrix = group["name"].startswith(("hidden", "first", "last"))
        assert group["lr"] * group["weight_decay"] == pytest.approx(3e-4 if is_matrix else 0.0)
    assert all("weight_decay" not in group for group in param_groups(plain(2), 1e-3)), "the optimizer's own holds"


def test_schedules_clipping_and_optimizers_on_the_set_take_the_groups() -> None:
    model = plain(12, 16)
    initialize_(model, "stiefel", seed=0)
    optimizers: list[Callable[[Any], torch.optim.Optimizer]] = [torch.optim.AdamW, StiefelAdam]
    for make in optimizers:
        optimizer = make(param_groups(model, 1e-3))
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5)
        model(torch.rand(8, 784)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        assert all(math.isclose(group["lr"], 5e-4 * group["lr_scale"]) for group in optimizer.param_groups)


def test_frozen_parameters_are_left_out_tied_ones_are_in_one_group_and_parametrized_ones_learn_as_their_layer() -> None:
    model = plain(5)
    model[2].weight.requires_grad_(False)
    model[6].weight = model[4].weight
    weight_norm(model[8])
    groups = param_groups(model, 1e-3)
    listed = [parameter for group in groups for parameter in group["params"]]
    assert len(listed) == len({id(parameter) for parameter in listed}) == len(list(model.parameters())) - 1
    found = scales(model)
    assert found["8.parametrizations.weight.original1"] == found["4.weight"] == 2.5


def test_tied_embeddings_learn_as_embeddings() -> None:
    model = GPT(64, 2, 8)
    model.head.weight = model.embedding.weight
    assert scales(model)["embedding.weight"] == 1.0


def test_the_plan_of_a_deep_plain_network_ends_with_the_line_to_write() -> None:
    line = "optimizer = torch.optim.Adam(param_groups(model, 1e-3))"
    plan = initialize_(plain(10), dry_run=True)
    assert plan.note == line
    assert str(plan).endswith(f"\n\n{line}")
    others: list[tuple[nn.Module, Any]] = [
        (plain(9), {}), (plain(10), {"scheme": "permutation"}), (PlainCNN(19), {}), (GPT(32, 8, 8), {})
    ]  # fmt: skip
    for model, options in others:
        assert initialize_(model, dry_run=True, **options).note == "", "no such evidence for it"


def test_what_cannot_be_used_is_refused_in_one_sentence() -> None:
    model, frozen = plain(2), plain(2).requires_grad_(False)
    lazy = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.Linear(3, 2))
    made = torch.optim.Adam(model.parameters())
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (model.state_dict(), {}, r"model is a OrderedDict; give a torch\.nn\.Module"),
        (model, {"lr": 0.0}, r"lr=0\.0 is not a finite number > 0"),
        (model, {"weight_decay": -1}, r"weight_decay=-1 is not a finite number ≥ 0"),
        (model, {"optimizer": "adan"}, r"optimizer='adan' is not known; .*did you mean 'adam'"),
        (model, {"optimizer": made}, r"optimizer is a Adam that is made already; make it from the groups"),
        (model, {"stem": "nothing"}, r"stem pattern 'nothing' matches no parameter"),
        (frozen, {}, r"no parameter of the model needs a gradient"),
        (lazy, {}, r"0\.weight is a lazy layer's parameter without a shape; run one forward pass first"),
    ]
    for given, options, sentence in cases:
        with pytest.raises(StiefelError, match=sentence):
            param_groups(given, options.pop("lr", 1e-3), **options)


def moved(depth: int, layers: slice) -> float:
    """By how much a first step of Adam of 1e-6 in some linear layers moves the output, mean of five networks."""
    total = 0.0
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x, y = torch.rand(64, 64, generator=generator).double(), torch.arange(64) % 10
        model = mlp(64, 10, depth + 1, 32)
        initialize_(model, seed=seed)
        before = model.double()(x)
        nn.functional.cross_entropy(before, y).backward()
        with torch.no_grad():
            for layer in [layer for layer in model if isinstance(layer, nn.Linear)][layers]:
                assert layer.weight.grad is not None
                layer.weight -= 1e-6 * layer.weight.grad.sign()
            total += float((model(x) - before).norm()) / 5
    return total


def test_a_step_of_all_hidden_layers_moves_the_output_in_proportion_to_depth_and_one_of_the_ends_does_not() -> None:
    """Why hidden layers of a chain learn at 1/L, and the ends at ten times the rate of the base."""
    first, hidden, last = slice(0, 1), slice(1, -1), slice(-1, None)
    power = math.log(moved(160, hidden) / moved(10, hidden)) / math.log(16)
    assert 0.8 < power < 1.2
    for end in (first, last):
        assert 0.6 < moved(160, end) / moved(10, end) < 1.7
        assert 5 < moved(10, hidden) / moved(10, end) < 20


@pytest.mark.slow
@pytest.mark.parametrize("step", ["sgd", "muon"])
def test_one_number_serves_10_and_100_layers_and_one_rate_does_not(step: Any) -> None:
    """On digits, 150 steps with a cosine: at the rate that 10 layers like, 100 of them fail with one rate for all."""
    if step == "muon" and not hasattr(torch.optim, "Muon"):
        pytest.skip("this release of torch has no Muon")
    digits = load_digits()
    x, y = torch.from_numpy(digits.data / 16).float(), torch.from_numpy(digits.target)

    def trained(depth: int, *, scaled: bool) -> float:
        model, order = mlp(64, 10, depth + 1, 64), torch.Generator().manual_seed(0)
        initialize_(model, seed=0)
        groups = param_groups(model, 0.02, optimizer=step)
        for group in groups:
            plain = 0.02 if group.get("use_muon", True) else 0.001
            group["lr"] = group["lr"] if scaled else plain
        turned = [group for group in groups if group.get("use_muon")]
        others = [group for group in groups if not group.pop("use_muon", False)]
        adam = [torch.optim.Muon(turned, weight_decay=0.0), torch.optim.Adam(others)] if turned else []
        steppers: list[torch.optim.Optimizer] = adam or [torch.optim.SGD(groups, momentum=0.9)]
        schedules = [torch.optim.lr_scheduler.LambdaLR(each, lambda at: warm_cosine(at / 150)) for each in steppers]
        losses = []
        for _ in range(150):
            rows = torch.randint(len(x), (128,), generator=order)
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            model.zero_grad()
            loss.backward()
            for each, schedule in zip(steppers, schedules):
                each.step()
                schedule.step()
            losses.append(float(loss.detach()))
        return sum(losses[-30:]) / 30

    assert max(trained(depth, scaled=True) for depth in (10, 100)) < 0.2
    assert trained(10, scaled=False) < 0.2
    assert not trained(100, scaled=False) < 1
