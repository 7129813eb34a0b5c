"""`diagnose`, `watch` and `initialize_` on models people use: nothing crashes, and what they say is so.

    python -m paper.health.zoo_check [--from study,timm,transformers] [--device cpu|cuda] [--only TEXT] [--write]

Each model is diagnosed in training mode. Its parameters, its buffers, its mode, its random numbers and its outputs must
be the same to the bit afterwards. Then it is trained for a few steps of Adam three times from one state: twice plain,
and watched at every second step. The watched training must end at the same parameters and buffers to the bit; where two
plain ones do not, which happens on a GPU, it may be as far from them as they are from each other, tenfold. What they
measured must be finite where the outputs and gradients of the model are. At last it is initialized, and must be as the
plan says, parameter by parameter.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from benchmarks import timing
from torch import Tensor, nn

from stiefel_init.torch import Plan, diagnose, initialize_, watch

from .zoo import SOURCES, Make, NotBuilt, Subject, first, loss

STEPS, EVERY = 4, 2
CONSTANTS = {"zeros": 0.0, "ones": 1.0}
MOST = 90  # seconds for one model


class TooLong(BaseException):
    """No Exception, so that nothing swallows it on its way."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise `TooLong` after so many seconds."""

    def stop(*_: Any) -> None:
        raise TooLong(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def state(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers, copied."""
    return {name: value.detach().clone() for name, value in (*model.named_parameters(), *model.named_buffers())}


def named(model: nn.Module) -> dict[str, Tensor]:
    """All parameters by every name they have, copied."""
    return {name: value.detach().clone() for name, value in model.named_parameters(remove_duplicate=False)}


@torch.no_grad()
def restore(model: nn.Module, kept: dict[str, Tensor]) -> None:
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        value.copy_(kept[name])


def different(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Names of what differs, NaN being equal to NaN."""
    return [
        name for name in one if name not in other or not torch.equal(one[name].nan_to_num(), other[name].nan_to_num())
    ]


def apart(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest distance of two values of a parameter, over its norm."""
    pairs = [(one[name].float(), other[name].float()) for name in one if one[name].is_floating_point()]
    return max((float((a - b).norm() / a.norm().clamp(min=1e-12)) for a, b in pairs if a.numel()), default=0.0)


def drawn(device: torch.device) -> Tensor:
    """The state of the random generators."""
    states = [torch.get_rng_state()]
    return torch.cat([*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states)


def sentence(error: BaseException) -> str:
    """An error in a line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:300]


@torch.no_grad()
def answer(subject: Subject) -> Tensor:
    """What the model puts out in evaluation, its mode kept."""
    modes = {module: module.training for module in subject.model.modules()}
    subject.model.eval()
    result = first(subject.call()).clone()
    for module, mode in modes.items():
        module.training = mode
    return result


def trained(subject: Subject, kept: dict[str, Tensor], log: Path | None = None) -> tuple[dict[str, Tensor], Any]:
    """The state after a few steps from `kept`, and the watch that writes `log`, if one does."""
    model = subject.model
    restore(model, kept)
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    seen = None if log is None else watch(model, EVERY, report=lambda event: None, to=log)
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(subject.call(), subject.targets)
        value.backward()
        optimizer.step()
        if seen is not None:
            seen.step(value)
    if seen is not None:
        seen.close()
    return state(model), seen


def infinite(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Layers and columns whose number is neither finite nor missing; a log has these as text."""
    return [
        f"{row['layer']}.{column}"
        for row in rows
        for column, value in row.items()
        if (isinstance(value, float) and not math.isfinite(value)) or value in ("nan", "inf", "-inf")
    ]


def is_finite(subject: Subject) -> bool:
    """Whether outputs, loss and gradients of the model are finite."""
    subject.model.zero_grad(set_to_none=True)
    outputs = subject.call()
    value = loss(outputs, subject.targets)
    value.backward()
    gradients = [p.grad for p in subject.model.parameters() if p.grad is not None]
    finite = bool(first(outputs).isfinite().all() and value.isfinite()) and all(
        bool(gradient.isfinite().all()) for gradient in gradients
    )
    subject.model.zero_grad(set_to_none=True)
    return finite


def examine(subject: Subject) -> dict[str, Any]:
    """Diagnose and watch one model, and tell what was wrong with that."""
    model = subject.model.train()
    wrong: list[str] = []
    kept = state(model)
    try:
        finite = is_finite(subject)
    except Exception as error:
        raise NotBuilt(f"it does not train by itself: {sentence(error)}") from None
    restore(model, kept)
    outputs, same = (answer(subject) for _ in range(2))
    torch.manual_seed(0)
    noise = drawn(outputs.device)
    begin = time.perf_counter()
    found = diagnose(model, subject.inputs, subject.targets, loss=loss)
    seconds = time.perf_counter() - begin
    if changed := different(kept, state(model)):
        wrong.append(f"diagnose changed {', '.join(changed[:3])}")
    if not torch.equal(noise, drawn(outputs.device)):
        wrong.append("diagnose drew random numbers")
    if not all(module.training for module in model.modules()):
        wrong.append("diagnose changed the mode")
    if any(p.grad is not None for p in model.parameters()):
        wrong.append("diagnose left gradients")
    now, near = answer(subject), 0.0 if torch.equal(outputs, same) else 1e-3
    if not torch.allclose(outputs, now, rtol=near, atol=near, equal_nan=True):
        wrong.append("the outputs changed")
    rows = found.records()
    if finite and (odd := infinite(rows)):
        wrong.append(f"diagnose: not finite: {', '.join(odd[:3])}")
    restore(model, kept)
    plain, again = (trained(subject, kept)[0] for _ in range(2))
    told = Complaints()
    with told, TemporaryDirectory() as folder:
        log = Path(folder, "watch.jsonl")
        watched, seen = trained(subject, kept, log)
        lines = [json.loads(text) for text in log.read_text(encoding="utf-8").splitlines()]
    history = [row for sample in lines for row in sample["layers"]]
    noise_level, distance = apart(plain, again), apart(plain, watched)
    repeats = not different(plain, again)
    if different(plain, watched) if repeats else distance > 10 * noise_level:
        wrong.append(f"watch changed the training: {distance:.1e} apart, plain ones {noise_level:.1e}")
    wrong += [f"watch: {text}" for text in told.lines]
    if seen.samples != STEPS // EVERY:
        wrong.append(f"watch took {seen.samples} samples of {STEPS // EVERY}")
    if finite and (odd := infinite(history)):
        wrong.append(f"watch: not finite: {', '.join(odd[:3])}")
    restore(model, kept)
    before, plan = named(model), initialize_(model, recipe="paper", seed=0)
    wrong += [f"initialize_: not as the plan says: {name}" for name in unaccounted(plan, before, named(model))[:3]]
    return {
        "variant": subject.variant,
        "parameters": sum(p.numel() for p in model.parameters()),
        "layers": len(rows),
        "watched layers": len({row["layer"] for row in history}),
        "finite": finite,
        "repeats": repeats,
        "diagnose s": round(seconds, 3),
        "findings": [finding.kind for finding in found.findings],
        "warnings": [finding.kind for finding in found.warnings],
        "events": [event.kind for event in seen.events],
        "wrong": wrong,
    }


def unaccounted(plan: Plan, before: dict[str, Tensor], after: dict[str, Tensor]) -> list[str]:
    """The parameters of which the plan says nothing, or something that did not happen."""
    wrong = sorted(after.keys() ^ {row.name for row in plan})
    for row in plan:
        old, new = before[row.name], after[row.name]
        if row.action == "left alone":
            right = torch.equal(old, new) and bool(row.reason)
        elif row.action in CONSTANTS:
            right = bool((new == CONSTANTS[row.action]).all())
        else:  # drawn, or tied to what is
            right = row.action.startswith("tied to") or not torch.equal(old, new)
        if not right:
            wrong.append(row.name)
    return wrong


class Complaints(logging.Handler):
    """What `watch` says when a sample fails."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> None:
        logging.getLogger("stiefel_init.watch").addHandler(self)

    def __exit__(self, *_: Any) -> None:
        logging.getLogger("stiefel_init.watch").removeHandler(self)


def attempt(make: Make, device: str) -> dict[str, Any]:
    """`examine`; what cannot be built is skipped with the reason, and what fails is told."""
    torch.manual_seed(0)
    subject: Subject | None = None
    try:
        with at_most(MOST):
            subject = make(device)
            return examine(subject)
    except NotBuilt as error:
        return {"skipped": str(error)}
    except (Exception, TooLong) as error:
        if subject is None:
            return {"skipped": sentence(error)}
        return {"variant": subject.variant, "wrong": [sentence(error)]}


NAMES = {
    "study": "the networks of [whole networks](architectures.md)",
    "transformers": "small models of transformers, one of each architecture",
    "timm": "one model of each family of timm, as it is there",
}


def part() -> list[str]:
    """The table of docs/diagnose.md."""
    records = timing.on_devices("families")
    rows = [_row(source, entry) for record in records for source, entry in record["sources"].items()]
    header = ["models", "tried", "not tried, for time", "as they should be", "called sick", "`diagnose`, median", "on"]
    return timing.markdown(header, rows)[:-1]


def _row(source: str, entry: dict[str, Any]) -> list[str]:
    tried = [row for row in entry["models"].values() if "skipped" not in row]
    right = [row for row in tried if not row["wrong"]]
    version = f", {source} {entry['version']}" if entry.get("version") else ""
    return [
        NAMES[source],
        str(len(tried)),
        str(len(entry["models"]) - len(tried)),
        str(len(right)),
        str(sum(bool(row["findings"]) for row in right)),
        f"{statistics.median(row['diagnose s'] for row in right):.2g} s" if right else "—",
        f"{timing.where(entry)}, PyTorch {entry['machine']['torch']}{version}",
    ]


def real_models() -> list[str]:
    """Of six models of full size on a GPU, for docs/performance.md."""
    record = timing.kept("real_models-cuda")
    names = ["parameters", "drawn", "constant", "left alone", "tied"]
    rows = [
        [
            name, *(f"{row[key]:,}" for key in names), f"{row['init s']:.2f}",
            "yes" if not row["unaccounted"] else ", ".join(row["unaccounted"]), "yes" if row["finite"] else "no",
        ]
        for name, row in record["models"].items() if "parameters" in row
    ]  # fmt: skip
    return [
        f"Real models from timm and transformers, {timing.where(record)};",
        "`python -m paper.health.zoo_check` tries more:",
        "",
        *timing.markdown(["model", *names, "seconds", "all accounted for", "output and gradient finite"], rows),
    ]


def main() -> None:
    parser = timing.arguments(__doc__)
    parser.add_argument("--from", dest="sources", default=",".join(SOURCES), help="some of: %(default)s")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no model after so many")
    options = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")
    if options.write and options.only:
        parser.error(f"--write keeps the models of a source as a whole; leave out --only {options.only}.")
    begin, name = time.perf_counter(), f"families-{options.device}"
    for source in options.sources.split(","):
        try:
            families = list(SOURCES[source]())
        except ImportError as error:
            print(f"{source} is left out: {error}", flush=True)
            continue
        entry: dict[str, Any] = {"machine": timing.machine(options.device), "models": {}}
        if source in sys.modules:
            entry["version"] = sys.modules[source].__version__
        for family, make in families:
            if options.only not in family:
                continue
            late = time.perf_counter() - begin > options.seconds
            row = {"skipped": f"not begun after {options.seconds:.0f} s"} if late else attempt(make, options.device)
            entry["models"][family] = row
            told = f"skipped: {row['skipped'][:160]}" if "skipped" in row else row["wrong"] or "as it should be"
            print(f"{source}/{family:24} {told}", flush=True)
            gc.collect()
            if options.device == "cuda":
                torch.cuda.empty_cache()
            if options.write:  # what the other sources told before stays
                old = (timing.read(name) or {"sources": {}})["sources"]
                timing.write(name, {"sources": {**old, source: entry}})


if __name__ == "__main__":
    main()
