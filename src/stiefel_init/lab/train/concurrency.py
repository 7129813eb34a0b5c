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
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import torch

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
_SWITCH = 1e-4
"""Seconds after which a thread passes Python's lock on. One that launches gives it up at each launch; to get it back
from one that computes, it would wait the usual 5 ms, tens of times as long as a launch takes."""


class Stopped(Exception):
    """Another thread failed, or Ctrl-C was pressed."""


class _Threads:
    """Threads by number, that end together: what one raises is raised by `news`, and leaving stops the others."""

    def __init__(self) -> None:
        self.running: dict[int, threading.Thread] = {}
        self._stop, self._told = threading.Event(), queue.SimpleQueue[tuple[int, bool, Any]]()

    def start(self, number: int, act: Callable[[], Any]) -> None:
        """Begin an act in a thread of its own."""

        def work() -> None:
            try:
                self._told.put((number, True, act()))
            except BaseException as error:
                self._told.put((number, True, error))

        self.running[number] = threading.Thread(target=work)
        self.running[number].start()

    def check(self) -> None:
        """Raises, in a thread, where its work should stop."""
        if self._stop.is_set():
            raise Stopped

    def tell(self, number: int, value: Any) -> None:
        """Hand over something before the end."""
        self._told.put((number, False, value))

    def news(self) -> tuple[int, bool, Any]:
        """Wait for a thread: its number, whether it has ended, and what it told or returned."""
        number, ended, value = self._told.get()
        if ended:
            self.running.pop(number).join()
        if isinstance(value, BaseException):
            raise value
        return number, ended, value

    def __enter__(self) -> _Threads:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self.running.values():
            if thread.ident is not None:
                thread.join()


TrainPart = Callable[[int, int, Callable[[int], None], Callable[[], None]], list[T]]
"""(first, last, tell, check): train the networks first … last − 1 of a stack, and tell when an epoch ends."""


def spread(count: int, train: TrainPart[T], progress: Callable[[int], None]) -> list[T]:
    """Train `count` networks over as many threads as PyTorch has; `progress` hears of epochs that all have ended.

    What a thread raises is raised here, once the others have stopped.
    """
    before = torch.get_num_threads()
    parts = min(before, count)
    edges = [round(part * count / parts) for part in range(parts + 1)]
    results: dict[int, list[T]] = {}
    epochs = [0] * parts

    def act(part: int, first: int, last: int) -> list[T]:
        torch.set_num_threads(1)  # it is each thread's own
        return train(first, last, partial(threads.tell, part), threads.check)

    torch.set_num_threads(1)
    try:
        if parts == 1:
            return train(0, count, progress, lambda: None)
        with _Threads() as threads:
            for part, (first, last) in enumerate(itertools.pairwise(edges)):
                threads.start(part, partial(act, part, first, last))
            while threads.running:
                part, ended, news = threads.news()
                if ended:
                    results[part] = news
                    continue
                told, epochs[part] = min(epochs), news
                for epoch in range(told + 1, min(epochs) + 1):
                    progress(epoch)
    finally:
        torch.set_num_threads(before)
    return [outcome for part in range(parts) for outcome in results[part]]


def concurrent_stacks(
    stacks: deque[S],
    train: Callable[[S, Callable[[], None]], R],
    count: int,
    device: torch.device,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[S, R, float]]:
    """Train stacks, `count` at a time; yields each with what came of it and its seconds, as they end.

    The function that `train` gets with a stack raises where the work should stop. The caller may put more stacks into
    the queue whenever one was yielded. Seconds that several stacks shared are divided among them, so that all of them
    together are the time that has passed. What a thread raises is raised here, once the others have stopped.
    """
    if count == 1:
        while stacks:
            stack, start = stacks.popleft(), clock()
            result = train(stack, lambda: None)
            yield stack, result, clock() - start
        return
    shared = SharedClock(clock)
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in range(count)]

    def act(stream: torch.cuda.Stream | None, stack: S) -> tuple[S, R, float]:
        start = shared.change(1)
        try:
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                result = train(stack, threads.check)
                if stream is not None:
                    stream.synchronize()
        finally:
            end = shared.change(-1)
        return stack, result, end - start

    patience = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        with _Threads() as threads:
            while stacks or threads.running:
                for slot, stream in enumerate(streams):
                    if stacks and slot not in threads.running:
                        threads.start(slot, partial(act, stream, stacks.popleft()))
                yield threads.news()[2]
    finally:
        sys.setswitchinterval(patience)


class SharedClock:
    """A clock that runs the slower the more it times: by 1/k of a second in each, while k are within."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._lock, self._clock = threading.Lock(), clock
        self._within, self._time, self._last = 0, 0.0, clock()

    def change(self, by: int) -> float:
        """The time now, after which so many more are within."""
        with self._lock:
            now = self._clock()
            self._time += (now - self._last) / max(self._within, 1)
            self._within, self._last = self._within + by, now
            return self._time
