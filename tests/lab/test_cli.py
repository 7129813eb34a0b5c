"""The command line: help, JSON, bad input told in one sentence, and processes that are stopped or have no room."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import typer
from laboratory import ROOT, TINY, Cli, csv_of, refused

from stiefel_init import __version__
from stiefel_init.lab import cli, options
from stiefel_init.lab.data.dataset import TASKS

GROUPS: tuple[Any, ...] = (typer.main.get_command(cli.app), typer.main.get_command(cli.data_app))
COMMANDS: list[tuple[str, ...]] = [(name,) for name in GROUPS[0].commands]
COMMANDS += [("data", name) for name in GROUPS[1].commands]
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


# Help.


@pytest.mark.parametrize("command", [(), *COMMANDS], ids=" ".join)
def test_help(command: tuple[str, ...], stiefel_init: Cli) -> None:
    done = stiefel_init(*command, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"stiefel-init {' '.join(command)}".strip() in done.out


def test_the_commands_are_those_of_users_and_of_the_paper() -> None:
    expected = {"demo", "train", "list", "diagnose", "audit", "data", "reproduce", "compare"}
    assert {words[0] for words in COMMANDS} == expected
    assert {words[1] for words in COMMANDS if words[0] == "data" and words[1:]} == {"list", "get"}


def test_the_version(stiefel_init: Cli) -> None:
    assert stiefel_init("--version") == (0, f"stiefel-init {__version__}\n", "")


def test_tasks_are_those_of_data_sets() -> None:
    assert get_args(options.TargetKind) == TASKS


# JSON: nothing else on stdout, with the numbers of the table.


@pytest.mark.parametrize(("command", "column"), [(("compare", "table5"), "ours"), (("data", "list"), "name")])
def test_tables_as_json(command: tuple[str, ...], column: str, stiefel_init: Cli) -> None:
    done = stiefel_init(*command, "--json")
    assert (done.code, done.err) == (0, "")
    rows = json.loads(done.out)[0]["rows"]
    assert len(rows) >= 9
    assert all(any(column in key for key in row) for row in rows)


def test_a_diagnosis_of_a_users_own_file_as_json(stiefel_init: Cli, tmp_path: Path) -> None:
    csv_of(tmp_path / "customers.csv")
    words = ("diagnose", "--data", "customers.csv", "--depth", "3", "--width", "8", "--scheme", "stiefel,he")
    refused(stiefel_init(*words), "name the column to predict with --target")
    for target in ("churn", "price"):
        assert list(json.loads(stiefel_init(*words, "--target", target, "--json").out)) == ["stiefel", "he"]


# Audit.

MODEL = """
import torch
from torch import nn

def build_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    nn.init.zeros_(model[2].weight)
    return model
