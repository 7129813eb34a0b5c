"""The time limit: it ends the work, keeps what is done, and leaves everything else alone."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from laboratory import Cli
from paper.limit import time_limit

from stiefel_init.lab.train import record as keep

SHORT = 0.05 / 60
LONG = 30.0


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


@pytest.mark.parametrize("minutes", [None, LONG / 60])
def test_work_that_is_done_in_time_is_left_alone(minutes: float | None) -> None:
    with time_limit(minutes) as limit:
        pass
    assert not limit.reached


def test_ctrl_c_passes_through() -> None:
    with pytest.raises(KeyboardInterrupt), time_limit(LONG):
        raise KeyboardInterrupt


def test_an_experiment_stops_keeps_its_networks_and_resumes(stiefel_init: Cli) -> None:
    words = (
        "reproduce",
        "table5-protocol",
        "--quick",
        "--seeds",
        "2",
        "--device",
        "cpu",
        "--stack",
        "4",
        "--out",
        "out",
    )
    done = stiefel_init(*words, "--minutes", "0.05")
    assert done.code == 0
    assert "Stopped after 0.05 minutes" in done.out
    first = keep.read(Path("out"), pytest.fail)
    assert 0 < len(first) < 288
    again = stiefel_init(*words, "--minutes", "0.05")
    assert again.code == 0
    second = keep.read(Path("out"), pytest.fail)
    assert len(second) > len(first)
    assert first.items() <= second.items()
