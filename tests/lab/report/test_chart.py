"""Charts: the numbers that a page carries for its script, and nothing that could break out of it."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path

import numpy as np
from laboratory import record

from stiefel_init.lab.report.page import Chart, Line, Panel, learning, screen_colour, write_page
from stiefel_init.lab.train.cell import Cell


def data_of(page: str) -> list[list[dict[str, object]]]:
    return [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)]


def test_a_chart_carries_its_numbers_and_gaps_where_there_are_none() -> None:
    line = Line("he", "#000", range(3), np.array([1.0, math.nan, 1 / 3]), [0, math.inf, 0.25], None)
    (panels,) = data_of(Chart("a chart", [Panel("depth 5", "epoch", "accuracy", [line], log_y=True)]).html())
    assert panels[0]["lines"] == [
        {"name": "he", "colour": "#000", "x": [0, 1, 2], "y": [1, None, 0.33333], "low": [0, None, 0.25]}
    ]
    assert (panels[0]["logY"], panels[0]["logX"]) == (True, False)


def test_names_cannot_break_out_of_a_chart(tmp_path: Path) -> None:
    bad = "</script><script>alert(1)</script>"
    chart = Chart(bad, [Panel(bad, bad, bad, [Line(bad, "#000", [1], [2])])])
    page = write_page(tmp_path / "page.html", "A page", "![x](mine)\n", {"mine": chart}).read_text()
    assert "<script>alert" not in page
    assert data_of(page)[0][0]["title"] == bad
    assert html.escape(bad) in page
    assert page.count("<script>") == 1, "the one that draws"


def test_learning_curves_have_the_mean_of_the_seeds_and_a_band_of_all() -> None:
    runs = [
        record(Cell("digits", "he", 4, seed=seed), 80.0, tested=(1, 2), test_score=scores)
        for seed, scores in enumerate([(10.0, 80.0), (20.0, 90.0)])
    ]
    (panel,) = learning(runs, "accuracy").panels
    (line,) = panel.lines
    assert (list(line.x), list(line.y)) == ([1, 2], [15, 85])
    assert line.low is not None
    assert line.high is not None
    assert (list(line.low), list(line.high)) == ([10, 80], [20, 90])


def test_a_colour_that_both_pages_show() -> None:
    assert screen_colour("rotation 0.1") == "currentColor", "black on white, white on black"
    assert re.fullmatch("#[0-9a-f]{6}", screen_colour("my-own"))
