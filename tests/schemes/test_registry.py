"""The registry of schemes: names, the texts that name them, what is refused, and how one is added and removed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import ALL_SCHEMES, PAPER_SCHEMES, one_sentence
from hypothesis import given, settings
from hypothesis import strategies as st

from stiefel_init import StiefelError, draw, schemes
from stiefel_init.schemes import Identity, Lee, Orthogonal, Permutation, Random, Rotation, Scheme, Source, Stiefel

OWN = ("stiefel", "lee", "he", "xavier", "orthogonal", "random", "permutation", "identity", "rotation")
ODD = (
    Rotation(0.0),
    Rotation(0.030000000000000002),
    Rotation(1 / 3),
    Rotation(1e300),
    Rotation(5e-324),
    Rotation(1),
    Orthogonal(-2.5),
    Orthogonal(0),
    Orthogonal(math.sqrt(2)),
    Random(0.0),
    Random(1e-9),
    Lee("direct"),
    Lee(epsilon=3.0),
    Lee("direct", 1e-7),
)


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
def own() -> Iterator[type[Scheme]]:
    """A registered scheme of three parameters: a number, a whole number and a word."""

    @dataclass(frozen=True)
    class Mine(Constant):
        name = "mine"
        value: float = 0.5
        count: int = 3
        word: str = "plain"

    yield schemes.register(Mine)
    schemes.forget("mine")


def test_the_products_own_schemes_are_registered() -> None:
    assert set(OWN) <= set(schemes.names())
    assert len(set(schemes.names())) == len(schemes.names())
    assert set(PAPER_SCHEMES) < set(OWN)
    for name in OWN:
        assert type(schemes.get(name)).__name__ in schemes.__all__


@pytest.mark.parametrize("text", [*OWN, *ALL_SCHEMES])
def test_a_name_gives_a_scheme_of_that_name_and_its_text_gives_it_back(text: str) -> None:
    scheme = schemes.get(text)
    assert scheme.name == text.split()[0]
    assert schemes.get(str(scheme)) == scheme
    assert schemes.get(scheme) is scheme
    assert hash(schemes.get(str(scheme))) == hash(scheme)


@pytest.mark.parametrize("scheme", ODD, ids=str)
def test_parameters_go_through_the_text_exactly(scheme: Scheme) -> None:
    assert schemes.get(str(scheme)) == scheme


@given(
    st.floats(0, 1e308),
    st.floats(-1e308, 1e308),
    st.floats(5e-324, 1e308),
    st.sampled_from(["product", "direct", "lapack"]),
)
@settings(max_examples=200, deadline=None)
def test_any_parameters_go_through_the_text_exactly(spread: float, gain: float, epsilon: float, variant: Any) -> None:
    for scheme in (Rotation(spread), Orthogonal(gain), Random(spread), Lee(variant, epsilon)):
        assert schemes.get(str(scheme)) == scheme


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("rotation", Rotation(0.1)),
        ("rotation 0.3", Rotation(0.3)),
        ("rotation spread=0.3", Rotation(0.3)),
        ("rotation  1e-3 ", Rotation(0.001)),
        ("orthogonal 2", Orthogonal(2.0)),
        ("orthogonal gain=-2", Orthogonal(-2.0)),
        ("random 1", Random(1.0)),
        ("lee direct", Lee("direct")),
        ("lee variant=direct", Lee("direct")),
        ("lee epsilon=0.5", Lee("product", 0.5)),
        ("lee direct epsilon=0.5", Lee("direct", 0.5)),
        ("lee epsilon=0.5 variant=direct", Lee("direct", 0.5)),
        ("stiefel", Stiefel()),
        ("permutation", Permutation()),
        ("identity", Identity()),
    ],
)
def test_texts_and_the_schemes_they_name(text: str, scheme: Scheme) -> None:
    assert schemes.get(text) == scheme


@pytest.mark.parametrize(
    ("scheme", "text"),
    [
        (Stiefel(), "stiefel"),
        (Rotation(), "rotation 0.1"),  # always with its spread
        (Rotation(1.0), "rotation 1"),
        (Orthogonal(), "orthogonal"),
        (Orthogonal(2.0), "orthogonal 2"),
        (Orthogonal(1.5), "orthogonal 1.5"),
        (Lee(), "lee"),
        (Lee("direct"), "lee direct"),
        (Lee(epsilon=0.5), "lee epsilon=0.5"),
        (Lee("direct", 2.0), "lee direct epsilon=2"),
        (Random(1), "random 1"),
    ],
)
def test_a_scheme_reads_as_its_name_and_what_is_not_usual(scheme: Scheme, text: str) -> None:
    assert str(scheme) == text


def test_schemes_are_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Rotation().spread = 2.0  # type: ignore[misc]
    assert Rotation(0.3) == Rotation(0.3) != Rotation(0.4)
    assert {Rotation(0.3): 1}[schemes.get("rotation 0.3")] == 1  # type: ignore[index]
    assert len({Stiefel(), Permutation(), Identity()}) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("glorot", ["scheme='glorot'", "is not known", *map(repr, OWN)]),
        ("Stiefel", ["scheme='Stiefel'"]),
        ("", ["scheme=''", "is not known"]),
        ("  ", ["scheme='  '", "is not known"]),
        (None, ["scheme=None"]),
        (3, ["scheme=3"]),
        (["he"], ["scheme=['he']"]),
        (Stiefel, ["scheme=<class"]),
        ("he 2", ["'2'", "he takes no parameters"]),
        ("he std=2", ["'std=2'", "he takes no parameters"]),
        ("rotation wide", ["'wide'", "a number"]),
        ("rotation angle=1", ["'angle=1'", "rotation takes spread=0.1"]),
        ("rotation 0.1 0.2", ["'0.2'", "rotation takes spread=0.1"]),
        ("rotation spread=", ["spread=", "a number"]),
        ("rotation =1", ["'=1'"]),
        ("lee 0.1", ["variant='0.1'", "'product', 'direct', 'lapack'"]),
        ("lee direct 0.5", ["'0.5'", "lee takes variant=product, epsilon=0.1"]),
        ("lee epsilon=small", ["'small'", "a number"]),
    ],
)
def test_texts_that_name_none_are_refused_in_one_sentence(text: Any, words: list[str]) -> None:
    with pytest.raises(StiefelError) as error:
        schemes.get(text)
    sentence = one_sentence(error)
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize(
    ("make", "text", "words"),
    [
        (lambda: Rotation(-1), "rotation -1", "spread=-1"),
        (lambda: Rotation(math.nan), "rotation nan", "spread=nan"),
        (lambda: Orthogonal(math.inf), "orthogonal inf", "gain=inf"),
        (lambda: Random(-0.1), "random -0.1", "std=-0.1"),
        (lambda: Random(math.inf), "random inf", "std=inf"),
        (lambda: Lee(epsilon=0), "lee epsilon=0", "epsilon=0"),
        (lambda: Lee(epsilon=-1), "lee epsilon=-1", "epsilon=-1"),
        (lambda: Lee("sum"), "lee sum", "variant='sum'"),  # type: ignore[arg-type]
    ],
)
def test_values_that_no_law_has_are_refused_in_both_ways(make: Any, text: str, words: str) -> None:
    for call in (make, lambda: schemes.get(text)):
        with pytest.raises(StiefelError) as error:
            call()
        assert words in one_sentence(error)


def test_a_registered_scheme_is_known_by_name_until_it_is_forgotten(own: Any) -> None:
    assert schemes.names()[-1] == "mine"
    assert schemes.get("mine") == own()
    assert schemes.get("mine 2 count=5 word=other") == own(2.0, 5, "other")
    assert type(schemes.get("mine count=5").count) is int  # type: ignore[attr-defined]
    assert str(own(2.0, 5, "other")) == "mine 2 count=5 word=other"
    assert str(own(count=4)) == "mine count=4"
    assert str(own()) == "mine"
    assert (draw("mine 2", 3, 4, seed=0) == 2).all()
    schemes.forget("mine")
    assert "mine" not in schemes.names()
    with pytest.raises(StiefelError, match="scheme='mine' is not known"):
        schemes.get("mine")
    schemes.forget("mine")  # once more is no harm


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mine count=1.5", ["'1.5'", "a number"]),
        ("mine 1 2", ["'2'", "mine takes value=0.5, count=3, word=plain"]),
        ("mine other=2", ["'other=2'"]),
    ],
)
def test_parameters_of_a_registered_scheme_are_read_by_the_kind_of_their_defaults(
    own: Any, text: str, words: list[str]
) -> None:
    with pytest.raises(StiefelError) as error:
        schemes.get(text)
    sentence = one_sentence(error)
    assert all(word in sentence for word in words), sentence


def test_register_serves_as_a_decorator() -> None:
    @schemes.register
    @dataclass(frozen=True)
    class Decorated(Constant):
        name = "decorated"
        value: float = 1.0

    try:
        assert Decorated.__name__ == "Decorated"
        assert schemes.get("decorated") == Decorated()
    finally:
        schemes.forget("decorated")


def test_a_class_may_be_registered_again_as_when_its_module_is_read_again(own: Any) -> None:
    before = schemes.names()
    assert schemes.register(own) is own
    again: Any = dataclass(frozen=True)(type(own.__name__, (Constant,), {**_body(own), "value": 0.75}))
    schemes.register(again)
    assert schemes.names() == before
    assert schemes.get("mine") == again()
    assert schemes.get("mine") != own()


def _body(kind: Any) -> dict[str, Any]:
    """What makes a class that stands in the same place of the same module."""
    keys = ("__module__", "__qualname__", "name", "__annotations__", "count", "word")
    return {key: getattr(kind, key) for key in keys}


@pytest.mark.parametrize("name", OWN)
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    taken = schemes.get(name)
    usurper = type("Usurper", (Constant,), {"name": name, "value": 1.0})
    with pytest.raises(StiefelError) as error:
        schemes.register(usurper)
    sentence = one_sentence(error)
    assert f"name={name!r} is taken by {type(taken).__module__}.{type(taken).__qualname__}" in sentence
    assert schemes.get(name) == taken


@pytest.mark.parametrize("name", ["", " ", "two words", "1st", "-a", "a=b", "a.b", "a\n", "naïve!", None, 3, b"he"])
def test_a_name_that_is_no_word_is_refused(name: Any) -> None:
    with pytest.raises(StiefelError) as error:
        schemes.register(type("Nameless", (Constant,), {"name": name}))
    assert f"name={name!r} of Nameless" in one_sentence(error)


def test_a_class_without_a_name_is_refused() -> None:
    with pytest.raises(StiefelError, match="name=None of Constant"):
        schemes.register(Constant)


@pytest.mark.parametrize("name", ["a", "a-b", "a_2", "Ab9"])
def test_names_of_letters_digits_dashes_and_underscores_are_taken(name: str) -> None:
    try:
        schemes.register(type("Named", (Constant,), {"name": name}))
        assert name in schemes.names()
    finally:
        schemes.forget(name)


def test_a_scheme_without_a_law_says_so() -> None:
    @dataclass(frozen=True)
    class Lawless(Constant):
        name = "lawless"

    with pytest.raises(StiefelError) as error:
        Lawless().distribution(3, 4)
    assert "scheme='lawless' has no prediction" in one_sentence(error)
    assert Lawless().resolve(3, 4) == Lawless()
    assert not Lawless.entrywise


@pytest.mark.parametrize("text", ["permutation", "identity", "rotation 0.3"])
def test_a_member_that_does_not_exist_for_a_shape_resolves_to_the_uniform_one(text: str) -> None:
    scheme = schemes.get(text)
    for m, n in ((1, 1), (1, 7), (7, 1), (4, 4), (3, 12), (12, 3)):
        assert scheme.resolve(m, n) == scheme
    for m, n in ((3, 5), (5, 3), (4, 6), (0, 3), (3, 0)):
        assert scheme.resolve(m, n) == Stiefel()


@pytest.mark.parametrize("text", ["stiefel", "lee", "he", "orthogonal 2"])
def test_the_others_exist_for_every_shape(text: str) -> None:
    assert all(schemes.get(text).resolve(m, n) == schemes.get(text) for m in range(5) for n in range(5))


def test_the_laws_that_the_theory_follows() -> None:
    laws = {name: schemes.get(name).distribution(30, 60) for name in OWN if name not in ("lee", "rotation")}
    assert {name for name, law in laws.items() if law.aligned} == {"stiefel", "permutation", "identity"}
    assert {name for name, law in laws.items() if law.non_negative} == {"permutation", "identity"}
    variances = {name: law.variance for name, law in laws.items() if not law.aligned}
    assert variances == pytest.approx({"he": 2 / 60, "xavier": 2 / 90, "orthogonal": 1 / 60, "random": 0.01})
    assert schemes.get("orthogonal 2").distribution(60, 30).variance == pytest.approx(4 / 60)
    assert schemes.get("random 0.5").distribution(60, 30).variance == 0.25
    assert not schemes.get("permutation").distribution(4, 6).non_negative
    for name in ("rotation", "rotation 1"):
        with pytest.raises(StiefelError, match=f"scheme='{schemes.get(name)}' has no prediction"):
            schemes.get(name).distribution(4, 4)
