"""A network's outcome depends on its identity alone: not on companions, threads or concurrent stacks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from laboratory import MINE, SETS, small_network
from plain_training import images

from stiefel_init import StiefelError
from stiefel_init.lab.train import runner
from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.concurrency import Stopped, concurrent_stacks, spread
from stiefel_init.lab.train.problem import Problems
from stiefel_init.lab.train.record import Outcome
from stiefel_init.lab.train.runner import run
from stiefel_init.lab.train.training import train

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def outcomes(cells: list[Cell], threads: int) -> list[Outcome]:
    torch.set_num_threads(threads)
    problems = [Problems(SETS)(c) if c.dataset in SETS else images(157, seed=c.seed % 2) for c in cells]
    return train(cells, problems, CPU)[0]


def some(count: int, depth: int = 6, width: int = 16, **options: Any) -> list[Cell]:
    made: dict[str, Any] = {"batch": None, "epochs": 2, "depth": depth, "width": width} | options
    return [Cell("none", seed=seed, **made) for seed in range(count)]


@pytest.mark.parametrize(
    "cells",
    [
        some(5, scheme="he"),
        some(2, 3, 1024, scheme="he"),  # threads would share wide products
        some(5, dropout=0.2, decay=0.1, schedule="cosine", batch=64),
        some(5, optimizer="stiefel-adam", rate=0.05),
        [small_network(seed=seed, augment="crop", network=name) for seed in (0, 1) for name in ("cnn", "cnn-bn")],
    ],
    ids=range(5),
)
def test_the_bits_are_those_of_one_thread_in_any_company(cells: list[Cell]) -> None:
    alone = [outcomes([cell], 1)[0] for cell in cells]
    for threads in (1, 2, 3):
        assert outcomes(cells, threads) == alone
        assert outcomes(cells[:1], threads) == alone[:1]


def test_every_thread_has_its_own_networks_and_products_of_one_thread() -> None:
    torch.set_num_threads(3)
    seen: list[tuple[int, int, int, int]] = []
    together = threading.Barrier(3)  # which only as many threads at once pass

    def part(first: int, last: int, tell: Callable[[int], None], check: Callable[[], None]) -> list[int]:
        together.wait(30)
        seen.append((first, last, threading.get_ident(), torch.get_num_threads()))
        return list(range(first, last))

    assert spread(7, part, lambda epoch: None) == list(range(7))
    assert sorted(bounds for *bounds, _, _ in seen) == [[0, 2], [2, 5], [5, 7]]
    assert len({thread for *_, thread, _ in seen}) == 3
    assert {products for *_, products in seen} == {1}
    assert torch.get_num_threads() == 3


def test_progress_tells_each_epoch_once_when_all_networks_have_ended_it() -> None:
    torch.set_num_threads(2)
    told: list[int] = []
    cells = [Cell("none", depth=2, width=5, seed=seed, batch=16, epochs=7) for seed in range(3)]
    train(cells, [images(40)] * 3, CPU, told.append, "graph")
    assert told == list(range(1, 8))


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_one_thread_raises_stops_the_others(error: type[BaseException]) -> None:
    torch.set_num_threads(2)
    stopped: list[int] = []

    def part(first: int, last: int, tell: Callable[[int], None], check: Callable[[], None]) -> list[int]:
        if first == 0:
            raise error
        try:
            while True:
                check()
        finally:
            stopped.append(first)

    with pytest.raises(error):
        spread(2, part, lambda epoch: None)
    assert stopped == [1]
    assert torch.get_num_threads() == 2


# Concurrent stacks.


def test_as_many_stacks_at_once_as_asked_for() -> None:
    together, now, most, lock = threading.Barrier(3), 0, 0, threading.Lock()

    def work(stack: int, check: Callable[[], None]) -> int:
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        together.wait(30)  # which only three at once pass
        with lock:
            now -= 1
        return stack * stack

    found = dict(concurrent_stacks(deque(range(9)), work, 3, CPU))
    assert found == {stack: stack * stack for stack in range(9)}
    assert most == 3


def test_what_is_put_into_the_queue_meanwhile_is_trained_too() -> None:
    stacks, seen = deque([8]), []
    for stack, _ in concurrent_stacks(stacks, lambda stack, _: None, 2, CPU):
        seen.append(stack)
        if stack > 1:
            stacks.extend([stack // 2, stack // 2])
    assert sorted(seen) == [1] * 8 + [2] * 4 + [4] * 2 + [8]


@pytest.mark.parametrize("failure", [True, False], ids=["failure", "interruption"])
def test_a_failure_or_an_interruption_stops_the_others(failure: bool) -> None:
    stopped, begun = list[int](), threading.Barrier(3)

    def work(stack: int, check: Callable[[], None]) -> None:
        begun.wait(30)
        try:
            while stack:
                check()
        except Stopped:
            stopped.append(stack)
            raise
        if failure:
            raise StiefelError("No.")

    stacks = iter(concurrent_stacks(deque(range(3)), work, 3, CPU))
    if failure:
        with pytest.raises(StiefelError, match="No"):
            next(stacks)
    else:
        assert next(stacks)[0] == 0
        del stacks  # as an interruption ends a generator
    assert sorted(stopped) == [1, 2]


def test_concurrent_stacks_make_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [Cell("mine", "he", depth, 5, seed=seed, epochs=2, batch=16) for depth in (1, 2, 3, 4) for seed in range(3)]
    alone = run(cells, datasets=MINE, device="cpu")
    seen = set[str]()
    monkeypatch.setattr(runner.LocalTrainer, "_concurrent", lambda self, cell: 3)

    together, asking = threading.Barrier(2), threading.Lock()  # broken, and so an error, where only one thread trains

    def noted(*given: Any) -> Any:
        name = threading.current_thread().name
        with asking:
            waits = len(seen) < 2 and name not in seen
            seen.update({name} if waits else ())
        if waits:
            together.wait(60)
        return train(*given)

    monkeypatch.setattr(runner, "train", noted)
    for a, b in zip(run(cells, datasets=MINE, device="cpu"), alone):
        assert (a.cell, a.score, a.train_loss) == (b.cell, b.score, b.train_loss)
    assert len(seen) == 2
