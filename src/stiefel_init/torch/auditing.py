"""`audit`: what the parameters of a model hold, found out from their values, and which nobody has initialized.

Note [false alarms]
    Each distribution is rejected where its p-value is below `FALSE_ALARM`. The bound of a uniform one is the largest
    entry; given that, the others are uniform below it, so the test is exact. The deviation of a normal one is
    estimated, which makes the distance smaller: the test rejects the right one less often than stated. So of
    parameters that hold one of these, at most `FALSE_ALARM` are said to hold none. A few entries fit several
    distributions, and then all are named.
"""

from __future__ import annotations

import hashlib
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import special, stats
from torch import nn

from ..core.check import errors, tolerance
from ..core.errors import StiefelError
from ..core.text import ending, folded, table
from ..recipe.layers import Leave, Matrices
from .initialize.layers import rule
from .initialize.parameters import TorchRef, is_uninitialized, parameters_of
from .initialize.sharded import whole
from .inputs import check_module

LAW = 40
"""Characters of a law in the printed table; its row has all."""
FALSE_ALARM = 1e-4
"""The probability with which a law is denied to a parameter that has it."""
LEAST = 8
"""Entries needed to tell anything."""
_MOST = 100_000
_CUT = 2.0
MOST = 20
"""Lines of a table; beyond that, parameters of one name and law are one line whatever their shapes."""
HUGE = 1e6
"""No initialization has entries this large."""
UNKNOWN = "no law known here"


class Row(NamedTuple):
    """One parameter."""

    name: str
    shape: tuple[int, ...]
    law: str
    """What its values look like: `"member of the set"`, `"uniform ±0.125 (torch's own)"`, `"zeros"` …"""
    alarm: str = ""
    """What looks wrong with it."""


@dataclass(frozen=True, repr=False)
class Audit:
    """What each parameter holds; prints as a table with a sentence below."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Row:
        """The row of the parameter `name`."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    @property
    def alarms(self) -> tuple[Row, ...]:
        """The parameters with which something looks wrong."""
        return tuple(row for row in self.rows if row.alarm)

    def __str__(self) -> str:
        groups = folded(self.rows, _alike)
        groups = groups if len(groups) <= MOST else folded(self.rows, _of_a_kind)
        lines = table(("parameter", "shape", "distribution", "alarm"), groups, _cells)
        count = len(self.alarms)
        verdict = f"{count} of {len(self.rows)} parameters look wrong." if count else "Nothing looks wrong."
        return "\n".join([verdict, "", *lines, "", f"False alarms: at most 1 in {1 / FALSE_ALARM:,.0f} per parameter."])

    def __repr__(self) -> str:
        return f"Audit of {len(self.rows)} parameters, {len(self.alarms)} alarms; print it for the table"


def _cells(rows: list[Row]) -> tuple[str, str, str]:
    shapes = {row.shape for row in rows}
    law = textwrap.shorten(rows[0].law, LAW, placeholder=" …")
    return str(rows[0].shape) if len(shapes) == 1 else "", law, rows[0].alarm


def _alike(row: Row) -> tuple[str, tuple[object, ...]]:
    """Rows with the same key are one line, with the law of the first: laws of one kind, in any order."""
    return row.name, (row.shape, frozenset(re.sub(r"[\d.]+", "*", row.law).split(" or ")), row.alarm)


def _of_a_kind(row: Row) -> tuple[str, tuple[object, ...]]:
    """Coarser, for large models: by the end of the name, whatever the shape."""
    name = row.name if row.alarm else "*.bias" if row.name.endswith(".bias") else ending(row.name)
    return name, (name if name.startswith("*") else "", *_alike(row)[1][1:])


def audit(model: nn.Module) -> Audit:
    """Find out from its values which law each parameter holds, and which look as if nobody had initialized them.

    Laws of independent entries are tested by Kolmogorov and Smirnov's distance, laws of matrices up to rounding. A
    parameter raises an alarm if it has entries that are not finite, huge or subnormal, or is a weight of zeros; if it
    has the values of another; and if units of a layer are equal, which stay equal in training.

    Args:
        model: Any module with values; sharded parameters are gathered.

    Returns:
        A row for each parameter; it prints as a table.

    Raises:
        StiefelError: for something that is no module, or parameters without values.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    >>> _ = nn.init.eye_(model[0].weight), nn.init.zeros_(model[2].weight)
    >>> _ = nn.init.ones_(model[0].bias), nn.init.zeros_(model[2].bias)
    >>> print(audit(model))
    1 of 4 parameters look wrong.
    <BLANKLINE>
    parameter  shape   distribution  alarm
    0.weight   (4, 4)  identity
    0.bias     (4,)    ones
    2.weight   (4, 4)  zeros         all zeros: never initialized?
    2.bias     (4,)    zeros
    <BLANKLINE>
    False alarms: at most 1 in 10,000 per parameter.
    """
    check_module(model)
    refs: dict[Any, TorchRef] = {}
    for ref in parameters_of(list(model.named_modules(remove_duplicate=False))):
        refs.setdefault(ref.key, ref)  # tied weights count once
    values = {ref.name: _values(ref) for ref in refs.values()}
    twins = _equal_parameters(values)
    rows = [_row(ref, values, twins.get(ref.name)) for ref in refs.values()]
    return Audit(tuple(rows))


