"""One self-contained HTML page of sentences, tables, charts and pictures, from Markdown."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from ... import __version__
from ..files import write_whole
from .chart import SCRIPT, Chart
from .plots import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_COLOURS = 64  # of an embedded picture: enough for lines, a third of the bytes


def write_page(path: Path, title: str, text: str, pictures: Mapping[str, Figure | Chart]) -> Path:
    """Write a page of Markdown text, with `pictures` embedded; images that are not among them are dropped."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    charts: list[str] = []
    for token in (child for block in tokens for child in block.children or ()):
        if token.type == "image" and (drawn := pictures.get(str(token.attrs["src"]))) is not None:
            if isinstance(drawn, Chart):
                token.type, token.content = "html_inline", f"<chart {len(charts)}>"
                charts.append(drawn.html())
            else:
                token.attrs["src"] = f"data:image/png;base64,{base64.b64encode(_small(drawn)).decode()}"
        elif token.type == "image":
            token.type = "text"
        elif token.type == "link_open" and "://" not in str(token.attrs["href"]):
            token.attrs.pop("href")  # to another page of the docs, which is not here
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    for number, chart in enumerate(charts):
        body = body.replace(f"<p><chart {number}></p>", chart)
    name = html.escape(title)
    script = f"<script>{SCRIPT}</script>\n" if charts else ""
    return write_whole(
        path,
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n"
        f"<body>\n<h1>{name}</h1>\n{body}\n"
        f"<footer>Made by stiefel-init {__version__}. This page is self-contained.</footer>\n{script}</body></html>\n",
    )


def _small(drawn: Figure) -> bytes:
    """A picture as the content of a PNG file, with few colours."""
    from PIL import Image

    buffer = io.BytesIO()
    with Image.open(io.BytesIO(png(drawn, 110))) as picture:
        picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
