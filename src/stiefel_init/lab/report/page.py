"""One self-contained HTML page of sentences, tables and pictures, from Markdown."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from ... import __version__
from ..files import write_whole
from .plots import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1b1f24; background: #fff; max-width: 70rem;
       margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p { max-width: 50rem; } h1 + p { font-size: 1.08rem; } footer { color: #57606a; font-size: .9rem; }
img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } div.table { overflow-x: auto; }
th, td { padding: .35rem .8rem; border-bottom: 1px solid #d8dee4; text-align: left; }
thead th { border-bottom: 2px solid #1b1f24; }
footer { margin-top: 3rem; border-top: 1px solid #d8dee4; padding-top: .8rem; }
"""


def write_page(path: Path, title: str, text: str, pictures: Mapping[str, Figure]) -> Path:
    """Write a page of Markdown text, with `pictures` embedded; images that are not among them are dropped."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(text)
    for token in (child for block in tokens for child in block.children or ()):
        if token.type == "image" and (drawn := pictures.get(str(token.attrs["src"]))) is not None:
            token.attrs["src"] = f"data:image/png;base64,{base64.b64encode(png(drawn)).decode()}"
        elif token.type == "image":
            token.type = "text"
        elif token.type == "link_open" and "://" not in str(token.attrs["href"]):
            token.attrs.pop("href")  # to another page of the docs, which is not here
    body = parser.renderer.render(tokens, parser.options, {})
    body = body.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    name = html.escape(title)
    return write_whole(
        path,
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>\n<h1>{name}</h1>\n{body}\n"
        f"<footer>Made by stiefel-init {__version__}. This page is self-contained.</footer>\n</body></html>\n",
    )