def _values(ref: TorchRef) -> np.ndarray:
    if is_uninitialized(ref.tensor) or ref.tensor.is_meta:
        raise StiefelError(f"{ref.name} has no values yet; initialize the model first.")
    return whole(ref.tensor).cpu().to(torch.float64).numpy()


def _row(ref: TorchRef, values: dict[str, np.ndarray], twin: str | None) -> Row:
    value = values[ref.name]
    kind = torch.finfo(ref.tensor.dtype)
    held = rule(ref.module, ref.leaf, ref.shape, "delta") if len(ref.shape) > 1 else None
    is_weight = isinstance(held, Matrices)
    alarm = _never_initialized(value, kind.smallest_normal, is_weight=is_weight)
    if not np.isfinite(value).all():
        return Row(ref.name, ref.shape, UNKNOWN, alarm)
    law = _law(value, held, kind.eps)
    if not alarm and twin is not None and not law.startswith("identit"):
        alarm = f"equal to {twin}"
    if not alarm and isinstance(held, Matrices) and not held.order and len(value) > 1:
        bias = values.get(ref.name.removesuffix(ref.leaf) + "bias")
        if repeated := _equal_units(value, bias):
            alarm = f"{repeated} of {len(value)} units repeat another"
    return Row(ref.name, ref.shape, law, alarm)


def _law(value: np.ndarray, held: Any, eps: float) -> str:
    if not value.size:
        return "empty"
    if value.min() == value.max():
        return {0.0: "zeros", 1.0: "ones"}.get(float(value.min()), f"all {value.min():.4g}")
    matrices = held.otherwise if isinstance(held, Leave) else held
    fans = (math.prod(value.shape[1:]) or 1, value.shape[0])
    if isinstance(matrices, Matrices) and value.ndim > 1:
        receptive = math.prod(value.shape[2:])
        fans = (matrices.n * (receptive if matrices.tap else 1), matrices.m * (receptive if matrices.tap else 1))
        if exact := _of_matrices(value, matrices, eps):
            return exact
    unknown = UNKNOWN if value.size >= LEAST else "too few entries to tell"
    return " or ".join(_entry_laws(value, *fans)) or unknown


def _of_matrices(value: np.ndarray, matrices: Matrices, eps: float) -> str | None:
    """The law of the matrices that a weight holds; of a kernel, at its centre or as a whole."""
    if matrices.tap:
        around = value.copy()
        matrices.places(around)[...] = 0
        if around.any():
            return _matrix_law(value.reshape(1, len(value), -1), eps) if not matrices.order else None
    found = _matrix_law(np.ascontiguousarray(matrices.read(value)), eps)
    return f"{found} at the centre" if found and matrices.tap else found


def _never_initialized(values: np.ndarray, smallest: float, *, is_weight: bool) -> str:
    """Why a parameter looks as if it had never been given values; `smallest` is the smallest normal number."""
    if not np.isfinite(values).all():
        return f"{int((~np.isfinite(values)).sum())} entries are not finite: never initialized?"
    size = np.abs(values)
    if (size > HUGE).any():
        return f"entries up to {size.max():.1e}: never initialized?"
    if ((size > 0) & (size < smallest)).any():
        return "entries too small for its dtype: never initialized?"
    return "all zeros: never initialized?" if is_weight and not size.any() else ""


