"""What `diagnose` and `watch` say of the catalogue's programs.

    python -m paper.faults.score [--half choose|score] [--look 1|2|3|4] [--write] [NAME …]

A fault is *found* where something is reported that its repaired twin does not have; *named* where what is reported
states its cause, by `STATES`: a consequence does not count. It is *repaired* where it is named and what to do is what
its repair did, by the twin; or, where the report says to call `initialize_`, where the broken program trains after that
call. A *false alarm* is anything that is reported of a twin: a finding or a warning at initialization, or an event in
training. Each with most of the seeds. Two processes, two minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from stiefel_init import StiefelError
from stiefel_init.torch import diagnose, initialize_, watch

from . import FAULTS
from .catalogue import SEEDS, Fault, Program, half

RECORD = Path(__file__).parents[2] / "benchmarks" / "records" / "faults-cpu.json"
WORDS = ("found", "named", "repaired", "alarm")
FIRST_LOOK = RECORD.with_name("faults-first-look.json")
"""The first run of the second half, before anything was changed for what it showed."""
SECOND_LOOK = RECORD.with_name("faults-second-look.json")
"""The first run of what the second half got later, when `diagnose` had learned to try before it blames."""
THIRD_LOOK = RECORD.with_name("faults-third-look.json")
"""The first run of the faults that were written without a look at the rules; rules were chosen with them since."""
FOURTH_LOOK = RECORD.with_name("faults-fourth-look.json")
"""The first run of those that were written after that, again without a look at the rules."""
EVERY = 5  # steps between samples: the programs are short

STATES: dict[str, tuple[str, ...]] = {
    "probabilities as logits": ("softmax or sigmoid before a loss of logits",),
    "no log-probabilities": (
        "no logarithm before a loss of log-probabilities", "no softmax before a loss of probabilities",
    ),
    "softmax over one": ("softmax over an axis of length one",),
    "softmax over the wrong axis": ("softmax over the batch",),
    "softmax for several labels": ("softmax for labels that occur together",),
    "outputs and targets broadcast": ("outputs and targets broadcast in the loss",),
    "targets out of reach": ("the last activation cannot reach the targets",),
    "targets out of range": ("targets outside the loss's range", "targets of 0 and 1 where -1 and 1 are expected"),
    "outputs are dropped": ("dropout on the output",),
    "padding counts": ("padding counted in the loss",),
    "a class is ignored": ("a class is ignored by the loss",),
    "one class is rare": ("a class outweighed in the loss",),
    "loss is a sum": ("loss summed over the batch",),
    "arguments are swapped": ("arguments of the loss swapped",),
    "outputs are normalized": ("the output is normalized",),
    "layers are not registered": ("layers in a plain list or dictionary", "tensors that are not registered"),
    "optimizer holds other parameters": (
        "the optimizer holds parameters that the model no longer uses", "the step belongs to another optimizer",
    ),
    "parameters are not optimized": ("parameters missing from the optimizer",),
    "everything is frozen": ("parameters frozen by accident",),
    "one number is normalized": ("normalization over a single value",),
    "momentum is too large": ("momentum too large",),
    "targets are all equal": ("batches sorted by class", "labels lost on the way"),
    "model remembers": ("hidden state carried over between sequences",),
    "activations follow each other": ("two activations in a row, or one that belongs at the end",),
    "accumulated gradients are lost": ("accumulated gradients lost",),
    "weights do not move": ("the optimizer is never stepped",),
    "gradient underflows": ("gradients underflow in half precision",),
    "gradient is lost before the step": ("gradients zeroed before the step",),
    "gradient is clipped away": ("gradients clipped to almost nothing", "gradients clipped before they are unscaled"),
    "learning rate has vanished": ("the schedule makes the learning rate vanish",),
    "learning rate is too low": ("learning rate too low",),
    "steps are forgotten/padding": ("padding not masked",),
    "no skip connection": ("too deep without normalization", "skip connection missing"),
    "branches are added up": ("residual branches not scaled",),
    "scores are bounded": (
        "the last activation cannot reach the targets", "two activations in a row, or one that belongs at the end",
    ),
    "outputs miss their targets": (
        "view in place of a transpose", "labels that belong to other inputs",
        "targets of 0 and 1 where -1 and 1 are expected",
    ),
    "loss prefers the opposite": ("labels mean the opposite in the loss", "steps go uphill"),
    "targets are shifted twice": ("labels shifted by one",),
    "targets stand in the inputs": (
        "loss at the wrong positions", "labels shifted by one", "the targets are among the inputs",
        "the inputs tell the target",
    ),
    "examples contradict each other": (
        "inputs nearly the same for every sample", "labels that belong to other inputs", "labels contradict each other",
    ),
    "a view moves an axis": (
        "view in place of a transpose", "a reshape mixes samples", "a reshape mixes channels and time",
        "a reshape mixes channels and places",
    ),
    "order is not seen": ("attention without positions",),
    "mask is inverted": ("mask inverted",),
    "padding is read": ("padding not masked",),
    "steps are not seen": ("the state is not passed on",),
    "outputs are not used": ("outputs of layers not used",),
    "an activation is thrown away": ("no activation between layers",),
    "a tensor is added to itself": ("skip connection missing",),
    "own place is not seen": ("a node does not see itself",),
    "backward direction is not read": ("the wrong step of a sequence is read",),
    "everything is masked": ("a row without anything to attend to",),
    "targets are small/weights": ("embedding too large",),
    "frozen parameters hold it back": ("parameters frozen by accident",),
    "rate is zero": ("the schedule makes the learning rate vanish",),
    "schedule holds the rate down": ("the schedule makes the learning rate vanish", "learning rate too low"),
    "rate is much too low": ("learning rate too low",),
    "rate is too high": ("learning rate too high",),
    "weight decay is too strong": ("weight decay too strong",),
    "velocity is kept too long": ("momentum too large",),
    "epsilon is too large": ("epsilon of the optimizer too large",),
    "epsilon underflows": ("epsilon of the optimizer underflows",),
    "steps are rounded away": ("updates lost to rounding",),
    "steps go uphill": ("steps go uphill",),
    "slope is infinite": ("derivative of a root at zero", "derivative of an arc cosine at one"),
    "division by zero": ("division by a deviation of zero", "division by a norm of zero"),
    "exponentials overflow": ("exponentials overflow",),
    "numbers overflow": ("squares overflow in half precision",),
    "a logarithm breaks": ("logarithm of zero",),
    "accumulated gradients are not divided": ("accumulated gradients not divided",),
    "weights are set back": ("weights are set back in training",),
    "batches are not used": ("one batch of each epoch",),
    "loss is made anew": ("the gradient is cut in the forward pass",),
    "examples repeat": ("the same batch in every step",),
    "every batch is the same": ("the same batch in every step",),
    "batches differ": ("batches sorted by class",),
    "nothing was learned": ("labels that belong to other inputs",),
    "optimizer is made anew": ("optimizer made anew",),
    "optimizer steps twice": ("the step belongs to another optimizer",),
    "evaluated in training mode": ("evaluated in training mode",),
    "dropout stays on": ("evaluated in training mode",),
    "softmax in a hidden layer": ("two activations in a row, or one that belongs at the end",),
    "attention is saturated": ("attention scores not scaled",),
    "labels start at one": ("labels shifted by one",),
    "layer is too narrow": ("a hidden layer too narrow",),
    "gradient is cut off": ("the gradient is cut in the forward pass",),
    "one layer stands several times": ("one layer used in several places by accident",),
    "model is in evaluation mode": ("training in eval mode",),
    "batch of one": ("batch normalization with one sample",),
    "dropout holds it back": ("dropout too strong",),
    "loss has no range": ("no softmax before a loss of probabilities",),
    "an example stands out": ("inputs divided by something near zero",),
    "recurrent layers are many": ("many saturating layers",),
    "loss has no slope": ("sequences shorter than their labels", "the index of a maximum instead of the maximum"),
    "statistics are not kept": (
        "running statistics never updated", "running statistics of the last batch alone",
        "batch statistics in evaluation",
    ),
    "initial weights hold it back": (
        "initial weights too large", "initial weights too small", "scales of normalization too small",
        "units saturated at the start",
    ),
    "later inputs leak": ("no causal mask",),
    "examples mix": ("a reshape mixes samples", "the batch is taken for time", "softmax over the batch",
                     "view in place of a transpose", "hidden state carried over between sequences",
                     "an index reaches into other samples", "attention without positions"),
    "targets are large": ("targets far from the outputs' size",),
    "targets are small": ("targets far from the outputs' size",),
    "targets are offset": ("targets far from the outputs' size",),
    "inputs are large": ("inputs far too large", "inputs divided by something near zero"),
    "inputs are small": ("inputs far too small",),
    "features are uneven": ("one scale for features of different size", "inputs far too large"),
    "inputs are offset": ("inputs nearly the same for every sample",),
    "units are equal": ("units that start alike",),
    "units are alike": ("units that start alike",),
    "signal explodes/weights": ("initial weights too large",),
    "loss is huge/weights": ("initial weights too large",),
    "signal fades/weights": ("initial weights too small",),
    "signal is faint/weights": ("initial weights too small",),
    "signal is squashed/activation": ("many saturating layers",),
    "weights are all zero": ("weights of zero",),
    "units are stuck": ("units saturated at the start",),
    "inputs are not finite": ("inputs that are not finite",),
    "network is linear": ("no activation between layers",),
    "gradients are not cleared": ("gradients of earlier batches not zeroed",),
    "steps are too large": ("learning rate too high",),
    "steps are too small": ("learning rate too low",),
    "weights decay": ("weight decay too strong",),
    "units are dead": ("rectifiers dead at the start",),
    "steps are forgotten": ("the recurrence explodes",),
    "gates are closed": ("forget gates closed at the start",),
    "gates forget": ("forget gates closed at the start",),
}  # fmt: skip
"""What a report of each kind says the cause is."""
SAID = {
    "weights are all zero": "are all zero",
    "no skip connection": "without a skip connection or a normalization",
    "branches are added up": "branches are added up without a normalization",
}
"""What sentences of the verdict say beside the findings' kinds."""