"""


def test_an_audit_names_distributions_and_raises_alarms(stiefel_init: Cli, tmp_path: Path) -> None:
    (tmp_path / "own_audited_model.py").write_text(MODEL)
    done = stiefel_init("audit", "own_audited_model.py:build_model")
    assert done.code == 1  # for a project's CI
    for words in ("torch's own", "all zeros: never initialized?", "1 of 4 parameters look wrong."):
        assert words in done.out
    (tmp_path / "own_fine_model.py").write_text(MODEL.replace("zeros_", "orthogonal_").replace("build", "make"))
    done = stiefel_init("audit", "own_fine_model.py:make_model", "--meta")
    assert (done.code, done.err) == (1, "")  # orthogonal from the outside, which no reset of its layers can know
    assert stiefel_init("audit", "own_fine_model.py:make_model").code == 0
    (tmp_path / "own_built_model.py").write_text(MODEL + "model = build_model()")
    refused(stiefel_init("audit", "own_built_model.py:model", "--meta"), "--meta")
    refused(stiefel_init("audit", "none.py:build_model"), "none.py")
    refused(stiefel_init("audit", "model"), "FILE.py:NAME")


# Bad input.

BAD_TRAINING: dict[str, tuple[str, ...]] = {
    "--dataset nothing": ("nothing", "'mnist'"),
    "--scheme Stifel": ("(did you mean 'stiefel'?)",),
    "--scheme ,": ("scheme=','",),
    "--depth deep": ("depth='deep'",),
    "--depth ": ("depth=''",),
    "--depth 100000000": ("depth=100000000", "at most 100000"),
    "--seeds 0": ("seeds=0",),
    "--seeds 100000000": ("700,000,000 networks", "at most 1,000,000"),
    "--batch -1": ("batch=-1",),
    "--lr -1": ("lr=-1 is not a learning rate",),
    "--lr 0.001": ("lr=0.001 is counted in units of 0.001/√depth", "write --lr 1"),
    "--decay much": ("--decay",),
    "--dropout -0.5 --dry-run": ("dropout=-0.5",),
    "--optimizer adamw": ("--optimizer='adamw' is not known; choose one of 'adam', 'sgd', ", "(did you mean 'adam'?)"),
    "--schedule cosin": ("--schedule='cosin' is not known", "(did you mean 'cosine'?)"),
    "--device tpu": ("--device='tpu' is not known", "'auto'", "'cpu'", "'cuda'"),
    "--task regression": ("--task regression is for files",),
    "--target age": ("--target age is for files",),
    "--data letters.csv --target letter --drop when": ("26 different whole numbers", "--task classification"),
    "--data .": ("customers.csv in . lies in no class", "CLASS/"),
    "--data customers.csv": ("--target",),
    "--data missing.csv --target age": ("missing.csv does not exist",),
    "--data customers.csv --target income": ("target='income'", "'churn'"),
    "--data mnist --data-dir nowhere": ("nowhere",),
    "--out customers.csv": ("customers.csv is a file",),
    "--out customers.csv --dry-run": ("customers.csv is a file",),
    "--out customers.csv/out": ("customers.csv/out",),
    "--colour red": ("--colour",),
}


@pytest.mark.parametrize(("options", "words"), BAD_TRAINING.items(), ids=BAD_TRAINING)
def test_bad_input_is_told_in_one_sentence_and_nothing_is_written(
    options: str, words: tuple[str, ...], stiefel_init: Cli, tmp_path: Path
) -> None:
    csv = csv_of(tmp_path / "customers.csv").read_bytes()
    lines = [f"{i},{i % 26},{'ab'[i % 2]},2026-01-{1 + i % 28:02}\n" for i in range(260)]
    (tmp_path / "letters.csv").write_text("size,letter,kind,when\n" + "".join(lines))
    given = ("train", "--epochs", "1", "--device", "cpu", "--out", "study", *options.split(" "))
    refused(stiefel_init(*given), *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["customers.csv", "letters.csv"]
    assert (tmp_path / "customers.csv").read_bytes() == csv


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("demo --out file", "file is a file"),
        ("reproduce figure2 --quick --out file", "file is a file"),
        ("reproduce table1 --quick --data-dir nowhere --out out", "nowhere"),
        ("reproduce table4", "'table5'"),
        ("diagnose --depth 2 --data 1000000x1000000", "1000000x1000000': 256 inputs of that shape do not fit"),
        ("list nowhere", "nowhere is not a directory"),
        ("list .", ". holds no studies"),
        ("fly", "No such command"),
    ],
)
def test_other_commands_refuse_in_one_sentence_and_leave_nothing(
    command: str, words: str, stiefel_init: Cli, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    refused(stiefel_init(*command.split()), words)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_an_output_directory_has_a_name(stiefel_init: Cli, tmp_path: Path) -> None:
    """Without one it would be the directory that the user is in."""
    for command in ("demo", "train --epochs 1", "reproduce table1 --quick", "diagnose --depth 3"):
        refused(stiefel_init(*command.split(), "--out", " "), "' ' is no name of a directory")
    assert not list(tmp_path.iterdir())


@NO_GPU
def test_a_device_that_is_not_there(stiefel_init: Cli, tmp_path: Path) -> None:
    for command in (("train",), ("demo",), ("reproduce", "figure2"), ("train", "--dry-run")):
        refused(stiefel_init(*command, "--device", "cuda", "--out", "out"), "device='cuda'", "use 'cpu' or 'auto'")
    assert list(tmp_path.iterdir()) == []


def test_what_a_study_left_may_be_damaged_and_is_no_table_of_the_paper(stiefel_init: Cli, tmp_path: Path) -> None:
    stiefel_init("train", *TINY, "--data", "wine", "--out", "study")
    refused(stiefel_init("compare", "--results", "study"), "No record matches a published number")
    (summary,) = (tmp_path / "study").glob("*/summary.json")
    summary.write_text(summary.read_text()[:-40])
    refused(stiefel_init("list", "study"), "summary.json is damaged")


# Processes of their own.


def python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)


SLOW = "{'torch', 'matplotlib', 'numpy', 'pandas', 'scipy', 'sklearn'} & set(sys.modules)"


@pytest.mark.parametrize(
    "code",
    [
        f"import sys; from stiefel_init.lab.cli import main\ntry: main(['--help'])\nexcept SystemExit: print({SLOW})",
        "import sys, stiefel_init.lab as lab\nassert 'torch' not in sys.modules\n"
        "for name in lab.__all__: assert getattr(lab, name) is not None and name in dir(lab)\n"
        "assert callable(lab.run)\n"
        "try: lab.nothing\n"
        "except AttributeError: print({'matplotlib', 'pandas', 'typer'} & set(sys.modules))",
    ],
    ids=["help", "names"],
)
def test_what_is_slow_to_import_waits_until_it_is_needed(code: str) -> None:
    done = python(code)
    assert done.stdout.endswith("set()\n"), done.stderr


def test_your_own_data_in_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_data.py"))
    score = dict(re.findall(r"(\w+) +test accuracy \(%\) ([\d.]+)", capsys.readouterr().out))
    assert set(score) == {"stiefel", "he", "xavier"}
    assert float(score["stiefel"]) > 60, "far above the 37 % of the largest class"


def start(*words: str, cwd: Path, before: str = "") -> subprocess.Popen[str]:
    # A shell may have Ctrl-C ignored in the background, and so would its children.
    heard = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heard}\n{before}\nfrom stiefel_init.lab.cli import main\nmain(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_ctrl_c_ends_cleanly(tmp_path: Path) -> None:
    words = ("--dataset", "digits", "--scheme", "he", "--depth", "2,20", "--device", "cpu", "--stack", "1")
    process = start("train", *words, "--epochs", "3000", "--out", "study", cwd=tmp_path)
    while not (tmp_path / "study").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.strip() == "Stopped. Finished work is kept; rerun the command to resume."
    assert list((tmp_path / "study").iterdir()) == []


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    process = start("compare", "table5", "--json", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("absent", "code", "words"),
    [
        ("typer", "from stiefel_init.__main__ import main; main()", "error: the command line needs typer"),
        ("torch", "from stiefel_init.lab.cli import main; main(['train'])", "error: this command needs torch"),
        *(
            (name, f"try: import stiefel_init.{name}\nexcept ImportError as error: sys.exit(str(error))", words)
            for name in ("torch", "jax", "keras", "sklearn")
            for words in (f"stiefel_init.{name} needs {name}",)
        ),
    ],
)
def test_what_is_not_installed_is_told_in_one_sentence(absent: str, code: str, words: str) -> None:
    done = python(f"import sys; sys.modules[{absent!r}] = None\n{code}")
    assert done.stderr.startswith(f"{words}, which is not installed; run `pip install"), done.stderr
    assert done.stderr.count("\n") == 1
