"""The time limit: it ends the work, keeps what is done, and leaves everything else alone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from laboratory import Cli
from paper.limit import time_limit

from stiefel_init.lab.train import record as keep

SHORT = 0.05 / 60
LONG = 30.0
WORDS = "reproduce table5 --quick --seeds 2 --device cpu --stack 4 --out out"


def wait() -> None:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        time.sleep(0.005)


def test_work_ends_when_its_time_is_up() -> None:
    ended = False
    with time_limit(SHORT) as limit:
        wait()
        ended = True
    assert limit.reached
    assert not ended


def test_in_the_background_of_a_shell_too() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with time_limit(SHORT) as limit:
            wait()
        assert limit.reached
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_work_that_is_done_in_time_is_left_alone_and_ctrl_c_passes_through() -> None:
    for minutes in (None, LONG / 60):
        with time_limit(minutes) as limit:
            pass
        assert not limit.reached
    with pytest.raises(KeyboardInterrupt), time_limit(LONG):
        raise KeyboardInterrupt


class OnceSomeAreKept(threading.Thread):
    """A timer that rings when there are more records than before, however fast the machine is."""

    def __init__(self, seconds: float, ring: Callable[[], None]) -> None:
        super().__init__()
        self.ring, self.ended = ring, threading.Event()

    def kept(self) -> int:
        return len(keep.read(Path("out"), lambda text: None, touch=False))

    def run(self) -> None:
        before = self.kept()
        while not self.ended.wait(0.01):
            if self.kept() > before:
                self.ring()
                return

    def cancel(self) -> None:
        self.ended.set()


def test_an_experiment_stops_keeps_its_networks_and_resumes(stiefel_init: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Timer", OnceSomeAreKept)
    Path("out").mkdir()
    found = []
    for _ in range(2):
        done = stiefel_init(*WORDS.split(), "--minutes", "1")
        assert done.code == 0
        assert "Stopped after 1 minutes" in done.out
        found.append(keep.read(Path("out"), pytest.fail))
    assert 0 < len(found[0]) < len(found[1]) < 240
    assert found[0].items() <= found[1].items()
