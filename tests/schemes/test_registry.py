"""The registry of schemes: names, the texts that name them, what is refused, and how one is added and removed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import ALL_SCHEMES, PAPER_SCHEMES, assert_refused
from hypothesis import given, settings
from hypothesis import strategies as st

from stiefel_init import StiefelError, draw, schemes
from stiefel_init.schemes import Identity, Lee, Orthogonal, Permutation, Random, Rotation, Scheme, Source, Stiefel

BUILT_IN = ("stiefel", "lee", "he", "xavier", "orthogonal", "random", "permutation", "identity", "rotation")


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    """The registry is as before when a test has ended."""
    before = schemes.names()
    yield
    assert schemes.names() == before


class Constant(Scheme):
    """What the classes made below share."""

    def draw(self, source: Source) -> Any:
        return self.value * source.xp.ones_like(source.normals(source.m, source.n))  # type: ignore[attr-defined]


@pytest.fixture
def mine() -> Iterator[type[Scheme]]:
    """A registered scheme of three parameters: a number, a whole number and a word."""

    @schemes.register
    @dataclass(frozen=True)
    class Mine(Constant):
        name = "mine"
        value: float = 0.5
        count: int = 3
        word: str = "plain"

    assert Mine.__name__ == "Mine"
    yield Mine
    schemes.forget("mine")


@pytest.mark.parametrize("text", [*BUILT_IN, *ALL_SCHEMES])
def test_a_name_gives_a_scheme_of_that_name_and_its_text_gives_it_back(text: str) -> None:
    scheme = schemes.get(text)
    assert scheme.name == text.split()[0]
    assert schemes.get(str(scheme)) == scheme
    assert schemes.get(scheme) is scheme
    assert hash(schemes.get(str(scheme))) == hash(scheme)


def test_the_products_own_schemes_are_registered_values() -> None:
    assert set(PAPER_SCHEMES) < set(BUILT_IN) <= set(schemes.names())
    assert len(set(schemes.names())) == len(schemes.names())
    assert all(type(schemes.get(name)).__name__ in schemes.__all__ for name in BUILT_IN)
    assert schemes.Start is schemes.WholeModel  # its name in release 0.2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Rotation().spread = 2.0  # type: ignore[misc]
    assert Rotation(0.3) == Rotation(0.3) != Rotation(0.4)
    assert {Rotation(0.3): 1}[schemes.get("rotation 0.3")] == 1  # type: ignore[index]
    assert len({Stiefel(), Permutation(), Identity()}) == 3


@given(
    st.floats(0, 1e308) | st.sampled_from([0.0, 5e-324, 0.030000000000000002, 1 / 3, 1.0, 1e300]),
    st.floats(-1e308, 1e308) | st.sampled_from([-2.5, 0.0, math.sqrt(2)]),
    st.floats(5e-324, 1e308) | st.sampled_from([1e-7, 3.0]),
    st.sampled_from(["product", "direct", "lapack"]),
)
@settings(max_examples=200, deadline=None)
def test_any_parameters_go_through_the_text_exactly(spread: float, gain: float, epsilon: float, variant: Any) -> None:
    for scheme in (Rotation(spread), Orthogonal(gain), Random(spread), Lee(variant, epsilon)):
        assert schemes.get(str(scheme)) == scheme


@pytest.mark.parametrize(
    ("text", "scheme", "written"),
    [
        ("rotation", Rotation(0.1), "rotation 0.1"),  # always with its spread
        ("rotation spread=0.3", Rotation(0.3), "rotation 0.3"),
        ("rotation  1e-3 ", Rotation(0.001), "rotation 0.001"),
        ("rotation 1", Rotation(1), "rotation 1"),
        ("orthogonal 1", Orthogonal(), "orthogonal"),
        ("orthogonal gain=-2", Orthogonal(-2.0), "orthogonal -2"),
        ("random 1", Random(1), "random 1"),
        ("lee", Lee(), "lee"),
        ("lee variant=direct", Lee("direct"), "lee direct"),
        ("lee epsilon=0.5", Lee("product", 0.5), "lee epsilon=0.5"),
        ("lee epsilon=0.5 variant=direct", Lee("direct", 0.5), "lee direct epsilon=0.5"),
        ("stiefel", Stiefel(), "stiefel"),
    ],
)
def test_texts_and_the_schemes_they_name(text: str, scheme: Scheme, written: str) -> None:
    assert schemes.get(text) == scheme
    assert str(scheme) == written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("glorot", ["scheme='glorot'", "is not known", *map(repr, BUILT_IN)]),
        ("", ["scheme=''", "is not known"]),
        ("  ", ["scheme='  '", "is not known"]),
        (None, ["scheme=None"]),
        (["he"], ["scheme=['he']"]),
        (Stiefel, ["scheme=<class"]),
        ("he 2", ["'2'", "he takes no parameters"]),
        ("rotation wide", ["'wide'", "a number"]),
        ("rotation angle=1", ["'angle=1'", "rotation takes spread=0.1"]),
        ("rotation spread=", ["spread=", "a number"]),
        ("rotation =1", ["'=1'"]),
        ("rotation -1", ["spread=-1"]),
        ("rotation nan", ["spread=nan"]),
        ("orthogonal inf", ["gain=inf"]),
        ("random -0.1", ["std=-0.1"]),
        ("lee 0.1", ["variant='0.1'", "'product', 'direct', 'lapack'"]),
        ("lee direct 0.5", ["'0.5'", "lee takes variant=product, epsilon=0.1"]),
        ("lee epsilon=0", ["epsilon=0"]),
        ("mine count=1.5", ["'1.5'", "a number"]),
        ("mine 1 2", ["'2'", "mine takes value=0.5, count=3, word=plain"]),
    ],
)
@pytest.mark.usefixtures("mine")
def test_texts_that_name_none_are_refused_in_one_sentence(text: Any, words: list[str]) -> None:
    assert_refused(lambda: schemes.get(text), words)


def test_values_that_no_distribution_has_are_refused_without_a_text_too() -> None:
    assert_refused(lambda: Rotation(-1), ["spread=-1"])
    assert_refused(lambda: Lee("sum"), ["variant='sum'"])  # type: ignore[arg-type]


def test_a_registered_scheme_is_known_by_name_until_it_is_forgotten(mine: Any) -> None:
    assert schemes.names()[-1] == "mine"
    assert schemes.get("mine") == mine()
    assert schemes.get("mine 2 count=5 word=other") == mine(2.0, 5, "other")
    assert type(schemes.get("mine count=5").count) is int  # type: ignore[attr-defined]
    assert str(mine(2.0, 5, "other")) == "mine 2 count=5 word=other"
    assert (str(mine()), str(mine(count=4))) == ("mine", "mine count=4")
    assert (draw("mine 2", 3, 4, seed=0) == 2).all()
    schemes.forget("mine")
    assert_refused(lambda: schemes.get("mine"), ["scheme='mine' is not known"])
    schemes.forget("mine")  # once more is no harm
    schemes.register(mine)


def test_a_class_may_be_registered_again_as_when_its_module_is_read_again(mine: Any) -> None:
    before = schemes.names()
    assert schemes.register(mine) is mine
    keys = ("__module__", "__qualname__", "name", "__annotations__", "count", "word")
    body = {key: getattr(mine, key) for key in keys}  # what makes a class that stands in the same place
    again: Any = dataclass(frozen=True)(type(mine.__name__, (Constant,), {**body, "value": 0.75}))
    schemes.register(again)
    assert schemes.names() == before
    assert schemes.get("mine") == again() != mine()


@pytest.mark.parametrize("name", ["", "two words", "1st", "-a", "a=b", "a.b", "a\n", "naïve!", None, 3, b"he", "he"])
def test_a_name_that_is_no_word_or_taken_is_refused(name: Any) -> None:
    words = "is taken by stiefel_init.schemes.entrywise.He" if name == "he" else "of Nameless"
    assert_refused(lambda: schemes.register(type("Nameless", (Constant,), {"name": name})), [f"name={name!r} {words}"])
    assert_refused(lambda: schemes.register(Constant), ["name=None of Constant"])


@pytest.mark.parametrize("name", ["a", "a-b", "a_2", "Ab9"])
def test_names_of_letters_digits_dashes_and_underscores_are_taken(name: str) -> None:
    try:
        schemes.register(type("Named", (Constant,), {"name": name}))
        assert name in schemes.names()
    finally:
        schemes.forget(name)


def test_a_scheme_without_a_distribution_says_so(mine: Any) -> None:
    assert_refused(lambda: mine().distribution(3, 4), ["scheme='mine' has no prediction"])
    assert mine().resolve(3, 4) == mine()
    assert not mine.entrywise


@pytest.mark.parametrize("text", ["permutation", "identity", "rotation 0.3", "stiefel", "lee", "he", "orthogonal 2"])
def test_a_member_that_does_not_exist_for_a_shape_resolves_to_stiefel(text: str) -> None:
    scheme = schemes.get(text)
    grouped = scheme.name in ("permutation", "identity", "rotation")
    for m, n in ((1, 1), (1, 7), (7, 1), (4, 4), (3, 12), (12, 3)):
        assert scheme.resolve(m, n) == scheme
    for m, n in ((3, 5), (5, 3), (4, 6), (0, 3), (3, 0)):
        assert scheme.resolve(m, n) == (Stiefel() if grouped else scheme)


def test_the_distributions_that_the_theory_follows() -> None:
    known = {name: schemes.get(name).distribution(30, 60) for name in BUILT_IN if name not in ("lee", "rotation")}
    assert {name for name, one in known.items() if one.aligned} == {"stiefel", "permutation", "identity"}
    assert {name for name, one in known.items() if one.non_negative} == {"permutation", "identity"}
    variances = {name: one.variance for name, one in known.items() if not one.aligned}
    assert variances == pytest.approx({"he": 2 / 60, "xavier": 2 / 90, "orthogonal": 1 / 60, "random": 0.01})
    assert schemes.get("orthogonal 2").distribution(60, 30).variance == pytest.approx(4 / 60)
    assert schemes.get("random 0.5").distribution(60, 30).variance == 0.25
    assert not schemes.get("permutation").distribution(4, 6).non_negative
    for name in ("rotation", "rotation 1"):
        with pytest.raises(StiefelError, match=f"scheme='{schemes.get(name)}' has no prediction"):
            schemes.get(name).distribution(4, 4)
