"""The command line: help, bad input told in one sentence, and processes that are stopped or have no room."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from laboratory import TINY, Cli, Done, csv_of, refused

from stiefel_init import __version__
from stiefel_init.lab import cli

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


def test_the_commands() -> None:
    expected = {"demo", "train", "list", "diagnose", "audit", "reproduce", "compare", "paper"}
    assert {words[0] for words in COMMANDS} == expected | {"data"}
    assert {("data", "list"), ("data", "get"), ("data", "where")} <= set(COMMANDS)


def test_the_version(stiefel_init: Cli) -> None:
    assert stiefel_init("--version") == (0, f"stiefel-init {__version__}\n", "")


@pytest.mark.parametrize(
    "command", ["demo", "train --depth 2 --epochs 1", "reproduce table1 --quick", "diagnose --depth 3"]
)
@pytest.mark.parametrize("out", ["", " "])
def test_an_output_directory_has_a_name(
    command: str, out: str, stiefel_init: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one it would be the directory that the user is in."""
    monkeypatch.chdir(tmp_path)
    refused(stiefel_init(*command.split(), "--out", out), f"{out!r} is no name of a directory")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--optimizer", "adamw", "--optimizer='adamw' is not known; choose one of 'adam', 'sgd', "),
        ("--optimizer", "AdamW", "(did you mean 'adam'?)"),
        ("--schedule", "cosin", "(did you mean 'cosine'?)"),
        ("--scheme", "Stifel", "(did you mean 'stiefel'?)"),
        ("--optimizer", "lbfgs", "'gain-adam'."),
    ],
)
def test_a_near_miss_names_what_was_meant(option: str, value: str, words: str, stiefel_init: Cli) -> None:
    refused(stiefel_init("train", option, value), words)


