"""Networks of a stack over the threads of a CPU, and concurrent stacks on one GPU.

A product that several threads share is summed in an order that depends on how many they are, and on the networks beside
it. So on a CPU every thread trains its own networks, each with products of one thread: outcomes then depend on neither.

On a GPU a step is a chain of small products, and a stack of few or small networks leaves most of the card idle. Stacks
share nothing, so the next ones are trained meanwhile, each in a thread and on a stream of its own.
"""

from __future__ import annotations

import itertools
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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


S = TypeVar("S")
R = TypeVar("R")
_SWITCH = 1e-4
"""Seconds after which a thread passes Python's lock on. One that launches gives it up at each launch; to get it back
from one that computes, it would wait the usual 5 ms, tens of times as long as a launch takes."""
TrainStack = Callable[[S, Callable[[], None]], R]
"""Train a stack; the function given with it raises where the work should stop."""


def concurrent_stacks(
    stacks: deque[S],
    train: TrainStack[S, R],
    count: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[S, R, float]]:
    """Train stacks, `count` at a time; yields each with what came of it and its seconds, as they end.

    The caller may put more stacks into the queue whenever one was yielded. Seconds that several stacks shared are
    divided among them, so that all of them together are the time that has passed. What a thread raises is raised here,
    once the others have stopped.
    """
    if count == 1:
        while stacks:
            stack, start = stacks.popleft(), clock()
            result = train(stack, lambda: None)
            yield stack, result, clock() - start
        return
    ended, stop, shared = queue.SimpleQueue[tuple[int, Any]](), threading.Event(), SharedClock(clock)
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in range(count)]
    threads: dict[int, threading.Thread] = {}

    def check() -> None:
        if stop.is_set():
            raise Stopped

    def work(slot: int, stack: S) -> None:
        start = shared.enter()
        try:
            stream = streams[slot]
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                result = train(stack, check)
                if stream is not None:
                    stream.synchronize()
            ended.put((slot, (stack, result, shared.leave() - start)))
        except BaseException as error:
            shared.leave()
            ended.put((slot, error))

    patience = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        while stacks or threads:
            for slot in range(count):
                if stacks and slot not in threads:
                    threads[slot] = threading.Thread(target=work, args=(slot, stacks.popleft()))
                    threads[slot].start()
            slot, news = ended.get()
            threads.pop(slot).join()
            if isinstance(news, BaseException):
                raise news
            yield news
    finally:
        stop.set()
        for thread in threads.values():
            if thread.ident is not None:
                thread.join()
        sys.setswitchinterval(patience)


class SharedClock:
    """A clock that runs the slower the more it times: by 1/k of a second in each, while k are within."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._lock, self._clock = threading.Lock(), clock
        self._within, self._time, self._last = 0, 0.0, clock()

    def enter(self) -> float:
        """Begin; the time now."""
        return self._change(1)

    def leave(self) -> float:
        """End; the time now."""
        return self._change(-1)

    def _change(self, by: int) -> float:
        with self._lock:
            now = self._clock()
            self._time += (now - self._last) / max(self._within, 1)
            self._within, self._last = self._within + by, now
            return self._time
