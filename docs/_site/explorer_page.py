"""The explorer as one piece of HTML: markup, style, formulas, dots and behaviour, with nothing left to load."""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "explorer"


def fragment() -> str:
    """The parts of `docs/explorer/`, put together."""
    markup, style, theory, behaviour = (
        (FOLDER / name).read_text(encoding="utf-8")
        for name in ("explorer.html", "explorer.css", "theory.js", "explorer.js")
    )
    dots = json.dumps(json.loads((FOLDER / "measured.json").read_text(encoding="utf-8")), separators=(",", ":"))
    return f"<style>\n{style}</style>\n{markup}<script>\n{theory}\nconst MEASURED = {dots};\n{behaviour}</script>"
