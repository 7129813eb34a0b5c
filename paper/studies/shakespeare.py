"""nanoGPT's character model at its README's setting: its author's initialization beside `initialize_`.

    stiefel-init reproduce shakespeare --data-dir FOLDER
    python -m paper.studies.shakespeare author ours FILE.py:FUNCTION --lrs 1e-3 2e-3 --seeds 1 --data FOLDER

A function of a FILE.py takes the model as its author starts it, and changes it.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.files import prepare
from stiefel_init.lab.plugins import load_named
from stiefel_init.lab.progress import progress
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.record import environment
from stiefel_init.lab.train.runner import pick_device
from stiefel_init.lab.train.slot import OfTorch, Slot
from stiefel_init.torch import initialize_

from ..experiment import QUICK_NOTE, Experiment, Options, titled
from ..networks import GPT
from ..results import Results, note_environment, write_table
from ..verdicts import interval

MD5 = "6fb458f1232090904fb40fe944165e91"
PUBLISHED = 1.4697
"""The README's best validation loss."""
AUTHOR, OURS = "author", "ours"
LR, WARM_UP, EVERY = 1e-3, 100, 250


class Scale(NamedTuple):
    """How large the model is, and how long it is trained."""

    layers: int = 6
    heads: int = 6
    width: int = 384
    window: int = 256
    batch: int = 64
    steps: int = 5000
    tested: int = 200
    """Batches that a validation loss is the mean of."""


QUICK = Scale(2, 2, 32, 32, 16, 60, 2)


class Run(NamedTuple):
    """One training."""

    start: str
    lr: float
    steps: int
    seed: int


def text(directory: Path | None) -> tuple[Tensor, Tensor]:
    """The corpus as numbers of its characters: nine tenths to learn from, and the last one."""
    for path in (Path(directory or ".") / name for name in ("text/tinyshakespeare.txt", "tinyshakespeare.txt")):
        if path.is_file():
            raw = path.read_bytes()
            if hashlib.md5(raw, usedforsecurity=False).hexdigest() != MD5:
                raise StiefelError(f"{path} is not tinyshakespeare; replace it with a good copy.")
            tokens = torch.from_numpy(np.unique(np.frombuffer(raw, np.uint8), return_inverse=True)[1])
            return tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]
    raise StiefelError(f"--data-dir {directory or '.'} has no tinyshakespeare.txt; name the folder with it.")


