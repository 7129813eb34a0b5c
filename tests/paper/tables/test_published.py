"""The published numbers: all there, as the paper has them, and its slips, shown by them (docs/errata.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from paper.tables.published import published

from stiefel_init.torch import lee_


def value(table: str, **of: Any) -> float:
    (one,) = [o for o in published(table) if all(getattr(o, k) == v for k, v in of.items())]
    return one.value


def test_every_number_of_every_table_is_there_and_some_are_those_copied_by_hand() -> None:
    counts = {table: len(published(table)) for table in ("table1", "table2", "table3", "table5", "figure1")}
    # depths × data sets × schemes; activations × …; shots × depths × …; sets × α × depths × …
    assert counts == {
        "table1": 10 * 2 * 6, "table2": 5 * 2 * 2 * 6, "table3": 4 * 3 * 2 * 6, "table5": 6 * 4 * 2 * 6,
        "figure1": 1,
    }  # fmt: skip
    settings = {replace(one, value=0.0, std=None) for one in published()}
    assert len(settings) == 673
    assert value("table1", dataset="mnist", depth=100, scheme="stiefel") == 96.98
    assert value("table1", dataset="mnist", depth=50, scheme="orthogonal") == 11.35
    assert value("table3", dataset="mnist", depth=100, shots=1, scheme="stiefel") == 37.23
    assert value("figure1") == 0.8178


def test_slip_one_setting_two_numbers() -> None:
    for scheme, depth, numbers in (("orthogonal", 50, (11.35, 93.94)), ("lee", 100, (95.17, 84.15))):
        setting = {"dataset": "mnist", "scheme": scheme, "depth": depth, "activation": "relu"}
        assert (value("table1", **setting), value("table2", **setting)) == numbers


def test_lees_two_readings_are_two_matrices() -> None:
    product, direct = (lee_(torch.empty(64, 64, dtype=torch.float64), variant=v) for v in ("product", "direct"))
    np.testing.assert_array_equal(product.numpy(), np.eye(64))
    assert (product - direct).abs().max() > 0.05
