"""The command line: what a user types, what comes back, and what is left on the disk."""

from __future__ import annotations

import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
import typer

from stiefel_init.lab import cli, data, experiments, progress, records, tasks
from stiefel_init.lab.cells import SCHEMES, Cell
from stiefel_init.lab.engine import Outcome
from stiefel_init.lab.paper import published

COMMANDS = [(name,) for name in typer.main.get_command(cli.app).commands]
COMMANDS += [("data", name) for name in typer.main.get_command(cli.data_app).commands]
EXAMPLES = Path(__file__).parents[1] / "examples"
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def stiefel_init(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """The command line, in an empty directory, with no data but what scikit-learn carries."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STIEFEL_INIT_DATA", raising=False)
    monkeypatch.setenv("STIEFEL_INIT_CACHE", str(tmp_path / ".cache"))

    def call(*words: object) -> Done:
        with pytest.raises(SystemExit) as end:
            cli.main([str(word) for word in words])
        code = end.value.code
        return Done(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


def refused(done: Done, *words: str) -> None:
    """Bad input: exit code 2, and one sentence on stderr."""
    assert done.code == 2
    assert done.out == ""
    assert re.fullmatch(r"error: [^\n]+[.]\n", done.err), done.err
    for word in words:
        assert word in done.err


# Help.


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_help(command: tuple[str, ...], stiefel_init: Cli) -> None:
    done = stiefel_init(*command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"stiefel-init {' '.join(command)}".strip() in done.out


def test_the_commands() -> None:
    expected = {"demo", "train", "reproduce", "compare", "paper", "bench", "data"}
    assert expected <= {words[0] for words in COMMANDS}
    assert {("data", "list"), ("data", "get"), ("data", "where")} <= set(COMMANDS)


def test_help_comes_without_pytorch() -> None:
    code = (
        "import sys; from stiefel_init.lab.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'torch', 'matplotlib', 'pandas', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


# Training.

TINY = ("--scheme", "stiefel,he", "--depth", "2,3", "--width", "8", "--seeds", "2", "--epochs", "2", "--device", "cpu")


def csv_of(path: Path, rows: int = 60) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    frame = pd.DataFrame({"age": x[:, 0], "height": x[:, 1], "town": np.where(x[:, 2] > 0, "Ulm", "Bern")})
    frame["churn"] = np.where(x[:, 0] + x[:, 1] > 0, "yes", "no")
    frame["price"] = 3 * x[:, 0] + x[:, 2]
    frame.to_csv(path, index=False)
    return path


def test_train_on_digits(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("train", *TINY, "--dataset", "digits", "--out", "study")
    assert done.code == 0
    assert "8 records and index.html are in study" in done.out
    found = records.read(tmp_path / "study", pytest.fail)
    assert {(r["scheme"], r["depth"], r["seed"]) for r in found} == {
        (scheme, depth, seed) for scheme in ("stiefel", "he") for depth in (2, 3) for seed in (0, 1)
    }
    assert {r["rate"] for r in found} == {1e-3 / 2**0.5, 1e-3 / 3**0.5}
    mean = np.mean([r["score"] for r in found if (r["scheme"], r["depth"]) == ("stiefel", 2)])
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
    found = records.read(tmp_path / "study", pytest.fail)
    assert len(found) == 8
    assert {r["alpha"] for r in found} == {2.0}
    assert found[0]["dataset"].startswith("customers.csv@")
    assert all(0 <= r["score"] <= 100 for r in found)
    if task == "regression":
        assert found[0]["train_score"] == pytest.approx(np.sqrt(found[0]["train_loss"]), rel=1e-5)

    csv_of(tmp_path / "customers.csv", rows=70)
    stiefel_init(*words)
    assert len({r["dataset"] for r in records.read(tmp_path / "study", pytest.fail)}) == 2, (
        "another content, other data"
    )


def test_all_stands_for_every_scheme_and_activation(stiefel_init: Cli, tmp_path: Path) -> None:
    words = (
        "--dataset",
        "wine",
        "--depth",
        "2,2",
        "--width",
        "4",
        "--epochs",
        "1",
        "--device",
        "cpu",
        "--out",
        "study",
    )
    done = stiefel_init("train", "--scheme", "all", "--activation", "all", "--batch", "0", *words)
    assert "30 records" in done.out, "6 schemes, 5 activations, one depth"
    found = records.read(tmp_path / "study", pytest.fail)
    assert len({(r["scheme"], r["activation"]) for r in found}) == 30
    assert {r["batch"] for r in found} == {None}


def test_a_dry_run_trains_and_writes_nothing(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("train", *TINY, "--dataset", "digits", "--out", "study", "--dry-run")
    assert done.code == 0
    assert done.out.startswith("8 networks, 0 of them finished; 8 to train on cpu, in 2 stacks.\n")
    assert re.search(r"likely to take about \d+ s\.", done.out)
    assert "Nothing was run or written." in done.out
    assert list(tmp_path.iterdir()) == []
    stiefel_init("train", *TINY, "--dataset", "digits", "--out", "study")
    assert "8 of them finished; 0 to train" in stiefel_init("train", *TINY, "--out", "study", "--dry-run").out


# The paper.


def test_paper_as_json(stiefel_init: Cli) -> None:
    found = json.loads(stiefel_init("paper", "--json").out)
    assert len(found) == len(published())
    keys = ["table", "dataset", "scheme", "depth", "activation", "shots", "alpha", "value", "std"]
    assert all(list(one) == keys for one in found)
    table3 = json.loads(stiefel_init("paper", "table3", "--json").out)
    assert {one["table"] for one in table3} == {"table3"}


def test_paper_as_tables(stiefel_init: Cli) -> None:
    done = stiefel_init("paper")
    assert done.code == 0
    assert "0.8178" in done.out
    for name in ("table1", "table2", "table3", "table5", "figure1"):
        assert name in done.out
    one = next(p for p in published("table1") if p.scheme == "stiefel" and p.depth == 100)
    assert f"{one.value:.2f}" in stiefel_init("paper", "table1").out


@pytest.fixture
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the image sets: 40 training and 20 test images of 784 pixels, ten classes."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 10
    x = np.clip(rng.normal(50, 40, (60, 784)) + 120 * (np.arange(784) % 10 == y[:, None]), 0, 255).astype(np.uint8)

    def load(name: str, directory: Path | None = None) -> data.Dataset:
        assert name in experiments.IMAGES
        return data.Dataset(name, "classification", x, y, 10, 255.0, 40)

    monkeypatch.setattr(tasks, "load", load)


@pytest.mark.usefixtures("small_images")
def test_reproduce_a_table_quickly(stiefel_init: Cli, tmp_path: Path) -> None:
    words = ("reproduce", "table3", "--quick", "--seeds", "1", "--device", "cpu", "--out", "out")
    dry = stiefel_init(*words, "--dry-run")
    assert dry.out.startswith("24 networks, 0 of them finished"), "2 sets, 6 schemes, 2 depths"
    assert list(tmp_path.iterdir()) == []
    done = stiefel_init(*words)
    assert done.code == 0
    assert "table3-quick, mnist" in done.out
    assert "not comparable" in done.out
    assert len(records.read(tmp_path / "out", pytest.fail)) == 24
    refused(stiefel_init("compare", "table3", "--results", "out"), "No record answers a published number")


@pytest.mark.usefixtures("small_images")
def test_reproduce_a_figure_of_cells(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("reproduce", "figure3", "--quick", "--seeds", "1", "--device", "cpu", "--out", "out")
    assert done.code == 0
    assert (tmp_path / "out" / "figure3-quick.png").read_bytes().startswith(b"\x89PNG")


def test_reproduce_figure2(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("reproduce", "figure2", "--quick", "--out", "out")
    assert done.code == 0
    distances = [float(found) for found in re.findall(r"Gaussian (\S+) \(Kolmogorov", done.out)]
    assert distances == sorted(distances, reverse=True), "the wider, the more Gaussian"
    assert (tmp_path / "out" / "figure2-quick.png").read_bytes().startswith(b"\x89PNG")


def test_compare_holds_records_against_the_published_numbers(stiefel_init: Cli, tmp_path: Path) -> None:
    one = next(p for p in published("table1") if (p.dataset, p.scheme, p.depth) == ("mnist", "stiefel", 100))
    cells = [Cell("mnist", "stiefel", 100, seed=seed, epochs=100, experiment="table1") for seed in range(3)]
    made = {"device": "none"}
    near = [records.record_of(cell, Outcome(one.value + cell.seed - 1), 1.0, made) for cell in cells]
    records.write(tmp_path, near)
    done = stiefel_init("compare", "--results", tmp_path)
    assert done.code == 0
    assert "1 of 1 published numbers agree with ours" in done.out
    row = next(line for line in done.out.splitlines() if "mnist, depth 100" in line)
    assert f"{one.value:.2f}" in row
    assert "agrees" in row

    far = [records.record_of(cell, Outcome(one.value - 20 + cell.seed / 10), 1.0, made) for cell in cells]
    records.write(tmp_path, far)
    assert "differs by -19.90" in stiefel_init("compare", "table1", "--results", tmp_path).out


def test_compare_with_our_own_results(stiefel_init: Cli) -> None:
    done = stiefel_init("compare")
    assert done.code == 0
    assert re.search(r"table1: .*; \d+ of \d+ published numbers agree", done.out)


def test_what_compare_cannot_read(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("compare", "--results", "nowhere"), "nowhere is not a directory")
    (tmp_path / "empty").mkdir()
    refused(stiefel_init("compare", "--results", "empty"), "empty holds no records")
    refused(stiefel_init("compare", "table9"), "name='table9' is not known")


# Data.


def test_data_list_and_where(stiefel_init: Cli) -> None:
    done = stiefel_init("data", "list")
    assert done.code == 0
    for name in data.NAMES:
        assert name in done.out
    assert "not here yet" in done.out, "mnist is not"
    assert "scikit-learn" in stiefel_init("data", "where", "digits").out
    assert "stiefel-init data get mnist" in stiefel_init("data", "where", "mnist").out
    assert stiefel_init("data", "get", "digits").code == 0
    refused(stiefel_init("data", "where", "cifar"), "'cifar' is not known")


# The demo.


def test_the_demo_makes_pictures_and_one_page_that_needs_nothing_else(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("demo", "--epochs", "1", "--device", "cpu", "--out", "demo")
    assert done.code == 0
    assert "Open demo/index.html in a browser." in done.out
    for name in ("learning-curves.png", "signal.png"):
        assert (tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "demo" / "index.html").read_text()
    assert page.count('src="data:image/png;base64,') == page.count("<img") == 2
    assert not re.search(r"https?://|<script|<link|@import|url\(", page)
    found = records.read(tmp_path / "demo", pytest.fail)
    assert {(r["scheme"], r["depth"]) for r in found} == {(s, d) for s in SCHEMES for d in (10, 50, 100)}
    for record in found:
        assert f">{record['score']:.1f}</td>" in page, "the table holds the numbers of the records"
    at_chance = [s for s in SCHEMES if next(r["score"] for r in found if (r["scheme"], r["depth"]) == (s, 10)) < 20]
    if at_chance:  # one epoch is not enough for all, and the page may not say otherwise
        assert "every initialization learns; at 100" not in page
        assert f"{at_chance[-1]} {'is' if len(at_chance) == 1 else 'are'} at chance; at 100" in page


# Bad input.

BAD = {
    "dataset": (("--dataset", "nothing"), "nothing", "'mnist'"),
    "scheme": (("--scheme", "kaiming"), "scheme='kaiming'", "'stiefel'"),
    "one of the schemes": (("--scheme", "he,kaiming"), "scheme='kaiming'"),
    "no scheme": (("--scheme", ","), "scheme=','"),
    "activation": (("--activation", "tanh"), "activation='tanh'", "'relu'"),
    "depth 0": (("--depth", "0"), "depth=0"),
    "depth -1": (("--depth", "-1"), "depth=-1"),
    "depth that is no number": (("--depth", "deep"), "depth='deep'"),
    "no depth": (("--depth", ""), "depth=''"),
    "width": (("--width", "0"), "width=0"),
    "seeds": (("--seeds", "0"), "seeds=0"),
    "epochs": (("--epochs", "0"), "epochs=0"),
    "batch": (("--batch", "-1"), "batch=-1"),
    "rate": (("--lr", "-1"), "lr=-1.0 is not a learning rate"),
    "no end of layers": (("--depth", "100000000"), "depth=100000000", "at most 100000"),
    "no end of networks": (("--seeds", "100000000"), "600,000,000 networks", "at most 1,000,000"),
    "dry run into a file": (("--dry-run", "--out", "customers.csv"), "customers.csv is a file"),
    "optimizer": (("--optimizer", "lion"), "optimizer='lion'"),
    "precision": (("--precision", "fp8"), "precision='fp8'"),
    "shots": (("--shots", "10000"), "shots=10000"),
    "alpha on pixels": (("--alpha", "2"), "digits has pixels"),
    "target of a known set": (("--target", "age"), "--target age"),
    "csv without target": (("--dataset", "customers.csv"), "--target"),
    "csv that is not there": (("--dataset", "missing.csv", "--target", "age"), "missing.csv is not there"),
    "column that is not there": (("--dataset", "customers.csv", "--target", "income"), "target='income'", "'churn'"),
    "out is a file": (("--out", "customers.csv"), "customers.csv is a file"),
    "out below a file": (("--out", "customers.csv/out"), "customers.csv/out"),
    "data directory": (("--dataset", "mnist", "--data", "nowhere"), "nowhere"),
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_bad_input_is_told_in_one_sentence_and_nothing_is_written(
    words: tuple, stiefel_init: Cli, tmp_path: Path
) -> None:
    csv = csv_of(tmp_path / "customers.csv").read_bytes()
    options, *expected = words
    refused(stiefel_init("train", "--epochs", "1", "--device", "cpu", "--out", "study", *options), *expected)
    assert [path.name for path in tmp_path.iterdir()] == ["customers.csv"]
    assert (tmp_path / "customers.csv").read_bytes() == csv


@NO_GPU
@pytest.mark.parametrize("command", [("train",), ("demo",), ("reproduce", "figure2"), ("train", "--dry-run")])
def test_a_device_that_is_not_there(command: tuple[str, ...], stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init(*command, "--device", "cuda", "--out", "out"), "device='cuda'", "use 'cpu' or 'auto'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("demo",), ("reproduce", "figure2", "--quick"), ("report",)])
def test_an_output_directory_that_is_a_file(command: tuple[str, ...], stiefel_init: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(stiefel_init(*command, "--out", "file"), "file is a file")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_experiment_that_cannot_begin_leaves_nothing(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("reproduce", "table1", "--quick", "--data", "nowhere", "--out", "out"), "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_fit_no_memory(stiefel_init: Cli) -> None:
    refused(stiefel_init("diagnose", "--depth", "2", "--data", "1000000x1000000"), "1000000x1000000", "smaller")


def test_records_of_no_table_are_compared_with_nothing(stiefel_init: Cli, tmp_path: Path) -> None:
    stiefel_init("train", *TINY, "--dataset", "wine", "--out", "study")
    refused(stiefel_init("compare", "--results", "study"), "No record answers a published number")


def test_members_stand_beside_the_schemes(stiefel_init: Cli, tmp_path: Path) -> None:
    words = ("--scheme", "stiefel,permutation,rotation,he", "--depth", "3", "--width", "8")
    done = stiefel_init("train", *words, "--epochs", "1", "--device", "cpu", "--out", "study")
    assert done.code == 0
    found = {(r["scheme"], r["variant"]) for r in records.read(tmp_path / "study", pytest.fail)}
    assert found == {("stiefel", None), ("stiefel", "permutation"), ("stiefel", "rotation 0.1"), ("he", None)}
    header = next(line for line in done.out.splitlines() if "stiefel" in line)
    assert re.findall(r"[a-z]+(?: 0.1)?", header) == ["depth", "stiefel", "permutation", "rotation 0.1", "he"]
    done = stiefel_init("diagnose", *words, "--out", "page")
    assert (done.code, done.err) == (0, "")
    numbers = json.loads((tmp_path / "page/diagnosis.json").read_text())
    assert list(numbers) == ["stiefel", "permutation", "rotation", "he"]
    assert len({json.dumps(one) for one in numbers.values()}) == 4, "each is its own"
    refused(stiefel_init("diagnose", "--scheme", "permutations"), "scheme='permutations'", "'permutation'")


def test_names_of_experiments(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("reproduce", "table4"), "name='table4'", "'table5'")
    refused(stiefel_init("paper", "table4"), "table='table4'")
    refused(stiefel_init("bench", "speed"), "'speed'")
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_exist(stiefel_init: Cli) -> None:
    assert stiefel_init("train", "--colour", "red").code == 2
    assert stiefel_init("fly").code == 2


# Processes of their own.


def start(*words: str, cwd: Path, before: str = "") -> subprocess.Popen:
    code = f"import sys\n{before}\nfrom stiefel_init.lab.cli import main\nmain(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_full_disk(tmp_path: Path) -> None:
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))"
    process = start("train", *TINY, "--dataset", "wine", "--out", "study", cwd=tmp_path, before=full)
    out, err = process.communicate(timeout=60)
    refused(Done(process.returncode, out, err), "study/train-", "could not be written (File too large)")
    assert list((tmp_path / "study").iterdir()) == []


def test_ctrl_c_ends_cleanly(tmp_path: Path) -> None:
    words = ("--dataset", "digits", "--scheme", "he", "--depth", "2,20", "--device", "cpu", "--stack", "1")
    process = start("train", *words, "--epochs", "3000", "--out", "study", cwd=tmp_path)
    while not (tmp_path / "study").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err.strip() == "Stopped. What was finished is kept; the same command goes on from there."
    assert list((tmp_path / "study").iterdir()) == []


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    process = start("paper", "--json", cwd=tmp_path)
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


# Progress.


def test_progress_in_plain_lines(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 5.0, 20.0, 25.0, 40.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.progress(8.0, "training") as advance:
        advance(1.0, "2 of wine, depth 3")
        advance(1.0, "2 of wine, depth 3")
        advance(1.0)
        advance(-1.0)  # a stack that has to be trained again
    assert capsys.readouterr().err == (
        "training: 25%, about 60 s left. 2 of wine, depth 3\ntraining: 25%, about 2 min left.\n"
    )


def test_progress_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress(4.0, "training") as advance:
        advance(1.0, "2 of wine")
    shown = sys.stderr.getvalue()
    for word in ("training", "25%", "left", "2 of wine"):
        assert word in shown


# The library behind it.


def test_the_laboratory_offers_its_names_without_pictures() -> None:
    code = (
        "import sys, stiefel_init.lab as lab\n"
        "assert 'torch' not in sys.modules\n"
        "for name in lab.__all__: assert getattr(lab, name) is not None and name in dir(lab)\n"
        "from stiefel_init.lab import run\n"
        "assert callable(run)\n"
        "assert not {'matplotlib', 'pandas', 'typer'} & set(sys.modules)\n"
        "try: lab.nothing\n"
        "except AttributeError: print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_your_own_data_in_five_lines(capsys: pytest.CaptureFixture) -> None:
    runpy.run_path(str(EXAMPLES / "own_data.py"))
    out = capsys.readouterr().out
    score = {scheme: float(value) for scheme, value in re.findall(r"(\w+) +test accuracy ([\d.]+) %", out)}
    assert set(score) == {"stiefel", "he", "xavier"}
    assert score["stiefel"] > 60, "far above the 37 % of the largest class"
    assert re.search(r"^50 +[\d.]+ ± [\d.]+ +[\d.]+ ± [\d.]+", out, re.MULTILINE)


def test_without_its_packages_the_command_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['typer'] = None; from stiefel_init.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "error: the command line needs typer; pip install 'stiefel-init[lab]'.\n"


def test_a_study_ends_in_a_page_of_its_own(stiefel_init: Cli, tmp_path: Path) -> None:
    out = tmp_path / "study"
    for dataset, words in (("digits", "Test accuracy"), ("diabetes", "Root mean squared error")):
        command = ["train", "--dataset", dataset, "--scheme", "stiefel,he", "--depth", "2,3", "--epochs", "1"]
        assert stiefel_init(*command, "--seeds", "2", "--out", str(out / dataset)).code == 0
        page = (out / dataset / "index.html").read_text()
        assert words in page
        assert page.count("data:image/png;base64,") == 1
        assert not re.search(r'(src|href)="(?!data:)', page)


def test_the_report_as_a_page(stiefel_init: Cli, tmp_path: Path) -> None:
    assert stiefel_init("report", "--html", "--out", str(tmp_path)).code == 0
    page = (tmp_path / "results.html").read_text()
    assert "<strong>holds</strong>" in page
    assert "Table 5" in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "**" not in page
    assert "|" not in re.sub(r"base64,[^\"]*", "", page)
