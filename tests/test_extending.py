"""A scheme, a data set, an activation, a rule and an experiment of one's own, as CONTRIBUTING.md shows them, in use."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from laboratory import ROOT, Cli, refused
from paper import experiment
from paper import registry as experiments
from paper.experiment import Trained

from stiefel_init import theory
from stiefel_init.health import AT_INITIALIZATION
from stiefel_init.lab import data
from stiefel_init.lab.data import library
from stiefel_init.lab.plugins import load_file
from stiefel_init.lab.train.record import Record, read
from stiefel_init.schemes import base as _scheme
from stiefel_init.theory import moments as _moments

PAGE = ROOT / "CONTRIBUTING.md"
FILES = ("my_scheme.py", "my_data.py", "my_activation.py", "my_rule.py", "my_experiment.py")
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="CONTRIBUTING.md is part of the source tree")


def blocks(page: Path) -> dict[str, str]:
    """The Python blocks of a page that begin with the name of a file, by that name."""
    found = re.findall(r"```python\n(# (\w+\.py)\n.*?)```", page.read_text(), re.DOTALL)
    return {name: text for text, name in found}


def commands(page: Path) -> list[str]:
    """The commands of a page that load a file, as a reader would type them."""
    return re.findall(r"^    stiefel-init (--plugin .*)$", page.read_text(), re.MULTILINE)


class Mine(NamedTuple):
    """The names that the files register."""

    scheme: str
    dataset: str
    activation: str
    rule: str
    experiment: str


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mine]:
    """The files, in the directory where the commands are given; what they register is gone after the test."""
    names = []
    shown = blocks(PAGE)
    for file in FILES:
        (tmp_path / file).write_text(shown[file])
        names += re.findall(r'(?:\bname = |\bkind=|register\(|register_activation\()"([\w -]+)"', shown[file])[:1]
    assert experiments.experiments()  # ours are there first
    for module, registry in (
        (_scheme, "_REGISTRY"), (library, "_REGISTERED"), (_moments, "_REGISTRY"), (experiment, "_REGISTRY")
    ):  # fmt: skip
        monkeypatch.setattr(module, registry, dict(getattr(module, registry)))
    rules = dict(AT_INITIALIZATION)
    yield Mine(*names)
    AT_INITIALIZATION.clear()
    AT_INITIALIZATION.update(rules)
    for file in FILES:
        sys.modules.pop(file.removesuffix(".py"), None)


def kept(folder: Path) -> list[Record]:
    return list(read(folder, pytest.fail).values())


QUICK = ("--depth", "2", "--width", "8", "--epochs", "1", "--device", "cpu")


def test_the_page_shows_a_file_of_each_kind_and_how_to_use_it() -> None:
    assert set(blocks(PAGE)) >= set(FILES)
    assert {re.findall(r"--plugin (\S+)", command)[0] for command in commands(PAGE)} == set(FILES)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("command", commands(PAGE) if PAGE.exists() else [])
def test_a_command_of_the_page_does_what_it_says(command: str, stiefel_init: Cli) -> None:
    words = shlex.split(command)
    quickly = ("--epochs", "1", "--device", "cpu") if "train" in words else ()
    done = stiefel_init(*words, *quickly)
    assert done.code == 0
    assert done.out


def test_without_its_file_a_name_is_not_known(mine: Mine, stiefel_init: Cli) -> None:
    refused(stiefel_init("train", *QUICK, "--scheme", mine.scheme), f"scheme={mine.scheme!r} is not known")
    refused(stiefel_init("train", *QUICK, "--dataset", mine.dataset), mine.dataset)
    refused(stiefel_init("train", *QUICK, "--activation", mine.activation), f"activation={mine.activation!r}")
    refused(stiefel_init("reproduce", mine.experiment), f"name={mine.experiment!r} is not known")


def test_a_scheme(mine: Mine, stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("--plugin", "my_scheme.py", "train", *QUICK, "--scheme", f"{mine.scheme},he", "--out", "study")
    assert done.code == 0
    found = {str(one.cell.scheme): one.score for one in kept(tmp_path / "study")}
    assert set(found) == {mine.scheme, "he"}
    assert all(name in done.out for name in found)
    done = stiefel_init("--plugin", "my_scheme.py", "diagnose", "--depth", "3", "--scheme", f"{mine.scheme},stiefel")
    assert (done.code, done.err) == (0, "")
    assert re.search(rf"│{mine.scheme} +│", done.out)


def test_a_data_set(mine: Mine, stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("--plugin", "my_data.py", "data", "list")
    assert done.code == 0
    assert re.search(rf"│{mine.dataset} +│", done.out)
    assert stiefel_init("--plugin", "my_data.py", "data", "get", mine.dataset).code == 0
    done = stiefel_init("--plugin", "my_data.py", "train", *QUICK, "--dataset", mine.dataset, "--out", "study")
    assert done.code == 0
    assert {one.cell.dataset for one in kept(tmp_path / "study")} == {mine.dataset}
    done = stiefel_init("--plugin", "my_data.py", "diagnose", "--depth", "3", "--data", mine.dataset)
    assert (done.code, done.err) == (0, "")
    assert f"on {mine.dataset}" in done.out
    assert data.load(mine.dataset).name == mine.dataset


def test_an_activation(mine: Mine, stiefel_init: Cli, tmp_path: Path) -> None:
    words = ("--activation", f"relu,{mine.activation}", "--scheme", "stiefel")
    done = stiefel_init("--plugin", "my_activation.py", "train", *QUICK, *words, "--out", "study")
    assert done.code == 0
    found = {one.cell.activation: one for one in kept(tmp_path / "study")}
    assert set(found) == {"relu", mine.activation}
    assert found["relu"].train_loss != found[mine.activation].train_loss
    done = stiefel_init("--plugin", "my_activation.py", "diagnose", "--depth", "3", "--activation", mine.activation)
    assert (done.code, done.err) == (0, "")
    assert f"3 {mine.activation} layers" in done.out


def test_an_activation_is_known_to_the_theory_with_its_slope(mine: Mine, tmp_path: Path) -> None:
    load_file(tmp_path / "my_activation.py")
    function: Any = _moments.resolve(mine.activation, {})
    y = np.linspace(-4, 4, 81) + 0.013
    numeric = (function(y + 1e-6, np) - function(y - 1e-6, np)) / 2e-6
    np.testing.assert_allclose(function.slope(y, np), numeric, atol=1e-6)
    mean, square = theory.activation_moments(0.0, 1.0, mine.activation)[:2]
    sample = function(np.random.default_rng(0).normal(size=200_000), np)
    assert float(mean) == pytest.approx(sample.mean(), abs=0.01)
    assert np.isfinite(square)


def test_a_rule_is_found_told_and_hides_from_one_file(mine: Mine, stiefel_init: Cli, tmp_path: Path) -> None:
    def verdict(width: int) -> tuple[list[str], list[str], str]:
        words = ("--depth", "60", "--scheme", "he", "--width", str(width), "--out", f"found-{width}")
        done = stiefel_init("--plugin", "my_rule.py", "diagnose", *words)
        assert (done.code, done.err) == (0, "")
        found = json.loads((tmp_path / f"found-{width}" / "diagnosis.json").read_text())["he"]
        return [each["kind"] for each in found["findings"]], [each["kind"] for each in found["warnings"]], done.out

    found, _, text = verdict(64)
    assert found == [mine.rule]
    assert "The widest layer, layer 1, has 64 units." in text
    assert "What to do: make it narrower." in text
    found, warnings, _ = verdict(32)
    assert mine.rule in warnings
    assert mine.rule not in found


def test_an_experiment(mine: Mine, stiefel_init: Cli, tmp_path: Path) -> None:
    words = ("--plugin", "my_experiment.py", "reproduce", mine.experiment, "--quick", "--device", "cpu", "--out", "run")
    dry = stiefel_init(*words, "--dry-run")
    assert dry.code == 0
    assert "0 of them finished" in dry.out
    assert not (tmp_path / "run").exists()
    done = stiefel_init(*words)
    assert done.code == 0
    assert "a quick run" in done.out
    own = experiments.chosen(mine.experiment)[0]
    assert isinstance(own, Trained)
    cells = own.cells(own.quick_seeds, quick=True)
    found = {one.cell: one.score for one in kept(tmp_path / "run")}
    assert set(found) == set(cells)
    assert f"{found[cells[0]]:.1f}" in done.out, "the table has the scores"
    assert stiefel_init(*words, "--dry-run").out.startswith(f"{len(cells)} networks, {len(cells)} of them finished")


def test_an_experiment_is_published_and_reported(mine: Mine, stiefel_init: Cli, maintain: Cli, tmp_path: Path) -> None:
    plugin = ("--plugin", "my_experiment.py")
    words = ("reproduce", mine.experiment, "--seeds", "2", "--device", "cpu", "--out", "run")
    assert stiefel_init(*plugin, *words).code == 0
    done = maintain(*plugin, "publish", "run", "--out", "results")
    assert (done.code, done.err) == (0, "")
    assert f"wrote results/{mine.experiment}.csv" in done.out
    done = maintain(*plugin, "report", "--results", "results", "--out", "docs")
    assert (done.code, done.err) == (0, "")
    assert f"## {experiments.chosen(mine.experiment)[0].title}" in (tmp_path / "docs" / "results.md").read_text()


TOGETHER = """
import my_data
import my_scheme
from paper.experiment import Trained, register
from stiefel_init.lab import Cell, summary

