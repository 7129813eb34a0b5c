"""A scheme of one's own, registered once: known by name everywhere, with the same weights for one seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from test_frameworks import FRAMEWORKS, agree
from torch import nn

from stiefel_init import StiefelError, draw, schemes
from stiefel_init.jax import initializer
from stiefel_init.keras import Initializer
from stiefel_init.schemes import Distribution, Scheme, Source
from stiefel_init.sklearn import StiefelMLPClassifier
from stiefel_init.theory import finite_width, propagate
from stiefel_init.torch import draw_, initialize_

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras and NumPy 2


@dataclass(frozen=True)
class Even(Scheme):
    """Entry by entry, with both fans: U(±size·√(6/(fan_in + fan_out)))."""

    name = "even"
    entrywise = True
    size: float = 1.0

    def draw(self, source: Source) -> Any:
        bound = self.size * math.sqrt(6 / (source.n + source.fan_out))
        return bound * source.precise().uniforms(source.m, source.n)

    def distribution(self, m: int, n: int) -> Distribution:
        return Distribution(variance=2 * self.size**2 / (m + n))


@dataclass(frozen=True)
class Flipped(Scheme):
    """A matrix: a member of Õ(m,n) with its rows in reverse order, times √(2m/(m + fan_out))."""

    name = "flipped"

    def draw(self, source: Source) -> Any:
        rows = source.xp.flip(source.semi_orthogonal(aligned=True), (1,))
        return math.sqrt(2 * source.m / (source.m + source.fan_out)) * rows

    # by its name in release 0.2, which is honoured
    def law(self, m: int, n: int) -> Distribution:
        return Distribution(aligned=True)


@dataclass(frozen=True)
class Mixed(Scheme):
    """A matrix of many parts: Haar times a diagonal, a shuffled column order, a product and constants."""

    name = "mixed"
    share: float = 0.25

    def draw(self, source: Source) -> Any:
        m, n = source.m, source.n
        columns = source.semi_orthogonal(aligned=False) * source.array(np.arange(n) % 3 - 1.0)
        order = source.orders(n)[:, None, :] == source.array(np.arange(n))[:, None]
        scale = source.array(np.full((1, 1, 1), self.share / math.sqrt(n)))
        return columns @ (order * scale) + self.share * source.array(np.eye(m, n))


OWN = (Even, Flipped, Mixed)
TEXTS = ("even", "even 0.5", "flipped", "mixed")


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for kind in OWN:
        schemes.register(kind)
    yield
    for kind in OWN:
        schemes.forget(kind.name)


@pytest.mark.parametrize("scheme", TEXTS)
@pytest.mark.parametrize("shape", [(1, 1), (4, 12), (7, 5)], ids=str)
def test_a_seed_gives_the_same_matrices_in_every_framework(scheme: str, shape: tuple[int, int]) -> None:
    names = [name for name in FRAMEWORKS if name != "jax.jit"]
    agree({name: FRAMEWORKS[name](scheme, *shape, (2,), 3, "1", "float32") for name in names}, (2, *shape), "float32")
    exact = {name: FRAMEWORKS[name](scheme, *shape, (), 3, "1", "float64") for name in names if name != "jax"}
    agree(exact, shape, "float64")
    first = draw(scheme, *shape, batch=2, seed=3, name="1")[0]
    np.testing.assert_array_equal(draw(scheme, *shape, seed=3, name="1"), first)


@pytest.mark.parametrize("scheme", TEXTS)
def test_a_whole_model_has_the_weights_of_its_names(scheme: str) -> None:
    model = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4)).double()
    plan = initialize_(model, scheme, seed=2)
    assert plan["0.weight"].action == f"{scheme} 9×6"
    for name in ("0.weight", "2.weight"):
        weight = model.get_parameter(name).detach()
        m, n = weight.shape
        np.testing.assert_allclose(weight, draw(scheme, m, n, seed=2, name=name), rtol=0, atol=1e-12)
    before = model.get_parameter("0.weight").clone()
    initialize_(model, scheme)
    assert not torch.equal(model.get_parameter("0.weight"), before)


@pytest.mark.parametrize("kind", OWN)
def test_a_value_serves_as_well_as_its_name_and_needs_no_registration(kind: type[Scheme]) -> None:
    scheme = kind()
    expected = draw(str(scheme), 6, 9, seed=1, name="weight")
    schemes.forget(kind.name)
    found: dict[str, Any] = {
        "draw": draw(scheme, 6, 9, seed=1, name="weight"),
        "draw_": draw_(torch.empty(6, 9), scheme, seed=1, name="weight"),
        "jax": initializer(scheme, seed=1, name="weight")(None, (9, 6)).T,
    }
    layer = nn.Linear(9, 6)
    initialize_(layer, scheme, seed=1)
    found["initialize_"] = layer.weight.detach()
    for name, weights in found.items():
        np.testing.assert_allclose(weights, expected, rtol=0, atol=5e-6, err_msg=name)


def test_when_it_is_forgotten_no_framework_knows_it() -> None:
    schemes.forget("even")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: draw("even", 3, 3),
        lambda: draw_(torch.empty(3, 3), "even"),
        lambda: initialize_(nn.Linear(3, 3), "even"),
        lambda: initializer("even"),
        lambda: Initializer("even"),
        lambda: propagate([3, 3], mean=0, std=1, scheme="even"),
        lambda: StiefelMLPClassifier(scheme="even").fit(*load_iris(return_X_y=True)),
    )
    for call in calls:
        with pytest.raises(StiefelError, match="scheme='even' is not known"):
            call()


def test_its_distribution_is_what_the_theory_follows() -> None:
    even, xavier, flipped, stiefel = (
        propagate([30, 20, 20], mean=0.3, std=1.0, scheme=scheme) for scheme in ("even", "xavier", "flipped", "stiefel")
    )
    schemes.forget("even")  # a value needs no registration
    value = propagate([30, 20, 20], mean=0.3, std=1.0, scheme=Even())
    for own, known in ((even, xavier), (flipped, stiefel), (value, xavier)):
        for name, column in known.to_dict().items():
            np.testing.assert_array_equal(getattr(own, name), column, err_msg=name)
        for name in ("log_shift", "mean", "std", "active"):
            np.testing.assert_array_equal(getattr(finite_width(own), name), getattr(finite_width(known), name))
    assert (even.scheme, str(flipped).splitlines()[0]) == ("even", "flipped, relu, input N(0.3, 1²)")
    half = propagate([30, 20], mean=0.3, std=1.0, scheme=Even(0.5))
    assert half.pre_std[0] == pytest.approx(even.pre_std[0] / 2)
    with pytest.raises(StiefelError, match="scheme='mixed' has no prediction; give it a `distribution` method"):
        propagate([3, 3], mean=0, std=1, scheme="mixed")
