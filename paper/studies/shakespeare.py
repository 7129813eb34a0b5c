"""nanoGPT's character model at its README's setting: its author's initialization beside `initialize_`.

    stiefel-init reproduce shakespeare --data-dir FOLDER
    python -m paper.studies.shakespeare author ours FILE.py:FUNCTION --lrs 1e-3 2e-3 --seeds 1 --data FOLDER

A function of a FILE.py takes the model as its author starts it, and changes it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stiefel_init.core.errors import StiefelError
from stiefel_init.lab.plugins import load_named
from stiefel_init.lab.report.tables import Table
from stiefel_init.lab.train.modules import OfTorch, Slot
from stiefel_init.torch import initialize_

from ..experiment import Options, titled
from ..loop import OfRuns, command
from ..networks import GPT
from ..results import Results
from ..verdicts import apart
from .kit import spread

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
    model = GPT(scale.width, scale.layers, scale.window, scale.heads, characters, dropout=0.2, bias=False, tied=True)
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

    def __init__(self, run: Run, scale: Scale, parts: Sequence[Tensor], characters: int, *, compiled: bool) -> None:
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
        groups = [
            {"params": [each for each in model.parameters() if (each.ndim > 1) == decays], "lr": 1.0,
             "weight_decay": 0.1 * decays} for decays in (True, False)
        ]  # fmt: skip
        self.draw()
        self.slot = Slot(model, self.next_loss, groups, self.adam, clip=1.0, counters=[self.position])
        self.losses: list[Tensor] = []

    @staticmethod
    def adam(groups: list[dict[str, Any]]) -> OfTorch:
        """AdamW as the README has it."""
        cuda = groups[0]["lr"].is_cuda
        return OfTorch(torch.optim.AdamW(groups, lr=groups[0]["lr"], betas=(0.9, 0.99), fused=True, capturable=cuda))

    def loss(self, model: nn.Module, source: Tensor, places: Tensor) -> Tensor:
        """Of windows of a text, what follows each of their characters; in bfloat16 on a GPU."""
        found = source[places[:, None] + self.window]
        with torch.autocast(source.device.type, torch.bfloat16, source.is_cuda, cache_enabled=False):
            logits = model(found[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), found[:, 1:].flatten())

    def next_loss(self, model: nn.Module) -> Tensor:
        """On the next batch."""
        places = self.places.index_select(0, self.position)[0]
        self.position += 1
        return self.loss(model, self.train, places)

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
        with self.slot.on_stream(), torch.no_grad(), torch.compiler.set_stance("force_eager"):
            parts = places.to(self.train.device).split(4 * scale.batch)
            losses = [self.loss(model, self.held_out, some) * len(some) for some in parts]
            self.losses.append(torch.stack(losses).sum() / count)
        model.train()


class Shakespeare(OfRuns):
    """A public number, and what another initialization does to it."""

    name = "shakespeare"
    title = "Measured"
    page = "shakespeare"
    files = ("shakespeare",)
    kind = Run
    engine = "slots"

    def __init__(
        self, starts: Sequence[str] = (AUTHOR, OURS), lrs: Sequence[float] = (LR,), steps: int | None = None,
        compiled: bool = True,
    ) -> None:  # fmt: skip
        self.starts, self.lrs, self.steps, self.compiled = starts, lrs, steps, compiled

    def scale(self, options: Options) -> Scale:
        """That of the README, or a small one."""
        scale = QUICK if options.quick else Scale()
        return scale._replace(steps=self.steps or scale.steps)

    def wanted(self, options: Options) -> list[Run]:
        """Every start at every rate, seed by seed."""
        for start in self.starts:
            start_of(start)  # what cannot be loaded, now
        steps, seeds = self.scale(options).steps, range(options.seeds or (1 if options.quick else 3))
        return [Run(start, lr, steps, seed) for seed in seeds for start in self.starts for lr in self.lrs]

    def together(self, options: Options, device: torch.device) -> int:
        """On a GPU six, or `stack` of them."""
        return options.stack or (6 if device.type == "cuda" else 1)

    def train(
        self, runs: Sequence[Run], options: Options, device: torch.device, tell: Callable[[float], None]
    ) -> list[dict[str, Any]]:
        """All of them step by step; the validation losses of each."""
        whole, scale = text(options.data), self.scale(options)
        parts, characters = [part.to(device) for part in whole], int(whole[0].max()) + 1
        trainings = [Training(run, scale, parts, characters, compiled=self.compiled) for run in runs]
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
            tell(len(runs) * EVERY / scale.steps)
        found = []
        for each in trainings:
            each.test()
            losses = [float(loss) for loss in each.losses]
            best, curve = min(filter(math.isfinite, losses), default=math.inf), (f"{loss:.4f}" for loss in losses)
            found.append({"best": round(best, 4), "curve": " ".join(curve)})
        return found

    def evidence(self, results: Results) -> Any:
        """The lines on record, if only none."""
        return super().evidence(results) or {}

    def tables(self, evidence: Mapping[Run, Mapping[str, Any]]) -> list[Table]:
        """The best losses, and those at the beginning."""
        best, rows = _best(evidence), []
        for (start, lr, steps), losses in best.items():
            curves = [[float(x) for x in row["curve"].split()] for run, row in evidence.items()
                      if run[:3] == (start, lr, steps)]  # fmt: skip
            early = " / ".join(f"{mean(curve[at] for curve in curves):.2f}" for at in (1, 2, 3) if len(curves[0]) > at)
            author = best.get((AUTHOR, LR, steps))
            gap = "" if start == AUTHOR or author is None else apart(losses, author, 4)
            told = [f"{lr:g}", f"{steps:,}", str(len(losses)), spread(losses, 4)]
            rows.append([start, *told, gap, early])
        header = ["start", "lr", "steps", "seeds", "best loss", "to the author's", "after 250 / 500 / 750 steps"]
        return [Table("", header, rows)] if rows else []

    def section(self, evidence: Mapping[Run, Mapping[str, Any]]) -> list[str]:
        """What came out beside the public number."""
        best = _best(evidence)
        author, ours = (best.get((start, LR, Scale().steps)) for start in (AUTHOR, OURS))
        if author is None or ours is None:
            lead = ["Not measured yet: `stiefel-init reproduce shakespeare --data-dir FOLDER`."]
        else:
            lead = [
                f"The README's best validation loss is {PUBLISHED}. From its author's initialization we find",
                f"{author.mean():.4f}, from `initialize_(model)` {ours.mean():.4f}; less is better.",
            ]
        return [*lead, "", *titled(self.tables(evidence))]


def _best(evidence: Mapping[Run, Mapping[str, Any]]) -> dict[tuple[str, float, int], np.ndarray]:
    """The best losses by start, rate and steps."""
    found: dict[tuple[str, float, int], list[float]] = {}
    for run, row in evidence.items():
        found.setdefault(run[:3], []).append(row["best"])
    return {key: np.array(losses) for key, losses in found.items()}


if __name__ == "__main__":
    command(Shakespeare, "paper.studies.shakespeare", __doc__, {
        "starts": {"nargs": "*", "default": [AUTHOR, OURS], "help": "author, ours, a scheme, FILE.py:FUNCTION"},
        "--lrs": {"nargs": "*", "type": float, "default": [LR]}, "--steps": {"type": int},
        "--no-compile": {"dest": "compiled", "action": "store_false"},
    })  # fmt: skip
