"""`assert_initialized`: what nobody wrote is found, however it looks; what somebody wrote is left in peace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_refused
from torch import Tensor, nn

from stiefel_init.torch import assert_initialized


class Scaled(nn.Linear):
    """A linear layer with a parameter of its own, as `fill` leaves it, and a buffer."""

    steps: Tensor

    def __init__(self, fill: Callable[[Tensor], Tensor] = lambda empty: empty, scale: float = 1.0) -> None:
        super().__init__(32, 32)
        self.own = nn.Parameter(fill(torch.empty(4, 32)))
        self.register_buffer("steps", torch.arange(3.0) * scale)


class ByItself(Scaled):
    """The same, with all that is its own written by `reset_parameters`."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if hasattr(self, "own"):
            nn.init.normal_(self.own)
            self.steps.copy_(torch.arange(3.0))

    def __init__(self) -> None:
        super().__init__(nn.init.normal_)


class RandomBuffer(nn.Module):
    """Random features, which nobody trains."""

    features: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("features", torch.empty(8, 2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.features.normal_()


def twins() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[1].load_state_dict(model[0].state_dict())
    return model


def small() -> nn.Module:
    layer = nn.Linear(64, 64)
    nn.init.normal_(layer.weight, std=0.01)
    return layer


FINE: dict[str, tuple[Callable[[], nn.Module], bool]] = {
    "a layer of torch": (lambda: nn.Linear(1, 1), True),
    "an LSTM": (lambda: nn.LSTM(4, 8), True),
    "a normalization": (lambda: nn.BatchNorm2d(8), True),
    "zeros that its author wrote": (lambda: Scaled(nn.init.zeros_), False),
    "equal values in every build": (lambda: nn.Sequential(*(Scaled(nn.init.eye_) for _ in range(2))), False),
    "one that resets all it has": (ByItself, True),
    "a buffer of random numbers": (RandomBuffer, True),
    "no parameters": (nn.ReLU, True),
}
WRONG: dict[str, tuple[Callable[[], nn.Module], bool, str]] = {
    "memory as it was": (Scaled, False, "own (4, 32): 128 entries are not finite"),
    "one layer's values in another": (twins, False, "1.weight (8, 8): equal to 0.weight"),
    "a size given after the build": (small, True, "weight (64, 64): size 0.0"),
    "a parameter that no reset reaches": (lambda: Scaled(nn.init.normal_), True, "own (4, 32): left without values"),
    "a buffer that no reset reaches": (lambda: Scaled(nn.init.normal_), True, "steps (3,): another value"),
    "torch's attention, without a reset": (lambda: nn.MultiheadAttention(8, 2), True, "in_proj_weight (24, 8): left"),
}


@pytest.mark.parametrize("case", FINE)
def test_what_is_initialized_passes(case: str) -> None:
    make, meta = FINE[case]
    for seed in range(20):
        torch.manual_seed(seed)
        assert not assert_initialized(make, meta=meta).alarms


@pytest.mark.parametrize("case", WRONG)
def test_what_nobody_initialized_is_named(case: str) -> None:
    make, meta, words = WRONG[case]
    with pytest.raises(AssertionError) as caught:
        assert_initialized(make, meta=meta)
    assert words in str(caught.value)


def test_the_flags_of_torch_are_as_before() -> None:
    def flags() -> tuple[bool, bool]:
        memory: Any = torch.utils.deterministic
        return torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory

    before = flags()
    assert_initialized(lambda: nn.Linear(2, 2))
    assert before == flags()


@pytest.mark.parametrize("make", [nn.Linear(2, 2), 3, lambda: 3, lambda: nn.LazyLinear(3)])
def test_what_builds_no_model_is_one_sentence(make: Any) -> None:
    assert_refused(lambda: assert_initialized(make), [])