class Reports(NamedTuple):
    """What was reported of a program: kinds with what is called their cause, and what to do."""

    kinds: frozenset[str]
    advice: str
    """The first."""
    score: float


def reports(program: Program) -> Reports:
    """Diagnose a program, then watch it train."""
    kinds, advice = [], []
    try:
        diagnosis = diagnose(
            program.model, program.inputs, program.targets, loss=program.loss, optimizer=program.optimizer
        )
        findings = (*diagnosis.findings, *diagnosis.warnings)
        kinds = [f"{finding.kind}/{finding.cause}" for finding in findings]
        kinds += [kind for kind, words in SAID.items() if any(words in line for line in diagnosis.verdict)]
        advice = [finding.advice for finding in findings]
    except StiefelError as error:
        kinds = ["inputs are not finite"] if "non-finite" in str(error) else [f"refused: {error}"]
    with watch(program.model, every=EVERY, report=lambda event: None) as watched:
        score = program.train(lambda step, loss: watched.step(loss))
        told = [event for event in (*watched.events, *watched.open) if not event.recovered]
        kinds += [event.kind for event in told]
        kinds += (
            ["inputs are not finite"] if any("the inputs are not finite" in event.sentence for event in told) else []
        )
        advice += [event.advice for event in told]
    return Reports(frozenset(kinds), next(iter(advice), ""), score)


