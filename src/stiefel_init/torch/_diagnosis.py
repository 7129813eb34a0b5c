"""The result of `diagnose`: `Diagnosis`, as sentences, table, picture, HTML and JSON."""

from __future__ import annotations

import html
import json
import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .._errors import StiefelError
from ._verdict import Finding, judge

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 24  # rows that str() prints; of more, the first and the last half of this
_PRINTED = {
    "label": "layer", "shape": "weight", "activation": "activation", "pre_mean": "mean", "pre_std": "std", "alpha": "α",
    "active": "active", "dead": "dead", "post_mean": "mean after", "post_std": "std after", "distinct": "distinct",
    "gradient": "gradient", "orthogonality_error": "orth. error", "alignment_error": "align. error",
    "predicted_pre_std": "std predicted", "predicted_active": "active predicted",
    "predicted_gradient": "gradient predicted",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One call of one layer. What cannot be measured or predicted is None."""

    layer: str
    call: int
    """1, and more for a layer that is called again."""
    kind: str
    """The layer's class."""
    shape: str
    """Of its weight, outputs × inputs."""
    activation: str | None
    """The activation that follows it, directly or after a normalization, dropout, pooling or reshaping."""
    units: int
    """Of the activation, or of the output where none follows: channels of a convolution, else the last dimension."""
    samples: int
    """Values of each unit: inputs, times places of an image or sequence."""
    pre_mean: float
    """Mean and std, over units and samples, of what enters the activation; without one, of the output."""
    pre_std: float
    alpha: float | None
    """pre_mean / pre_std."""
    active: float | None
    """The share of what enters the activation that is above 0."""
    dead: int | None
    """Under a ReLU or ReLU6: units that are above 0 for no sample."""
    post_mean: float
    """Mean and std, over units and samples, of what leaves the activation; without one, of the output."""
    post_std: float
    spread: float
    """Root mean square, over units, of a unit's std over samples: what is left of the differences between inputs."""
    distinct: float | None
    """k² / Σ r_ij² over the correlations r of the k units that vary: k when all differ, 1 when all repeat one."""
    gradient: float | None
    """Length of the loss's gradient by the layer's output."""
    weight_gradient: float | None
    """Length of the loss's gradient by the layer's weights, all its calls together."""
    zero_weights: bool
    scheme: str | None
    """`"stiefel"` for members of Õ(m,n), `"lee"`, `"orthogonal"` or `"other"`."""
    orthogonality_error: float | None
    """As in `stiefel_init.check`, the worst of the layer's matrices."""
    alignment_error: float | None
    predicted_pre_mean: float | None = None
    """What the theory says of these columns, for linear layers."""
    predicted_pre_std: float | None = None
    predicted_alpha: float | None = None
    predicted_active: float | None = None
    predicted_post_mean: float | None = None
    predicted_post_std: float | None = None
    predicted_gradient: float | None = None

    @property
    def label(self) -> str:
        """The name, with the number of a repeated call."""
        return self.layer if self.call == 1 else f"{self.layer} (call {self.call})"

    @property
    def named(self) -> str:
        """The label, as sentences have it."""
        return f"layer {self.label}"

    @property
    def size(self) -> float:
        """Root mean square of what leaves the activation."""
        return math.hypot(self.post_mean, self.post_std)


COLUMNS = tuple(field.name for field in fields(Layer))


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """What `diagnose` found: `layers` in the order they ran, `findings` and `verdict`, the worst first.

    It prints as sentences and a table, and shows itself in notebooks.
    """

    layers: tuple[Layer, ...]
    loss: float | None = None
    """The loss, if targets were given."""

    @cached_property
    def _judged(self) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        return judge(self.layers)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong: kind, layer and sentence; empty for a healthy network."""
        return self._judged[0]

    @property
    def verdict(self) -> tuple[str, ...]:
        """Sentences: what is wrong and what to do about it, or why the network is healthy."""
        return self._judged[1]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def __len__(self) -> int:
        return len(self.layers)

    def records(self) -> list[dict[str, Any]]:
        """One dict for each layer, with the fields of `Layer`."""
        return [asdict(layer) for layer in self.layers]

    @property
    def table(self) -> Any:
        """The layers as a pandas DataFrame; where pandas is not installed, `records()`."""
        try:
            import pandas
        except ImportError:
            return self.records()
        frame = pandas.DataFrame(self.records(), columns=list(COLUMNS))
        texts = ("layer", "kind", "shape", "activation", "scheme")
        numbers = [name for name in COLUMNS if name not in texts and frame[name].dtype == object]
        return frame.astype(dict.fromkeys(numbers, float))

    def to_json(self) -> str:
        """Verdict, findings and layers as JSON; numbers that are not finite become null."""
        content = {
            "healthy": self.healthy,
            "verdict": self.verdict,
            "findings": [finding._asdict() for finding in self.findings],
            "loss": self.loss,
            "layers": self.records(),
        }
        return json.dumps(_strict(content), ensure_ascii=False, indent=1)

    def __repr__(self) -> str:
        return f"<Diagnosis: {len(self)} layers, {'healthy' if self.healthy else self.findings[0].kind}>"

    def __str__(self) -> str:
        header, rows = self._cells()
        half = _SHOWN // 2
        kept = rows if len(rows) <= _SHOWN else [*rows[:half], ["…"] * len(header), *rows[-half:]]
        lines = [header, *kept]
        size = [max(map(len, column)) for column in zip(*lines)]
        text = [
            "  ".join(c.ljust(w) if i < self._texts(header) else c.rjust(w) for i, (c, w) in enumerate(zip(line, size)))
            for line in lines
        ]
        return "\n".join([*self.verdict, "", *(line.rstrip() for line in text)])

    def _repr_html_(self) -> str:
        header, rows = self._cells()
        texts = self._texts(header)
        mark = "#2e7d32" if self.healthy else "#b3261e"
        sentences = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self.verdict)
        named = {finding.layer for finding in self.findings}
        body = []
        for row in rows:
            cells = (
                f'<td style="text-align:{"left" if at < texts else "right"}">{html.escape(cell)}</td>'
                for at, cell in enumerate(row)
            )
            weight = "bold" if row[0] in named else "normal"
            body.append(f'<tr style="font-weight:{weight}">{"".join(cells)}</tr>')
        return (
            f'<div><ul style="border-left:4px solid {mark};list-style:none;padding-left:0.8em">{sentences}</ul>'
            f'<div style="max-height:24em;overflow:auto"><table><thead><tr>'
            f"{''.join(f'<th>{html.escape(name)}</th>' for name in header)}</tr></thead>"
            f"<tbody>{''.join(body)}</tbody></table></div></div>"
        )

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """The printed columns, less those that are empty throughout."""
        values = {name: [getattr(layer, name) for layer in self.layers] for name in _PRINTED}
        shown = [name for name in _PRINTED if any(value is not None for value in values[name])]
        return [_PRINTED[name] for name in shown], [list(row) for row in zip(*(map(_text, values[n]) for n in shown))]

    @staticmethod
    def _texts(header: list[str]) -> int:
        return sum(name in ("layer", "weight", "activation") for name in header)

    def plot(self) -> Figure:
        """A matplotlib figure over the layers: size, active units, distinct units, gradient; predictions as lines.

        Nothing is shown or kept by pyplot; a notebook shows the figure, `plot().savefig(path)` writes it.
        """
        try:
            from ._diagnosis_plot import plot
        except ImportError as error:
            raise StiefelError(f"plot() needs matplotlib ({error}); run pip install matplotlib.") from None
        return plot(self)


def _text(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
