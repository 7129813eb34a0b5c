"""Tables: the same in the terminal, in Markdown and on a page."""

from __future__ import annotations

import json
import re

import pytest
from laboratory import record
from markdown_it import MarkdownIt

from stiefel_init.lab.report.tables import Table, as_json, plain, summary
from stiefel_init.lab.train.cell import Cell

TABLE = Table(
    "scores",
    ["depth", "stiefel", "he", "remark"],
    [["10", "97.1 ± 0.2", "**96.0**", "near"], ["50", "—", "1,000 %", ""]],
)


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    assert TABLE.markdown() == [
        "| depth | stiefel | he | remark |",
        "|---|---:|---:|---|",
        "| 10 | 97.1 ± 0.2 | **96.0** | near |",
        "| 50 | — | 1,000 % |  |",
    ]


def test_the_best_of_each_row_is_marked() -> None:
    rows = [["10", "97.1 ± 0.2", "97.3", "—"], ["50", "11.3 (1 diverged)", "11.3", "9.0"], ["60", "—", "—", "—"]]
    table = Table("", ["depth", "a", "b", "c"], rows)
    assert table.marked().rows == [
        ["10", "97.1 ± 0.2", "**97.3**", "—"],
        ["50", "**11.3 (1 diverged)**", "**11.3**", "9.0"],
        ["60", "—", "—", "—"],
    ]
    assert table.marked(min).rows[1] == ["50", "11.3 (1 diverged)", "11.3", "**9.0**"]
    assert table.rows == rows, "the table itself is as it was"


@pytest.mark.parametrize("text", ["[/bold]", "/data/[/old]/mnist", "[link=file:///etc/passwd]x[/link]", "word " * 8])
def test_cells_are_shown_as_they_are_and_whole(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Table(text, ["name", text], [["a", text], [text, "b"]]).show()
    assert capsys.readouterr().out.count(text.strip()) == 4


@pytest.mark.parametrize(
    "text",
    [
        "a|b", "a\\|b", "![x](y)", "[x](y)", "<b>", "`code`", "*a* **b**", "_a_ __b__", "&lt; &amp;", "a\nb",
        "a\r\n\r\n# b", "cpu (x86_64)", "NVIDIA H200", "2_3_4",
    ],
)  # fmt: skip
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    line = f"| {plain(text)} | next |"
    html = MarkdownIt("commonmark").enable("table").render(f"| a | b |\n|---|---|\n{line}\n")
    cells = re.findall(r"<td>(.*?)</td>", html, re.S)
    expected = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert cells == [expected, "next"]


def test_a_summary_names_what_varies() -> None:
    cells = [
        Cell("wine", s, d, seed=i, alpha=a)
        for s in ("stiefel", "he")
        for d in (2, 3)
        for a in (0.0, 2.0)
        for i in (0, 1)
    ]
    table = summary(
        [record(cell, None if cell.seed and cell.depth == 3 else 50.0 + 2 * cell.seed) for cell in cells], "t"
    )
    assert (table.title, list(table.header)) == ("t", ["setting", "stiefel", "he"])
    assert [row[0] for row in table.rows] == ["depth 2, α 0", "depth 2, α 2", "depth 3, α 0", "depth 3, α 2"]
    assert table.rows[0][1] == "51.0 ± 1.4"
    one = summary([record(Cell("wine", "rotation 0.03", 2), 50.0)])
    assert (list(one.header), one.rows) == (["depth", "rotation 0.03"], [["2", "50.0"]])


def test_a_summary_counts_what_diverged() -> None:
    for dataset, text in (("wine", "25.0 ± 35.4 (1 diverged)"), ("diabetes", "50.00 (1 diverged)")):
        pair = [record(Cell(dataset), 50.0), record(Cell(dataset, seed=1), None, diverged=2)]
        assert summary(pair).rows[0][1] == text, "an infinite error has no part in the mean"


def test_tables_as_json_are_all_that_stdout_gets(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("scores", ["depth", "he"], [["10", "97.5"]])
    with as_json():
        print("wrote a file")
        table.show()
        table.show()
    out, err = capsys.readouterr()
    assert json.loads(out) == [{"title": "scores", "rows": [{"depth": "10", "he": "97.5"}]}] * 2
    assert err == "wrote a file\n"
    table.show()
    assert "97.5" in capsys.readouterr().out, "and then as before"
