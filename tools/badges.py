"""The README's badges, from what pyproject.toml says; `make docs` writes them into docs/badges/."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "badges"


def badges() -> dict[str, str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    versions = [text.rpartition(":: ")[2] for text in project["classifiers"] if ":: Python :: 3." in text]
    types = "mypy strict" if settings["tool"]["mypy"]["strict"] else "some"
    core = " and ".join(
        {"numpy": "NumPy", "scipy": "SciPy"}[text.partition(">")[0]] for text in project["dependencies"]
    )
    values = {"python": f"{versions[0]} – {versions[-1]}", "license": project["license"], "types": types, "needs": core}
    return {f"{label}.svg": svg(label, value) for label, value in values.items()}


def svg(label: str, value: str) -> str:
    left, right = (round(6.6 * len(word)) + 14 for word in (label, value))
    texts = "".join(
        f'<text x="{x}" y="14" text-anchor="middle">{word}</text>'
        for x, word in ((left / 2, label), (left + right / 2, value))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img"'
        f' aria-label="{label}: {value}">'
        f'<rect width="{left + right}" height="20" rx="3" fill="#444"/>'
        f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right - 3}z" fill="#0b6e4f"/>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )
