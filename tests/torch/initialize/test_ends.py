"""The ends of a model are found: by running it, by reading it, or by their order; or the user names them."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import Fused, PlainCNN, Recurrent, Residual, Transformer, TwoEnds, Unreadable, mlp
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from stiefel_init import StiefelError
from stiefel_init.torch import Plan, initialize_
from stiefel_init.torch.initialize import trace as _flow

Case = tuple[Callable[[], nn.Module], Callable[[], Any], set[str], set[str]]
CASES: dict[str, Case] = {
    "mlp": (lambda: mlp(4, 3, 2), lambda: torch.randn(5, 4), {"0.weight"}, {"6.weight"}),
    "cnn": (PlainCNN, lambda: torch.randn(2, 1, 6, 6), {"stem.weight"}, {"head.weight"}),
    "residual": (Residual, lambda: torch.randn(2, 3, 6, 6), {"stem.weight"}, {"fc.weight"}),
    "transformer": (Transformer, lambda: torch.randint(20, (2, 5)), set(), {"head.weight"}),
    "fused attention": (Fused, lambda: torch.randn(2, 5, 4), {"stem.weight"}, {"head.weight"}),
    "two ends": (
        TwoEnds,
        lambda: (torch.randn(3, 4), torch.randn(3, 2)),
        {"a.weight", "b.weight"},
        {"value.weight", "classes.weight"},
    ),
    "recurrent": (Recurrent, lambda: torch.randn(2, 4, 3), {"recurrent.weight_ih_l0"}, {"head.weight"}),
    "one layer": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), lambda: torch.randn(3, 4), set(), {"1.weight"}),
    "a backbone ends in ReLU": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()),
        lambda: torch.randn(3, 4),
        {"0.weight"},
        set(),
    ),
}


def ends(plan: Plan, end: str) -> set[str]:
    return {row.name for row in plan if row.reason.startswith(end)}


def weights_of(model: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters() if parameter.ndim > 1}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_both_ways_find_the_ends(case: Case) -> None:
    make, inputs, stems, heads = case
    for examples in (None, inputs()):
        plan = initialize_(make(), inputs=examples)
        assert ends(plan, "stem") == stems
        assert ends(plan, "head") == heads
        assert all(("traced" in row.reason) == (examples is not None) for row in plan if row.reason.startswith("head"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reading_a_forward_and_running_it_tell_the_same(case: Case) -> None:
    make, inputs, _, _ = case
    model = make()
    read, watched = (_flow.read(model, weights_of(model)), _flow.watch(model, inputs(), weights_of(model)))
    assert read is not None
    assert (read.reads, read.next, read.normalized) == (watched.reads, watched.next, watched.normalized)


def test_layers_in_a_row_are_counted_between_ends_normalizations_and_sums() -> None:
    plan = initialize_(PlainCNN(hidden=4))
    assert all("0.5 patches" in plan[f"layers.{i}.weight"].action for i in range(4))  # 1/√4
    plan = initialize_(Residual())
    assert [plan[f"{name}.weight"].action for name in ("first", "second")] == ["orthogonal 8×72 × 0.577"] * 2


def test_a_functional_weight_is_traced() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.last = nn.Linear(2, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x @ self.inner.weight.T + self.inner.bias) @ self.last.weight.t()

    for inputs in (None, torch.randn(4, 2)):
        plan = initialize_(Functional(), inputs=inputs)
        assert (ends(plan, "stem"), ends(plan, "head")) == ({"inner.weight"}, {"last.weight"})


def test_any_mapping_is_keywords_and_a_packed_sequence_is_one_argument() -> None:
    """A tokenizer returns a `UserDict`; a batch of sentences of different lengths is packed."""

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent, self.head = nn.LSTM(3, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, x: PackedSequence) -> Tensor:
            return self.head(self.recurrent(x)[1][0][-1])

    plan = initialize_(TwoEnds(), inputs=UserDict(x=torch.randn(3, 4), y=torch.randn(3, 2)))
    assert (ends(plan, "stem"), ends(plan, "head")) == ({"a.weight", "b.weight"}, {"value.weight", "classes.weight"})
    assert "traced" in plan["a.weight"].reason
    plan = initialize_(Packed(), inputs=pack_sequence([torch.randn(4, 3), torch.randn(2, 3)]))
    assert (ends(plan, "stem"), ends(plan, "head")) == ({"recurrent.weight_ih_l0"}, {"head.weight"})
    with pytest.raises(StiefelError, match=r"inputs=\(6, 3\), .* have entries that are not finite"):
        initialize_(Packed(), inputs=pack_sequence([torch.full((4, 3), torch.nan), torch.randn(2, 3)]))


def test_what_cannot_be_read_is_traced_with_inputs_or_guessed_by_order() -> None:
    traced = initialize_(Unreadable(), inputs=torch.randn(3, 2))
    assert (ends(traced, "stem"), ends(traced, "head")) == ({"inner.weight"}, {"last.weight"})
    guessed = initialize_(Unreadable())
    assert [row.action for row in guessed] == [row.action for row in traced]
    assert guessed["inner.weight"].reason == "stem: reads the input (traced with (2, 2))"

    class Two(Unreadable):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x + y)

    guessed = initialize_(Two())
    assert ends(guessed, "stem") == {"inner.weight"}
    assert ends(guessed, "head") == {"last.weight"}
    assert "give inputs=" in guessed["inner.weight"].reason


def test_ends_can_be_named() -> None:
    plan = initialize_(Unreadable(), head="last.*", stem=())
    assert (ends(plan, "stem"), ends(plan, "head")) == (set(), {"last.weight"})
    plan = initialize_(TwoEnds(), head=["value.weight"])
    assert ends(plan, "head") == {"value.weight"}
    assert ends(plan, "stem") == {"a.weight", "b.weight"}


class Counter(nn.Module):
    """Counts its calls in a buffer and draws a random number, also in evaluation mode."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + 0 * torch.rand(())


def test_tracing_leaves_no_trace() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), Counter(), nn.Linear(8, 2))
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    initialize_(model, inputs=torch.randn(4, 3, generator=torch.Generator()), dry_run=True)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model] == [True, True, False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": torch.randn(3, 4)}, r"does not run on inputs=\(3, 4\) \(TypeError: .*'y'\); give what"),
        ({"inputs": (torch.randn(3, 5), torch.randn(3, 2))}, r"does not run on inputs=\(3, 5\), \(3, 2\) \(Runtime"),
        ({"inputs": (torch.full((3, 4), float("nan")), torch.randn(3, 2))}, "not finite"),
        ({"head": "nope"}, "head pattern 'nope' matches no parameter; .* begin with 'a.weight'"),
        ({"stem": [3]}, "stem has 3, a int"),
        ({"recipe": "good"}, "recipe='good' is not known; choose one of 'best', 'paper'"),
        ({"recipe": "paper", "scheme": "he"}, "leave out scheme='he'"),
        ({"recipe": "best", "conv": "delta"}, "leave out scheme, conv and member"),
        ({"scheme": "he", "head": "value.weight"}, "belong to recipe='best'"),
    ],
)
def test_bad_ends_are_refused_in_one_sentence(options: dict[str, Any], message: str) -> None:
    model = TwoEnds()
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(StiefelError, match=message):
        initialize_(model, **options)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before))
