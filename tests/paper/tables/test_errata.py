"""Slips in the paper's experiments, shown by its own numbers (docs/errata.md)."""

from __future__ import annotations

import numpy as np
import torch
from paper.tables.published import published

from stiefel_init.torch import lee_


def value(table: str, dataset: str, scheme: str, depth: int) -> float:
    (one,) = [
        o for o in published(table)
        if (o.dataset, o.scheme, o.depth, o.activation) == (dataset, scheme, depth, "relu")
    ]  # fmt: skip
    return one.value


def test_slip_one_setting_two_numbers() -> None:
    assert (value("table1", "mnist", "orthogonal", 50), value("table2", "mnist", "orthogonal", 50)) == (11.35, 93.94)
    assert (value("table1", "mnist", "lee", 100), value("table2", "mnist", "lee", 100)) == (95.17, 84.15)


def test_lees_two_readings_are_two_matrices() -> None:
    product, direct = (lee_(torch.empty(64, 64, dtype=torch.float64), variant=v) for v in ("product", "direct"))
    np.testing.assert_array_equal(product.numpy(), np.eye(64))
    assert (product - direct).abs().max() > 0.05
