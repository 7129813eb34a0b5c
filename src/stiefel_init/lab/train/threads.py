"""The networks of a stack over the threads of a CPU, one thread for each network.

A product that several threads share is summed in an order that depends on how many they are, and on the networks beside
it. So every thread trains its own networks, each with products of one thread: outcomes then depend on neither, and no
thread waits for another after every layer.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

T = TypeVar("T")


class Stopped(Exception):
    """Another thread failed, or Ctrl-C was pressed."""


class Train(Protocol[T]):
    """Train the networks first … last − 1 of a stack, and tell when an epoch ends."""

    def __call__(self, first: int, last: int, tell: Callable[[int], None], check: Callable[[], None]) -> list[T]: ...


def spread(count: int, train: Train[T], progress: Callable[[int], None]) -> list[T]:
    """Train `count` networks over as many threads as PyTorch has; `progress` hears of epochs that all have ended.

    What a thread raises is raised here, once the others have stopped.
    """
    with _one_thread_each() as threads:
        parts = min(threads, count)
        if parts == 1:
            return train(0, count, progress, lambda: None)
        edges = [round(part * count / parts) for part in range(parts + 1)]
        return [found for part in _in_threads(list(itertools.pairwise(edges)), train, progress) for found in part]


def _in_threads(
    parts: list[tuple[int, int]], train: Train[T], progress: Callable[[int], None]
) -> list[list[T]]:  # fmt: skip
    stop, told = threading.Event(), queue.SimpleQueue[tuple[int, Any]]()
    results: dict[int, list[T]] = {}

    def check() -> None:
        if stop.is_set():
            raise Stopped

    def work(part: int) -> None:
        try:
            torch.set_num_threads(1)  # it is each thread's own
            results[part] = train(*parts[part], lambda epoch: told.put((part, epoch)), check)
            told.put((part, None))
        except BaseException as error:
            told.put((part, error))

    threads = [threading.Thread(target=work, args=(part,)) for part in range(len(parts))]
    epochs = [0] * len(parts)
    try:
        for thread in threads:
            thread.start()
        working = len(parts)
        while working:
            part, news = told.get()
            if isinstance(news, BaseException):
                raise news
            if news is None:
                working -= 1
                continue
            before = min(epochs)
            epochs[part] = news
            for epoch in range(before + 1, min(epochs) + 1):
                progress(epoch)
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    return [results[part] for part in range(len(parts))]


@contextmanager
def _one_thread_each() -> Iterator[int]:
    """PyTorch with one thread for each product; the number of threads it had."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield before
    finally:
        torch.set_num_threads(before)