def model_of(scale: Scale, characters: int) -> GPT:
    """As its author has it, and starts it."""
    model = GPT(
        scale.width, scale.layers, scale.window, scale.heads, characters, dropout=0.2, bias=False, tied=True
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            end = name.endswith(("proj.weight", "fc2.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * scale.layers) if end else 0.02)
    return model


def start_of(name: str) -> Callable[[nn.Module, int], Any]:
    """How a model starts: as its author has it, as `initialize_` does, by a scheme, or by a function in a file."""
    if ":" in name:
        change: Any = load_named(name)
        return lambda model, seed: change(model)
    if name == AUTHOR:
        return lambda model, seed: None
    return lambda model, seed: initialize_(model, None if name == OURS else name, seed=seed)


class Training:
    """A run on its way."""

    def __init__(
        self, run: Run, scale: Scale, parts: tuple[Tensor, Tensor], characters: int, *, compiled: bool
    ) -> None:
        self.run, self.scale, (self.train, self.held_out) = run, scale, parts
        device = self.train.device
        torch.default_generator.manual_seed(run.seed)
        model = model_of(scale, characters)
        start_of(run.start)(model, run.seed)
        model.to(device).train()
        if compiled and device.type == "cuda":
            for block in model.blocks:
                block.compile(dynamic=False)
        self.generator = torch.Generator().manual_seed(run.seed)
        self.window = torch.arange(scale.window + 1, device=device)
        self.places = torch.zeros(min(EVERY, scale.steps), scale.batch, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        matrices = [each for each in model.parameters() if each.ndim > 1]
        others = [each for each in model.parameters() if each.ndim < 2]
        groups = [
            {"params": matrices, "lr": 1.0, "weight_decay": 0.1}, {"params": others, "lr": 1.0, "weight_decay": 0.0}
        ]  # fmt: skip
        self.draw()
        self.slot = Slot(model, self.loss, groups, self.adam, clip=1.0, counters=[self.position])
        self.losses: list[Tensor] = []

    @staticmethod
    def adam(groups: list[dict[str, Any]]) -> OfTorch:
        """AdamW as the README has it."""
        cuda = groups[0]["lr"].is_cuda
        return OfTorch(torch.optim.AdamW(groups, lr=groups[0]["lr"], betas=(0.9, 0.99), fused=True, capturable=cuda))

    def rows(self, source: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Windows of a text and what follows each of their characters."""
        found = source[places[:, None] + self.window]
        return found[:, :-1], found[:, 1:]

    def precision(self) -> Any:
        """bfloat16 on a GPU."""
        return torch.autocast(self.train.device.type, torch.bfloat16, self.train.is_cuda, cache_enabled=False)

    def loss(self, model: nn.Module) -> Tensor:
        """On the next batch."""
        x, y = self.rows(self.train, self.places.index_select(0, self.position)[0])
        with self.precision():
            logits = model(x)
        self.position += 1
        return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())

    def draw(self) -> None:
        """The places of the next batches."""
        most = len(self.train) - self.scale.window - 1
        self.places.copy_(torch.randint(most, self.places.shape, generator=self.generator))
        self.position.zero_()

    def rate(self, step: int) -> float:
        """Up for some steps, then half a cosine down to a tenth."""
        warm = min(WARM_UP, self.scale.steps // 10)
        if step < warm:
            return self.run.lr * (step + 1) / (warm + 1)
        return self.run.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / (self.scale.steps - warm))))

    def test(self) -> None:
        """Note the validation loss; nothing waits for it."""
        count, scale, model = self.scale.tested * self.scale.batch, self.scale, self.slot.model
        places = torch.randint(len(self.held_out) - scale.window - 1, (count,), generator=self.generator)
        model.eval()
        with self.slot.on_stream(), torch.no_grad(), self.precision(), torch.compiler.set_stance("force_eager"):
            losses = []
            for some in places.to(self.train.device).split(4 * scale.batch):
                x, y = self.rows(self.held_out, some)
                losses.append(F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten()) * len(some))
            self.losses.append(torch.stack(losses).sum() / count)
        model.train()


def train(
    runs: Sequence[Run], scale: Scale, device: torch.device, directory: Path | None, tell: Callable[[int], None], *,
    compiled: bool = True,
) -> list[list[float]]:  # fmt: skip
    """Train runs side by side; the validation losses of each."""
    parts = text(directory)
    characters = int(parts[0].max()) + 1
    parts = parts[0].to(device), parts[1].to(device)
    trainings = [Training(run, scale, parts, characters, compiled=compiled) for run in runs]
    for begin in range(0, scale.steps, EVERY):
        for each in trainings:
            with each.slot.on_stream():
                each.test()
                each.draw()
        for step in range(begin, min(begin + EVERY, scale.steps)):
            for each in trainings:
                each.slot.step(each.rate(step))
        if device.type == "cuda":
            torch.cuda.synchronize()
        tell(len(runs))
    for each in trainings:
        each.test()
    return [[float(loss) for loss in each.losses] for each in trainings]


class Shakespeare(Experiment):
    """A public number, and what another initialization does to it."""

    name = "shakespeare"
    title = "Measured"
    page = "shakespeare"
    files = ("shakespeare",)

    def run(
        self, options: Options, *, starts: Sequence[str] = (AUTHOR, OURS), lrs: Sequence[float] = (LR,),
        steps: int | None = None, compiled: bool = True,
    ) -> None:  # fmt: skip
        """Train what is left; on a GPU six runs side by side, or `stack` of them."""
        device, label, begun = pick_device(options.device), self.label(options.quick), time.time()
        scale = QUICK if options.quick else Scale()
        scale, path = scale._replace(steps=steps or scale.steps), prepare(options.out) / f"{label}.csv"
        rows: list[Any] = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []
        seeds, done = range(options.seeds or (1 if options.quick else 3)), {_run(row) for row in rows}
        left = [run for run in (Run(s, lr, scale.steps, seed) for seed in seeds for s in starts for lr in lrs)
                if run not in done]  # fmt: skip
        for start in starts:
            start_of(start)  # what cannot be loaded, now
        most = options.stack or (6 if device.type == "cuda" else 1)
        with progress(len(left) * -(-scale.steps // EVERY), label) as advance:
            for first in range(0, len(left), most):
                if options.minutes is not None and time.time() - begun > 60 * options.minutes:
                    print(f"Stopped after {options.minutes:g} minutes; finished runs are kept, rerun to resume.")
                    break
                some, started = left[first : first + most], time.time()
                losses = train(some, scale, device, options.data, advance, compiled=compiled)
                seconds = time.time() - started
                rows += [_row(run, each, seconds / len(some)) for run, each in zip(some, losses)]
                write_table(rows, path)
                note_environment(options.out, label, environment(device, "slots"), seconds, len(some), add=True)
        for table in self.tables(rows):
            table.show()
        if options.quick:
            print(QUICK_NOTE)

    def evidence(self, results: Results) -> Any:
        """The rows, if only none."""
        return results.table(self.name)

    def tables(self, evidence: Any) -> list[Table]:
        """The best losses, and those at the beginning."""
        found: dict[tuple[str, float, int], list[Mapping[str, Any]]] = {}
        for row in evidence:
            found.setdefault(_run(row)[:3], []).append(row)
        rows = []
        for (start, lr, steps), here in found.items():
            best, author = _best(here), _best(found.get((AUTHOR, LR, steps), []))
            curves = [[float(loss) for loss in str(row["curve"]).split()] for row in here]
            early = " / ".join(f"{mean(curve[at] for curve in curves):.2f}" for at in (1, 2, 3) if len(curves[0]) > at)
            told, gap = f"{mean(best):.4f}" + (f" ± {stdev(best):.4f}" if len(best) > 1 else ""), ""
            if start != AUTHOR and min(len(best), len(author)) > 1:
                low, high = interval(np.array(best), np.array(author))
                gap = f"{mean(best) - mean(author):+.4f} [{low:+.4f}, {high:+.4f}]"
            rows.append([start, f"{lr:g}", f"{steps:,}", str(len(best)), told, gap, early])
        header = ["start", "lr", "steps", "seeds", "best loss", "to the author's", "after 250 / 500 / 750 steps"]
        return [Table("", header, rows)] if rows else []

    def section(self, evidence: Any) -> list[str]:
        """What came out beside the public number."""
        setting = LR, Scale().steps
        of = {start: _best(row for row in evidence if _run(row)[:3] == (start, *setting)) for start in (AUTHOR, OURS)}
        lead = ["Not measured yet: `stiefel-init reproduce shakespeare --data-dir FOLDER`."]
        if all(of.values()):
            lead = [
                f"The README's best validation loss is {PUBLISHED}. From its author's initialization we find",
                f"{mean(of[AUTHOR]):.4f}, from `initialize_(model)` {mean(of[OURS]):.4f}; less is better.",
            ]
        return [*lead, "", *titled(self.tables(evidence))]


def _run(row: Mapping[str, Any]) -> Run:
    return Run(str(row["start"]), float(row["lr"]), int(row["steps"]), int(row["seed"]))


def _row(run: Run, losses: Sequence[float], seconds: float) -> dict[str, Any]:
    best = min(filter(math.isfinite, losses), default=math.inf)
    curve = " ".join(f"{loss:.4f}" for loss in losses)
    return {**run._asdict(), "best": f"{best:.4f}", "seconds": f"{seconds:.1f}", "curve": curve}


def _best(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    return [float(row["best"]) for row in rows]


def main() -> None:
    """From the command line, with variants."""
    parser = argparse.ArgumentParser(prog="python -m paper.studies.shakespeare", description=__doc__)
    parser.add_argument("starts", nargs="*", default=[AUTHOR, OURS], help="author, ours, a scheme, FILE.py:FUNCTION")
    parser.add_argument("--lrs", nargs="*", type=float, default=[LR])
    for name, kind in {"steps": int, "seeds": int, "data": Path, "at-once": int, "minutes": float}.items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--out", type=Path, default=Path("stiefel-init-results"))
    parser.add_argument("--device", default="auto")
    for name in ("quick", "no-compile"):
        parser.add_argument(f"--{name}", action="store_true")
    w = parser.parse_args()
    options = Options(w.out, w.seeds, w.quick, w.device, w.data, w.at_once, minutes=w.minutes)
    try:
        Shakespeare().run(options, starts=w.starts, lrs=w.lrs, steps=w.steps, compiled=not w.no_compile)
    except StiefelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
