"""The README's badges, from what pyproject.toml says; `make docs` writes them into docs/badges/.

python benchmarks/badges.py
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "badges"


def badges() -> dict[str, str]:
    """Name of the file → its text."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    versions = [one.rpartition(":: ")[2] for one in project["classifiers"] if ":: Python :: 3." in one]
    types = "mypy strict" if settings["tool"]["mypy"]["strict"] else "some"
    core = " and ".join({"numpy": "NumPy", "scipy": "SciPy"}[one.partition(">")[0]] for one in project["dependencies"])
    said = {
        "python": f"{versions[0]} – {versions[-1]}", "license": project["license"], "types": types, "needs": core,
    }  # fmt: skip
    return {f"{label}.svg": svg(label, value) for label, value in said.items()}


def svg(label: str, value: str) -> str:
    """Two boxes with words."""
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


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in badges().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"wrote {len(badges())} badges")


if __name__ == "__main__":
    main()
