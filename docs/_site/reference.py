"""The API reference as Markdown, from signatures and docstrings: what fills the pages under `docs/api/`.

Docstrings here are Markdown with sections such as `Args:`, so that Sphinx's own Python directives are enough.
A page names its modules in comments, `<!-- reference: stiefel_init.theory -->`, and `fill` puts their names there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from inspect import Parameter
from types import ModuleType
from typing import Any, ForwardRef

MARK = re.compile(r"<!-- reference: ([\w.]+) -->")
_SECTION = re.compile(r"(Args|Returns|Raises|References):")
_NO_LITERAL = re.compile(r"<.*>")


def fill(text: str) -> str:
    """A page's text with the reference of each module it names."""
    return MARK.sub(lambda found: module_text(found[1]), text)


def module_text(name: str) -> str:
    """All public names of a module."""
    module = importlib.import_module(name)
    parts = [f"```{{py:module}} {name}\n:no-index-entry:\n```"]
    parts += [_entry(module, one) for one in sorted(module.__all__, key=_by_kind)]
    return "\n\n".join(parts)


def _by_kind(name: str) -> tuple[bool, bool, str]:
    """Functions and values first, then classes; constants last."""
    return name.isupper() and len(name) > 4, name[0].isupper(), name.lower()


def _entry(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value):
        return _class(module.__name__, name, value)
    if inspect.isroutine(value):
        return _object("function", f"{name}{_signature(value)}", module.__name__, markdown(inspect.getdoc(value) or ""))
    shown = _shortened(value)
    text = _constants(_home(module, name)).get(name, "")
    return _object("data", name, module.__name__, markdown(text), f":value: {shown}" if shown else "")


def _object(kind: str, signature: str, module: str, body: str, *options: str, fence: int = 6) -> str:
    lines = [
        "`" * fence + f"{{py:{kind}}} {signature}",
        *([f":module: {module}"] if module else []),
        *filter(None, options),
    ]
    return "\n".join([*lines, "", body, "`" * fence])


def _class(module: str, name: str, kind: type) -> str:
    parts = [markdown(inspect.getdoc(kind) or "")]
    for field, note in _fields(kind).items():
        parts.append(_object("attribute", field, "", markdown(note), fence=4))
    for method, value in vars(kind).items():
        if method.startswith("_") or method in _fields(kind):
            continue
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property) and value.__doc__:
            parts.append(_object("property", method, "", markdown(inspect.cleandoc(value.__doc__)), fence=4))
        elif inspect.isfunction(plain) and (text := plain.__doc__):
            parts.append(
                _object(
                    "method", f"{method}{_signature(plain, bound=True)}", "", markdown(inspect.cleandoc(text)), fence=4
                )
            )
    base = "exception" if issubclass(kind, BaseException) else "class"
    return _object(base, f"{name}{_signature(kind)}", module, "\n\n".join(parts))


class _Words(str):
    """Text that is shown without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


def _signature(value: Any, *, bound: bool = False) -> str:
    """Of a callable, annotations as they were written; empty if it has none."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    entries = [
        entry.replace(annotation=_words(entry.annotation), default=_default(entry.default))
        for entry in list(signature.parameters.values())[int(bound) :]
    ]
    returns = signature.return_annotation
    if inspect.isclass(value) or returns in (None, "None"):
        returns = signature.empty
    return str(signature.replace(parameters=entries, return_annotation=_words(returns)))


def _words(annotation: Any) -> Any:
    """An annotation that was written as text, as it was written."""
    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    return _Words(annotation) if isinstance(annotation, str) else annotation


def _default(value: Any) -> Any:
    if value is Parameter.empty:
        return value
    if inspect.isclass(value):
        return _Words(value.__name__)
    text = repr(value)
    return _Words(_NO_LITERAL.sub("…", text)) if _NO_LITERAL.search(text) else value


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 100 and "\n" not in text and not _NO_LITERAL.search(text) else ""


def _fields(kind: type) -> dict[str, str]:
    """The attributes of a class's own body that have a text below them, and that text."""
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(body, ast.ClassDef)
    return {name: note for name, note in _noted(body.body) if not name.startswith("_") and note}


def _noted(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for place, node in enumerate(body):
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name):
            after = body[place + 1] if place + 1 < len(body) else None
            value = after.value if isinstance(after, ast.Expr) else None
            text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            yield target.id, inspect.cleandoc(text)


@cache
def _constants(module: ModuleType) -> dict[str, str]:
    return dict(_noted(ast.parse(inspect.getsource(module)).body))


def _home(module: ModuleType, name: str) -> ModuleType:
    """Where a constant was written, which may be a module that this one imports it from."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
            return importlib.import_module("." * node.level + (node.module or ""), module.__name__)
    return module


def markdown(docstring: str) -> str:
    """A docstring's text: its sections as lists, its examples and formulas as code."""
    blocks = re.split(r"\n\s*\n", docstring.strip("\n"))
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    head, _, rest = block.partition("\n")
    if found := _SECTION.fullmatch(head.strip()):
        return _section(found[1], textwrap.dedent(rest))
    if head.startswith(">>>"):
        return f"```pycon\n{block}\n```"
    if head.startswith("    "):
        return f"```text\n{textwrap.dedent(block)}\n```"
    return block


def _section(name: str, text: str) -> str:
    if name == "Returns":
        return f"**Returns**: {' '.join(text.split())}"
    entries = re.split(r"\n(?=\S)", text)
    lines = []
    for entry in entries:
        label, colon, said = entry.partition(":")
        words = " ".join(said.split())
        if colon and re.fullmatch(r"[\w*, .]+", label):
            lines.append(f"- **{label.replace('*', chr(92) + '*')}**: {words}")
        else:
            lines.append(f"- {' '.join(entry.split())}")
    return "\n".join([f"**{'Arguments' if name == 'Args' else name}**", "", *lines])
