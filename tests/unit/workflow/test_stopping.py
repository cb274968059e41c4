"""Signals and deadlines, with real processes: what is stopped leaves nothing half-done, and says so."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.conftest import STANDIN, Place

from warmstart.workflow.stopping import DeadlineExceeded, Stop, Terminated, interruptible


def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for a condition; fail where it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def compiling(process: subprocess.Popen[str]) -> None:
    """Wait until the stand-in for the pass is at work."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("stand-in:"):
            return
    pytest.fail("it ended before it compiled")


def claims(place: Place) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in (place.store / "claims").rglob("*.json")]


def test_sigterm_stops_the_compile_drops_the_claim_and_leaves_nothing(place: Place) -> None:
    process = place.start("run", WARMSTART_TEST_PASS="seconds=60")
    compiling(process)
    assert [claim["released"] for claim in claims(place)] == [False]
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 143
    document = json.loads(out)
    assert document["outcome"] == "terminated"
    assert "SIGTERM" in document["reason"]
    assert place.message()["outcome"] == "terminated"
    assert all(claim["released"] for claim in claims(place))
    assert not place.left_over()
    assert not place.root.exists() or not place.artifacts()


def test_another_takes_over_at_once_when_one_is_stopped(place: Place) -> None:
    process = place.start("run", WARMSTART_TEST_PASS="seconds=60")
    compiling(process)
    waiting = place.start("run", WARMSTART_CACHE_ROOT=str(place.folder / "second"))
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    out, _ = waiting.communicate(timeout=30)
    assert json.loads(out)["outcome"] == "compiled"


def test_sigterm_ends_a_call_that_fails_open_all_the_same(place: Place) -> None:
    for options in ((), ("--fail-closed",)):
        process = place.start("run", *options, WARMSTART_TEST_PASS="seconds=60")
        compiling(process)
        process.terminate()
        process.communicate(timeout=20)
        assert process.returncode == 143


def test_sigint_exits_130(place: Place) -> None:
    process = place.start("precompile", WARMSTART_TEST_PASS="seconds=60")
    compiling(process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert json.loads(out)["reason"] == "interrupted"
    assert not place.left_over()


def test_a_second_sigterm_does_not_interrupt_the_cleaning(place: Place) -> None:
    process = place.start("run", WARMSTART_TEST_PASS="seconds=60")
    compiling(process)
    for _ in range(5):
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert not place.left_over()
    assert all(claim["released"] for claim in claims(place))


def test_the_deadline_is_kept_with_exit_0(place: Place) -> None:
    begin = time.monotonic()
    process = place.start("run", "--deadline=3", WARMSTART_TEST_PASS="seconds=60")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out)["outcome"] == "failed"
    assert json.loads(out)["seconds"] < 3
    assert time.monotonic() - begin < 30
    assert not place.left_over()


def test_a_call_that_is_stuck_is_ended_at_the_deadline_and_told(place: Place) -> None:
    process = place.start("run", "--deadline=3", WARMSTART_TEST_PASS="stuck=1")
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out)["reason"] == "the deadline passed"
    assert place.message()["outcome"] == "failed"


def test_a_job_that_runs_out_of_time_may_be_tried_again(place: Place) -> None:
    process = place.start("precompile", "--deadline=2", WARMSTART_TEST_PASS="seconds=60")
    process.communicate(timeout=30)
    assert process.returncode == 75


def test_a_waiter_ends_at_its_deadline_and_says_for_whom_it_waited(place: Place) -> None:
    holder = place.start("run", WARMSTART_TEST_PASS="seconds=60")
    compiling(holder)
    waiter = place.start("run", "--deadline=2", WARMSTART_CACHE_ROOT=str(place.folder / "second"))
    out, _ = waiter.communicate(timeout=30)
    assert waiter.returncode == 0
    assert json.loads(out)["outcome"] == "failed"
    holder.terminate()
    holder.communicate(timeout=20)


def test_many_that_miss_together_compile_once(place: Place) -> None:
    pods = [
        place.start("run", WARMSTART_CACHE_ROOT=str(place.folder / f"root-{number}"), WARMSTART_TEST_PASS="seconds=2")
        for number in range(4)
    ]
    outcomes = []
    for pod in pods:
        out, err = pod.communicate(timeout=60)
        outcomes.append((json.loads(out)["outcome"], err.count("stand-in:")))
    assert sorted(outcomes) == [("compiled", 1), ("hit", 0), ("hit", 0), ("hit", 0)]


def test_a_killed_owner_is_succeeded_when_its_claim_expires(place: Place) -> None:
    process = place.start("run", "--claim-ttl=2", WARMSTART_TEST_PASS="seconds=60")
    compiling(process)
    process.kill()
    process.communicate()
    assert [claim["released"] for claim in claims(place)] == [False]
    done = place.call("run", "--claim-ttl=2")
    assert done.document["outcome"] == "compiled"


# The machinery by itself

STUCK = """
    import signal, sys, threading, time
    from warmstart.workflow.stopping import Stop, interruptible

    def stuck(error):
        print("stuck", error, flush=True)
        return 7

    def main():
        with interruptible(Stop({deadline}), on_stuck=stuck):
            print("in", flush=True)
            while True:
                try:
                    time.sleep(60)
                except BaseException:
                    pass  # what a read that never returns comes to
    main()
"""


def test_what_does_not_end_is_ended_after_the_reserve(tmp_path: Path) -> None:
    script = tmp_path / "stuck.py"
    script.write_text(textwrap.dedent(STUCK.format(deadline=2.0)))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 7
    assert "stuck the deadline passed" in done.stdout


def test_as_process_1_it_still_obeys_sigterm(place: Place) -> None:
    """PID 1 of a PID namespace gets no default action for a signal, only handlers."""
    process = subprocess.Popen(
        [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            sys.executable,
            str(STANDIN),
            "run",
        ],
        env={"PATH": "/usr/bin:/bin", **place.env, "WARMSTART_TEST_PASS": "seconds=60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    compiling(process)
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    subprocess.run(["kill", "-TERM", child], check=True)
    out, _ = process.communicate(timeout=20)
    assert json.loads(out)["outcome"] == "terminated"
    assert process.returncode == 143
    assert not place.left_over()


def test_the_deadline_raises_where_the_body_is(tmp_path: Path) -> None:
    del tmp_path
    stop = Stop(0.2)
    with pytest.raises(DeadlineExceeded), interruptible(stop):
        threading.Event().wait(20)
    assert stop()


def test_sigterm_raises_where_the_body_is_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), interruptible(Stop()):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_settled_is_not_interrupted_any_more() -> None:
    with interruptible(Stop()) as stop:
        stop.finish()
        signal.raise_signal(signal.SIGTERM)
    assert stop()


def test_in_another_thread_signals_are_left_alone() -> None:
    seen: list[bool] = []

    def body() -> None:
        with interruptible(Stop(60)) as stop:
            seen.append(stop())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [False]


def test_work_ends_before_the_deadline_so_that_it_can_be_told() -> None:
    assert 80 < Stop(100).remaining() <= 90
    assert Stop(1000).remaining() > 985
    assert Stop().remaining() == float("inf")
