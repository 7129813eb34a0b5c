"""The command `stiefel-init diagnose`: the schemes side by side, one in full, one's own model, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stiefel_init.lab.cli import app, main


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["diagnose", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_command_compares_the_schemes_and_writes_the_picture(tmp_path: Path) -> None:
    output = run("--depth", "60", "--width", "32", "--out", str(tmp_path))
    lines = {line.split("│")[1].strip(): line for line in output.splitlines() if line.startswith("│")}
    assert list(lines) == ["recipe", "stiefel", "lee", "he", "xavier", "orthogonal", "random"]
    assert "healthy" in lines["recipe"]
    assert "healthy" in lines["stiefel"]
    assert "signal fades, gradient vanishes" in lines["xavier"]
    assert (tmp_path / "diagnosis.png").read_bytes().startswith(b"\x89PNG")
    content = json.loads((tmp_path / "diagnosis.json").read_text())
    assert content["he"]["layers"][-1]["layer"] == "output"


def test_the_command_takes_any_scheme_with_its_parameters() -> None:
    output = run("--depth", "3", "--width", "16", "--scheme", "rotation 0.3,permutation,orthogonal 2,lee direct")
    lines = [line.split("│")[1].strip() for line in output.splitlines() if line.startswith("│")]
    assert lines == ["rotation 0.3", "permutation", "orthogonal 2", "lee direct"]


def test_the_command_shows_one_scheme_in_full(tmp_path: Path) -> None:
    output = run("--depth", "5", "--width", "16", "--scheme", "he", "--activation", "elu", "--data", "wine")
    assert output.splitlines()[-1].startswith("output")
    assert "distinct" in output


def test_the_command_diagnoses_ones_own_model(tmp_path: Path) -> None:
    (tmp_path / "size.py").write_text("CHANNELS = 4\n")
    (tmp_path / "nets.py").write_text(
        "from size import CHANNELS\nfrom torch import nn\n\n"
        "def flat():\n    return nn.Sequential(nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))\n\n"
        "def images():\n"
        "    return nn.Sequential(nn.Conv2d(1, CHANNELS, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))\n\n"
        "colour = nn.Sequential(nn.Conv2d(3, CHANNELS, 3), nn.ReLU())\n\n"
        "def broken():\n    raise OSError('no disk')\n"
    )
    place = str(tmp_path / "nets.py")
    assert "10×9" in run(f"{place}:flat")
    assert "4×9" in run(f"{place}:images")
    assert "4×27" in run(f"{place}:colour", "--data", "3x8x8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scheme", "he,foo"], "scheme='foo' is not known"),
        (["--scheme", ","], "scheme=',' is empty"),
        (["--data", "foo"], "data='foo' is not known"),
        (["--activation", "foo"], "activation='foo' is not known"),
        (["nothing"], "is not FILE.py:NAME"),
        (["nothing.py:f"], "is not a Python file"),
        (["{file}:missing"], "has no missing"),
        (["{file}:number"], "is of type int"),
        (["{file}:broken"], "raised OSError (no disk)"),
        (["{file}:net"], "forward of Linear raised"),
        (["--depth", "2", "--out", "{file}"], "is a file; give a directory"),
    ],
)
def test_bad_input_ends_the_command_with_2_and_one_sentence(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "net.py"
    file.write_text(
        "from torch import nn\nnumber = 3\nnet = nn.Linear(5, 5)\n\ndef broken():\n    raise OSError('no disk')\n"
    )
    with pytest.raises(SystemExit) as stop:
        main(["diagnose", *(argument.replace("{file}", str(file)) for argument in arguments)])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
