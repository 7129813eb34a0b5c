"""The table of runs survives a kill, and what is learned from is not tested on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from paper.loop import Job, Log
from paper.problems import Text

from stiefel_init import StiefelError


def test_text_holds_out_what_it_tests() -> None:
    text = Text(torch.device("cpu"), tokens=32)
    inputs, targets = text.batch(torch.tensor([0, 7]))
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert len(text.train) > 5 * len(text.test) > 1_000_000


def test_runs_outlive_a_kill_and_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "zoo.csv"
    log = Log(path)
    for seed in range(3):
        log.add(Job("net", "ours", 0.5, seed), [1.0, 2.0])
    assert Log(path).runs == log.runs
    text = path.read_text()
    path.write_text(text[:-5])  # a kill in the middle of a line
    assert list(Log(path).runs) == list(log.runs)[:2]
    path.write_text(text.replace("2.0000,1.0000 2.0000", "3.0000,1.0000 2.0000", 1))
    with pytest.raises(StiefelError, match="line 2, is damaged"):
        Log(path)
