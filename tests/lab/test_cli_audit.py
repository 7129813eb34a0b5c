"""`stiefel-init audit`: the audit of a user's model from the command line."""

from __future__ import annotations

from pathlib import Path

from laboratory import Cli, refused

MODEL = """
import torch
from torch import nn


def build_model():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    nn.init.zeros_(model[2].weight)
    return model
"""


def test_it_names_laws_and_raises_alarms(stiefel_init: Cli, tmp_path: Path) -> None:
    path = tmp_path / "own_audited_model.py"
    path.write_text(MODEL)
    done = stiefel_init("audit", f"{path}:build_model")
    assert done.code == 0
    assert "torch's own" in done.out
    assert "all zeros: never initialized?" in done.out
    assert "1 of 4 parameters look wrong." in done.out


def test_what_is_not_there_is_refused(stiefel_init: Cli, tmp_path: Path) -> None:
    refused(stiefel_init("audit", f"{tmp_path / 'none.py'}:build_model"), "none.py")
    refused(stiefel_init("audit", "model"), "FILE.py:NAME")
