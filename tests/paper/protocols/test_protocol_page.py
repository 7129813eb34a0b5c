"""The page and the erratum: computed, honest without records, and the same as committed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import planted
import pytest
from paper.protocols import study as page
from paper.protocols.hypotheses import BATCHES, EXPLAINING, STATED, WAVES, numbers, trainings, variant
from paper.protocols.ranking import Readings
from paper.protocols.study import Explained, Table5Protocol
from paper.registry import experiments
from paper.tables.tabular import Table5, Table5Explained

from stiefel_init.lab.data import load, split


def test_without_records_nothing_is_claimed_from_training() -> None:
    found = Explained(Readings({}), {})
    text = "\n".join(page.section(found))
    assert page.NOTHING in text
    assert "From training" not in text
    assert page.NOTHING in " ".join(" ".join(page.erratum(found)).split())


def test_with_records_the_page_names_the_best_and_says_what_is_missing() -> None:
    records = planted.records([*page.MAIN, STATED], planted.small(), seeds=3)
    text = "\n".join(page.section(Explained(Readings(records), records)))
    assert page.NOTHING not in text
    assert "explains 120 of the 288 numbers best" in text
    assert "nothing is known about the other 168 numbers" in text.replace("\n", " ").lower()
    assert "(stated)" in text
    assert "Protocols by likelihood of 120 numbers" in text


@pytest.mark.parametrize("truth", ["sorted", "one-hot"])
def test_what_adult_says_by_itself(truth: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    adult = [number for number in numbers() if number.dataset == "adult"]
    protocols = [STATED, *(replace(EXPLAINING, encoding=each) for each in ("sorted", "one-hot", "appearance"))]
    records = planted.records(protocols, adult, seeds=3)
    made = planted.publish(replace(EXPLAINING, encoding=truth), adult)
    planted_numbers = tuple(replace(number, value=value) for number, value in made.items())
    for module in ("study", "ranking"):
        monkeypatch.setattr(f"paper.protocols.{module}.numbers", lambda: planted_numbers)
    text = page._of_adult(Explained(Readings(records), records))
    assert f"of Adult, are explained best by {replace(EXPLAINING, encoding=truth)}, " in text
    assert "is not settled" not in text
    assert "one-hot is " in text
    assert (" better and" in text) == (truth == "one-hot")
    by_name, one_hot = replace(EXPLAINING), replace(EXPLAINING, encoding="one-hot")
    for number, seed in product(adult, range(3)):  # scores that cannot tell the two apart
        records[one_hot.cell(number, seed)] = replace(
            records[by_name.cell(number, seed)], cell=one_hot.cell(number, seed)
        )  # fmt: skip
    assert "how they were encoded is not settled" in page._of_adult(Explained(Readings(records), records))
    assert page._of_adult(Explained(Readings({}), {})) == ""


def test_what_all_numbers_say_together(monkeypatch: pytest.MonkeyPatch) -> None:
    records = planted.records(page.MAIN, numbers(), seeds=3)
    made = planted.publish(EXPLAINING, numbers())
    planted_numbers = tuple(replace(number, value=value) for number, value in made.items())
    for module in ("study", "ranking"):
        monkeypatch.setattr(f"paper.protocols.{module}.numbers", lambda: planted_numbers)
    found = Explained(Readings(records), records)
    text = page._of_all(found)
    assert f"All 288 together, for the {len(found.whole())} protocols that" in text
    assert f"are explained best by **{EXPLAINING}**: " in text
    assert "; the best with another batch size, batches of " in text
    titles = [table.title for table in page.tables(found)]
    assert f"protocols by likelihood of 288 numbers, of {len(found.whole())} protocols" in titles
    for seed in range(3):
        del records[STATED.cell(planted_numbers[-1], seed)]
    found = Explained(Readings(records), records)
    assert page._of_all(found) == ""
    assert not any("288" in table.title for table in page.tables(found))


def test_the_most_informative_networks_come_first() -> None:
    study = Table5Protocol()
    everything = study.cells(2)
    first = study.cells(2, records={})
    assert {cell.depth for cell in first} == {50}
    assert {cell.batch for cell in first} == {256, 64, 32, 16}
    done = dict.fromkeys(first)
    second = study.cells(2, records=done)  # type: ignore[arg-type]
    assert set(first) < set(second) < set(everything)
    assert set(study.cells(2, records=dict.fromkeys(everything))) == set(everything)  # type: ignore[arg-type]


def test_every_question_has_its_networks() -> None:
    known = trainings()
    assert {p.batch for p in known if p.split == 42 and p.lee == "lapack"} == set(BATCHES)
    assert {p.lee for p in known} == {"lapack", "product", "direct"}
    assert {p.rates for p in known} == {"stated", "all scaled", "all fixed"}
    assert {p.split for p in known} == {None, 0, 1, 42}
    assert {p.encoding for p in known} == {"sorted", "appearance", "one-hot"}
    assert any(p.standardized for p in known)
    covered = {number for wave in WAVES for number in numbers() if STATED in wave.protocols}
    assert len(covered) == 288


def test_the_stated_protocol_is_table_5_and_the_other_its_variant() -> None:
    assert {STATED.cell(number) for number in numbers()} == set(Table5().cells(1))
    assert {EXPLAINING.cell(number) for number in numbers()} == set(Table5Explained().cells(1))
    assert "table5-batches-of-32" in experiments()


def test_the_variant_is_compared_and_judged_like_table_5() -> None:
    records = planted.records([EXPLAINING], numbers(), seeds=2)
    table = Table5Explained()
    chosen = table.select(records)
    assert len(table.compare(chosen)) == 288
    (claim,) = table.claims(chosen)
    assert claim.verdict != "not tested"
    assert "12 rows" in claim.evidence
    assert "batches of 32" in claim.claim


def test_variants_of_the_data() -> None:
    plain, fixed = load("wine"), variant("wine-split42")
    for seed in (0, 5):
        np.testing.assert_array_equal(split(fixed, seed).x_test, split(plain, 42).x_test)
    assert variant("diabetes-split42-standardized").standardize
    assert not variant("diabetes-split42").standardize
    assert EXPLAINING.dataset("adult") == "adult-split42"
    assert replace(EXPLAINING, encoding="one-hot").dataset("adult") == "adult-split42-one-hot"
    assert replace(EXPLAINING, encoding="one-hot").dataset("wine") == "wine-split42"
    assert STATED.dataset("pima") == "pima"