class Together(Trained):
    name = "together"
    title = "Together"
    seeds = 2

    def cells(self, seeds, *, quick=False, records=None):
        return [Cell("{dataset}", s, 2, 8, seed=seed, epochs=2) for s in ("{scheme}", "he") for seed in range(seeds)]

    def tables(self, evidence):
        return [summary(evidence, "together")]

register(Together())
"""


def test_an_experiment_with_a_scheme_and_a_data_set_of_ones_own(mine: Mine, stiefel_init: Cli, tmp_path: Path) -> None:
    """A file may import its neighbours, which may be named beside it, in any order, and twice."""
    (tmp_path / "together.py").write_text(TOGETHER.format(**mine._asdict()))
    for files in (("together",), ("my_scheme", "together", "my_activation", "my_data", "my_scheme", "together")):
        plugins = [word for file in files for word in ("--plugin", f"{file}.py")]
        done = stiefel_init(*plugins, "reproduce", "together", "--device", "cpu", "--out", "run")
        assert done.code == 0
        assert re.search(rf"depth +┃ +{mine.scheme} +┃ +he", done.out)
    found = kept(tmp_path / "run")
    assert {(one.cell.dataset, str(one.cell.scheme)) for one in found} == {
        (mine.dataset, mine.scheme), (mine.dataset, "he")
    }  # fmt: skip
    assert len(found) == 4, "nothing was trained twice"
