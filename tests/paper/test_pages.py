"""The report: computed, complete and current; and nothing that a file of results says gets a hold of the page."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from conftest import one_sentence
from laboratory import ROOT, record
from markdown_it import MarkdownIt
from paper import docs as pages
from paper.experiment import Experiment, Options
from paper.registry import experiments
from paper.results import Results
from paper.tables.tabular import Table5

from stiefel_init import StiefelError
from stiefel_init.lab.report import plots
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train import record as keep

OURS = ROOT / "results"


def test_the_pages_of_benchmarks_are_current() -> None:
    texts: dict[Path, str] = {}
    pages.of_records(ROOT, Results(OURS), texts)
    assert len(texts) == 27
    for path, text in texts.items():
        assert path.read_text() == text, "run `make docs`"


@pytest.mark.slow
def test_every_page_is_current_and_one_that_is_not_is_named(tmp_path: Path) -> None:
    for name in ("docs", "results", "README.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    page = tmp_path / "docs" / "diagnosis-accuracy.md"
    page.write_text(page.read_text().replace("| fresh networks |", "| other networks |"))
    with pytest.raises(StiefelError) as error:
        pages.write_all(tmp_path, Results(OURS), experiments().values(), check=True)
    assert one_sentence(error).startswith(f"{page} is not current")


# Pages that are there.


@pytest.fixture
def few(tmp_path: Path) -> Results:
    """A small run of table 5."""
    (tmp_path / "run").mkdir()
    keep.write(tmp_path / "run", [record(cell, 50.0 + cell.seed) for cell in Table5().cells(2)])
    return Results(tmp_path / "run")


class Noted(Experiment):
    """An experiment with a page of its own, and one table."""

    name = "noted"
    title = "Noted"
    page = "noted"

    def run(self, options: Options) -> None: ...

    def evidence(self, results: Results) -> Any:
        return "something"

    def tables(self, evidence: Any) -> list[Table]:
        return [Table("found", ["name", "score"], [["a", "1.0"]])]


def test_a_page_is_filled_between_its_marks_and_left_as_it_is_elsewhere(few: Results, tmp_path: Path) -> None:
    text = "# Mine\n\nWords before.\n<!-- evidence -->\nold\n<!-- end -->\nWords after.\n"
    (tmp_path / "noted.md").write_text(text)
    for _ in range(2):
        written = pages.write(tmp_path, few, [Table5(), Noted()])
        assert [path.name for path in written] == ["results.md", "compared.csv", "noted.md"]
        page = (tmp_path / "noted.md").read_text()
        assert page.startswith("# Mine\n\nWords before.\n<!-- evidence -->\n## Noted\n")
        assert page.endswith("\n<!-- end -->\nWords after.\n")
        assert "**Found**\n\n| name | score |\n|---|---:|\n| a | 1.0 |\n" in page
        assert "old" not in page


def test_a_page_that_lost_its_marks_is_named_and_left_alone(few: Results, tmp_path: Path) -> None:
    for text in ("# Mine\n", "# Mine\n<!-- evidence -->\n"):
        (tmp_path / "noted.md").write_text(text)
        with pytest.raises(StiefelError) as error:
            pages.write(tmp_path, few, [Table5(), Noted()])
        assert f"{tmp_path / 'noted.md'} lacks the marks" in one_sentence(error)
        assert (tmp_path / "noted.md").read_text() == text


# What files say is text.

NASTY = {
    "a picture": "![stolen](secret.png)",
    "HTML": "<script>alert(1)</script><img src='secret.png'>",
    "an escaped pipe": "one \\| two \\\\| three",
    "an end of the table": "one |\n\n<!-- end -->\n\n## Owned",
    "markup": "*one* **two** _three_ __four__ `five` ~~six~~",
    "entities": "&lt;b&gt; &#124; &amp;",
}


class Pictured(Noted):
    """An experiment on the page of results, with a picture."""

    name = "pictured"
    page = "results"

    def pictures(self, evidence: Any) -> dict[str, Any]:
        return {"own": plots.figure(1, label="own picture")[0]}


def nasty_results(folder: Path, text: str) -> Results:
    """Results of which environment.json has `text` wherever it may have one."""
    made = [{"device": text, "engine": text, "networks": 2}, {"device": "b", "engine": "c", "networks": 1}]
    told = {text: {"networks": 3, "seconds": 1.5, "note": text, "environments": made}}
    folder.mkdir()
    (folder / "environment.json").write_text(json.dumps(told))
    return Results(folder)


def shown(html: str) -> str:
    """The words of a piece of HTML, as a reader sees them."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def last_table(html: str) -> list[list[str]]:
    """The rows of the last table of a page."""
    table = html[html.rindex("<table>") : html.rindex("</table>")]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[shown(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


def stands_as_text(html: str, text: str) -> None:
    """A page on which `text` is text, in the cells where it belongs, and nothing else came of it."""
    words = " ".join(text.split())
    assert last_table(html) == [
        ["experiment", "networks", "device", "engine", "training time"],
        [words, "3", f"{words} (2) and b (1)", f"{words}, c", "2 s"],
    ]
    assert f"{words}: {words}" in shown(html)
    assert html.count("<img") == 1, "the experiment's own"
    below = html[html.index("What was run") :]
    assert not re.search(r"<(script|b|em|del|pre|ul|li)\b", below)
    assert re.findall(r"<h[1-6]>(.*?)</h", html) == ["The paper, re-run", "The claims", "Noted", "What was run"]


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_what_a_file_says_of_its_run_is_text(text: str, tmp_path: Path) -> None:
    results, out = nasty_results(tmp_path / "results", text), tmp_path / "out"
    pages.write(out, results, [Pictured()])
    lines = (out / "results.md").read_text()
    shown_elsewhere = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(lines)
    assert re.findall(r'<img src="([^"]*)"', shown_elsewhere) == ["own.png"]
    stands_as_text(shown_elsewhere, text)


def test_rows_are_as_long_as_their_header() -> None:
    """Of every table of the report, so that no cell falls out of it."""
    lines = (ROOT / "docs" / "results.md").read_text().splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) > 30
    width = 0
    for before, line in zip(["", *lines], lines):
        if line.startswith("|"):
            bars = len(re.findall(r"(?<!\\)\|", line))
            width = width if before.startswith("|") else bars
            assert bars == width, line
