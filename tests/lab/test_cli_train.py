"""`stiefel-init train` and `demo`: what is trained, what is kept, and the pages that come of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from laboratory import TINY, Cli, csv_of, refused

from stiefel_init.lab.data import load
from stiefel_init.lab.study import demo
from stiefel_init.lab.study.plan import usual_epochs
from stiefel_init.lab.train.problem import METRICS
from stiefel_init.lab.train.record import Record, read
from stiefel_init.theory import activations, moments


def kept(folder: Path) -> list[Record]:
    """The records in a folder, of which none is damaged."""
    return list(read(folder, pytest.fail).values())


def test_train_on_digits(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("train", *TINY, "--dataset", "digits", "--out", "study")
    assert done.code == 0
    assert re.search(
        r"8 networks: study/digits-\w{6}/index.html, with results.csv and summary.json beside it", done.out
    )
    records = kept(tmp_path / "study")
    assert {(str(r.cell.scheme), r.cell.depth, r.cell.seed) for r in records} == {
        (scheme, depth, seed) for scheme in ("stiefel", "he") for depth in (2, 3) for seed in (0, 1)
    }
    assert {r.cell.rate for r in records} == {1e-3 / 2**0.5, 1e-3 / 3**0.5}
    mean = np.mean([r.score for r in records if (str(r.cell.scheme), r.cell.depth) == ("stiefel", 2)])
    assert f"{mean:.1f} ± " in done.out

    again = stiefel_init("train", *TINY, "--dataset", "digits", "--out", "study")
    assert again.out == done.out
    assert len(list((tmp_path / "study").glob("*.jsonl"))) == 2, "nothing was trained twice"


@pytest.mark.parametrize(("target", "task"), [("churn", "classification"), ("price", "regression")])
def test_train_on_a_csv(target: str, task: str, stiefel_init: Cli, tmp_path: Path) -> None:
    csv_of(tmp_path / "customers.csv")
    words = ("train", *TINY, "--dataset", "customers.csv", "--target", target, "--alpha", "2", "--out", "study")
    done = stiefel_init(*words)
    assert done.code == 0
    records = kept(tmp_path / "study")
    assert len(records) == 8
    assert {r.cell.alpha for r in records} == {2.0}
    assert records[0].cell.dataset.startswith("customers.csv@")
    assert all(0 <= r.score <= 100 for r in records)
    assert {r.metric for r in records} == {METRICS["rmse" if task == "regression" else "accuracy"]}
    if task == "regression":
        units = records[0].train_score / np.sqrt(records[0].train_loss)
        assert units == pytest.approx([units[0]] * 2, rel=1e-5)
        assert 2.5 < units[0] < 4, "in the unit of the price, whose deviation is about √10"

    csv_of(tmp_path / "customers.csv", rows=70)
    stiefel_init(*words)
    assert len({r.cell.dataset for r in kept(tmp_path / "study")}) == 2, "another content, other data"


def test_all_stands_for_every_scheme_and_activation(stiefel_init: Cli, tmp_path: Path) -> None:
    words = ("--depth", "2,2", "--width", "4", "--epochs", "1", "--device", "cpu", "--batch", "0", "--out", "study")
    done = stiefel_init("train", "--dataset", "wine", "--scheme", "all", "--activation", "all", *words)
    assert "35 networks" in done.out, "7 schemes, 5 activations, one depth"
    records = kept(tmp_path / "study")
    assert len({(str(r.cell.scheme), r.cell.activation) for r in records}) == 35
    assert {r.cell.batch for r in records} == {None}


def test_a_small_table_gets_enough_steps(stiefel_init: Cli, tmp_path: Path) -> None:
    words = ("train", "--depth", "1", "--width", "4", "--scheme", "he", "--out", "study")
    for data, expected in (("wine", 500), ("digits", 20)):  # one step an epoch, and six
        assert f"after {expected} epochs" in stiefel_init(*words, "--data", data).out
    assert usual_epochs(load("wine"), 16, None) == 56, "of nine steps"
    assert usual_epochs(load("wine"), 0, None) == 500, "all rows at once"


def test_a_comparison_has_a_baseline_and_says_where_nothing_is_better(stiefel_init: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pd.DataFrame({"a": rng.normal(size=90), "y": 7.5 + rng.normal(size=90), "kind": np.arange(90) % 3 > 0}).to_csv(
        "noise.csv", index=False
    )
    words = ("train", "--data", "noise.csv", "--depth", "2", "--scheme", "stiefel,he", "--epochs", "1")
    done = stiefel_init(*words, "--target", "kind", "--drop", "y")
    assert "Baseline: the largest class, as the answer to everything, scores 66.7." in done.out
    assert "At depth 2, no initialization is better than the baseline" in done.out
    assert "is best" not in done.out
    done = stiefel_init(*words, "--target", "y", "--drop", "kind", "--json")
    assert 0.5 < json.loads(done.out)["baseline"] < 1.5, "the deviation of the targets"
    done = stiefel_init(*words[:-1], "60", "--data", "digits", "--epochs", "20")
    assert "is best" in done.out


def test_diagnose_calls_nothing_healthy_that_learns_nothing(stiefel_init: Cli) -> None:
    done = stiefel_init("diagnose", "--data", "wine", "--depth", "50", "--scheme", "recipe,xavier", "--json")
    assert all(found["healthy"] for found in json.loads(done.out).values()), "by what is measured of one batch"
    said = stiefel_init("diagnose", "--data", "wine", "--depth", "50", "--scheme", "recipe,xavier").out
    assert re.search(r"recipe .* healthy", said)
    assert re.search(r"xavier .* learns nothing in 60 steps", said)
    said = stiefel_init("diagnose", "--data", "wine", "--depth", "50", "--scheme", "xavier").out
    assert "But 60 steps of Adam" in said


def test_a_dry_run_trains_and_writes_nothing(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("train", *TINY, "--dataset", "digits", "--out", "study", "--dry-run")
    assert done.code == 0
    assert done.out.startswith("8 networks, 0 of them finished; 8 to train on cpu, in 2 stacks.\n")
    assert "Nothing was run or written." in done.out
    assert list(tmp_path.iterdir()) == []
    stiefel_init("train", *TINY, "--dataset", "digits", "--out", "study")
    assert "8 of them finished; 0 to train" in stiefel_init("train", *TINY, "--out", "study", "--dry-run").out


MORE = ("--activation", "gelu,tanh", "--decay", "0.05", "--dropout", "0.2", "--schedule", "cosine")


def test_what_else_people_train(stiefel_init: Cli, tmp_path: Path) -> None:
    words = ("train", *TINY, "--dataset", "digits", "--out", "study")
    plain = stiefel_init(*words)
    done = stiefel_init(*words, *MORE)
    assert (done.code, done.err) == (0, "")
    every = kept(tmp_path / "study")
    assert len(every) == 8 + 16
    assert {(r.cell.activation, r.cell.decay, r.cell.dropout, r.cell.schedule) for r in every if r.cell.dropout} == {
        (activation, 0.05, 0.2, "cosine") for activation in ("gelu", "tanh")
    }
    assert (stiefel_init(*words, *MORE).out, stiefel_init(*words).out) == (done.out, plain.out)
    assert len(kept(tmp_path / "study")) == 24, "nothing was trained twice"
    folders = {path.parent for path in (tmp_path / "study").glob("*/summary.json")}
    assert len(folders) == 2
    for folder in folders:
        protocol = json.loads((folder / "summary.json").read_text())["protocol"]
        table = pd.read_csv(folder / "results.csv")
        added = [protocol["decay"], protocol["dropout"], protocol["schedule"]]
        assert table[["decay", "dropout", "schedule"]].drop_duplicates().to_numpy().tolist() == [added]
        page = (folder / "index.html").read_text()
        for text in ("adamw with weight decay 0.05", "Dropout: 0.2 after every hidden layer", "a cosine to zero"):
            assert (text in page) == (added[0] > 0), text


def test_edge_layers_have_a_rate_of_their_own(stiefel_init: Cli, tmp_path: Path) -> None:
    assert stiefel_init("train", *TINY, "--edge-lr", "10", "--out", "study").code == 0
    assert [r.cell.ends for r in kept(tmp_path / "study")] == [10.0] * 8


OWN_ACTIVATION = """
from stiefel_init.theory import register_activation
register_activation("bent_of_mine", lambda y, xp: y / (1 + xp.abs(y)), lambda y, xp: (1 + xp.abs(y)) ** -2)
"""


def test_every_activation_that_train_takes_is_taken_by_diagnose_and_named_in_its_help(
    stiefel_init: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "_REGISTRY", dict(moments._REGISTRY))
    (tmp_path / "plugin_of_mine.py").write_text(OWN_ACTIVATION)
    refused(stiefel_init("diagnose", "--activation", "bent_of_mine"), "activation='bent_of_mine' is not known")
    known = activations()
    quick = ("--depth", "2", "--width", "8", "--scheme", "stiefel", "--data", "digits")
    every = ",".join((*known, "bent_of_mine"))
    done = stiefel_init("--plugin", "plugin_of_mine.py", "train", *quick, "--epochs", "1", "--activation", every)
    assert done.code == 0
    assert {record.cell.activation for record in kept(tmp_path / "stiefel-init-train")} == set(every.split(","))
    for name in every.split(","):
        done = stiefel_init("diagnose", *quick, "--activation", name, "--json")
        assert (done.code, done.err) == (0, "")
        recognised = {layer["activation"] for layer in json.loads(done.out)["stiefel"]["layers"][:-1]}
        assert recognised == {{"tat": "leaky_relu", "bent_of_mine": None}.get(name, name)}
    compared = ("diagnose", *quick, "--scheme", "stiefel,he", "--activation", "bent_of_mine", "--out", "picture")
    assert stiefel_init(*compared).code == 0, "layers are drawn, though their activation is not recognised"
    for command in ("train", "diagnose"):
        shown = re.sub(r"[│\s]+", " ", stiefel_init(command, "--help").out)
        assert ", ".join(known) in shown


@pytest.mark.parametrize(
    ("dataset", "words", "best"), [("digits", "Test accuracy", max), ("diabetes", "Test root mean squared error", min)]
)
def test_a_study_ends_in_a_page_of_its_own_that_marks_the_best(
    dataset: str, words: str, best: Callable[..., float], stiefel_init: Cli, tmp_path: Path
) -> None:
    command = ["train", "--dataset", dataset, "--scheme", "stiefel,he,random", "--depth", "2", "--epochs", "1"]
    assert stiefel_init(*command, "--out", "study").code == 0
    (path,) = (tmp_path / "study").glob(f"{dataset}-*/index.html")
    page = path.read_text()
    assert words in page
    assert page.count('<figure class="chart"') == 1
    assert "1 × 0.001/√depth, the same for every scheme" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert len(page) < 400_000
    assert f"<strong>{best(record.score for record in kept(tmp_path / 'study')):.1f}</strong></td>" in page
    assert page.count("<strong>") == 1


def test_the_demo_makes_one_page_that_needs_nothing_else(
    stiefel_init: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "DEPTHS", (2, 5, 12))  # the sentences are about the first and the last
    done = stiefel_init("demo", "--epochs", "1", "--device", "cpu", "--out", "demo")
    assert done.code == 0
    assert "Open demo/index.html in a browser." in done.out
    page = (tmp_path / "demo" / "index.html").read_text()
    assert page.count('<figure class="chart"') == 2
    assert not re.search(r"""(src|href)="(?!data:)|@import|fetch\(|XMLHttpRequest|import\(""", page)
    scores: dict[tuple[str, int], list[float]] = {}
    for record in kept(tmp_path / "demo"):
        scores.setdefault((str(record.cell.scheme), record.cell.depth), []).append(record.score)
    assert set(scores) == {(scheme, depth) for scheme in demo.NAMES for depth in (2, 5, 12)}
    for values in scores.values():
        assert len(values) == 3
        assert f"{np.mean(values):.1f} (" in page, "the numbers of the records, beside the distinct units"
        assert f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}" in done.out
    assert f"At 12 layers initialize_(model) reaches {np.mean(scores['recipe', 12]):.1f} %" in page
    apart = [
        float(found) for found in re.findall(r"([\d.]+) (?:differ|with)", page.split("last hidden layer, ")[1][:200])
    ]
    assert len(apart) == 3
    assert apart[0] > max(apart[1:]), "more units differ with ours"
