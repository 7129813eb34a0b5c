"""`time_limit`: end the work of a block when its time is up, the way Ctrl-C does, and go on after the block."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Limit:
    """Whether the time was up before the work was done."""

    reached: bool = False


@contextmanager
def time_limit(minutes: float | None) -> Iterator[Limit]:
    """Interrupt the block after so many minutes, with None never; Ctrl-C itself passes through.

    >>> with time_limit(None) as limit:
    ...     pass
    >>> limit.reached
    False
    """
    limit, over, lock = Limit(), False, threading.Lock()
    if minutes is None:
        yield limit
        return

    def stop() -> None:
        with lock:  # not once the block has ended
            if not over:
                limit.reached = True
                _thread.interrupt_main()

    timer, before = threading.Timer(60 * minutes, stop), signal.getsignal(signal.SIGINT)
    if before in (signal.SIG_IGN, signal.SIG_DFL):  # in the background of a shell nobody would hear it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.daemon = True
    with lock:  # it does not ring before the block, however long it takes to start
        timer.start()
    try:
        yield limit
        with lock:
            over = True
    except KeyboardInterrupt:
        if not limit.reached:
            raise
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
