"""A page needs nothing but itself, and shows nothing but what it was given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stiefel_init.lab.report import plots
from stiefel_init.lab.report.page import write_page


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


def test_the_same_page_is_the_same_file(tmp_path: Path) -> None:
    text = "| a | b |\n|---|---:|\n| 1 | 2 |\n\n![x](own)\n"
    pages = [write_page(tmp_path / f"{i}.html", "A", text, {"own": plots.figure(1)[0]}).read_bytes() for i in (1, 2)]
    assert pages[0] == pages[1]
