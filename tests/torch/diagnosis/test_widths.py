"""`check_widths`: what the first steps change in networks of several widths or depths."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from diagnosed import IMAGES, LABELS
from torch import nn

from stiefel_init import StiefelError
from stiefel_init.torch import check_widths


def make(depth: int, width: int) -> nn.Sequential:
    layers = [module for at in range(depth) for module in (nn.Linear(width if at else 64, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def changes(found: Any, rates: str, name: str) -> list[float]:
    return [getattr(change, name) for change in found.changes if change.rates == rates]


def test_first_steps_change_the_output_alike_at_any_depth_by_param_groups_and_not_by_one_rate() -> None:
    found = check_widths(lambda depth: make(depth, 32), IMAGES, LABELS, depths=(10, 100), steps=5)
    grouped, single = (changes(found, rates, "output") for rates in ("param_groups", "one rate"))
    assert max(grouped) < 2 * min(grouped)
    assert max(single) > 3 * min(single)


def test_the_same_over_widths() -> None:
    found = check_widths(lambda width: make(10, width), IMAGES, LABELS, widths=(32, 256), steps=1)
    grouped, single = (changes(found, rates, "hidden") for rates in ("param_groups", "one rate"))
    assert max(grouped) < 2 * min(grouped)
    assert max(single) > 4 * min(single)


def test_it_prints_as_a_table_and_has_a_picture() -> None:
    ways = {"slow": lambda model: torch.optim.SGD(model.parameters(), 0.0)}
    found = check_widths(lambda width: make(2, width), IMAGES, LABELS, widths=(8, 16), rates=ways, steps=1)
    assert [str(line).split() for line in str(found).splitlines()] == [
        ["rates", "width", "first", "hidden", "output", "loss"],
        ["slow", "8", "0", "0", "0", "1"],
        ["slow", "16", "0", "0", "0", "1"],
    ]
    assert repr(found) == "<Widths: slow at widths 8, 16>"
    assert list(found.table.columns) == ["rates", "size", "first", "hidden", "output", "loss"]
    found.plot().savefig(io.BytesIO())


def test_what_cannot_be_used_is_refused_in_one_sentence() -> None:
    fine: Callable[[int], nn.Module] = lambda width: make(2, width)  # noqa: E731
    cases: list[tuple[Callable[[int], Any], dict[str, Any], str]] = [
        (fine, {"widths": (8,), "depths": (2,)}, "widths and depths are both given"),
        (fine, {"widths": ()}, r"widths=\(\) cannot be built"),
        (fine, {"depths": (0,)}, r"depths=\(0,\) cannot be built"),
        (fine, {"widths": (8,), "steps": 0}, "steps=0 change nothing"),
        (fine, {"widths": (8,), "rates": {}}, r"rates=\{\} choose nothing"),
        (fine, {"widths": (8,), "rates": {"none": lambda model: None}}, "returned a NoneType; it must return an opt"),
        (lambda width: width, {"widths": (8,)}, r"make\(8\) returned a int"),
        (lambda width: nn.Linear(64, 10), {"widths": (8,)}, r"make\(8\) returned a network of 1 layers"),
        (fine, {"widths": (8,), "loss": lambda x, y: x}, "it must be one number, so take its mean"),
        (fine, {"widths": (8,), "loss": lambda x, y: x.mean() / 0}, r"the loss of make\(8\) is .*give a smaller lr"),
    ]
    for built, options, sentence in cases:
        with pytest.raises(StiefelError, match=sentence):
            check_widths(built, IMAGES, LABELS, **options)
