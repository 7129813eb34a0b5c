"""Pages need nothing but themselves and show nothing but what they were given; charts carry their own numbers."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from laboratory import record

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.page import Chart, Line, Panel, learning, write_page
from stiefel_init.lab.train.cell import Cell


def test_pictures_that_are_given_are_embedded_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("secret.png", "own"):
        (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\nmy own picture")
    text = f"![mine](own)\n\n![stolen](secret.png) and ![too]({tmp_path}/secret.png)\n\n![far](https://example.org/x.png)\n"
    own = plots.figure(1)[0]
    page = write_page(tmp_path / "out.html", "A page", text, {"own": own}).read_text()
    assert re.findall(r'<img src="(data:image/png;base64,[^"]{8})', page) == ["data:image/png;base64,iVBORw0K"]
    assert page.count("<img") == page.count("src=") == 1
    assert "bXkgb3duIHBpY3R1cmU" not in page, "of the files that lie there, none"
    assert "stolen and too" in re.sub(r"<[^>]*>", "", page)


def test_html_and_titles_are_text(tmp_path: Path) -> None:
    text = "<script>alert(1)</script>\n\nA <b>word</b> & another.\n"
    page = write_page(tmp_path / "out.html", "<i>'A\" & B</i>", text, {}).read_text()
    assert "<script" not in page
    assert "A &lt;b&gt;word&lt;/b&gt; &amp; another." in page
    assert page.count("&lt;i&gt;&#x27;A&quot; &amp; B&lt;/i&gt;") == 2, "in the head and above the text"


def test_links_lead_out_of_the_page_or_nowhere(tmp_path: Path) -> None:
    text = "[a](members.md) [b](https://example.org) [c](javascript:alert) [d](file:///etc/passwd) [e](#x)\n"
    page = write_page(tmp_path / "out.html", "A page", text, {}).read_text()
    assert re.findall(r'<a href="([^"]*)"', page) == ["https://example.org"]


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
