"""`find_start`: what it finds is what trains, and never worse than the author's beyond the noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from conftest import assert_refused
from torch import Tensor, nn

from stiefel_init.recipe.search import planned
from stiefel_init.torch import find_start
from stiefel_init.torch.optim import StiefelAdam, StiefelSGD
from stiefel_init.torch.trial import Trial, Trials

X = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
BATCHES = [(part, (part[:, 0] > 0).long()) for part in X.split(64)]


def deep() -> nn.Module:
    return nn.Sequential(*(part for _ in range(24) for part in (nn.Linear(8, 8), nn.ReLU())), nn.Linear(8, 2))


def shallow() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def trial(start: str, seed: int, loss: float, lr: float = 0.1) -> Trial:
    return Trial(start=start, rates="one rate", lr=lr, seed=seed, steps=10, loss=loss, curve=(loss,))


def test_a_deep_network_is_told_to_begin_from_the_recipe() -> None:
    found = find_start(deep, BATCHES, steps=96, seeds=2, lrs=[1e-3, 1e-2])
    assert (found.complete, found.best[0]) == (True, "best")
    assert "initialize_(model)" in found.call
    assert "is better than the model's own initialization" in found.sentence
    assert str(found).startswith(found.sentence)
    assert str(found).endswith(found.call)
    assert len(found.table) == len(found) == 10 + 2 + 6
    assert len(found.plot().axes[0].lines) == 5
    again = find_start(deep, BATCHES, steps=96, seeds=2, lrs=[1e-3, 1e-2])
    assert again.trials == found.trials


@pytest.mark.parametrize(
    ("ours", "authors", "best"),
    [
        ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "best"),
        ([1.0, 2.1, 1.2], [1.1, 2.0, 1.25], "built"),  # the same, but for noise
        ([2.0, 2.1, 2.2], [1.0, 1.1, 1.2], "built"),
        ([1.0, 1.1, 1.2], [math.inf, math.inf, math.inf], "best"),
        ([1.0, 1.1, math.inf], [2.0, 2.1, 2.2], "built"),
    ],
)
def test_only_what_is_better_beyond_the_noise_is_recommended(
    ours: list[float], authors: list[float], best: str
) -> None:
    trials = [
        trial(start, seed, loss)
        for start, losses in (("best", ours), ("built", authors))
        for seed, loss in enumerate(losses)
    ]
    found = Trials(tuple(trials), 10, complete=True)
    assert found.best[0] == best
    assert ("Keep the model's own" in found.sentence) is (best == "built")


def test_the_author_is_always_among_those_trained_to_the_end() -> None:
    found = find_start(deep, BATCHES, starts=["best", "he"], steps=64, seeds=2, lrs=[1e-2])
    assert {each.start for each in found.trials if each.steps == 64} >= {"built"}


def test_own_initializations_losses_optimizers_and_validation_are_used() -> None:
    used: list[str] = []

    def ones(model: nn.Module) -> None:
        used.append("start")
        nn.init.ones_(model.get_parameter("0.weight"))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs[:, 0], targets.float())

    held = [(X[:32], (X[:32, 0] > 0).long())]
    found = find_start(
        shallow, BATCHES, loss, validation=held, optimizer=torch.optim.SGD, starts={"ones": ones}, steps=32, seeds=2,
        lrs=[1e-1],
    )  # fmt: skip
    assert used
    assert {each.start for each in found.trials} == {"ones", "built"}
    full = [each for each in found.trials if each.steps == 32]
    assert all(each.loss != pytest.approx(sum(each.curve[-8:]) / 8) for each in full)


def test_a_search_costs_what_the_clock_was_told() -> None:
    found = find_start(shallow, BATCHES, starts=["he", "orthogonal"], steps=64, seeds=2, lrs=[1e-3, 1e-2, 1e-1])
    cost = sum(each.steps for each in found.trials) - planned(9, 64)
    assert cost in {2 * 2 * 64, 2 * 2 * 64 + 64, 2 * 3 * 64, 2 * 3 * 64 + 64, 2 * 4 * 64}, (
        "a finalist, at up to 3 rates"
    )


def test_a_mapping_is_taken_as_keywords_and_its_loss_as_the_models() -> None:
    class Answer(dict[str, Any]):
        def __getattr__(self, name: str) -> Any:
            return self[name]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = shallow()

        def forward(self, x: Tensor, labels: Tensor) -> Answer:
            logits = self.layers(x)
            return Answer(loss=nn.functional.cross_entropy(logits, labels), logits=logits)

    found = find_start(Model, [{"x": x, "labels": y} for x, y in BATCHES], starts=["built"], steps=16, lrs=[1e-2])
    assert all(math.isfinite(each.loss) for each in found.trials)


def test_what_diverges_loses_and_an_interrupted_search_says_so() -> None:
    count = 0

    def interrupted() -> Iterator[Any]:
        nonlocal count
        for batch in BATCHES:
            count += 1
            if count > 40:
                raise KeyboardInterrupt
            yield batch

    class Loader:
        def __iter__(self) -> Iterator[Any]:
            return interrupted()

    found = find_start(shallow, Loader(), steps=64, seeds=2, lrs=[1e-2, 1e30], starts=["built", "he"])
    assert not found.complete
    assert "interrupted" in str(found)
    assert {each.lr for each in found.trials if each.loss == math.inf} == {1e30}


class Once:
    """Batches that are gone when they have been read."""

    def __init__(self) -> None:
        self.left = list(BATCHES)

    def __iter__(self) -> Iterator[Any]:
        while self.left:
            yield self.left.pop()


def test_a_loss_that_is_never_finite_is_told_and_an_end_of_the_rates_too() -> None:
    def lost(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.sum() * math.nan

    found = find_start(shallow, BATCHES, lost, steps=16, seeds=2, lrs=[1e-3])
    assert found.complete
    assert found.sentence.startswith("Nothing trained: no loss stayed finite")
    slow = find_start(shallow, BATCHES, steps=32, seeds=2, lrs=[1e-6, 1e-5])
    assert "It is an end of what was tried: give lrs beyond" in slow.sentence


def test_the_users_schedule_and_clipping_are_those_of_the_search() -> None:
    parts: list[float] = []

    def schedule(part: float) -> float:
        parts.append(part)
        return 1 - part

    given: dict[str, Any] = {"starts": ["built"], "steps": 16, "seeds": 2, "lrs": [0.1], "optimizer": torch.optim.SGD}
    found = find_start(shallow, BATCHES, schedule=schedule, clip=1e-9, **given)
    assert {0.0, 0.5, 15 / 16} <= set(parts)
    still = next(each.curve for each in found.trials if each.steps == 16)
    assert still[0] == pytest.approx(still[4], rel=1e-5), "the same batch, and no step that is felt"


@pytest.mark.parametrize(
    "optimizer", [torch.optim.SGD, StiefelSGD, StiefelAdam, partial(torch.optim.AdamW, fused=True)]
)
def test_any_optimizer_is_tried_with_one_rate_and_with_groups(optimizer: Any) -> None:
    found = find_start(deep, BATCHES, starts=["best"], optimizer=optimizer, steps=32, seeds=2, lrs=[1e-3, 1e-2])
    assert all(math.isfinite(each.loss) for each in found.trials)
    of_groups, of_one = ({e.lr: e.loss for e in found.trials if e.rates == way and e.start == "best" and e.steps == 2}
                         for way in ("param_groups", "one rate"))  # fmt: skip
    assert of_groups != of_one
    assert found.step == ("sgd" if optimizer in (torch.optim.SGD, StiefelSGD) else "adam")


def test_the_line_to_write_says_what_the_groups_are_for() -> None:
    ours = [replace(trial("best", seed, 1.0 + 0.1 * seed), rates="param_groups") for seed in range(2)]
    authors = [trial("built", seed, 2.0 + 0.1 * seed) for seed in range(2)]
    found = Trials((*ours, *authors), 10, complete=True, step="sgd")
    assert found.call.endswith('optimizer = Optimizer(param_groups(model, 0.1, optimizer="sgd"))')


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("batches has no batch", {"batches": []}),
        ("or none when it is read again", {"batches": Once()}),
        ("can be read only once", {"batches": iter(BATCHES)}),
        ("validation has no batch", {"validation": []}),
        ("a batch is a Tensor", {"batches": [X]}),
        ("must be one number", {"loss": lambda outputs, targets: outputs[:, 0]}),
        ("make_model returned a int", {"make_model": lambda: 3}),
        ("optimizer is a SGD; give what makes one", {"optimizer": torch.optim.SGD(shallow().parameters(), 0.1)}),
        ("lazy", {"make_model": lambda: nn.Sequential(nn.LazyLinear(2)), "starts": ["best"]}),
        ("has no gradient", {"make_model": lambda: shallow().requires_grad_(False), "starts": ["built"]}),
        ("lrs is empty", {"lrs": []}),
        ("lrs=-1.0", {"lrs": [-1.0]}),
        ("steps=3 is too small", {"steps": 3}),
        ("seeds=1 is too small", {"seeds": 1}),
        ("nonsense", {"starts": ["nonsense"]}),
    ],
)
def test_bad_input_is_one_sentence(words: str, changes: dict[str, Any]) -> None:
    given: dict[str, Any] = {"make_model": shallow, "batches": BATCHES, "steps": 16, "lrs": [1e-2], "seeds": 2}
    assert_refused(lambda: find_start(**given | changes), [words])
