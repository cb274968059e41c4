"""How a call is stopped from outside: SIGTERM, SIGINT, or its deadline.

The handlers raise in the main thread, so that a blocked read ends and every `finally` on the way out runs: that is how a
claim is dropped and a half-written folder removed. Both exceptions are no `Exception`, so that no handler in a room below can
take them for an error of its own. Long steps that live in other processes poll `Stop` as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

_LONGEST_RESERVE_SECONDS = 10.0
_RESERVED_SHARE = 0.1


class Stopped(BaseException):
    """The call was stopped from outside. `str()` says by what."""


class Terminated(Stopped):
    """SIGTERM arrived."""

    outcome = "terminated"


class DeadlineExceeded(Stopped):
    """The call's own deadline passed."""

    outcome = "failed"


class Stop:
    """Whether the call is to end, and how much time it has left. Callable, as `compiler.run_pass` wants it.

    Work ends `reserve` seconds before the deadline, so that cleaning up and reporting fit in it too.
    """

    def __init__(self, deadline: float = 0.0) -> None:
        self.reserve = min(_LONGEST_RESERVE_SECONDS, deadline * _RESERVED_SHARE) if deadline else _LONGEST_RESERVE_SECONDS
        self._ends = time.monotonic() + deadline - self.reserve if deadline else None
        self._event = threading.Event()
        self.finished = False

    def __call__(self) -> bool:
        """Return whether the call is to end now."""
        return self._event.is_set() or (self._ends is not None and time.monotonic() >= self._ends)

    def finish(self) -> None:
        """Say that the outcome is settled: what arrives now must not interrupt its telling."""
        self.finished = True

    def set(self) -> None:
        """Ask every step to end."""
        self._event.set()

    def remaining(self) -> float:
        """Return the seconds left for work; infinity without a deadline."""
        return float("inf") if self._ends is None else max(0.0, self._ends - time.monotonic())


@contextlib.contextmanager
def interruptible(stop: Stop, *, on_stuck: Callable[[BaseException], int] | None = None) -> Iterator[Stop]:
    """Let SIGTERM, and the deadline of `stop`, end the body by raising `Terminated` or `DeadlineExceeded` once.

    `on_stuck` is called, in another thread, when the body has not ended a while after it was told to (a read that does not
    return, say); it returns the exit code with which the process then ends at once. Signals are left alone where this is
    not the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    told = False
    ended = threading.Event()

    def end(number: int, _frame: FrameType | None) -> None:
        nonlocal told
        stop.set()
        if told or stop.finished:
            return
        told = True
        reason = DeadlineExceeded("the deadline passed") if number == signal.SIGALRM else Terminated("stopped by SIGTERM")
        if on_stuck is not None:
            threading.Thread(target=_watch, args=(ended, stop.reserve, on_stuck, reason), daemon=True).start()
        raise reason

    old_term = signal.signal(signal.SIGTERM, end)
    old_alarm = signal.signal(signal.SIGALRM, end)
    if stop.remaining() != float("inf"):
        signal.setitimer(signal.ITIMER_REAL, max(0.001, stop.remaining()))
    try:
        yield stop
    finally:
        ended.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_alarm)
        signal.signal(signal.SIGTERM, old_term)


def _watch(ended: threading.Event, grace: float, on_stuck: Callable[[BaseException], int], reason: BaseException) -> None:
    if not ended.wait(grace):
        os._exit(on_stuck(reason))
