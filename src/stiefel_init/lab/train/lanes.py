"""Stacks side by side on one GPU, each in a thread and on a stream of its own.

A step is a chain of small products, layer after layer, and a stack whose networks are small, or fewer than the card has
multiprocessors, leaves most of the card idle while the chain goes on. Stacks share nothing, so the next ones can be
trained meanwhile; what becomes of a network does not depend on its neighbours.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeVar

import torch

from .threads import Stopped

S = TypeVar("S")
R = TypeVar("R")
_SWITCH = 1e-4
"""Seconds after which a thread passes Python's lock on. One that launches gives it up at each launch; to get it back
from one that computes, it would wait the usual 5 ms, tens of times as long as a launch takes."""
Train = Callable[[S, Callable[[], None]], R]
"""Train a stack; the function given with it raises where the work should stop."""


def abreast(stacks: deque[S], train: Train[S, R], lanes: int, device: torch.device) -> Iterator[tuple[S, R, float]]:
    """Train stacks, `lanes` at a time; yields each with what came of it and its seconds, as they end.

    The caller may put more stacks into the queue whenever one was yielded. Seconds that several stacks shared are
    divided among them, so that all of them together are the time that has passed. What a thread raises is raised here,
    once the others have stopped.
    """
    if lanes == 1:
        while stacks:
            stack, start = stacks.popleft(), time.perf_counter()
            result = train(stack, lambda: None)
            yield stack, result, time.perf_counter() - start
        return
    ended, stop, clock = queue.SimpleQueue[tuple[int, Any]](), threading.Event(), _SharedClock()
    streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in range(lanes)]
    threads: dict[int, threading.Thread] = {}

    def check() -> None:
        if stop.is_set():
            raise Stopped

    def work(lane: int, stack: S) -> None:
        start = clock.enter()
        try:
            stream = streams[lane]
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                result = train(stack, check)
                if stream is not None:
                    stream.synchronize()
            ended.put((lane, (stack, result, clock.leave() - start)))
        except BaseException as error:
            clock.leave()
            ended.put((lane, error))

    patience = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        while stacks or threads:
            for lane in range(lanes):
                if stacks and lane not in threads:
                    threads[lane] = threading.Thread(target=work, args=(lane, stacks.popleft()))
                    threads[lane].start()
            lane, news = ended.get()
            threads.pop(lane).join()
            if isinstance(news, BaseException):
                raise news
            yield news
    finally:
        stop.set()
        for thread in threads.values():
            if thread.ident is not None:
                thread.join()
        sys.setswitchinterval(patience)


class _SharedClock:
    """A clock that runs the slower the more it times: by 1/k of a second in each, while k are within."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within, self._time, self._last = 0, 0.0, time.perf_counter()

    def enter(self) -> float:
        """Begin; the time now."""
        return self._change(1)

    def leave(self) -> float:
        """End; the time now."""
        return self._change(-1)

    def _change(self, by: int) -> float:
        with self._lock:
            now = time.perf_counter()
            self._time += (now - self._last) / max(self._within, 1)
            self._within, self._last = self._within + by, now
            return self._time
