"""What the theory refuses: one sentence each, with the value and a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import assert_refused

from stiefel_init import sample
from stiefel_init import theory as th

BAD: list[tuple] = [
    (th.alignment_optimum, (0, 3), {}, ["m=0"]),
    (th.alignment_optimum, (3, "4"), {}, ["n='4'"]),
    (th.max_entry_bound, (3, 4, 2), {}, ["c=2", "> 2"]),
    (th.max_entry_bound, (3, -4, 3), {}, ["n=-4"]),
    (th.berry_esseen_bound, (np.ones(3), 2), {}, ["(3,)"]),
    (th.berry_esseen_bound, (sample(5, 3, seed=0), 2), {}, ["(5, 3)", "m ≤ n"]),
    (th.berry_esseen_bound, (np.ones((2, 3)), 2), {}, ["orthonormal rows"]),
    (th.berry_esseen_bound, (np.full((2, 3), np.nan), 2), {}, ["orthonormal rows"]),
    (th.berry_esseen_bound, ("W", 2), {}, ["str"]),
    (th.berry_esseen_bound, (np.eye(3), 0.5), {}, ["third_moment=0.5"]),
    (th.shift_for_alpha, ([1.0, 2.0],), {}, ["(2,)", "(samples, features)"]),
    (th.shift_for_alpha, (np.empty((0, 3)),), {}, ["(0, 3)"]),
    (th.shift_for_alpha, ([[1.0, math.nan]],), {}, ["missing values"]),
    (th.shift_for_alpha, ([[3.0, 3.0]],), {}, ["3.0 everywhere"]),
    (th.shift_for_alpha, ([["a", "b"]],), {}, ["list"]),
    (th.shift_for_alpha, ([[1.0, 2.0]], math.nan), {}, ["alpha=nan"]),
    (th.rectified_moments, ([0, math.inf], 1), {}, ["mean", "inf"]),
    (th.rectified_moments, (0, -1), {}, ["std", "-1", "negative"]),
    (th.rectified_moments, (0, [1, math.nan]), {}, ["std", "nan"]),
    (th.rectified_moments, ("zero", 1), {}, ["mean='zero'"]),
    (th.rectified_moments, (0, None), {}, ["std", "finite"]),
    (th.activation_moments, (0, 1, "mish"), {}, ["activation='mish'", "'relu'", "'gelu'"]),
    (th.activation_moments, (0, 1, None), {}, ["activation=None"]),
    (th.activation_moments, (0, 1, "relu"), {"a": 1}, ["a=1", "relu", "none"]),
    (th.activation_moments, (0, 1, "elu"), {"slope": 1}, ["slope=1", "'alpha'"]),
    (th.slope_moments, (0, 1, "prelu"), {"a": math.nan}, ["a", "nan"]),
    (th.propagate, ([64],), {"mean": 0, "std": 1}, ["widths=[64]", "two or more"]),
    (th.propagate, (64,), {"mean": 0, "std": 1}, ["widths=64"]),
    (th.propagate, ("64",), {"mean": 0, "std": 1}, ["widths='64'"]),
    (th.propagate, ([64, 0],), {"mean": 0, "std": 1}, ["widths[1]=0"]),
    (th.propagate, ([64, 2.5],), {"mean": 0, "std": 1}, ["widths[1]=2.5"]),
    (th.propagate, ([2, 2],), {"mean": 0, "std": -1}, ["std", "-1"]),
    (th.propagate, ([2, 2],), {"mean": math.nan, "std": 1}, ["mean", "nan"]),
    (th.propagate, ([2, 2],), {"mean": [0, 1], "std": 1}, ["(2,)", "()"]),
    (th.propagate, ([2, 2],), {"mean": [], "std": []}, ["(0,)"]),
    (th.propagate, ([2, 2],), {"mean": [0], "std": [1], "scheme": "lee"}, ["'lee'"]),
    (th.propagate, ([2, 2],), {"mean": 0, "std": 1, "scheme": "kaiming"}, ["scheme='kaiming'", "'he'"]),
    (th.propagate, ([2, 2],), {"mean": 0, "std": 1, "scheme": "rotation 0.3"}, ["scheme='rotation 0.3'", "'identity'"]),
    (th.propagate, ([2, 2],), {"mean": 0, "std": 1, "scheme": "lee direct"}, ["scheme='lee direct'", "'lee'"]),
    (th.propagate, ([2, 2],), {"mean": 0, "std": 1, "activation": "softsign"}, ["activation='softsign'"]),
    (th.propagate, ([4, 4],), {"mean": 0, "std": 1, "member": "best"}, ["member='best'"]),
    (th.propagate, ([4, 4],), {"mean": 0, "std": 1, "member": "rotation"}, ["no prediction"]),
    (th.propagate, ([4, 4],), {"mean": 0, "std": 1, "member": "identity", "scheme": "he"}, ["scheme='stiefel'"]),
    (th.propagate, ([4, 4],), {"mean": 0, "std": 1, "member": "identity", "activation": "elu"}, ["activation='relu'"]),
    (th.finite_width, (th.propagate([2, 2], mean=0, std=1, activation="elu"),), {}, ["'elu'", "'relu'"]),
]


@pytest.mark.parametrize(("call", "arguments", "options", "words"), BAD)
def test_bad_input_is_told_in_one_sentence(
    call: Callable[..., Any], arguments: tuple, options: dict, words: list[str]
) -> None:
    assert_refused(partial(call, *arguments, **options), words)
