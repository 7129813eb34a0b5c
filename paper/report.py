"""docs/results.md: the paper's claims with verdicts, how many of its numbers agree, and why others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.timing import markdown

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.report.tables import plain, wrapped

from .experiment import Experiment
from .results import Results
from .tables.compare import NONE, REASONS, Comparison, setting
from .tables.protocol import SCHEMES
from .tables.table import PaperTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def page(results: Results, found: dict[Experiment, Any]) -> tuple[str, dict[str, Figure]]:
    """The page, and its pictures by name.

    Raises:
        StiefelError: if there is nothing of the paper in the results.
    """
    here = {e: evidence for e, evidence in found.items() if e.page == "results" and evidence is not None}
    if not here:
        raise StiefelError(f"{results.place} holds no results of the paper; run an experiment with `reproduce` first.")
    claims = [claim for experiment, evidence in found.items() for claim in experiment.claims(evidence)]
    tables = {e: e.compare(evidence) for e, evidence in here.items() if isinstance(e, PaperTable)}
    counts = Counter(str(claim.verdict) for claim in claims)
    told = ", ".join(f"{counts[verdict]} {words}" for verdict, words in SAID.items() if counts[verdict])
    pictures: dict[str, Figure] = {}
    sections: list[str] = []
    for experiment, evidence in here.items():
        sections += experiment.section(evidence)
        pictures |= experiment.pictures(evidence)
    lines = [
        "# The paper, re-run", "",
        *wrapped(f"Of {len(claims)} claims of the paper, {told}. {_agreeing(tables)}"), "",
        *(line for e, evidence in here.items() if isinstance(e, PaperTable) for line in e.shown(evidence)),
        "`stiefel-init compare` prints each published number beside ours, and so does",
        "[this table](tables/compared.csv); `stiefel-init reproduce NAME` reruns one, `reproduce all` all of them.",
        "What the paper's text gets wrong: [errata](errata.md).", "",
        "## The claims", "",
        *markdown(["claim", "verdict", "evidence"], [[c.claim, f"**{c.verdict}**", c.evidence] for c in claims]),
        "The comparison of schemes has a confound: the paper trains Lee's initialization at a fixed rate of 0.001 and",
        "all others at 0.001/√depth, and so do we. At equal rates: [members](members.md).", "",
        *_numbers(tables),
        *sections,
        *_what_was_run(results.environments),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n", pictures


SAID = {
    "holds": "hold", "holds in part": "hold in part", "does not hold": "do not hold", "not tested": "were not tested",
}  # fmt: skip


def _agreeing(tables: Mapping[PaperTable, Sequence[Comparison]]) -> str:
    """How many published numbers agree or have a reason: of table 5 under the protocol that explains it."""
    judged = [[n for n in numbers if n.judged] for t, numbers in tables.items() if t.name != "table5"]
    reasons = Counter(number.reason(len(some)) for some in judged for number in some)
    if not (total := sum(map(len, judged))):
        return ""
    return (
        f"{total - reasons[NONE]} of {total} published numbers agree with our runs ({reasons['']}) or differ for a "
        f"reason that the seeds show ({total - reasons[''] - reasons[NONE]}); {reasons[NONE]} are unexplained."
    )


def _numbers(tables: Mapping[PaperTable, Sequence[Comparison]]) -> list[str]:
    """How many published numbers agree, and why the others do not."""
    rows, unexplained = [], list[str]()
    for table, numbers in tables.items():
        judged = [number for number in numbers if number.judged]
        found = Counter(number.reason(len(judged)) for number in judged)
        agree = [
            f"{sum(number.agrees for number in some)} of {len(some)}"
            for some in ([n for n in judged if n.published.scheme == scheme] for scheme in SCHEMES)
        ]
        rows.append([table.name, *agree, str(len(judged)), *(str(found[reason]) for reason in ("", *REASONS))])
        unexplained += [
            f"{setting(n.published)}, {n.published.scheme}: {n.published.value:.2f} (ours {n.mean:.2f} ± {n.std:.2f})"
            for n in judged
            if n.reason(len(judged)) == NONE and table.name != "table5"
        ]
    if not rows:
        return []
    return [
        "## The numbers", "",
        *markdown(["", *(f"{scheme}: agree" for scheme in SCHEMES), "numbers", "agree", *REASONS], rows),
        "A published number in tables 1, 2 and 5 is a single run; it *agrees* if it lies in the 95 % prediction",
        "interval for one more run of ours. Those in table 3 are means of 50; they agree within 3 combined standard",
        "errors. Tables 1 and 2 were trained in tf32, in which networks learn as well as in float32",
        "([performance](performance.md)). Why a number does not agree:", "",
        *(f"- *{reason}*: {text}." for reason, text in REASONS.items()), "",
        *wrapped(f"Unexplained: {'; '.join(unexplained)}." if unexplained else "None is unexplained."), "",
        *_furthest(tables), "",
    ]  # fmt: skip


def _what_was_run(environments: dict[str, Any]) -> list[str]:
    if not environments:
        return []
    rows = []
    for name, entry in environments.items():
        counts = Counter[str]()
        for environment in entry["environments"]:
            counts[str(environment["device"])] += environment["networks"]
        devices = " and ".join(f"{name} ({count:,})" if len(counts) > 1 else name for name, count in counts.items())
        engines = ", ".join(dict.fromkeys(str(environment["engine"]) for environment in entry["environments"]))
        told = [plain(devices), plain(engines), f"{entry['seconds']:,.0f} s"]
        rows.append([plain(name), f"{entry['networks']:,}", *told])
    notes = [f"{plain(name)}: {plain(entry['note'])}" for name, entry in environments.items() if "note" in entry]
    header = ["experiment", "networks", "device", "engine", "training time"]
    return ["## What was run", "", *markdown(header, rows), *notes, *([""] if notes else [])]


def _furthest(tables: Mapping[PaperTable, Sequence[Comparison]]) -> list[str]:
    numbers = {table.name: [n for n in found if n.published.scheme == "stiefel"] for table, found in tables.items()}
    lines = []
    if deep := numbers.get("table1"):
        worst = max(deep, key=lambda c: abs(c.difference))
        near = sum(abs(c.difference) <= 0.6 for c in deep)
        lines.append(
            f"Of table 1's {len(deep)} numbers for `stiefel`, {near} are within 0.6 points of our mean; the largest "
            f"difference ({worst.published.dataset}, depth {worst.published.depth}) is {worst.difference:+.2f}."
        )
    if few := numbers.get("table3"):
        near = sum(c.standard_errors <= 3 for c in few)
        lines.append(
            f"Of table 3's {len(few)}, {near} are within 3 combined standard errors; the largest difference is "
            f"{max(c.standard_errors for c in few):.1f} of them."
        )
    return lines