def _equal_parameters(values: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Parameters that have the values of an earlier one: name → the earlier one's name."""
    first: dict[tuple[tuple[int, ...], bytes], str] = {}
    found: dict[str, str] = {}
    for name, value in values.items():
        if value.size > 1 and value.min() < value.max():
            key = value.shape, hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
            if key in first:
                found[name] = first[key]
            first.setdefault(key, name)
    return found


def _equal_units(weight: np.ndarray, bias: np.ndarray | None) -> int:
    """How many units of a layer, rows of its weight with their biases, repeat an earlier one; rows of zeros aside."""
    rows = weight.reshape(len(weight), -1)
    if bias is not None and bias.shape == (len(rows),):
        rows = np.column_stack([rows, bias])
    rows = rows[np.abs(weight.reshape(len(weight), -1)).sum(1) > 0]
    return len(rows) - len(np.unique(rows, axis=0))


def _entry_laws(entries: np.ndarray, fan_in: int, fan_out: int) -> list[str]:
    """The laws that finite entries, not all equal, may have, the most likely one first."""
    x = np.sort(entries.ravel()[:: -(-entries.size // _MOST)])
    count = len(x)
    if count < LEAST or x[0] == x[-1]:
        return []
    bound, deviation = float(np.abs(x).max()), math.sqrt(float(np.mean(x * x)))
    inner, centre, spread = x[np.abs(x) < bound], float(x.mean()), float(x.std())
    short, near = 1 + math.log(1 / FALSE_ALARM) / count, 4 / math.sqrt(2 * count)  # what a law's own sample may miss
    uniform = {"torch's own": 1 / fan_in, "xavier": 6 / (fan_in + fan_out), "he, uniform": 6 / fan_in}
    normal = {"he": 2 / fan_in, "lecun": 1 / fan_in, "xavier": 2 / (fan_in + fan_out), "gpt-2": 0.02**2}
    bounds = _named(name for name, square in uniform.items() if 1 - 1e-6 <= math.sqrt(square) / bound <= short)
    widths = _named(name for name, square in normal.items() if abs(deviation / math.sqrt(square) - 1) <= near)
    cut = special.ndtr(-_CUT)
    fits = {
        f"uniform ±{bound:.4g}{bounds}": _p(inner / bound, lambda x: (x + 1) / 2),
        f"normal, deviation {deviation:.4g}{widths}": _p_normal(x / deviation),
        f"normal, deviation {bound / _CUT:.4g}, cut at ±{bound:.4g}": _p(
            inner * (_CUT / bound), lambda x: (special.ndtr(x) - cut) / (1 - 2 * cut)
        ),
    }
    if abs(centre) > 5 * spread / math.sqrt(count):
        fits[f"normal, mean {centre:.4g}, deviation {spread:.4g}"] = _p_normal((x - centre) / spread)
    return sorted((text for text, p in fits.items() if p >= FALSE_ALARM), key=lambda text: -fits[text])


def _named(names: Iterable[str]) -> str:
    known = " or ".join(names)
    return f" ({known})" if known else ""


def _p(x: np.ndarray, distribution: object) -> float:
    """The p-value of the Kolmogorov–Smirnov distance of sorted entries from a distribution."""
    return float(stats.kstest(x, distribution, method="asymp").pvalue) if len(x) else 0.0


def _p_normal(x: np.ndarray) -> float:
    """Of the distance and of the largest entry, which tells a law that is cut off: twice the smaller p-value."""
    below = (1 - 2 * special.ndtr(-np.abs(x).max())) ** len(x)
    return min(1.0, 2 * min(_p(x, special.ndtr), 2 * float(min(below, 1 - below))))


def _matrix_law(w: np.ndarray, eps: float) -> str | None:
    """The law of a batch of matrices, of shape (count, m, n), not empty and not constant; None if there is none."""
    m, n = w.shape[-2:]
    return _of_ones(w, eps) or _orthogonal(w, eps) or (_mirrored(w) if min(m, n) > 1 else None)


def _times(scale: float) -> str:
    return "" if math.isclose(scale, 1, rel_tol=1e-4) else f" × {scale:.4g}"


def _of_ones(w: np.ndarray, eps: float) -> str | None:
    """Identities, wrapped identities and permutations, times a number."""
    m, n = w.shape[-2:]
    filled = np.abs(w) > 0
    size = float(np.abs(w).max())
    if filled.sum() > w.shape[0] * max(m, n) or np.abs(np.abs(w[filled]) - size).max() > 4 * eps * size:
        return None
    if (w < 0).any():
        return None
    p = min(m, n)
    rows, columns = np.arange(m)[:, None], np.arange(n)
    if (filled == (rows == columns)).all():
        return f"identity{_times(size)}"
    if (filled == (rows % p == columns % p)).all():
        return f"identities side by side{_times(size)}"
    once = filled.sum(-2) if m <= n else filled.sum(-1)
    return f"permutation{_times(size)}" if (once == 1).all() else None


def _orthogonal(w: np.ndarray, eps: float) -> str | None:
    m, n = w.shape[-2:]
    gain = math.sqrt(float(np.square(w).sum()) / (len(w) * min(m, n)))
    gram, forward, backward, _ = (float(np.max(error)) for error in errors(w / gain))
    # The gain is measured too: its own rounding adds as much again.
    allowed = 2 * tolerance(m, n, eps)
    if not gram <= allowed:
        return None
    if max(forward, backward) <= allowed:
        return f"member of the set{_times(gain)}"
    return f"orthogonal{_times(gain)}" if min(m, n) > 1 else None


def _mirrored(w: np.ndarray) -> str | None:
    """Looks-linear: units in pairs of opposite sign."""
    m, n = w.shape[-2:]
    above = m % 2 == 0 and (w[:, : m // 2] == -w[:, m // 2 :]).all()
    beside = n % 2 == 0 and (w[..., : n // 2] == -w[..., n // 2 :]).all()
    return "mirrored pairs (looks-linear)" if above or beside else None
