"""The report: computed, complete and current; and nothing that a file of results says gets a hold of the page."""

from __future__ import annotations

import base64
import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from conftest import one_sentence
from laboratory import ROOT, Cli, record
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


def test_the_report_is_current(tmp_path: Path) -> None:
    kept = {"members.md", "table5-protocol.md", "errata.md", "architectures.md", "baselines.md", "on-the-set.md"}
    for name in kept:
        shutil.copy(ROOT / "docs" / name, tmp_path)
    written = pages.write(tmp_path, Results(OURS), experiments().values())
    assert {path.name for path in written if path.suffix == ".md"} == {"results.md", *kept}
    for path in written:
        committed = ROOT / "docs" / path.name
        if path.suffix == ".md":
            assert path.read_text() == committed.read_text(), "run `make docs`"
        else:
            fresh, old = (matplotlib.image.imread(p) for p in (path, committed))
            assert fresh.shape == old.shape, f"run `make docs`: {path.name}"
            assert np.abs(fresh - old).mean() < 1e-3, f"run `make docs`: {path.name}"


def test_the_pages_of_benchmarks_are_current() -> None:
    texts: dict[Path, str] = {}
    pages.of_records(ROOT, Results(OURS), texts)
    assert len(texts) == 13
    for path, text in texts.items():
        assert path.read_text() == text, "run `make docs`"


@pytest.mark.slow
def test_every_page_is_current_and_one_that_is_not_is_named(tmp_path: Path) -> None:
    for name in ("docs", "results", "README.md", "src/stiefel_init/recipe/on_record.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    page = tmp_path / "docs" / "watch.md"
    page.write_text(page.read_text().replace("| rate far too low | named", "| rate far too low | missed"))
    with pytest.raises(StiefelError) as error:
        pages.write_all(tmp_path, Results(OURS), experiments().values(), check=True)
    assert one_sentence(error).startswith(f"{page} is not current")


def test_a_citation_that_is_not_on_record_is_named_and_not_mended(few: Results, tmp_path: Path) -> None:
    cited = tmp_path / "src" / "stiefel_init" / "recipe" / "on_record.csv"
    cited.parent.mkdir(parents=True)
    cited.write_text("study\n")
    with pytest.raises(StiefelError, match="is not what is on record") as error:
        pages.write_all(tmp_path, few, experiments().values())
    assert "python -m paper advice" in one_sentence(error)
    assert cited.read_text() == "study\n"


def test_what_is_cited_is_on_record(maintain: Cli) -> None:
    told = maintain("advice", "--results", str(OURS)).out
    assert told == (ROOT / "src" / "stiefel_init" / "recipe" / "on_record.csv").read_text()


def test_the_report_as_a_page(maintain: Cli, tmp_path: Path) -> None:
    assert maintain("report", "--html", "--out", str(tmp_path)).code == 0
    page = (tmp_path / "results.html").read_text()
    assert "<strong>holds</strong>" in page
    assert "Table 5" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "**" not in page
    assert "|" not in re.sub(r"base64,[^\"]*", "", page)


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
        assert [path.name for path in written] == ["results.md", "noted.md"]
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


def test_a_page_that_is_not_there_is_not_made(few: Results, tmp_path: Path) -> None:
    pages.write(tmp_path / "docs", few, [Table5(), Noted()])
    assert not (tmp_path / "docs" / "noted.md").exists()


class Untitled(Noted):
    """An experiment whose tables have no titles."""

    name = "untitled"
    page = "results"

    def tables(self, evidence: Any) -> list[Table]:
        return [Table("", ["name", "score"], [["a", "1.0"]])]


def test_a_table_without_a_title_has_none_on_the_page(few: Results, tmp_path: Path) -> None:
    pages.write(tmp_path, few, [Table5(), Untitled()])
    page = (tmp_path / "results.md").read_text()
    assert "## Noted\n\n| name | score |" in page
    assert "****" not in page


# What files say is text.

SECRET = b"\x89PNG\r\n\x1a\nmy own picture"
NASTY = {
    "a picture": "![stolen](secret.png)",
    "a picture elsewhere": "![stolen](https://example.org/x.png)",
    "a picture by reference": "![stolen][x]\n\n[x]: secret.png",
    "a picture in a link": "[![stolen](secret.png)](https://example.org)",
    "our own picture": "![x](own.png)",
    "HTML": "<script>alert(1)</script><img src='secret.png'>",
    "a comment": "<!-- hidden",
    "a link": "[click](https://example.org)",
    "a bare link": "<https://example.org>",
    "pipes": "one | two || three |",
    "an escaped pipe": "one \\| two \\\\| three",
    "lines": "one\ntwo\n\n# three\n\n- four\r\nfive",
    "an end of the table": "one |\n\n<!-- end -->\n\n## Owned",
    "markup": "*one* **two** _three_ __four__ `five` ~~six~~",
    "code": "`![x](secret.png)` ```\n<b>\n```",
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
    told = {
        text: {
            "networks": 3,
            "seconds": 1.5,
            "note": text,
            "environments": [
                {"device": text, "engine": text, "networks": 2},
                {"device": "b", "engine": "c", "networks": 1},
            ],
        }
    }
    folder.mkdir()
    (folder / "environment.json").write_text(json.dumps(told))
    return Results(folder)


def shown(html: str) -> str:
    """The words of a piece of HTML, as a reader sees them."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def first_table(html: str) -> list[list[str]]:
    """The rows of the first table of a page."""
    table = html[html.index("<table>") : html.index("</table>")]
    rows = re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    return [[shown(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


def stands_as_text(html: str, text: str) -> None:
    """A page on which `text` is text, in the cells where it belongs, and nothing else came of it."""
    words = " ".join(text.split())
    assert first_table(html) == [
        ["experiment", "networks", "device", "engine", "training time"],
        [words, "3", f"{words} (2) and b (1)", f"{words}, c", "2 s"],
    ]
    assert f"{words}: {words}" in shown(html)
    assert html.count("<img") == 1, "the experiment's own"
    above = html[: html.index("The claims")]
    assert not re.search(r"<(script|b|em|del|pre|ul|li)\b", above)
    assert re.findall(r"<h[1-6]>(.*?)</h", html)[:3] == ["The paper, re-run", "What was run", "The claims"]


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_what_a_file_says_of_its_run_is_text_in_markdown_and_on_the_page(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, out = nasty_results(tmp_path / "results", text), tmp_path / "out"
    out.mkdir()
    for place in (tmp_path, out, tmp_path / "results"):
        (place / "secret.png").write_bytes(SECRET)
    monkeypatch.chdir(tmp_path)
    page = pages.write_html(out, results, [Pictured()]).read_text()
    assert base64.b64encode(SECRET).decode()[:20] not in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    stands_as_text(page, text)
    pages.write(out, results, [Pictured()])
    lines = (out / "results.md").read_text()
    shown_elsewhere = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(lines)
    assert re.findall(r'<img src="([^"]*)"', shown_elsewhere) == ["own.png"]
    stands_as_text(shown_elsewhere, text)


def test_rows_are_as_long_as_their_header() -> None:
    """Of every table of the report, so that no cell falls out of it."""
    lines = (ROOT / "docs" / "results.md").read_text().splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) > 100
    width = 0
    for before, line in zip(["", *lines], lines):
        if line.startswith("|"):
            bars = len(re.findall(r"(?<!\\)\|", line))
            width = width if before.startswith("|") else bars
            assert bars == width, line
