"""Wrapped models get the weights of the model inside; and a model is wholly initialized or not at all."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from models import mlp
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils import parametrizations, parametrize

from stiefel_init import StiefelError
from stiefel_init.torch import initialize_
from stiefel_init.torch.initialize import draw as _draw

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which torch.compile loads


def values(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def checkpointed(model: nn.Sequential) -> nn.Module:
    return nn.Sequential(*(checkpoint_wrapper(layer) if isinstance(layer, nn.Linear) else layer for layer in model))


def compiled_in_parallel(model: nn.Module) -> nn.Module:
    compiled: Any = torch.compile(model)
    return nn.DataParallel(compiled)


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel, checkpointed, compiled_in_parallel])
def test_a_wrapper_is_no_part_of_a_name(wrap: Any) -> None:
    plain, wrapped = mlp(1, 3, 2), wrap(mlp(1, 3, 2))
    plain.to(next(wrapped.parameters()).device)  # DataParallel goes to a GPU, if there is one
    initialize_(plain, seed=0)
    plan = initialize_(wrapped, seed=0)
    assert all(map(torch.equal, values(wrapped), values(plain)))
    assert [row.name for row in plan] == [name for name, _ in wrapped.named_parameters()]


def test_ctrl_c_waits_until_the_model_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, model = mlp(3, 3, 2), mlp(3, 3, 2)
    initialize_(expected, seed=0)
    members = _draw.members

    def interrupted(*arguments: Any) -> Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return members(*arguments)

    monkeypatch.setattr(_draw, "members", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            initialize_(model, seed=0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert all(map(torch.equal, values(model), values(expected)))


class Doubled(nn.Module):
    """A parametrization that is its own inverse, as often as it is asked to."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.calls = [0]
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x

    def right_inverse(self, x: Tensor) -> Tensor:
        self.calls[0] += 1
        if self.calls[0] > self.times:
            raise RuntimeError("no more")
        return x / 2

    def __deepcopy__(self, memo: Any) -> Doubled:
        copy = Doubled(self.times)
        copy.calls = self.calls
        return copy


def test_a_right_inverse_that_fails_at_last_leaves_the_model_as_it_was() -> None:
    model = mlp(3, 3, 2)
    parametrizations.weight_norm(model[0])
    parametrize.register_parametrization(model[2], "weight", Doubled(2))  # at registration and in the trial
    before = values(model)
    with pytest.raises(StiefelError, match=r"2.weight could not be assigned .*\(no more\); the model is unchanged"):
        initialize_(model)
    assert all(map(torch.equal, values(model), before))


def test_a_dry_run_advances_no_buffers() -> None:
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(5, 4)), nn.ReLU(), nn.Linear(4, 2)).train()
    before = [buffer.clone() for buffer in model.buffers()]
    initialize_(model, dry_run=True)
    assert before
    assert all(map(torch.equal, model.buffers(), before))


def test_lora_adapters_are_left_alone() -> None:
    class Adapted(nn.Module):
        """As the package peft builds it."""

        def __init__(self) -> None:
            super().__init__()
            self.base_layer = nn.Linear(6, 6).requires_grad_(False)
            self.lora_A = nn.ModuleDict({"default": nn.Linear(6, 2, bias=False)})
            self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 6, bias=False)})
            for parameter in self.lora_B.parameters():
                nn.init.zeros_(parameter)

        def forward(self, x: Tensor) -> Tensor:
            return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))

    model = nn.Sequential(Adapted(), nn.ReLU(), Adapted())
    x = torch.randn(3, 6)
    before = model(x)
    for scheme in (None, "he"):
        plan = initialize_(model, scheme)
        assert plan["0.lora_B.default.weight"].reason == "a LoRA adapter"
        assert torch.equal(model(x), before)