def test_help_comes_without_pytorch() -> None:
    code = (
        "import sys; from stiefel_init.lab.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'torch', 'matplotlib', 'pandas', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


# Bad input.

BAD: dict[str, tuple[Any, ...]] = {
    "dataset": (("--dataset", "nothing"), "nothing", "'mnist'"),
    "scheme": (("--scheme", "kaiming"), "scheme='kaiming'", "'stiefel'"),
    "one of the schemes": (("--scheme", "he,kaiming"), "scheme='kaiming'"),
    "no scheme": (("--scheme", ","), "scheme=','"),
    "activation": (("--activation", "tangent"), "activation='tangent'", "'relu'"),
    "depth 0": (("--depth", "0"), "depth=0"),
    "depth -1": (("--depth", "-1"), "depth=-1"),
    "depth that is no number": (("--depth", "deep"), "depth='deep'"),
    "no depth": (("--depth", ""), "depth=''"),
    "width": (("--width", "0"), "width=0"),
    "seeds": (("--seeds", "0"), "seeds=0"),
    "epochs": (("--epochs", "0"), "epochs=0"),
    "batch": (("--batch", "-1"), "batch=-1"),
    "rate": (("--lr", "-1"), "lr=-1 is not a learning rate"),
    "rates that are none": (("--lr", "1,fast"), "lr=1,fast is not a learning rate"),
    "a rate in the old unit": (("--lr", "0.001"), "lr=0.001 is counted in units of 0.001/√depth", "write --lr 1"),
    "a task of a known set": (("--task", "regression"), "--task regression is for files"),
    "whole numbers that may be classes": (
        ("--data", "letters.csv", "--target", "letter", "--drop", "when"),
        "26 different whole numbers",
        "--task classification",
    ),
    "dates": (("--data", "letters.csv", "--target", "kind"), "column when holds dates", "--drop when"),
    "a folder as data": (("--data", "."), "--data . is a directory", "--data-dir"),
    "no end of layers": (("--depth", "100000000"), "depth=100000000", "at most 100000"),
    "no end of networks": (("--seeds", "100000000"), "700,000,000 networks", "at most 1,000,000"),
    "dry run into a file": (("--dry-run", "--out", "customers.csv"), "customers.csv is a file"),
    "shots": (("--shots", "10000"), "shots=10000"),
    "alpha on pixels": (("--alpha", "2"), "digits has pixels"),
    "target of a known set": (("--target", "age"), "--target age"),
    "csv without target": (("--dataset", "customers.csv"), "--target"),
    "csv that is not there": (("--data", "missing.csv", "--target", "age"), "missing.csv does not exist"),
    "column that is not there": (("--dataset", "customers.csv", "--target", "income"), "target='income'", "'churn'"),
    "out is a file": (("--out", "customers.csv"), "customers.csv is a file"),
    "out below a file": (("--out", "customers.csv/out"), "customers.csv/out"),
    "data directory": (("--dataset", "mnist", "--data-dir", "nowhere"), "nowhere"),
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_bad_input_is_told_in_one_sentence_and_nothing_is_written(
    words: tuple[Any, ...], stiefel_init: Cli, tmp_path: Path
) -> None:
    csv = csv_of(tmp_path / "customers.csv").read_bytes()
    lines = [f"{i},{i % 26},{'ab'[i % 2]},2026-01-{1 + i % 28:02}\n" for i in range(260)]
    (tmp_path / "letters.csv").write_text("size,letter,kind,when\n" + "".join(lines))
    options, *expected = words
    refused(stiefel_init("train", "--epochs", "1", "--device", "cpu", "--out", "study", *options), *expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["customers.csv", "letters.csv"]
    assert (tmp_path / "customers.csv").read_bytes() == csv


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [
        ("--optimizer", "lion", ("adam", "sgd")),
        ("--precision", "fp8", ("float32", "tf32")),
        ("--device", "tpu", ("auto", "cpu", "cuda")),
    ],
)
def test_an_option_of_few_choices_names_them(
    option: str, value: str, choices: tuple[str, ...], stiefel_init: Cli, tmp_path: Path
) -> None:
    done = stiefel_init("train", "--epochs", "1", "--out", "study", option, value)
    assert (done.code, done.out) == (2, "")
    assert f"{option}={value!r} is not known" in done.err
    assert all(repr(word) in done.err for word in (value, *choices))
    assert list(tmp_path.iterdir()) == []


@NO_GPU
@pytest.mark.parametrize("command", [("train",), ("demo",), ("reproduce", "figure2"), ("train", "--dry-run")])
def test_a_device_that_is_not_there(command: tuple[str, ...], stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init(*command, "--device", "cuda", "--out", "out"), "device='cuda'", "use 'cpu' or 'auto'")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("demo",), ("reproduce", "figure2", "--quick")])
def test_an_output_directory_that_is_a_file(command: tuple[str, ...], stiefel_init: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    refused(stiefel_init(*command, "--out", "file"), "file is a file")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_experiment_that_cannot_begin_leaves_nothing(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("reproduce", "table1", "--quick", "--data-dir", "nowhere", "--out", "out"), "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_inputs_that_fit_no_memory(stiefel_init: Cli) -> None:
    refused(stiefel_init("diagnose", "--depth", "2", "--data", "1000000x1000000"), "1000000x1000000", "smaller")


def test_records_of_no_table_are_compared_with_nothing(stiefel_init: Cli, tmp_path: Path) -> None:
    stiefel_init("train", *TINY, "--dataset", "wine", "--out", "study")
    refused(stiefel_init("compare", "--results", "study"), "No record matches a published number")


def test_names_of_experiments(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("reproduce", "table4"), "name='table4'", "'table5'")
    refused(stiefel_init("paper", "table4"), "table='table4'")
    assert list(tmp_path.iterdir()) == []


def test_options_that_do_not_exist(stiefel_init: Cli) -> None:
    assert stiefel_init("train", "--colour", "red").code == 2
    assert stiefel_init("fly").code == 2


# Processes of their own.


def start(*words: str, cwd: Path, before: str = "") -> subprocess.Popen[str]:
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
    refused(Done(process.returncode, out, err), "study/networks-", "could not be written (File too large)")
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
    assert err.strip() == "Stopped. Finished work is kept; rerun the command to resume."
    assert list((tmp_path / "study").iterdir()) == []


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    process = start("paper", "--json", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


def test_without_its_packages_the_command_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['typer'] = None; from stiefel_init.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 2
    assert re.fullmatch(
        r"error: the command line needs typer, which is not installed; run `pip install [^\n]*\[lab\]'`[^\n]*\.\n",
        done.stderr,
    )


@pytest.mark.parametrize(
    ("module", "absent", "words"),
    [
        ("torch", "torch", "stiefel_init.torch needs torch, which is not installed; run `pip install"),
        ("jax", "jax", "stiefel_init.jax needs jax, which is not installed"),
        ("keras", "keras", "stiefel_init.keras needs keras, which is not installed"),
        ("keras", "jax", "stiefel_init.keras needs a backend of Keras, and jax is not installed"),
        ("sklearn", "sklearn", "stiefel_init.sklearn needs sklearn, which is not installed"),
    ],
)
def test_a_framework_without_its_package_says_so_in_one_sentence(module: str, absent: str, words: str) -> None:
    script = f"import sys; sys.modules[{absent!r}] = None\ntry: import stiefel_init.{module}\n"
    script += "except ImportError as error: print(error)"
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith(words)
    assert done.stdout.count("\n") == 1


def test_a_command_without_pytorch_says_what_to_install() -> None:
    script = "import sys; sys.modules['torch'] = None; from stiefel_init.lab.cli import main; main(['train'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "error: this command needs torch, which is not installed; run `pip install" in done.stderr
