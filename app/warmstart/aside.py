"""A call in a thread of its own, or in a process of its own, while the caller goes on.

What `concurrent.futures` offers beyond this a hit has no use for, and importing it takes longer than starting a thread.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Aside(Generic[Answer]):
    """A call that runs in a thread. The thread ends with the process: nobody hangs on a server that does not answer."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._answers: list[Answer] = []
        self._error: BaseException | None = None
        self._done = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def result(self) -> Answer:
        """Wait for the call; return its answer, or raise what it raised. A signal's handler can end the wait."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._answers[0]

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the call's end, however it ends; return whether it has ended."""
        return self._done.wait(seconds)

    def _run(self) -> None:
        try:
            self._answers.append(self._call())
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is asked for
            self._error = error
        finally:
            self._done.set()


def each(call: Callable[[Item], Answer], items: Sequence[Item], parallel: int) -> list[Answer]:
    """Return the call's answers for the items, in order, made by up to `parallel` threads.

    The first error is raised when no call is running any more, and none is begun after it. A signal's handler does not wait.
    """
    if len(items) < 2:
        return [call(item) for item in items]
    answers: dict[int, Answer] = {}
    waiting = iter(enumerate(items))
    errors: list[BaseException] = []

    def work() -> None:
        for number, item in waiting:
            if errors:
                return
            try:
                answers[number] = call(item)
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                errors.append(error)

    workers = [Aside(work) for _ in range(min(parallel, len(items)))]
    try:
        for worker in workers:
            worker.wait()
    except BaseException as stopped:
        errors.append(stopped)
        raise
    if errors:
        raise errors[0]
    return [answers[number] for number in range(len(items))]


class Forked:
    """A call that runs in a copy of this process, for Python code that a thread would not make any faster.

    Made only where this process has one thread: a copy of a process with several may wait for a lock that nobody will free.
    Whatever goes wrong, the answer is None and the caller does the work itself.
    """

    def __init__(self, call: Callable[[], bytes]) -> None:
        self._child = 0
        self._answer: bytes | None = None
        if threading.active_count() > 1 or len(os.sched_getaffinity(0)) == 1:
            return
        self._read, write = os.pipe()
        try:
            self._child = os.fork()
        except OSError:
            os.close(self._read)
            os.close(write)
            return
        if not self._child:
            _answer(call, write)
        os.close(write)

    def result(self) -> bytes | None:
        """Return the answer, None where there is none. Asked a second time, the same."""
        if self._child:
            with contextlib.suppress(OSError), open(self._read, "rb", closefd=False) as pipe:
                answer = pipe.read()
                if self._ended() == 0:
                    self._answer = answer
            self.close()
        return self._answer

    def close(self) -> None:
        """Let go of the process, which has nothing more to say or is not listened to any more."""
        if not self._child:
            return
        os.close(self._read)
        with contextlib.suppress(OSError):
            os.kill(self._child, 9)
        self._ended()
        self._child = 0

    def _ended(self) -> int:
        try:
            return os.waitpid(self._child, 0)[1]
        except OSError:
            return -1


def _answer(call: Callable[[], bytes], write: int) -> None:
    """End this process, the copy, with the call's answer written to the pipe; never return into the caller's code."""
    code = 1
    try:
        with open(write, "wb") as pipe:
            pipe.write(call())
        code = 0
    finally:
        os._exit(code)
