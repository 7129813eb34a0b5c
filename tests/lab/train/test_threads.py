"""A network's outcome depends on its identity alone: not on its companions, not on the number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from plain_training import images

from stiefel_init.lab.train.cell import Cell
from stiefel_init.lab.train.outcome import Outcome
from stiefel_init.lab.train.threads import spread
from stiefel_init.lab.train.training import train

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def outcomes(cells: list[Cell], threads: int) -> list[Outcome]:
    torch.set_num_threads(threads)
    return train(cells, [images(157, seed=cell.seed % 2) for cell in cells], CPU, engine="graph")[0]


@pytest.mark.parametrize(("count", "depth", "width"), [(5, 6, 16), (2, 3, 1024)])  # threads would share wide products
def test_the_bits_are_those_of_one_thread_in_any_company(count: int, depth: int, width: int) -> None:
    cells = [Cell("none", "he", depth, width, seed=seed, batch=None, epochs=2) for seed in range(count)]
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


def test_ctrl_c_stops_the_networks_in_the_middle_of_an_epoch() -> None:
    torch.set_num_threads(2)
    alive = threading.active_count()

    def interrupt(epoch: int) -> None:
        raise KeyboardInterrupt

    cells = [Cell("none", depth=2, width=5, seed=seed, batch=16, epochs=10**6) for seed in range(2)]
    with pytest.raises(KeyboardInterrupt):
        train(cells, [images(40)] * 2, CPU, interrupt, "graph")
    assert threading.active_count() == alive
