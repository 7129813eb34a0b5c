"""The advice of `initialize_` and `diagnose` is what the published records say, and improves with them.

That the table is made from the records is held by tests/lab/report/test_pages.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from paper.results import Results
from paper.studies import on_record
from paper.studies.baselines import EVERY, Baselines
from paper.studies.kit import SCORE, Setting, Tuned
from torch import nn

from stiefel_init.recipe import advice
from stiefel_init.recipe.advice import MARGIN, Known, Plain, known, of_depth
from stiefel_init.torch import diagnose, initialize_

DATA = "mnist", "fashion-mnist"


def rows(
    means: dict[str, float],
    *,
    layers: int = 100,
    ends: str = "one rate",
    study: str = "made up",
    network: Plain = "MLP",
) -> list[Known]:
    return [
        Known(study, network, data, layers, start, ends, mean, 0.1, 5)
        for data, (start, mean) in product(DATA, means.items())
    ]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Known]]:
    """A table to fill."""
    made: list[Known] = []
    monkeypatch.setattr(advice, "known", lambda: tuple(made))
    of_depth.cache_clear()
    yield made
    of_depth.cache_clear()


def perceptron(depth: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    hidden = [part for _ in range(depth) for part in (nn.Linear(16, 16), activation())]
    return nn.Sequential(*hidden, nn.Linear(16, 3))


def test_the_best_start_on_record_is_named(table: list[Known]) -> None:
    table += rows({"recipe": 90.0, "permutation": 97.0, "he": 50.0})
    found = of_depth(120)
    assert found is not None
    assert (found.layers, found.start) == (100, "permutation")
    assert 'initialize_(model, "permutation") reaches 97.0 % on mnist and 97.0 % on fashion-mnist' in found.sentence
    assert "on fashion-mnist, he 50.0 % and 50.0 % (study made up)." in found.sentence


def test_the_default_is_named_where_it_is_as_good(table: list[Known]) -> None:
    table += rows({"recipe": 97.0 - 0.9 * MARGIN, "permutation": 97.0})
    found = of_depth(100)
    assert found is not None
    assert found.start == "recipe"
    assert "initialize_(model) reaches" in found.sentence


def test_a_start_has_to_be_good_on_all_data(table: list[Known]) -> None:
    table += rows({"permutation": 95.0})
    table += [
        Known("made up", "MLP", data, 100, "zero", "one rate", mean, 0.1, 5) for data, mean in zip(DATA, (99.0, 70.0))
    ]
    found = of_depth(100)
    assert found is not None
    assert found.start == "permutation"


def test_the_study_that_compared_most_starts_is_asked(table: list[Known]) -> None:
    table += rows({"stiefel": 99.0}, study="small")
    table += rows({"permutation": 97.0, "he": 50.0}, study="large")
    found = of_depth(100)
    assert found is not None
    assert (found.start, "study large" in found.sentence) == ("permutation", True)


@pytest.mark.parametrize(("fast", "told"), [(97.0, True), (95.3, False)])
def test_fast_ends_are_advised_where_they_help(table: list[Known], fast: float, told: bool) -> None:
    table += rows({"permutation": 95.0}) + rows({"permutation": fast}, ends="fast")
    found = of_depth(100)
    assert found is not None
    assert ("97.0 % on mnist" in found.ends) is told
    assert bool(found.ends) is told


@pytest.mark.parametrize("layers", [1, 31, 317, 10_000])
def test_nothing_is_said_of_depths_far_from_those_on_record(table: list[Known], layers: int) -> None:
    table += rows({"permutation": 95.0})
    assert of_depth(layers) is None


def test_nothing_is_said_without_records(table: list[Known]) -> None:
    assert of_depth(100) is None
    assert initialize_(perceptron(100), dry_run=True).note == ""


def test_a_plan_says_what_the_records_add_to_it(table: list[Known]) -> None:
    table += rows({"permutation": 97.0, "recipe": 90.0})
    plan = initialize_(perceptron(100), dry_run=True)
    assert str(plan).endswith(f"\n\n{plan.note}")
    assert 'initialize_(model, "permutation") reaches 97.0 %' in plan.note
    assert initialize_(perceptron(100), "permutation", dry_run=True).note == "", "the user has chosen"
    assert initialize_(perceptron(100, nn.Tanh), dry_run=True).note == "", "the records are of ReLU networks"
    assert initialize_(perceptron(3), dry_run=True).note == ""


def test_a_diagnosis_that_advises_another_start_says_what_it_brought(table: list[Known]) -> None:
    table += rows({"recipe": 97.0, "he": 50.0})
    torch.manual_seed(0)
    x = torch.randn(128, 16)
    (told,) = (line for line in diagnose(perceptron(100), x).verdict if "On record" in line)
    assert told.startswith("What to do: call stiefel_init.torch.initialize_(model), which preserves")
    assert told.endswith(
        " On record for plain ReLU networks of 100 layers, each start at its best rate: initialize_(model) reaches "
        "97.0 % on mnist and 97.0 % on fashion-mnist, he 50.0 % and 50.0 % (study made up)."
    )
    assert "On record" not in str(diagnose(perceptron(100, nn.Tanh), x))
    healthy = perceptron(100)
    initialize_(healthy, seed=0)
    assert "On record" not in str(diagnose(healthy, x))


def test_plain_convolutional_networks_have_records_of_their_own(table: list[Known]) -> None:
    table += rows({"recipe": 97.0}) + rows({"recipe": 88.0}, network="CNN")
    layers = [part for _ in range(60) for part in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())]
    told = str(diagnose(nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3)), torch.randn(64, 4, 4, 4)))
    assert (
        "On record for plain CNNs of 100 layers, each start at its best rate: initialize_(model) reaches 88.0 %" in told
    )
    assert "97.0" not in told


def test_the_records_of_today_support_some_start_at_every_depth_of_the_studies() -> None:
    assert all(of_depth(layers) is not None for layers in (10, 30, 100, 300, 1000))
    assert {row.study for row in known()} >= {"members", "on-the-set", "architectures"}
    assert of_depth(50, "CNN") is not None


def test_the_study_of_baselines_is_read_as_soon_as_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ReLU starts, on all rows of the images; a network that diverged has no accuracy."""
    images = [Setting(data, 100) for data in DATA]
    others = [Setting("digits", 100), Setting("mnist", 100, 8)]
    scores = {(s, name): np.array([90.0, 92.0]) for s, name in product((*images, *others), EVERY)}
    scores[images[0], "he"] = np.array([-np.inf, 50.0])
    found = Tuned({}, {}, {SCORE: scores}, [*images, *others], quick=False)
    monkeypatch.setattr(Baselines, "evidence", lambda self, results: found)
    lines = [line for line in on_record.text(Results()).splitlines() if line.startswith("rivals,")]
    assert len(lines) == 2 * sum(each.activation == "relu" for each in EVERY.values())
    assert "rivals,MLP,mnist,100,recipe,one rate,91.0000,1.4142,2" in lines
    assert "rivals,MLP,fashion-mnist,100,recipe,fast,91.0000,1.4142,2" in lines
    assert any(line.startswith("rivals,MLP,mnist,100,he,one rate,25.0") for line in lines)
