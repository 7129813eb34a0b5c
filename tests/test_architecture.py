"""The order of the source: no module imports itself by a detour, and none imports from a layer above its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = "stiefel_init"

LAYERS = (
    # The core, with NumPy and SciPy alone, and the initializations; then theory and health, likewise.
    (PACKAGE, f"{PACKAGE}.core", f"{PACKAGE}.schemes", f"{PACKAGE}.recipe"),
    (f"{PACKAGE}.theory", f"{PACKAGE}.health"),
    tuple(f"{PACKAGE}.{name}" for name in ("torch", "jax", "keras", "sklearn")),
    # The laboratory.
    tuple(f"{PACKAGE}.lab.{name}" for name in ("files", "progress", "plugins")),
    (f"{PACKAGE}.lab.data",),
    (f"{PACKAGE}.lab.train",),
    (f"{PACKAGE}.lab.report",),
    (f"{PACKAGE}.lab.study",),
    tuple(f"{PACKAGE}.lab.{name}" for name in ("options", "cli")),
    (f"{PACKAGE}.lab", f"{PACKAGE}.__main__"),
)
"""From the lowest up. A package stands for all that is in it, unless a longer name says otherwise."""
EXACT = {PACKAGE, f"{PACKAGE}.lab"}
"""Packages of which the name stands for `__init__` alone."""


def modules(source: Path) -> dict[str, Path]:
    """All modules below a folder by name; a package is its `__init__`."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(name: str, text: str, known: Mapping[str, object], *, package: bool = False) -> Iterator[str]:
    """The known modules that a module imports anywhere in its text: in functions and for type checkers too."""
    parent = (name if package else name.rpartition(".")[0]).split(".")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = parent[: len(parent) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield from (module for module in [whole if whole in known else base] if module in known)


def graph() -> dict[str, set[str]]:
    """Of each module of the package, those that it imports."""
    known = modules(SOURCE)
    return {
        name: set(imported(name, path.read_text(), known, package=path.name == "__init__.py")) - {name}
        for name, path in known.items()
    }


def layer(name: str) -> int:
    """The place of a module in the order; that of the longest name that stands for it."""
    inside = [
        (len(prefix), number)
        for number, prefixes in enumerate(LAYERS)
        for prefix in prefixes
        if name == prefix or (prefix not in EXACT and name.startswith(f"{prefix}."))
    ]
    return max(inside, default=(0, -1))[1]


def test_every_module_has_a_layer() -> None:
    found = graph()
    assert len(found) > 100
    assert [name for name in found if layer(name) < 0] == []


def test_no_module_imports_itself_by_a_detour() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle: {' <- '.join(error.args[1])}")


def test_no_module_imports_from_a_layer_above_its_own() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in sorted(others)
        if layer(other) > layer(name)
    ]
    assert wrong == []


def test_the_core_and_the_theory_need_no_framework() -> None:
    """NumPy and SciPy are all that `pip install stiefel-init` brings."""
    foreign = {"torch", "jax", "keras", "sklearn", "pandas", "matplotlib", "rich", "typer", "triton"}
    for name, path in modules(SOURCE).items():
        if layer(name) <= 1:
            found = {
                alias.split(".")[0]
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0)
                for alias in (
                    [name.name for name in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                )
            }
            assert not found & foreign, name


SAMPLE = """
import os, p.a
import p.b.c as short
from . import sibling, VALUE
from .. import uncle
from ..b import c, NAME
from .gone import nothing

def late():
    from ..b.c import f
    import p

if TYPE_CHECKING:
    from .typed import Type
try:
    from .optional import x
except ImportError:
    pass
"""


def test_every_form_of_an_import_is_seen() -> None:
    known = dict.fromkeys(
        ("p", "p.a", "p.b", "p.b.c", "p.q", "p.q.sibling", "p.q.typed", "p.q.optional", "p.q.me", "p.uncle"), None
    )
    expected = {"p", "p.a", "p.b", "p.b.c", "p.q", "p.q.sibling", "p.q.typed", "p.q.optional", "p.uncle"}
    assert set(imported("p.q.me", SAMPLE, known)) == expected
    assert set(imported("p.q", "from . import me\nfrom .. import a", known, package=True)) == {"p.q.me", "p.a"}


def test_a_cycle_and_a_step_up_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / PACKAGE
    (folder / "lab").mkdir(parents=True)
    (folder / "core").mkdir()
    for name in ("__init__", "core/__init__", "core/low", "core/other", "lab/__init__", "lab/cli"):
        (folder / f"{name}.py").write_text("")
    (folder / "core/low.py").write_text("def f():\n    from .other import g\n")
    (folder / "core/other.py").write_text("from . import low\nif False:\n    from ..lab import cli\n")
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    assert graph()[f"{PACKAGE}.core.other"] == {f"{PACKAGE}.core.low", f"{PACKAGE}.lab.cli"}
    with pytest.raises(pytest.fail.Exception, match="a cycle"):
        test_no_module_imports_itself_by_a_detour()
    with pytest.raises(AssertionError, match=r"other imports stiefel_init\.lab\.cli"):
        test_no_module_imports_from_a_layer_above_its_own()


def test_no_file_is_too_long_to_read() -> None:
    files = [*SOURCE.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]
    long = {file.name: lines for file in files if (lines := len(file.read_text().splitlines())) > 500}
    assert len(files) > 200
    assert not long
