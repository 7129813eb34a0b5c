"""Pages in a real browser: wide and narrow, light and dark, without a word on the console or to the network."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, browser

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.chart import Chart, Line, Panel
from stiefel_init.lab.report.page import write_page
from stiefel_init.lab.report.tables import Table

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
COLUMNS = [f"scheme {n}" for n in range(9)]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
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
@pytest.mark.parametrize(("scheme", "paper"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")])
def test_a_page_at_any_width_and_in_any_light(
    chromium: Browser, page: Path, width: int, scheme: str, paper: str
) -> None:
    chromium.open(page, width, prefers_color_scheme=scheme)
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == paper
    assert chromium.value("document.documentElement.scrollWidth") == width, "nothing sticks out"
    wide = chromium.value("(t => t.scrollWidth - t.clientWidth)(document.querySelector('div.table'))")
    assert (wide > 0) == (width == 400), "a wide table scrolls by itself"
    assert chromium.value("document.querySelectorAll('.panel svg .line').length") == 6
    assert chromium.seen("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled") == []
    asked = [request["request"]["url"] for request in chromium.seen("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_lines_can_be_switched_off(chromium: Browser, page: Path) -> None:
    chromium.open(page, 1200)
    chromium.value("document.querySelector('.legend button').click()")
    assert chromium.value("document.querySelectorAll('.panel svg .line').length") == 3


def test_a_page_is_printed_on_paper(chromium: Browser, page: Path) -> None:
    chromium.open(page, 1200, prefers_color_scheme="dark")
    chromium("Emulation.setDeviceMetricsOverride", width=720, height=900, deviceScaleFactor=1, mobile=False)
    chromium("Emulation.setEmulatedMedia", media="print")
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.value("document.documentElement.scrollWidth") == 720
    assert base64.b64decode(chromium("Page.printToPDF")["data"]).startswith(b"%PDF")
