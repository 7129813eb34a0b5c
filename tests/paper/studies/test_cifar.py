"""The studies of natural images and of characters: what they train, and what their pages say of few records or none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_refused
from laboratory import record
from paper.experiment import Options
from paper.results import Results, publish
from paper.studies import cifar, shakespeare
from paper.studies.cifar import BATCH, DATA, GROUPS, HE, OURS, PLAIN, QUICK, Cifar, Contender, Evidence, signal
from paper.studies.shakespeare import AUTHOR, LR, Run, Scale, Shakespeare
from planting import contender_of, planted

from stiefel_init.lab.data import Dataset
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.convolutional import size_of
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Record
from stiefel_init.lab.train.runner import check

RNG = np.random.default_rng(0)
IMAGES = Dataset(
    DATA, "classification", RNG.integers(0, 256, (1200, 3072), np.uint8), np.arange(1200) % 10, 10, 255.0, 1000,
    image=(3, 32, 32),
)  # fmt: skip
SCORES: dict[Contender, float] = {OURS: 88.0, HE: 82.0, BATCH: 92.0, GROUPS: 89.5, PLAIN["PyTorch's default"]: 10.0}


def trained(seeds: int, done: Callable[[Cell], bool] = lambda cell: True) -> dict[Cell, Record]:
    """Records of the study as if all of it, or a part, had been trained; deeper networks are worse."""
    study, contender = Cifar(), contender_of(Cifar())

    def made(cell: Cell) -> Record:
        score = SCORES.get(contender(cell), 80.0) - 0.1 * cell.seed % 1 - cell.rate
        return record(cell, score - (0.0 if score < 11 else cell.depth / 10))

    return planted(lambda known: filter(done, study.cells(seeds, records=known)), made)


# CIFAR-10.


def test_every_network_of_the_study_can_be_trained() -> None:
    contender, records, seen = contender_of(Cifar()), trained(1), set[Any]()
    problems = Problems({DATA: IMAGES})
    for cell in records:
        key = contender(cell), cell.depth
        if key not in seen:
            seen.add(key)
            check([cell], problems, torch.device("cpu"))
    assert len(seen) == 47
    assert not any(cell.scheme.name == "torch" and cell.epochs == 30 and cell.network == "cnn" for cell in records)


def test_what_is_compared_costs_about_the_same() -> None:
    problems = Problems({DATA: IMAGES})
    cells = {contender_of(Cifar())(cell): cell for cell in trained(1) if cell.depth in (11, 20)}
    work = {each: size_of(cell, problems(cell)).products for each, cell in cells.items() if each.network != "vgg"}
    assert max(work.values()) < 1.15 * work[OURS]


def test_a_part_of_the_study_is_published_and_shown(tmp_path: Path) -> None:
    """Nothing, then twenty layers alone; what is missing is told, and nothing is made up."""
    assert "\n".join(Cifar().section(Evidence(None))).startswith("Not measured yet")
    assert Cifar().pictures(Evidence(None)) == {}
    records = trained(2, lambda cell: cell.depth == 20 and cell.network in ("cnn", "resnet"))
    out = tmp_path / "run"
    out.mkdir()
    Cifar().show(list(records.values()), Options(out, seeds=2, device="cuda"))
    published = tmp_path / "published"
    published.mkdir()
    publish(Results(out), {"cifar": list(records.values())}, Cifar.files, published)
    evidence = Cifar().evidence(Results(published))
    page = " ".join("\n".join(Cifar().section(evidence)).split())
    assert "they are worth 2.5 points" in page
    assert "**Plain, 20 layers**: `initialize_(model)` 85.9 %" in page
    assert "residual, batch normalization, He 89.9 %" in page
    assert "56 layers**" not in page
    assert "| PyTorch's default | 10.0 at any rate |" in page
    assert "| `param_groups` | 87.4 ± 0.1 | +1.5 [" in page


def test_the_whole_study_is_found_again_with_more_seeds() -> None:
    records = trained(3)
    selected = Cifar().select(records)
    assert {one.cell for one in selected} == set(records)
    found = Cifar().found_in(records, 5)
    assert found is not None
    assert {len(values) for values in found.scores.values()} == {3}


def test_a_tenth_of_the_images_has_all_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cifar, "load", lambda name, directory: IMAGES)
    cells = Cifar().cells(1, quick=True)
    tenth = Cifar().datasets(cells, None)[QUICK]
    assert (len(tenth.x), tenth.train_rows) == (120, 100)
    assert np.array_equal(tenth.x[:100], IMAGES.x[:1000:10])
    check(cells, Problems({QUICK: tenth}), torch.device("cpu"))


def test_the_signal_before_training_is_told_layer_by_layer() -> None:
    rows = signal(IMAGES, quick=True)
    assert [row["layer"] for row in rows] == [*range(1, 20)] * 2
    assert {row["initialization"] for row in rows} == {"initialize_(model)", "He"}


# Characters.


def test_characters_are_learned_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"to be or not to be, " * 400
    (tmp_path / "tinyshakespeare.txt").write_bytes(raw)
    options = Options(tmp_path / "out", quick=True, device="cpu", data=tmp_path, seeds=2)
    assert_refused(lambda: Shakespeare().run(options), ["is not tinyshakespeare"])
    monkeypatch.setattr(shakespeare, "MD5", hashlib.md5(raw).hexdigest())
    (tmp_path / "start.py").write_text(
        "def zero(model):\n    for p in model.blocks.parameters():\n        p.data.zero_()\n"
    )
    Shakespeare(starts=[AUTHOR, "ours", f"{tmp_path / 'start.py'}:zero"]).run(options)
    rows = Results(tmp_path / "out").table("shakespeare-quick")
    assert len(rows) == 6
    assert all(float(str(row["curve"]).split()[-1]) < float(str(row["curve"]).split()[0]) for row in rows)
    monkeypatch.setattr(Shakespeare, "train", None)  # would fail
    Shakespeare().run(options)
    assert_refused(lambda: shakespeare.text(tmp_path / "out"), ["has no tinyshakespeare.txt"])


def test_the_page_of_the_character_model() -> None:
    assert Shakespeare().section({})[0].startswith("Not measured yet")
    best = {AUTHOR: ("1.4650", "1.4640"), "ours": ("1.4700", "1.4690")}
    rows = {
        Run(start, LR, Scale().steps, seed): {"best": float(loss), "curve": f"4.2 2.0 1.7 {loss}"}
        for start, losses in best.items()
        for seed, loss in enumerate(losses)
    }
    page = "\n".join(Shakespeare().section(rows))
    assert "best validation loss is 1.4697" in page
    assert "1.4645, from `initialize_(model)` 1.4695" in page
    assert "| +0.0050 [" in page


def test_the_character_model_is_that_of_the_readme() -> None:
    """10.65 million parameters, tables included; the ends of branches are smaller."""
    model = shakespeare.model_of(Scale(), 65)
    assert sum(parameter.numel() for parameter in model.parameters()) == pytest.approx(10.75e6, rel=0.01)
    blocks = list(model.blocks)
    assert float(blocks[0].get_parameter("fc2.weight").detach().std()) == pytest.approx(0.02 / 12**0.5, rel=0.02)
    assert model.head.weight is model.embedding.weight
