"""A page with code cells as a Jupyter notebook to download, without outputs."""

from __future__ import annotations

import re
from typing import Any

CELL = re.compile(r"```\{code-cell\}[^\n]*\n(?::[^\n]*\n)*(.*?)```\n?", re.DOTALL)
_HEADER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def cells(text: str) -> list[str]:
    """The code cells of a page."""
    return [cell.strip("\n") + "\n" for cell in CELL.findall(text)]


def as_notebook(text: str) -> dict[str, Any]:
    """The notebook, as nbformat 4.5 has it."""
    text = _HEADER.sub("", text)
    parts: list[dict[str, Any]] = []
    end = 0
    for found in CELL.finditer(text):
        parts += _prose(text[end : found.start()])
        code = found[1].strip("\n")
        parts.append({"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": code})
        end = found.end()
    parts += _prose(text[end:])
    for number, part in enumerate(parts):
        part["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": parts, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _prose(text: str) -> list[dict[str, Any]]:
    return [{"cell_type": "markdown", "metadata": {}, "source": text.strip()}] if text.strip() else []
