"""A watched training as one HTML file that needs nothing else: `page`."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
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


def page(history: History, lines: Sequence[str], verdict: Sequence[str], *, healthy: bool, running: bool) -> str:
    """The page; while the training runs, it loads itself again every few seconds."""
    refresh = f'<meta http-equiv="refresh" content="{REFRESH}">' if running else ""
    state = "running" if running else "finished"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}<title>Training, {state}</title>'
        f"<style>{_STYLE}</style></head><body><h1>Training, {state}</h1>{body(history, lines, verdict, healthy)}"
        "</body></html>"
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
        f'<p class="at">&nbsp;</p><script type="application/json">{data}</script><script>{_SCRIPT}</script></div>'
    )


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


_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
background:light-dark(#fff,#16181c);color:light-dark(#1b1b1b,#e4e4e4)}h1{font-size:1.3rem}
.verdict{list-style:none;padding-left:.8em;border-left:4px solid}.good{border-color:#2e7d32}.bad{border-color:#d14b3f}
.map{overflow:auto;max-height:36rem}canvas{width:100%;image-rendering:pixelated}ol{max-height:16rem;overflow:auto}
svg{width:100%;max-width:40rem}polyline{fill:none;stroke:#0072b2;stroke-width:1.5}figure{margin:1em 0}
"""
_SCRIPT = """
(()=>{const box=document.currentScript.parentElement,data=JSON.parse(box.querySelector('script[type]').textContent),
pick=box.querySelector('select'),canvas=box.querySelector('canvas'),range=box.querySelector('.range'),
at=box.querySelector('.at'),color=t=>{const s=[[68,1,84],[59,82,139],[33,145,140],[94,201,98],[253,231,37]],
x=Math.min(3.999,Math.max(0,t*4)),i=Math.floor(x),f=x-i;return s[i].map((a,k)=>a+(s[i+1][k]-a)*f)};
for(const [k,c] of Object.entries(data.columns)){const o=document.createElement('option');o.value=k;
o.textContent=c.title;pick.append(o)}
const draw=()=>{const c=data.columns[pick.value];if(!c)return;const rows=c.values,n=data.steps.length,h=Math.max(1,
Math.floor(360/rows.length));canvas.width=n;canvas.height=rows.length;canvas.style.height=h*rows.length+'px';
const f=x=>c.log?Math.log10(x):x,all=rows.flat().filter(x=>x!==null&&(!c.log||x>0)).map(f),lo=all.reduce((a,b)=>
Math.min(a,b),Infinity),hi=all.reduce((a,b)=>Math.max(a,b),-Infinity),g=canvas.getContext('2d'),
im=g.createImageData(n,rows.length);rows.forEach((r,i)=>r.forEach((x,j)=>{const p=4*(i*n+j);if(x===null)return;
const v=c.log&&x<=0?[0,0,0]:color(hi>lo?(f(x)-lo)/(hi-lo):.5);im.data.set([...v,255],p)}));g.putImageData(im,0,0);
const u=x=>c.log?(10**x).toPrecision(2):x.toPrecision(2);range.textContent=all.length?
`${u(lo)} (dark) to ${u(hi)} (bright); layers down, steps ${data.steps[0]} to ${data.steps[n-1]} across`:''};
canvas.onmousemove=e=>{const b=canvas.getBoundingClientRect(),c=data.columns[pick.value],i=Math.floor((e.clientY-b.top)/
b.height*c.values.length),j=Math.floor((e.clientX-b.left)/b.width*data.steps.length),r=c.values[i];if(r)at.textContent=
`layer ${data.layers[i]}, step ${data.steps[j]}: ${r[j]}`};
try{const k=sessionStorage.getItem('watch');if(k&&data.columns[k])pick.value=k}catch{}
pick.onchange=()=>{try{sessionStorage.setItem('watch',pick.value)}catch{};draw()};draw()})();
"""
