"""The tables of a user's study, from its summary: only the columns that say something."""

from __future__ import annotations

from typing import Any

import pytest

from stiefel_init.lab.study.files import comparison, several_activations

BEST: dict[str, Any] = {
    "activation": "relu", "depth": 5, "scheme": "stiefel", "times_default_rate": 2.0, "rate_at_edge": True,
    "networks": 3, "mean": 97.12, "low": 96.0, "high": 98.26, "best": True, "p_against_best": None,
    "balanced_accuracy": 95.5, "diverged": 0,
}  # fmt: skip
OTHER = {**BEST, "scheme": "he", "rate_at_edge": False, "best": False, "p_against_best": 0.0004, "diverged": 1}


@pytest.mark.parametrize(
    ("others", "counts", "rates", "header", "row"),
    [
        ([OTHER], [60, 40], [], ["depth", "scheme"], ["5", "he"]),
        ([OTHER], [70, 40], [], ["depth", "scheme", "balanced accuracy (%)"], ["5", "he", "95.5"]),
        ([OTHER], None, [{}], ["depth", "scheme", "lr ×"], ["5", "he", "2"]),
        ([OTHER, {**OTHER, "activation": "elu"}], None, [], ["setting", "scheme"], ["relu, depth 5", "he"]),
    ],
)
def test_schemes_side_by_side(
    others: list[dict[str, Any]], counts: list[int] | None, rates: list[Any], header: list[str], row: list[str]
) -> None:
    metric = {"name": "accuracy", "label": "test accuracy (%)"}
    content = {"data": {"rows_of_each_class": counts}, "metric": metric, "results": [BEST, *others], "rates": rates}
    table = comparison(content)
    always = {"networks": "3", "mean": "97.1", "95 % interval": "96.0 to 98.3", "p against best": "< 0.001"}
    expected = {**dict(zip(header, row)), **always, "diverged": "1"}
    assert dict(zip(table.header, table.rows[1])) == expected
    first = dict(zip(table.header, table.rows[0]))
    assert first["p against best"] == "best"
    assert first.get("lr ×", "2 (edge of those tried)") == "2 (edge of those tried)"
    assert several_activations(content) == (header[0] == "setting")
