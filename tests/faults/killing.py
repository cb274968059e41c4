"""The campaign: kill an operation at a system call that writes, look, let it run again, look. Many thousand times.

`python -m tests.faults.killing OPERATION POINTS SEED FOLDER` prints one JSON document. The first points take every start and
every call once, in order; the rest draw start, call, how much of a `write` gets done, and whether the repeat dies as well.
"""

from __future__ import annotations

import collections
import gc
import itertools
import json
import os
import sys
import time
from pathlib import Path

from tests.faults.operations import OPERATIONS, Operation, chosen, fresh
from tests.faults.syscalls import run_until

_SECOND_DEATH = 0.2


def campaign(name: str, points: int, seed: int, folder: Path) -> dict[str, object]:
    """Kill `points` times; return the counts. Raises AssertionError, with the point that repeats it, at the first violation."""
    operation = OPERATIONS[name](folder)
    place = folder / "place"
    calls = {start: _count(operation, start, place) for start in operation.starts}
    every = [(start, call) for start, total in calls.items() for call in range(1, total + 1)]
    assert len(every) <= points, f"{name} has {len(every)} calls to die at, more than the {points} points"
    killed: collections.Counter[str] = collections.Counter()
    torn = outlived = done = 0
    begin = time.monotonic()
    gc.freeze()
    for number in itertools.count():
        if done >= points:
            break
        draw = chosen(seed, name, number)
        start, call = every[number] if number < len(every) else draw.choice(every)
        fresh(operation.starts[start], place)
        deaths = 2 if draw.random() < _SECOND_DEATH else 1
        for death in range(deaths):
            at = call if death == 0 else draw.randint(1, calls[start])
            ended = run_until(lambda: operation.act(place), at, torn=draw.random())
            what = f"{name}: seed {seed}, point {number}, start {start!r}, call {at} ({ended.killed_at}), torn {ended.torn}"
            if not ended.killed_at:
                assert ended.status == 0, f"{what}: it failed by itself"
                outlived += 1
            else:
                killed[ended.killed_at] += 1
                torn += ended.torn
                done += 1
            _holds(operation.check, place, start, f"{what}: after the kill")
        _holds(operation.retry, place, start, f"{what}: the retry")
    return {
        "operation": name, "seed": seed, "points": done, "distinct": len(every), "torn": torn, "outlived": outlived,
        "starts": calls, "killed_at": dict(sorted(killed.items())), "seconds": round(time.monotonic() - begin, 1),
    }  # fmt: skip


def _count(operation: Operation, start: str, place: Path) -> int:
    """Return how many calls the operation makes from a start, undisturbed; its check and retry must hold then too."""
    fresh(operation.starts[start], place)
    ended = run_until(lambda: operation.act(place), 0)
    assert (ended.status, ended.killed_at) == (0, ""), f"{start}: it failed by itself"
    assert ended.calls
    operation.check(place, start)
    operation.retry(place, start)
    return ended.calls


def _holds(look: object, place: Path, start: str, what: str) -> None:
    assert callable(look)
    try:
        look(place, start)
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def main() -> int:
    """Run one operation's campaign."""
    name, points, seed, folder = sys.argv[1:]
    # Child and supervisor take turns: on one core, the switch between them is the cheapest.
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(seed) % len(cores)]})
    print(json.dumps(campaign(name, int(points), int(seed), Path(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
