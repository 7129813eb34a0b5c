"""What a watch remembers: `History`, of bounded size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...health.rows import NUMBERS, ROW_COLUMNS, TEXTS, Sample
from ..observe import frame

KEEP = 1024  # samples; when there are more, every second one is dropped, the newest never


class History:
    """The rows of all samples, as arrays; beyond `KEEP` samples it gets coarser instead of longer."""

    def __init__(self) -> None:
        self._samples: list[tuple[int, float, tuple[str, ...], np.ndarray]] = []
        self._stride, self._count = 1, 0
        self._texts: dict[str, tuple[str, str | None]] = {}

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, sample: Sample) -> None:
        names = tuple(row.layer for row in sample.rows)
        if self._samples and self._samples[-1][2] == names:
            names = self._samples[-1][2]  # one tuple for all samples
        values = np.array([row[len(TEXTS) :] for row in sample.rows], np.float32)  # NaN for None
        loss = math.nan if sample.loss is None else sample.loss
        if self._samples and (self._count - 1) % self._stride:
            self._samples.pop()  # it was kept as the newest only
        self._count += 1
        self._samples.append((sample.step, loss, names, values))
        self._texts.update((row.layer, (row.kind, row.activation)) for row in sample.rows)
        if len(self._samples) > KEEP:
            self._stride *= 2
            newest = [] if len(self._samples) % 2 else self._samples[-1:]
            self._samples = self._samples[::2] + newest

    @property
    def steps(self) -> list[int]:
        return [step for step, *_ in self._samples]

    @property
    def losses(self) -> list[float]:
        """The loss at each of them; NaN where it was not given."""
        return [loss for _, loss, *_ in self._samples]

    @property
    def layers(self) -> list[str]:
        """Every layer that was ever seen, in the order of the last sample that has it."""
        names: dict[str, None] = {}
        for _, _, layers, _ in reversed(self._samples):
            names.update(dict.fromkeys(layers))
        return list(names)

    def grid(self, column: str) -> np.ndarray:
        """A column as layers × steps; NaN where it was not measured."""
        layers = {name: at for at, name in enumerate(self.layers)}
        result = np.full((len(layers), len(self._samples)), np.nan)
        place = NUMBERS.index(column)
        for at, (_, _, names, values) in enumerate(self._samples):
            result[[layers[name] for name in names], at] = values[:, place]
        return result

    def records(self) -> list[dict[str, Any]]:
        found = []
        for step, loss, names, values in self._samples:
            for name, row in zip(names, values.tolist()):
                texts = (name, *self._texts[name])
                found.append({"step": step, "loss": loss, **dict(zip(TEXTS, texts)), **dict(zip(NUMBERS, row))})
        return found

    @property
    def table(self) -> Any:
        """The records as a pandas DataFrame; where pandas is not installed, `records()`."""
        return frame(self.records(), ("step", "loss", *ROW_COLUMNS))
