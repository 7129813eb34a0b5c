"""Stacks side by side: the same records as one after the other, and what happens when one fails or time is up."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from stiefel_init import StiefelError
from stiefel_init.lab.data import from_arrays
from stiefel_init.lab.train import runner
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.lanes import abreast
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.threads import Stopped
from stiefel_init.lab.train.training import train

CPU = torch.device("cpu")
MINE = {"mine": from_arrays(np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3)}


def test_as_many_at_once_as_there_are_lanes() -> None:
    now, most, lock = 0, 0, threading.Lock()

    def work(stack: int, check: Callable[[], None]) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return stack * stack

    found = {stack: result for stack, result, _ in abreast(deque(range(9)), work, 3, CPU)}
    assert found == {stack: stack * stack for stack in range(9)}
    assert most == 3


def test_shared_seconds_add_up_to_those_that_passed() -> None:
    start = time.perf_counter()
    taken = [s for _, _, s in abreast(deque([0.03, 0.06, 0.01, 0.05]), lambda stack, _: time.sleep(stack), 2, CPU)]
    passed = time.perf_counter() - start
    assert min(taken) > 0
    assert sum(taken) == pytest.approx(passed, rel=0.2)
    assert sum(taken) < 0.15  # which one after the other they would take


def test_what_is_put_into_the_queue_meanwhile_is_trained_too() -> None:
    stacks = deque([8])
    seen = []
    for stack, _, _ in abreast(stacks, lambda stack, _: None, 2, CPU):
        seen.append(stack)
        if stack > 1:
            stacks.extend([stack // 2, stack // 2])
    assert sorted(seen) == [1] * 8 + [2] * 4 + [4] * 2 + [8]


def test_a_failure_stops_the_others_and_is_raised() -> None:
    stopped = []

    def work(stack: int, check: Callable[[], None]) -> None:
        if stack == 0:
            time.sleep(0.02)
            raise StiefelError("No.")
        try:
            for _ in range(1000):
                check()
                time.sleep(0.005)
        except Stopped:
            stopped.append(stack)
            raise

    with pytest.raises(StiefelError, match="No"):
        list(abreast(deque(range(3)), work, 3, CPU))
    assert sorted(stopped) == [1, 2]


def test_an_interruption_stops_them() -> None:
    stopped = threading.Event()

    def work(stack: int, check: Callable[[], None]) -> None:
        try:
            while stack:
                check()
                time.sleep(0.005)
        except Stopped:
            stopped.set()
            raise

    stacks = iter(abreast(deque([0, 1]), work, 2, CPU))
    assert next(stacks)[0] == 0
    del stacks  # as an interruption ends a generator
    assert stopped.is_set()


def test_lanes_make_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def cells(depth: int) -> list[Cell]:
        return [Cell("mine", "he", depth, 5, seed=seed, epochs=2, batch=16) for seed in range(3)]

    wanted = [*cells(1), *cells(2), *cells(3), *cells(4)]
    alone = run(wanted, datasets=MINE, device="cpu")
    together = runner._together
    monkeypatch.setattr(runner, "_together", lambda *given: {
        key._replace(lanes=3): group for key, group in together(*given).items()
    })  # fmt: skip
    seen: set[str] = set()

    def noted(*given: Any) -> Any:
        seen.add(threading.current_thread().name)
        return train(*given)

    monkeypatch.setattr(runner, "train", noted)
    for a, b in zip(run(wanted, datasets=MINE, device="cpu"), alone):
        assert (a.cell, a.score, a.train_loss) == (b.cell, b.score, b.train_loss)
    assert len(seen) == 4
