"""The speed of the paper's two algorithms, from the sampler benchmark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..._errors import StiefelError
from ..experiment import Claim, Experiment, Options
from ..results import Results

_RECORDS = Path(__file__).parents[4] / "benchmarks" / "records"


class Algorithms(Experiment):
    """How much faster algorithm 2 is, as timed by benchmarks/sampler.py."""

    name = "algorithms"
    title = "The paper's algorithms"
    page = None

    def run(self, options: Options) -> None:
        """It is a benchmark, not an experiment of the laboratory."""
        raise StiefelError("The algorithms are a benchmark; time them with `stiefel-init bench sampler --write`.")

    def evidence(self, results: Results) -> list[dict[str, Any]] | None:
        """The benchmark's records, if this is a source tree."""
        return [json.loads(path.read_text()) for path in sorted(_RECORDS.glob("sampler-*.json"))] or None

    def claims(self, evidence: Sequence[dict[str, Any]] | None) -> list[Claim]:
        """That algorithm 2 is the faster one."""
        claim = "Algorithm 2 is up to twice as fast as algorithm 1"
        if not evidence:
            return [Claim(claim, "not tested", "No records.")]
        ratios = {
            (record["machine"]["device"], "×".join(map(str, row["shape"]))): row["milliseconds"]["algorithm 1"]
            / row["milliseconds"]["algorithm 2"]
            for record in evidence
            for row in record["matrices"]
        }
        top, low = max(ratios, key=lambda k: ratios[k]), min(ratios, key=lambda k: ratios[k])
        text = (
            f"Between {ratios[low]:.2f} ({low[1]}, {low[0]}) and {ratios[top]:.2f} ({top[1]}, {top[0]}) times as fast."
        )
        return [Claim(claim, "holds" if ratios[top] >= 1.8 and ratios[low] > 0.95 else "holds in part", text)]
