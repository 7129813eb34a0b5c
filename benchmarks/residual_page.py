"""The part of docs/baselines.md on starts for residual networks and transformers, from its record."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np

from stiefel_init import schemes
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.study.significance import Compared, compared, welch
from stiefel_init.lab.train.task import ACCURACY

RIVALS = Path(__file__).parent.parent / "docs" / "baselines.md"
RECORD = Path(__file__).parent / "records" / "residual-rivals-cpu.json"
START, END = "<!-- residual -->\n", "<!-- end of residual -->"
NEEDS = {
    "t-fixup": "attention under its usual names, in blocks that are modules; embeddings are drawn too",
    "mimetic": "self-attention under its usual names, and the number of heads as an attribute of its module",
    "fixup": "residual branches without normalization; the authors' scalar biases and gains are the model's to have",
    "skip-init": "residual branches; the plan says which parameter silences each",
    "meta-init": "a batch, and a model that can be differentiated three times",
}
WORDS = {
    "transformer": "transformer without normalization",
    "transformer with LayerNorm": "transformer with LayerNorm",
    "resnet": "residual network without normalization",
    "perceptron": "perceptron of 100 layers",
    "tanh": "plain tanh network",
}
PLAIN = "plain: "
"""What the starts of perceptrons without skips are called with."""
Found = dict[str, dict[str, Compared]]


def residual() -> str:
    """The page with its part computed anew."""
    before, rest = RIVALS.read_text(encoding="utf-8").split(START)
    after = rest.split(END)[1]
    return before + START + "\n".join(_lines(json.loads(RECORD.read_text()))) + "\n" + END + after


def _lines(record: dict[str, Any]) -> list[str]:
    found: Found = {}
    for network in dict.fromkeys(row["network"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["network"] == network]
        judged = compared([np.array(row["scores"]) for row in rows], ACCURACY)
        found[network] = {row["start"]: one for row, one in zip(rows, judged)}
    plain = [start for start in found.get("perceptron", ()) if start.startswith(PLAIN)]
    starts = dict.fromkeys([*(s for judged in found.values() for s in judged if s not in plain), *plain])
    rows = [[start, *(_cell(judged.get(start)) for judged in found.values())] for start in starts]
    seeds, epochs, device = record["seeds"], record["epochs"], record["machine"]["device"]
    lines = [
        f"Test accuracy in per cent on digits, mean and deviation of {seeds} seeds, {epochs} epochs, each start at its",
        "best of five rates. **Bold**: the best. †: shown to be worse (Welch's test, p < 0.05, by Holm).",
        f"`python benchmarks/residual_rivals.py --write`, {device}. Small networks: a direction, not a verdict.",
        "",
        *Table("", ["start", *(WORDS[network] for network in found)], rows).markdown(),
        "",
        *_beside(record, plain),
    ]
    for name, needs in NEEDS.items():
        described = inspect.cleandoc(type(schemes.get(name)).__doc__ or "").partition(">>>")[0].strip()
        formula, *rest = described.split("\n\n")
        lines += [f"### {name}", "", formula, ""]
        lines += [line for part in rest for line in (part, "")]
        lines += [f"Needs: {needs}.", "", _prefer(name, found), ""]
    return lines[:-1]


def _beside(record: dict[str, Any], plain: list[str]) -> list[str]:
    """Perceptrons with and without skips, at equal parameters."""
    scores = {row["start"]: np.array(row["scores"]) for row in record["rows"] if row["network"] == "perceptron"}
    if not plain:
        return []
    residual = [start for start in scores if start not in plain]
    best = [max(part, key=lambda start: float(scores[start].mean())) for part in (plain, residual)]
    means = [f"{scores[start].mean():.1f} %" for start in best]
    p = welch(scores[best[0]], scores[best[1]])
    shown = "their means differ" if p is not None and p < 0.05 else "their means are not shown to differ"
    return [
        "The perceptrons have equal parameters: in rows called *plain* the layers follow one another, in the others",
        f"two layers each are a residual block. The best without skips is {best[0].removeprefix(PLAIN)}, {means[0]},",
        f"the best with skips {best[1]}, {means[1]}; {shown} (Welch's test, p = {p:.2g}).",
        "",
    ]


def _cell(one: Compared | None) -> str:
    if one is None:
        return "—"
    text = f"{one.mean:.1f} ± {one.std:.1f}"
    return f"**{text}**" if one.best else text if _good(one) else f"{text} †"


def _good(one: Compared) -> bool:
    return one.best or one.p is None or one.p >= 0.05


def _prefer(name: str, found: Found) -> str:
    """When to prefer it, from the record alone."""
    told = []
    for network, judged in found.items():
        for start, one in judged.items():
            if start.split()[0] != name:
                continue
            over = f"{one.mean - judged['ours'].mean:+.1f} to ours"
            which = "" if start == name else f", `{start}`"
            others = "not shown to be worse than the best" if _good(one) else "worse than the best"
            verdict = "the best" if one.best else others
            told.append(f"{WORDS[network]}{which}: {verdict} ({over})")
    return "Here: " + "; ".join(told) + "."
