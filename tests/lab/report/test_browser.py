"""Pages in a real browser: wide and narrow, light and dark, without a word on the console or to the network."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import browser as chromium

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.page import Chart, Line, Panel, write_page
from stiefel_init.lab.report.tables import Table

pytestmark = [pytest.mark.slow, pytest.mark.skipif(chromium.find() is None, reason="needs Chromium")]
COLUMNS = [f"scheme {n}" for n in range(9)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a page may hold: sentences, a table too wide for a telephone, charts and a picture."""
    lines = [Line(name, "#0072B2", [1, 2, 3], [1.0, 10.0, 5.0], [0.5, 8.0, 4.0], [2.0, 12.0, 6.0]) for name in "ab"]
    chart = Chart("scores", [Panel(f"depth {d}", "epoch", "score", lines, log_y=d > 1) for d in (1, 2, 3)])
    table = Table("", ["depth", *COLUMNS], [[str(d), *("97.1 ± 0.3" for _ in COLUMNS)] for d in (5, 50)]).markdown()
    text = "\n".join(["A sentence.", "", *table, "", "![c](chart)", "", "![p](picture)", ""])
    path = tmp_path_factory.mktemp("page") / "index.html"
    return write_page(path, "A study", text, {"chart": chart, "picture": plots.figure(1)[0]})


@pytest.mark.parametrize("width", [1200, 400])
@pytest.mark.parametrize(("dark", "paper"), [(False, "rgb(255, 255, 255)"), (True, "rgb(20, 23, 27)")])
def test_a_page_at_any_width_and_in_any_light(browser: Any, page: Path, width: int, dark: bool, paper: str) -> None:
    browser.look(width, dark=dark)
    browser.open(page)
    assert browser.run("getComputedStyle(document.body).backgroundColor") == paper
    assert browser.run("document.documentElement.scrollWidth") == width, "nothing sticks out"
    wide = browser.run("(t => t.scrollWidth - t.clientWidth)(document.querySelector('div.table'))")
    assert (wide > 0) == (width == 400), "a wide table scrolls by itself"
    assert browser.run("document.querySelectorAll('.panel svg .line').length") == 6
    assert browser.errors() == []
    assert not any(event["method"] == "Runtime.consoleAPICalled" for event in browser.events)
    assert browser.asked() == []


def test_lines_can_be_switched_off(browser: Any, page: Path) -> None:
    browser.open(page)
    browser.run("document.querySelector('.legend button').click()")
    assert browser.run("document.querySelectorAll('.panel svg .line').length") == 3


def test_a_page_is_printed_on_paper(browser: Any, page: Path) -> None:
    browser.look(720, dark=True)
    browser.open(page)
    browser.ask("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert base64.b64decode(browser.ask("Page.printToPDF")["data"]).startswith(b"%PDF")
