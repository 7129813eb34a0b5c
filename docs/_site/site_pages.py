"""What the site adds to Sphinx: the reference, links to sources, light pages, notebooks to download, llms.txt."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import reference
from explorer_page import fragment
from notebook_file import as_notebook
from PIL import Image

ROOT = Path(__file__).parents[2]
_SOURCE_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)#]+)\)")
_INCLUDE = re.compile(r"<!-- include: (\S+) -->")
_EXPLORER = "<!-- explorer -->"
COLOURS = 128
"""Of a picture on the site; our plots have fewer that an eye could tell apart."""


def read_source(app: Any, name: str, source: list[str]) -> None:
    """Fill in the reference and the explorer; name files outside of the site instead of linking to them."""
    text = _INCLUDE.sub(lambda found: _whole(found[1]), reference.fill(source[0]))
    link = f'<a href="{name.rpartition("/")[2]}.ipynb" download>Download it as a notebook</a>'
    text = text.replace("<!-- notebook -->", f"{link}; it needs `pip install 'stiefel-init[lab]'`.")
    if _EXPLORER in text:
        text = text.replace(_EXPLORER, f"```{{raw}} html\n{fragment()}\n```")
    source[0] = _SOURCE_LINK.sub(lambda found: _outside(app, name, found), text)


def _whole(file: str) -> str:
    """A file of the repository's root without its title, its links as this folder has them."""
    _, _, text = (ROOT / file).read_text(encoding="utf-8").partition("\n")
    return re.sub(r"\]\((?!https?:|#)", "](../", text).replace("](../docs/", "](")


def _outside(app: Any, name: str, found: re.Match[str]) -> str:
    """A link out of the docs: to the page that shows that file if there is one, else its path in the repository."""
    path = (Path(app.srcdir) / name).parent.joinpath(found[2]).resolve()
    if path.is_relative_to(app.srcdir):
        return found[0]
    shown = {"CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}.get(path.name)
    if shown is not None:
        up = "../" * name.count("/")
        return f"[{found[1]}]({up}{shown}.md)"
    return f"{found[1]} (`{path.relative_to(ROOT)}`)"


def lighten(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Pictures are loaded when they come near, the style of notebooks on their pages; captions have a level."""
    if "body" in context:
        context["body"] = re.sub(r"<img (?![^>]*loading=)", '<img loading="lazy" ', context["body"])
    if not page.startswith("notebooks/"):
        context["css_files"] = [one for one in context["css_files"] if "mystnb" not in str(one.filename)]
    tree = context.get("furo_navigation_tree")
    if tree:
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def finish(app: Any, error: Exception | None) -> None:
    """Pictures in few colours, notebooks as files, and the index for language models."""
    if error is not None or app.builder.name not in ("html", "dirhtml"):
        return
    out = Path(app.outdir)
    for path in (out / "_images").glob("*.png"):
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        before = path.stat().st_size
        kept = path.read_bytes()
        small.save(path, optimize=True)
        if path.stat().st_size >= before:
            path.write_bytes(kept)
    for path in sorted((Path(app.srcdir) / "notebooks").glob("*.md")):
        if path.stem != "index":
            text = json.dumps(as_notebook(path.read_text(encoding="utf-8")), indent=1, ensure_ascii=False)
            (out / "notebooks" / f"{path.stem}.ipynb").write_text(text + "\n", encoding="utf-8")
    (out / "llms.txt").write_text(llms(app), encoding="utf-8")


def llms(app: Any) -> str:
    """A line for each page: its title, address and first sentence; https://llmstxt.org."""
    lines = ["# stiefel-init", "", f"> {_first(app, 'index')}", ""]
    order = ["index", *app.env.toctree_includes.get("index", [])]
    seen: set[str] = set()
    for top in order:
        for page in (top, *app.env.toctree_includes.get(top, []) * (top != "index")):
            if page not in seen:
                seen.add(page)
                title = app.env.titles[page].astext()
                lines.append(f"- [{title}]({app.builder.get_target_uri(page)}): {_first(app, page)}")
    return "\n".join(lines) + "\n"


def _first(app: Any, page: str) -> str:
    """The first sentence of a page's first paragraph."""
    for node in app.env.get_doctree(page).findall(lambda node: node.tagname == "paragraph"):
        text = " ".join(node.astext().split())
        if len(text) > 20 and "download>" not in text:
            return re.split(r"(?<=[.?!])\s", text)[0]
    return ""


def setup(app: Any) -> dict[str, Any]:
    """Sphinx calls this."""
    app.connect("source-read", read_source)
    app.connect("html-page-context", lighten, priority=900)  # after the theme
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
