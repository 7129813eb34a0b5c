"""What `make docs` writes besides the sections of experiments: which part of which page is made by what."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

from benchmarks import diagnose, engine, floors, forecasts, initialize, on_the_set, sampler, scale, startup, threads
from benchmarks.timing import markdown

from .faults import score as faults
from .health import diagnosis_page, watching, zoo_check
from .results import Results
from .studies import alternatives, deepest, equivalence, heads, residual
from .studies.architectures import Architectures, line
from .studies.members import Members

Lines = Callable[[], list[str]]


def performance() -> list[str]:
    """docs/performance.md."""
    return [
        "# Performance", "",
        "Made by `make docs` from the records under `benchmarks/records/`. Machines are noisy, so ratios compare times",
        "from one run; the same programs measure yours.", "",
        *sampler.section(), *floors.section(), *engine.section(), *equivalence.section(), *initialize.section(),
        *zoo_check.real_models(), *deepest.section(), *diagnose.section(),
        *alternatives.section(), *forecasts.section(), *startup.section(),
    ]  # fmt: skip


WHOLE: Mapping[str, Lines] = {
    "performance": performance,
    "diagnosis-accuracy": diagnosis_page.page,
    "faults": faults.page,
}
"""Pages that are made as a whole."""
PARTS: Mapping[str, Mapping[str, Lines]] = {
    "baselines": {"heads": heads.part, "residual": residual.part},
    "diagnose": {"rules": diagnosis_page.rules, "families": zoo_check.part},
    "on-the-set": {"steps": on_the_set.part},
    "scale": {"threads": threads.part, "measured": scale.part},
    "watch": {"rules": watching.rules, "accuracy": watching.accuracy},
}
"""Page → mark → what stands behind it."""
SCHEMES = {
    "rotation 0.03": "rotation 0.03 (ours)", "permutation": "permutation (ours)", "stiefel": "uniform (the paper's)",
    "lee": "lee", "he": "he", f"orthogonal {math.sqrt(2)}": "orthogonal × √2", "orthogonal": "orthogonal",
}  # fmt: skip
"""Of the README's table."""


def readme(results: Results) -> list[str]:
    """The README's figures."""
    members = Members().evidence(results)
    rows = []
    for dataset in ("mnist", "fashion-mnist"):
        for depth in (10, 100, 1000):
            best = [record for record in members.at_best(dataset) if record.cell.depth == depth]
            scores = [[record.score for record in best if str(record.cell.scheme) == scheme] for scheme in SCHEMES]
            rows.append([f"{dataset}, {depth:,} layers", *(f"{statistics.mean(each):.1f}" for each in scores)])
    seeds = {record.cell.seed for record in members.at_best("mnist") if record.cell.depth == 100}
    return [
        "Test accuracy (%) of plain networks, each initialization at its best of five learning rates, mean of "
        f"{len(seeds)} seeds ([members](docs/members.md)):", "",
        *markdown(["", *SCHEMES.values()], rows),
        *([line(verdicts)] if (verdicts := Architectures().evidence(results)) is not None else []),
    ]  # fmt: skip
