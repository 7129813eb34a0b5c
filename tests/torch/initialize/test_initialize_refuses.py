"""What `initialize_` refuses: in one sentence, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Picture, assert_refused
from every_layer import initialize_
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations, prune

from stiefel_init import schemes


def with_weight(weight: Tensor, grad: bool = False) -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = nn.Parameter(weight, requires_grad=grad)
    return model


def on_two_devices() -> nn.Module:
    if torch.cuda.is_available():
        return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, device="cuda"))
    with FakeTensorMode():  # which makes believe that there is a GPU
        weight = torch.empty(3, 3, device="cuda")
    return with_weight(weight)


def on_meta_with_buffer() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3, device="meta"))
    model[0].register_buffer("frequencies", torch.ones(3, device="meta"))
    return model


def first_then(make: Callable[[nn.Module], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), make(nn.Linear(4, 4)))


def no_way_back() -> nn.Module:
    class Absolute(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.abs()

    return first_then(lambda layer: nn.utils.parametrize.register_parametrization(layer, "weight", Absolute()))


REFUSED: dict[str, tuple[Callable[[], Any], dict, list[str]]] = {
    "no module": (lambda: [nn.Linear(2, 2)], {}, ["list", "torch.nn.Module"]),
    "scheme": (lambda: nn.Linear(2, 2), {"scheme": "glorot"}, ["scheme='glorot'", *map(repr, schemes.names())]),
    "conv": (lambda: nn.Linear(2, 2), {"conv": "same"}, ["conv='same'", "'delta'", "'flatten'"]),
    "seed": (lambda: nn.Linear(2, 2), {"seed": 1.5}, ["seed=1.5", "int"]),
    "negative seed": (lambda: nn.Linear(2, 2), {"seed": -1}, ["seed=-1"]),
    "skip": (Picture, {"skip": ["head.*", "haed.*"]}, ["'haed.*'", "matches no parameter", "'cls_token'"]),
    "skip of a number": (Picture, {"skip": [3]}, ["skip", "3", "int"]),
    "skip of an empty model": (nn.Sequential, {"skip": "a"}, ["'a'", "none"]),
    "lazy": (lambda: nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3)), {}, ["1.weight", "forward pass"]),
    "lazy convolution": (lambda: nn.Sequential(nn.Linear(2, 2), nn.LazyConv2d(3, 3)), {}, ["1.weight"]),
    "integers": (lambda: with_weight(torch.ones(3, 3, dtype=torch.int8)), {}, ["1.weight", "int8", "skip='1.weight'"]),
    "complex": (lambda: with_weight(torch.ones(3, 3, dtype=torch.cfloat), True), {}, ["1.weight", "complex64"]),
    "sparse": (lambda: with_weight(torch.eye(3).to_sparse()), {}, ["1.weight", "sparse_coo"]),
    "expanded": (lambda: with_weight(torch.ones(3, 1).expand(3, 3), True), {}, ["1.weight", "share memory"]),
    "two devices": (on_two_devices, {}, ["cpu", "cuda:0", "model.to("]),
    "buffer on meta": (on_meta_with_buffer, {}, ["0.frequencies", "Linear", "real device"]),
    "token on meta": (lambda: Picture().to("meta"), {}, ["cls_token", "Picture", "real device"]),
    "skipped on meta": (lambda: nn.Linear(2, 2, device="meta"), {"skip": "bias"}, ["bias", "skipped"]),
    "device meta": (lambda: nn.Linear(2, 2, device="meta"), {"device": "meta"}, ["meta", "device='cpu'"]),
    "no such device": (lambda: nn.Linear(2, 2, device="meta"), {"device": "gpu"}, ["device='gpu'"]),
    "another device": (lambda: nn.Linear(2, 2), {"device": "meta"}, ["meta"]),
    "weight norm by hooks": (lambda: first_then(old_weight_norm), {}, ["1.weight_g", "hook", "skip='1.weight_*'"]),
    "pruned": (lambda: first_then(lambda layer: prune.identity(layer, "weight")), {}, ["1.weight_orig", "hook"]),
    "not orthogonal": (lambda: first_then(parametrizations.orthogonal), {"scheme": "he"}, ["1.weight", "_Orthogonal"]),
    "no right inverse": (no_way_back, {}, ["1.weight", "Absolute", "right_inverse", "skip='1.weight'"]),
    "parametrized on meta": (
        lambda: first_then(parametrizations.weight_norm).to("meta"), {}, ["1.weight", "_WeightNorm", "afterwards"],
    ),
    "quantized": (lambda: quantized(), {}, ["1 is a quantized layer", "before quantizing"]),
    "TorchScript": (lambda: nn.Sequential(torch.jit.script(nn.Linear(2, 2))), {}, ["0 is a TorchScript", "before"]),
    "inference": (lambda: inference(), {}, ["weight was made under torch.inference_mode"]),
}  # fmt: skip


def old_weight_norm(layer: nn.Module) -> nn.Module:
    with pytest.warns(FutureWarning, match="deprecated"):
        return nn.utils.weight_norm(layer)


def inference() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(2, 2)


def quantized() -> nn.Module:
    from torch.ao.nn.quantized.dynamic import Linear

    return nn.Sequential(nn.Linear(4, 4), Linear(4, 4))


@pytest.mark.filterwarnings("ignore:.*deprecated", "ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence_and_nothing_is_changed(case: str) -> None:
    make, options, words = REFUSED[case]
    model = make()
    held = list(model.parameters()) if isinstance(model, nn.Module) else []
    plain = [p for p in held if type(p) is nn.Parameter and not p.is_meta]
    before = [parameter.detach().to_dense().clone() for parameter in plain]
    assert_refused(lambda: initialize_(model, **options), words)
    assert all(torch.equal(now.detach().to_dense(), then) for now, then in zip(plain, before))
    if isinstance(model, nn.Module):
        assert all(a is b for a, b in zip(held, model.parameters()))


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_what_would_be_refused_can_be_skipped() -> None:
    for case in ("lazy", "integers", "complex", "sparse", "expanded", "weight norm by hooks", "no right inverse"):
        plan = initialize_(REFUSED[case][0](), skip="1.*")
        assert [row.action for row in plan.rows[:2]] == [plan["0.weight"].action, "zeros"]
