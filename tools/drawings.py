"""Pictures as SVG, light and dark: the README's two, and bars for pages of evidence; `make docs` writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

STYLE = """
text { font: 19px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1b1f24; }
.card { fill: #ffffff; } .soft { fill: #57606a; } .bold { font-weight: 600; }
.line { stroke: #1b1f24; fill: none; stroke-width: 2; } .grid { stroke: #d0d7de; fill: none; stroke-width: 1; }
.kept { fill: #0072b2; fill-opacity: .10; }
.axis { stroke: #57606a; stroke-width: 2; stroke-dasharray: 7 5; fill: none; }
.c0 { stroke: #0072b2; fill: #0072b2; } .c1 { stroke: #b35900; fill: #b35900; } .c2 { stroke: #6e7781; fill: #6e7781; }
.cone { fill: #0072b2; fill-opacity: .35; stroke: #0072b2; stroke-width: 2; }
.lost { fill: #b35900; fill-opacity: .55; stroke: #b35900; stroke-width: 2; }
.open { fill: none !important; stroke-width: 4; } .word { stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .card { fill: #161b22; } .soft { fill: #9da7b3; } .line { stroke: #e6edf3; }
.grid { stroke: #3d444d; }
.axis { stroke: #9da7b3; } .kept { fill: #56b4e9; } .cone { fill: #56b4e9; stroke: #56b4e9; }
.lost { fill: #f0a04b; stroke: #f0a04b; }
.c0 { stroke: #56b4e9; fill: #56b4e9; } .c1 { stroke: #f0a04b; fill: #f0a04b; } .c2 { stroke: #b1bac4; fill: #b1bac4; }
}"""
"""Blue, orange and grey, which the colour-blind tell apart, and which differ in lightness."""
WIDTH = 640


def idea() -> str:
    """Signals in a cone, what a random rotation makes of them and what one around the all-ones axis does."""
    panels = [
        ("Any rotation", 0, _wedge(75, 118, 90), "ReLU cuts off what", "leaves the quadrant"),
        ("A rotation around all-ones", 330, _wedge(24, 66, 90), "ReLU cuts off", "almost nothing"),
    ]
    parts = []
    for title, left, cone, *words in panels:
        x, y = left + 90, 262
        lines = "".join(
            f'<text x="{left + 14}" y="{305 + 24 * row}" class="soft">{word}</text>' for row, word in enumerate(words)
        )
        parts += [
            f'<text x="{left + 14}" y="34" class="bold">{title}</text>',
            f'<g transform="translate({x} {y})"><rect class="kept" y="-205" width="205" height="205"/>{cone}',
            '<path class="axis" d="M0 0L186 -186"/><path class="line" d="M-76 0H210M0 10V-210"/></g>',
            lines,
        ]
    parts += [
        '<text x="276" y="66" text-anchor="end" class="soft">(1, 1, …)</text>',
        '<text x="606" y="66" text-anchor="end" class="soft">(1, 1, …)</text>',
        '<g transform="translate(532 150) rotate(-45)"><ellipse class="line" rx="17" ry="60"/>',
        '<path class="line" d="M-27 -10L-17 5L-5 -9"/></g>',
    ]
    return _svg(
        parts, 345, "Signals before a ReLU lie in a cone; a rotation around the all-ones axis keeps it positive."
    )


def _wedge(first: float, last: float, edge: float) -> str:
    """A cone between two angles; what lies beyond the edge has the colour of what is lost."""

    def sector(a: float, b: float, look: str) -> str:
        (x, y), (u, v) = ((170 * math.cos(math.radians(d)), -170 * math.sin(math.radians(d))) for d in (a, b))
        return f'<path class="{look}" d="M0 0L{x:.0f} {y:.0f}A170 170 0 0 0 {u:.0f} {v:.0f}Z"/>'

    beyond = sector(max(first, edge), last, "lost") if last > edge else ""
    return sector(first, min(last, edge), "cone") + beyond


def measured(curves: Mapping[str, Sequence[float]], depths: Sequence[int], cnns: Mapping[str, Sequence[float]]) -> str:
    """Test accuracy of perceptrons over their depth, and of plain CNNs; each initialization has its name, ours last."""
    left, top, high, step = 62, 70, 235, 62
    marks = ("M-6 -6H6V6H-6Z", "M0 -8L8 7H-8Z", "M0 -7A7 7 0 1 1 0 7A7 7 0 1 1 0 -7Z")

    def y(score: float) -> float:
        return top + high * (1 - score / 100)

    parts = ['<text x="14" y="30" class="bold">Plain MLPs: accuracy (%)</text>']
    parts += ['<text x="404" y="30" class="bold">Plain CNNs</text>']
    for value in (0, 50, 100):
        parts += [f'<path class="grid" d="M{left} {y(value):.0f}H368M404 {y(value):.0f}H626"/>']
        parts += [f'<text x="{left - 8}" y="{y(value) + 6:.0f}" text-anchor="end" class="soft">{value}</text>']
    for place, depth in enumerate(depths):
        x = left + 18 + step * place
        parts += [f'<text x="{x}" y="{top + high + 28}" text-anchor="middle" class="soft">{depth:,}</text>']
    parts += [f'<text x="{left}" y="{top + high + 54}" class="soft">layers</text>']
    for row, scores in enumerate(curves.values()):
        rank = len(curves) - 1 - row
        points = [(left + 18 + step * place, y(score)) for place, score in enumerate(scores)]
        parts += [f'<path class="c{rank} open" d="M{"L".join(f"{a:.0f} {b:.0f}" for a, b in points)}"/>']
        parts += [
            f'<path class="c{rank}" transform="translate({a:.0f} {b:.0f})" d="{marks[rank]}"/>' for a, b in points
        ]
    names = list(curves)
    labels = {names[-1]: (150, 60), names[1]: (290, 168), names[0]: (150, 301)}
    for row, name in enumerate(names):
        (a, b), rank = labels[name], len(names) - 1 - row
        parts += [f'<text x="{a}" y="{b}" class="c{rank} word bold">{name}</text>']
    for place, (name, scores) in enumerate(cnns.items()):
        x, lowest = 450 + 116 * place, 0.0
        parts += [f'<text x="{x}" y="{top + high + 28}" text-anchor="middle" class="soft">{name}</text>']
        for rank, score in enumerate(reversed(scores)):
            lowest = max(lowest + 20, y(score) + 6)  # labels of close scores stand below each other
            parts += [f'<path class="c{rank}" transform="translate({x} {y(score):.0f})" d="{marks[rank]}"/>']
            parts += [f'<text x="{x + 14}" y="{lowest:.0f}" class="c{rank} word">{score:.0f}</text>']
    return _svg(parts, top + high + 66, f"Test accuracy of {', '.join(names)}, by depth and in two plain CNNs.")


def bars(
    groups: Mapping[str, Mapping[str, float]],
    label: str,
    *,
    most: float = 100,
    form: str = "{:.0f} %",
    rest: str = "c2",
) -> str:
    """Bars in groups, each with its name before it and its value behind; all but a group's last look like `rest`."""
    left, wide, parts, y = 300, 250, [], 8
    for title, values in groups.items():
        y += 34
        parts += [f'<text x="14" y="{y}" class="bold">{title}</text>']
        for row, (name, value) in enumerate(values.items()):
            y, look, long = y + 29, "c0" if row == len(values) - 1 else rest, wide * value / most
            parts += [
                f'<text x="14" y="{y}" class="soft">{name}</text>',
                f'<rect class="{look}" x="{left}" y="{y - 16}" width="{max(2, long):.0f}" height="18"/>',
                f'<text x="{left + long + 10:.0f}" y="{y}">{form.format(value)}</text>',
            ]
        y += 8
    return _svg(parts, y + 10, label)


def _svg(parts: Sequence[str], height: int, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
        f"<style>{STYLE}\n</style>\n"
        f'<rect class="card" width="{WIDTH}" height="{height}" rx="8"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )
