"""Progress: plain lines for a pipe, a bar for a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from stiefel_init.lab import progress


def test_progress_in_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 5.0, 20.0, 25.0, 40.0, 60.0))
    monkeypatch.setattr("stiefel_init.lab.progress.time.monotonic", lambda: next(clock))
    with progress.progress(80.0, "training") as advance:
        advance(1.0, "2 of wine, depth 3")
        advance(1.0, "2 of wine, depth 3")
        advance(20.0)
        advance(-2.0)  # a stack that has to be trained again
        advance(20.0)
    assert capsys.readouterr().err == (
        "training: 2% (2 of wine, depth 3).\ntraining: 25%, about 2 min left.\ntraining: 50%, about 60 s left.\n"
    )


def test_progress_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress(4.0, "training") as advance:
        advance(1.0, "2 of wine")
    shown = terminal.getvalue()
    for word in ("training", "25%", "left", "2 of wine"):
        assert word in shown
