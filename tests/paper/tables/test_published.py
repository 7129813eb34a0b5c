"""The published numbers: all there, as the paper has them."""

from __future__ import annotations

from typing import Any

from paper.tables.published import published


def test_every_number_of_every_table_is_there() -> None:
    counts = {table: len(published(table)) for table in ("table1", "table2", "table3", "table5", "figure1")}
    # depths × data sets × schemes; activations × …; shots × depths × …; sets × α × depths × …
    assert counts == {
        "table1": 10 * 2 * 6, "table2": 5 * 2 * 2 * 6, "table3": 4 * 3 * 2 * 6, "table5": 6 * 4 * 2 * 6,
        "figure1": 1,
    }  # fmt: skip
    settings = {tuple(one.to_dict()[k] for k in one.to_dict() if k not in ("value", "std")) for one in published()}
    assert len(settings) == 673


def test_numbers_copied_by_hand_from_the_paper() -> None:
    def value(table: str, **of: Any) -> float:
        (one,) = [o for o in published(table) if all(getattr(o, k) == v for k, v in of.items())]
        return one.value

    assert value("table1", dataset="mnist", depth=100, scheme="stiefel") == 96.98
    assert value("table1", dataset="mnist", depth=50, scheme="orthogonal") == 11.35
    assert value("table3", dataset="mnist", depth=100, shots=1, scheme="stiefel") == 37.23
    assert value("figure1") == 0.8178
