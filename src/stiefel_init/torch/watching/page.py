"""A watched training as one HTML file that needs nothing else: `page`."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from .history import History

SHOWN = {
    "gradient": "gradient (output)", "weight_gradient": "gradient (weights)", "update": "update / weights",
    "post_std": "std after the activation", "spread": "difference between inputs", "alpha": "α = mean / std",
    "active": "share that fires", "dead": "dead units", "saturated": "saturated", "distinct": "distinct units",
    "norm": "norm of a unit's weights", "singular": "largest singular value", "distance": "distance from Õ(m,n)",
}  # fmt: skip
LINEAR = frozenset({"alpha", "active", "dead", "saturated"})
_MOST = 240  # columns of pixels; of more steps, that many spread evenly
REFRESH = 5  # seconds


def page(content: str, running: bool) -> str:
    """The page of a `body`; while the training runs, it loads itself again every few seconds."""
    refresh = f'<meta http-equiv="refresh" content="{REFRESH}">' if running else ""
    state = "running" if running else "finished"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}<title>Training, {state}</title>'
        f"<style>\n{_file('page.css')}</style></head><body><h1>Training, {state}</h1>{content}</body></html>"
    )


def body(history: History, lines: Sequence[str], verdict: Sequence[str], healthy: bool) -> str:
    """Verdict, events, the loss and a heat map; for the page, and for notebooks."""
    mark = "good" if healthy else "bad"
    told = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in verdict)
    events = "".join(f"<li>{html.escape(line)}</li>" for line in lines[-200:])
    data = json.dumps(_data(history), separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div class="watch"><ul class="verdict {mark}">{told}</ul>'
        f"{f'<details open><summary>{len(lines)} events</summary><ol>{events}</ol></details>' if lines else ''}"
        f"{_loss(history)}"
        f'<label>Show <select></select></label> <span class="range"></span><div class="map"><canvas></canvas></div>'
        f'<p class="at">&nbsp;</p><script type="application/json">{data}</script>'
        f"<script>\n{_file('page.js')}</script></div>"
    )


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _data(history: History) -> dict[str, Any]:
    steps = history.steps
    places = np.unique(np.linspace(0, max(len(steps) - 1, 0), min(len(steps), _MOST)).round().astype(int))
    grids = {}
    for column, title in SHOWN.items():
        grid = history.grid(column)[:, places] if steps else np.empty((0, 0))
        if np.isfinite(grid).any():
            values = [[float(f"{x:.3g}") if math.isfinite(x) else None for x in row] for row in grid.tolist()]
            grids[column] = {"title": title, "log": column not in LINEAR, "values": values}
    return {"steps": [steps[at] for at in places], "layers": history.layers, "columns": grids}


def _loss(history: History) -> str:
    """The loss as a small picture."""
    points = [(step, loss) for step, loss in zip(history.steps, history.losses) if math.isfinite(loss)]
    if len(points) < 2:
        return ""
    losses = [loss for _, loss in points]
    low, high = min(losses), max(losses)
    width, height = 640, 90
    last = points[-1][0] - points[0][0] or 1
    path = " ".join(
        f"{(step - points[0][0]) / last * width:.1f},{height - (loss - low) / ((high - low) or 1) * height:.1f}"
        for step, loss in points
    )
    return (
        f'<figure><svg viewBox="0 -4 {width} {height + 8}" role="img" aria-label="loss">'
        f'<polyline points="{path}"/></svg>'
        f"<figcaption>loss, {losses[0]:.3g} → {losses[-1]:.3g}; from {low:.3g} to {high:.3g}</figcaption></figure>"
    )
