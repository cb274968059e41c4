"""Calls beside the caller: answers and errors arrive, nothing is left over, and where there is no answer it is said."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from warmstart.aside import Aside, each

APP = Path(__file__).resolve().parents[2] / "app"


def alone(program: str) -> str:
    """Run a program that forks in a process with one thread; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(APP)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_a_call_in_a_thread_gives_its_answer_or_its_error() -> None:
    assert Aside(lambda: 42).result() == 42
    failing = Aside(lambda: 1 // 0)
    assert failing.wait(10)
    with pytest.raises(ZeroDivisionError):
        failing.result()


def test_a_call_in_a_thread_runs_while_the_caller_goes_on() -> None:
    gate = threading.Event()
    waiting = Aside(gate.wait)
    assert not waiting.wait(0.01)
    gate.set()
    assert waiting.result() is True


def test_a_copy_of_the_process_gives_its_answer_and_is_gone() -> None:
    told = alone("""
        import os
        from warmstart.aside import Forked
        one = Forked(lambda: str(os.getpid()).encode())
        answer = one.result()
        assert answer == one.result()
        print(int(answer) != os.getpid())
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            print("no child is left")
    """)
    assert told.split("\n")[:2] == ["True", "no child is left"]


def test_a_copy_that_fails_is_killed_or_not_listened_to_gives_none_and_prints_nothing() -> None:
    told = alone("""
        import os, signal
        from warmstart.aside import Forked
        print("once", end="")
        assert Forked(lambda: 1 // 0).result() is None
        assert Forked(lambda: os.kill(os.getpid(), signal.SIGKILL)).result() is None
        assert Forked(lambda: os._exit(3)).result() is None
        slow = Forked(lambda: signal.pause())
        slow.close()
        slow.close()
        assert slow.result() is None
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            print(", none left")
    """)
    assert told == "once, none left\n"


def test_a_process_with_several_threads_is_not_copied() -> None:
    told = alone("""
        import threading
        from warmstart.aside import Aside, Forked
        gate = threading.Event()
        Aside(gate.wait)
        print(Forked(lambda: b"x").result())
    """)
    assert told == "None\n"


def test_each_item_is_called_once_and_answers_keep_their_order() -> None:
    for count in (0, 1, 2, 50):
        seen: list[int] = []

        def call(number: int, seen: list[int] = seen) -> int:
            seen.append(number)
            return -number

        assert each(call, range(count), 4) == [-number for number in range(count)]
        assert sorted(seen) == list(range(count))


def test_no_more_than_that_many_calls_run_at_the_same_time() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def call(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.002)
        with lock:
            running -= 1

    each(call, range(30), 3)
    assert (running, most) == (0, 3)


def test_the_first_error_is_raised_when_nothing_runs_any_more() -> None:
    running, begun = set[int](), list[int]()

    def call(number: int) -> None:
        begun.append(number)
        running.add(number)
        threading.Event().wait(0.002)
        running.discard(number)
        if number == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        each(call, range(1000), 4)
    assert not running
    assert len(begun) < 20
