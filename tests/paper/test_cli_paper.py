"""`stiefel-init reproduce`, `compare`, `data`: the paper's numbers and our runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from laboratory import MADE, Cli, Done, refused
from paper.tables.published import published

from stiefel_init.lab import cli, data
from stiefel_init.lab.train import record as keep
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.problem import ACCURACY
from stiefel_init.lab.train.record import Outcome, Record


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
    assert len(keep.read(tmp_path / "out", pytest.fail)) == 24
    compared = stiefel_init("compare", "table3", "--results", "out").out
    assert compared.count("one seed only") == 24, "they are table 3's own networks, if few"
    assert "0 of 0 published numbers agree" in compared


@pytest.mark.usefixtures("small_images")
def test_a_quick_run_with_fewer_epochs_answers_no_published_number(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("reproduce", "table1", "--quick", "--device", "cpu", "--out", "out")
    assert done.code == 0
    assert "table1-quick, fashion-mnist" in done.out
    assert {cell.epochs for cell in keep.read(tmp_path / "out", pytest.fail)} == {1}
    refused(stiefel_init("compare", "table1", "--results", "out"), "No record matches a published number")


def test_reproduce_figure2(stiefel_init: Cli, tmp_path: Path) -> None:
    done = stiefel_init("reproduce", "figure2", "--quick", "--out", "out")
    assert done.code == 0
    distances = [float(found) for found in re.findall(r"Gaussian (\S+) \(Kolmogorov", done.out)]
    assert distances == sorted(distances, reverse=True), "the wider, the more Gaussian"
    assert (tmp_path / "out" / "figure2-quick.png").read_bytes().startswith(b"\x89PNG")


def test_compare_holds_records_against_the_published_numbers(stiefel_init: Cli, tmp_path: Path) -> None:
    one = next(p for p in published("table1") if (p.dataset, p.scheme, p.depth) == ("mnist", "stiefel", 100))
    cells = [Cell("mnist", "stiefel", 100, seed=seed, epochs=100, precision="tf32") for seed in range(3)]
    near = [Record.of(cell, ACCURACY, Outcome(one.value + cell.seed - 1), 1.0, MADE) for cell in cells]
    keep.write(tmp_path, near)
    done = stiefel_init("compare", "--results", tmp_path)
    assert done.code == 0
    assert "1 of 1 published numbers agree with ours" in done.out
    row = next(line for line in done.out.splitlines() if "mnist, depth 100" in line)
    assert f"{one.value:.2f}" in row
    assert "agrees" in row

    far = [Record.of(cell, ACCURACY, Outcome(one.value - 20 + cell.seed / 10), 1.0, MADE) for cell in cells]
    keep.write(tmp_path, far)
    assert "differs by -19.90" in stiefel_init("compare", "table1", "--results", tmp_path).out


def test_what_compare_cannot_read(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("compare", "--results", "nowhere"), "nowhere is not a directory")
    (tmp_path / "empty").mkdir()
    refused(stiefel_init("compare", "--results", "empty"), "empty holds no records")
    refused(stiefel_init("compare", "table9"), "name='table9' is not known")


def test_data_list_and_get(stiefel_init: Cli) -> None:
    done = stiefel_init("data", "list")
    assert done.code == 0
    for name in data.NAMES:
        assert name in done.out
    assert "not here yet" in done.out, "mnist is not"
    assert stiefel_init("data", "get", "digits") == (0, "digits: scikit-learn\n", "")
    refused(stiefel_init("data", "get", "cifar"), "'cifar' is not known")


def test_installed_alone_the_papers_commands_say_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    alone = cli.program("", {"Mine": {"demo": lambda: None}, "The paper": cli.of_paper()})
    for words in (["reproduce", "table1", "--quick"], ["compare"]):
        with pytest.raises(SystemExit) as end:
            cli.main(words, alone)
        assert end.value.code == 2
        refused(Done(2, *capsys.readouterr()), f"{words[0]} needs the paper's experiments", "clone it")


def test_what_maintainers_do_is_not_in_the_users_help(stiefel_init: Cli, maintain: Cli) -> None:
    users, ours = stiefel_init("--help").out, maintain("--help").out
    for name in ("publish", "report", "docs"):
        assert name in ours
        assert f" {name} " not in users
    assert "reproduce" in users
