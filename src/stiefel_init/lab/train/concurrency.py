"""Networks of a stack over the threads of a CPU, and concurrent stacks on one GPU.

A product that several threads share is summed in an order that depends on how many they are, and on the networks beside
it. So on a CPU every thread trains its own networks, each with products of one thread: outcomes then depend on neither.

On a GPU a step is a chain of small products, and a stack of few or small networks leaves most of the card idle. Stacks
share nothing, so the next ones are trained meanwhile, each in a thread and on a stream of its own.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
Check = Callable[[], None]
_SWITCH = 1e-4
"""Seconds after which a thread passes Python's lock on. One that launches gives it up at each launch; to get it back
from one that computes, it would wait the usual 5 ms, tens of times as long as a launch takes."""


class Stopped(Exception):
    """Another thread failed, or Ctrl-C was pressed."""


@contextmanager
def _threads(count: int, *begin: Any) -> Iterator[tuple[ThreadPoolExecutor, Check]]:
    """Threads, and what raises in them where their work should stop: on leaving, they are stopped and awaited."""
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    with ThreadPoolExecutor(count, "stack", *begin) as pool:
        try:
            yield pool, check
        finally:
            stop.set()


def spread(
    count: int, train: Callable[[int, int, Callable[[int], None], Check], list[T]], progress: Callable[[int], None]
) -> list[T]:
    """Train `count` networks over as many threads as PyTorch has; `progress` hears of epochs that all have ended.

    `train(first, last, tell, check)` trains the networks first … last − 1, and tells when an epoch ends. What a thread
    raises is raised here, once the others have stopped.
    """
    before = torch.get_num_threads()
    parts = min(before, count)
    edges = [round(part * count / parts) for part in range(parts + 1)]
    epochs, lock = [0] * parts, threading.Lock()

    def tell(part: int, epoch: int) -> None:
        with lock:
            done, epochs[part] = min(epochs), epoch
            for ended in range(done + 1, min(epochs) + 1):
                progress(ended)

    torch.set_num_threads(1)
    try:
        if parts == 1:
            return train(0, count, progress, lambda: None)
        with _threads(parts, torch.set_num_threads, (1,)) as (pool, check):  # it is each thread's own
            futures = [
                pool.submit(train, first, last, partial(tell, part), check)
                for part, (first, last) in enumerate(itertools.pairwise(edges))
            ]
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
    finally:
        torch.set_num_threads(before)
    return [outcome for future in futures for outcome in future.result()]


def concurrent_stacks(
    stacks: deque[S], train: Callable[[S, Check], R], count: int, device: torch.device
) -> Iterator[tuple[S, R]]:
    """Train stacks, `count` at a time; yields each with what came of it.

    The function that `train` gets with a stack raises where the work should stop. The caller may put more stacks into
    the queue whenever one was yielded. What a thread raises is raised here, once the others have stopped.
    """
    if count == 1:
        while stacks:
            stack = stacks.popleft()
            yield stack, train(stack, lambda: None)
        return
    cuda = device.type == "cuda"

    def begin() -> None:
        if cuda:
            torch.cuda.set_stream(torch.cuda.Stream(device))  # of this thread alone

    def act(stack: S) -> R:
        result = train(stack, check)
        if cuda:
            torch.cuda.current_stream(device).synchronize()
        return result

    patience, running = sys.getswitchinterval(), dict[Future[R], S]()
    sys.setswitchinterval(_SWITCH)
    try:
        with _threads(count, begin) as (pool, check):
            while stacks or running:
                while stacks and len(running) < count:
                    stack = stacks.popleft()
                    running[pool.submit(act, stack)] = stack
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
    finally:
        sys.setswitchinterval(patience)
