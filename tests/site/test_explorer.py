"""The explorer in a real browser: its curves are those of `theory.propagate`, its matrices are members of the set."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tools import browser, explorer

from stiefel_init import check
from stiefel_init.theory import propagate

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs" / "_site"))
explorer_page = pytest.importorskip("explorer_page", reason="docs/ is part of the source tree")

COLUMNS = ("pre_mean", "pre_std", "active", "post_mean", "post_std", "variance_ratio", "gradient_factor")
SCHEMES = ("stiefel", "permutation", "identity", "lee", "he", "xavier", "orthogonal", "random")
ACTIVATIONS = ("relu", "leaky_relu", "prelu", "elu", "selu", "tanh")
NETWORKS = ((784, 64, 12), (16, 64, 6), (10, 7, 6))
INPUTS = ((0.13, 0.31), (0.0, 1.0), (-2.0, 1.0), (1.0, 0.0), (0.0, 0.01))
SETTINGS = [
    (scheme, activation, widths, inputs)
    for scheme, activation, widths, inputs in product(SCHEMES, ACTIVATIONS, NETWORKS, INPUTS)
    if activation == "relu" or scheme not in ("permutation", "identity")
]
DEEP = [("stiefel", "relu", (64, 64, 1000), (0.3, 1.0)), ("stiefel", "selu", (64, 64, 1000), (0.3, 1.0))]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if browser.find() is None:
        pytest.skip("there is no Chromium here; install it by name, as with `apt install chromium`")
    path = tmp_path_factory.mktemp("explorer") / "page.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{explorer_page.fragment()}</body>", encoding="utf-8")
    with browser.Browser() as opened:
        opened.open(path)
        yield opened


def widths(network: tuple[int, int, int]) -> list[int]:
    inputs, width, depth = network
    return [inputs] + [width] * depth


@pytest.mark.slow
def test_the_curves_are_those_of_the_theory(page: Any) -> None:
    asked = [
        [widths(network), {"scheme": scheme, "activation": activation, "mean": mean, "std": std}]
        for scheme, activation, network, (mean, std) in [*SETTINGS, *DEEP]
    ]
    answer = f"{json.dumps(asked)}.map(([widths, options]) => Theory.propagate(widths, options))"
    for (scheme, activation, network, (mean, std)), found in zip([*SETTINGS, *DEEP], page.run(answer)):
        expected = propagate(widths(network), mean=mean, std=std, scheme=scheme, activation=activation).to_dict()
        for name in COLUMNS:
            here = np.array([math.nan if value is None else value for value in found[name]])
            there = expected[name]
            if name == "variance_ratio":  # of deviations that are rounding alone nothing can be said
                blurred = np.concatenate(([std], expected["post_std"][:-1])) < 1e-9
                here, there = np.where(blurred, 0, here), np.where(blurred, 0, there)
            label = f"{scheme} {activation} {network} {mean} {std}: {name}"
            np.testing.assert_allclose(here, there, rtol=1e-6, atol=1e-10, err_msg=label)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5), (6, 6), (4, 12), (12, 5), (7, 4)])
def test_its_matrices_are_members_of_the_set(page: Any, m: int, n: int) -> None:
    for scheme in ("stiefel", "permutation", "identity"):
        rows = page.run(f"Explorer.matrix({scheme!r}, {m}, {n}, 3).map(row => Array.from(row))")
        assert check(np.array(rows, float)).ok, scheme
    rows = np.array(page.run(f"Explorer.matrix('orthogonal', {m}, {n}, 3).map(row => Array.from(row))"))
    short = rows if m <= n else rows.T
    np.testing.assert_allclose(short @ short.T, np.eye(len(short)), atol=1e-12)


@pytest.mark.slow
def test_a_link_carries_the_setting(page: Any) -> None:
    page.run("location.hash = '#scheme=he&activation=elu&depth=30&width=32&mean=0.5&nonsense=1&std=x'")
    page.run("new Promise(done => setTimeout(done, 50))")
    ids = ("scheme", "activation", "depth-value", "width-value", "mean-value", "std-value")
    assert page.run(f"{json.dumps(ids)}.map(id => document.getElementById(id).value)") == [
        "he", "elu", "30", "32", "0.500", "0.310",
    ]  # fmt: skip
    page.run("Explorer.set({scheme: 'stiefel', member: 'permutation', activation: 'tanh'})")
    assert "is predicted for ReLU only" in page.run("document.getElementById('said').textContent")
    page.run("Explorer.set({activation: 'relu', depth: 100, inputs: 64, width: 64, mean: 0, std: 1})")
    assert "Dots: centred noise" in page.run("document.getElementById('said').textContent")
    assert page.run("document.querySelectorAll('#signal circle').length") > 8
    assert page.errors() == []


def test_dots_are_records_or_networks_that_can_be_drawn_again() -> None:
    kept = json.loads(explorer.FILE.read_text(encoding="utf-8"))["networks"]
    assert [one for one in kept if "images" in one["name"]] == list(explorer.images())
    wanted = ("noise at α = 2, narrow", "xavier", "elu")
    (one,) = (kind for kind in kept if (kind["name"], kind["scheme"], kind["activation"]) == wanted)
    setting = tuple(one[key] for key in ("inputs", "width", "depth", "mean", "std"))
    again: dict[str, Any] = explorer.network(one["name"], one["scheme"], one["activation"], setting)
    for key, values in one["measured"].items():
        np.testing.assert_allclose(again["measured"][key], values, rtol=1e-3)
