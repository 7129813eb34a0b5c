"""The site's sources: every page has a place, every link a target, every public name an entry."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src"
sys.path.append(str(DOCS / "_site"))

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="docs/ is part of the source tree")

PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
GUIDES = sorted((DOCS / "guides").glob("*.md"))
FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *PAGES]
CODE = re.compile(r"^(`{3,}).*?^\1\s*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")


@cache
def anchors(path: Path) -> set[str]:
    """Of a page's headings, and of the file that it includes."""
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    if included := re.search(r"<!-- include: (\S+) -->", text):
        return anchors(ROOT / included[1])
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_a_target(path: Path) -> None:
    assert LINK.findall("[a](b.md#c) `d[0](x)` ![p](q.png)") == ["b.md#c", "x", "q.png"], "as links are found"
    assert "add-something-of-your-own" in anchors(DOCS / "contributing.md")
    for link in LINK.findall(CODE.sub("", path.read_text(encoding="utf-8"))):
        place, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (path.parent / place).resolve() if place else path
        assert target.exists(), f"{link} is not there"
        assert not anchor or anchor in anchors(target), f"{link} has no such heading"


def test_every_page_is_in_a_table_of_contents() -> None:
    named = {DOCS / "index.md"}
    for path in PAGES:
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            named |= {path.parent / f"{entry}.md" for entry in entries}
    assert named == set(PAGES)


READING = (
    "README.md", "docs/start.md", "docs/which-initialization.md", "docs/frameworks.md", "docs/initialize.md",
    "docs/learning-rate.md", "docs/diagnose.md", "docs/watch.md",
    "docs/faq.md", "docs/limits.md", *(f"docs/guides/{path.name}" for path in GUIDES),
)  # fmt: skip
"""What a user has to read."""


def words(*names: str) -> int:
    """Of pages, as `wc -w` counts them: code, tables and their rules included."""
    return sum(len((ROOT / name).read_text(encoding="utf-8").split()) for name in names)


def test_what_a_user_has_to_read_is_short_and_so_are_all_pages() -> None:
    assert words(*READING) <= 9_000
    assert words("README.md", *(str(path.relative_to(ROOT)) for path in PAGES)) <= 45_000


def declared() -> dict[str, list[str]]:
    """The modules that say which of their names are public, and these names."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                parts = path.relative_to(SOURCE).with_suffix("").parts
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                found[name] = ast.literal_eval(node.value)
    return found


def test_the_reference_has_every_public_name() -> None:
    import reference

    shown = [name for path in PAGES for name in reference.MARK.findall(path.read_text(encoding="utf-8"))]
    assert len(shown) == len(set(shown)) > 12
    public = declared()
    names = {name for module in shown for name in public[module]}
    for module, own in public.items():
        inner = "._" in module or module.startswith(("paper.studies", "stiefel_init.lab.train"))
        if not inner and module != "paper.registry":  # which lists what is registered, and has no names
            assert set(own) <= names, module


@pytest.mark.parametrize(
    "module", ["stiefel_init", "stiefel_init.theory", "stiefel_init.schemes", "stiefel_init.torch.optim"]
)
def test_an_entry_has_a_signature_and_says_something(module: str) -> None:
    import reference

    text = reference.module_text(module)
    for name in importlib.import_module(module).__all__:
        entry = re.search(rf"^`+{{py:\w+}} {name}\b.*?\n\n(.+?)\n`{{6}}", text, re.DOTALL | re.MULTILINE)
        assert entry, name
        assert len(entry[1]) > 15, name
    assert "0x" not in text


def test_the_reference_reads_a_docstring() -> None:
    import reference

    docstring = (
        "One.\n\n    a = b\n\nArgs:\n    x: First,\n        and more.\n    y: Second.\n\nReturns:\n    It.\n\n>>> 1\n1"
    )
    assert reference.markdown(docstring) == (
        "One.\n\n```text\na = b\n```\n\n**Arguments**\n\n- **x**: First, and more.\n- **y**: Second.\n\n"
        "**Returns**: It.\n\n```pycon\n>>> 1\n1\n```"
    )


def test_a_notebook_finds_what_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folders that conf.py gives its kernel, or among what is installed."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(os, "environ", {**os.environ})
    ours = {"stiefel_init", "paper"}
    folders = [Path(folder) for folder in runpy.run_path(str(DOCS / "conf.py"))["SOURCES"]]
    for path in (DOCS / "notebooks").glob("*.md"):
        names = set(re.findall(r"^(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE))
        for name in names & ours:
            assert any((folder / name).is_dir() for folder in folders), name
        for name in names - ours:
            assert importlib.util.find_spec(name), name


def test_a_notebook_keeps_prose_and_code_apart() -> None:
    from notebook_file import as_notebook, cells

    for path in sorted((DOCS / "notebooks").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if path.stem == "index":
            continue
        code = cells(text)
        assert len(code) >= 2
        for cell in code:
            compile(cell, path.name, "exec")
        book = as_notebook(text)
        assert [cell["source"] + "\n" for cell in book["cells"] if cell["cell_type"] == "code"] == code
        assert book["cells"][0]["source"].startswith("# ")
        assert not any("```{code-cell}" in cell["source"] for cell in book["cells"])
