"""The result of `diagnose`: `Diagnosis`, as sentences, table, picture, HTML and JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...health.judge import Finding, Verdict, judge
from ...health.rows import LAYER_COLUMNS, Evidence, Fit, Inputs, Layer
from ...health.setup import Setup, Tried
from ..observe import plots
from ..observe.report import Rows, in_html, report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WORDS = {"shape": "weight", "activation": "activation"}
_NUMBERS = {
    "post_std": "std", "distinct": "distinct", "gradient": "gradient", "update": "update", "active": "active",
    "dead": "dead", "saturated": "saturated", "orthogonality_error": "orth. error",
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Rows):
    """What `diagnose` found: `layers` in the order they ran, `findings` and `verdict`, the worst first.

    It prints as sentences and a table, and renders in notebooks.

    >>> import torch
    >>> from stiefel_init.torch import diagnose
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> diagnosis = diagnose(model, torch.rand(32, 4))
    >>> len(diagnosis), len(diagnosis.records()), '"layers"' in diagnosis.to_json()
    (2, 2, True)
    """

    layers: tuple[Layer, ...]
    inputs: Inputs | None = None
    """Statistics of the inputs; None for tokens."""
    fit: Fit | None = None
    """Loss, outputs and targets, if targets were given."""

    @property
    def loss(self) -> float | None:
        """The loss, if targets were given."""
        return None if self.fit is None else self.fit.loss

    curvature: float | None = None
    """Where no activation seems to act: how far the network is from linear, over how far its outputs differ."""
    setup: Setup | None = None
    """How loss, targets and optimizer fit the model, if targets were given."""
    trial: tuple[float, ...] = ()
    """The losses of a copy that was trained on the batch, if that had to be tried."""
    tried: Tried | None = None
    """How much of what there is to learn such copies got."""
    by_heart: bool = False
    """Whether such a copy knew nothing of examples that were kept from it, if that had to be tried."""

    @property
    def _evidence(self) -> Evidence:
        return Evidence(
            self.layers, self.inputs, self.fit, self.curvature, self.setup, self.trial, self.by_heart, self.tried
        )

    @cached_property
    def _judged(self) -> Verdict:
        return judge(self._evidence)

    @property
    def learns(self) -> bool:
        """Whether the network learned the batch when it was tried."""
        return self._evidence.learns

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What keeps the network from training, the worst first: kind, layer, sentence, cause and advice."""
        return self._judged.findings

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What does not keep it from training, but is far from how networks should start; likewise."""
        return self._judged.warnings

    @property
    def verdict(self) -> tuple[str, ...]:
        """Sentences: what is wrong and how to fix it, or why the network is healthy."""
        return self._judged.sentences

    @property
    def healthy(self) -> bool:
        """Whether nothing keeps the network from training; there may be warnings."""
        return not self.findings

    @property
    def table(self) -> Any:
        """The layers as a pandas DataFrame; where pandas is not installed, `records()`."""
        found = super().table
        if isinstance(found, list):
            return found
        texts = ("layer", "kind", "shape", "activation", "scheme")
        numbers = [name for name in LAYER_COLUMNS if name not in texts and found[name].dtype == object]
        return found.astype(dict.fromkeys(numbers, float))

    def to_json(self) -> str:
        """Everything as JSON.

        Returns:
            Verdict, findings, warnings, loss, inputs, fit and layers; non-finite numbers become null.
        """
        content = {
            "healthy": self.healthy,
            "verdict": self.verdict,
            "findings": [finding._asdict() for finding in self.findings],
            "warnings": [finding._asdict() for finding in self.warnings],
            "loss": self.loss,
            "inputs": None if self.inputs is None else asdict(self.inputs),
            "fit": None if self.fit is None else asdict(self.fit),
            "curvature": self.curvature,
            "layers": self.records(),
        }
        return json.dumps(_strict(content), ensure_ascii=False, indent=1)

    def __repr__(self) -> str:
        return f"<Diagnosis: {len(self)} layers, {'healthy' if self.healthy else self.findings[0].kind}>"

    def __str__(self) -> str:
        return report(self.verdict, self.layers, _WORDS, _NUMBERS)

    def _repr_html_(self) -> str:
        return in_html(str(self), self.healthy)

    def plot(self) -> Figure:
        """Plot signal, active units, distinct units and gradient over the layers; predictions are lines.

        Returns:
            A matplotlib figure, made without pyplot: a notebook shows it, `plot().savefig(path)` writes it.

        Raises:
            StiefelError: if matplotlib is not installed.
        """
        return plots().of_layers(self.layers, self.findings, self.verdict[0])


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