def stated(report: str) -> tuple[str, ...]:
    """The causes that a report states: by its kind, and by its kind together with what it calls the cause."""
    return STATES.get(report.partition("/")[0], ()) + STATES.get(report, ())


def _is_repaired(fault: Fault, seed: int, broken: Reports, twin: Reports, named: bool) -> bool:
    if "initialize_(model" not in broken.advice:
        return named
    program = fault.make(False, seed)
    initialize_(program.model, seed=seed)
    return program.train(None) > fault.margin * twin.score


def examine(name: str, seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """A fault's row."""
    torch.set_num_threads(1)
    logging.getLogger("stiefel_init.watch").setLevel(logging.CRITICAL)
    fault = FAULTS[name]
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the programs are faulty
        for seed in seeds:
            broken, twin = (reports(fault.make(repaired, seed)) for repaired in (False, True))
            said = broken.kinds - twin.kinds
            named = any(fault.cause in stated(kind) for kind in said)
            repaired = _is_repaired(fault, seed, broken, twin, named)
            rows.append((sorted(said), sorted(twin.kinds), bool(said), named, repaired, bool(twin.kinds)))
    said_of, twins, *answers = zip(*rows)
    words = {word: 2 * sum(each) > len(rows) for word, each in zip(WORDS, answers)}
    return {"name": name, "half": half(name), "said": list(said_of), "twin": list(twins), **words}


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """ "40 of 50 (80 %)" for each of the words."""
    counts = [sum(row[word] for row in rows) for word in WORDS]
    return [f"{count} of {len(rows)} ({count / max(len(rows), 1):.0%})" for count in counts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; all without a name")
    parser.add_argument("--half", choices=("choose", "score"), help="one half of the catalogue")
    parser.add_argument("--look", type=int, choices=(1, 2, 3, 4), help="one set; the fourth is the fresh one")
    parser.add_argument("--write", action="store_true", help=f"keep the rows in {RECORD.name}")
    options = parser.parse_args()
    names = options.names or [
        name
        for name, fault in FAULTS.items()
        if options.half in (None, half(name)) and options.look in (None, fault.look)
    ]
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"no fault is called {unknown[0]!r}; python -m paper.faults lists them")
    rows = []
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for number, row in enumerate(pool.imap(examine, names), 1):
            rows.append(row)
            marks = "".join(word[0] if row[word] else "-" for word in WORDS)
            print(f"{number}/{len(names)} {marks} {row['name']}: {', '.join(row['said'][0])}", flush=True)
    for part in ("choose", "score"):
        if chosen := [row for row in rows if row["half"] == part]:
            print(
                part, *(f"{a} {b}" for a, b in zip(("found", "named", "repaired", "alarms"), summary(chosen))), sep=", "
            )
    if options.write:
        RECORD.write_text(json.dumps(rows, separators=(",", ":")).replace("},{", "},\n{") + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
