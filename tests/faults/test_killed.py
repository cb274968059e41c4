"""kill -9 at every system call that writes: no reader sees a corrupt or partial entry, a clean retry succeeds, nothing is lost.

Set WARMSTART_FAULTS_SEED to repeat a run, WARMSTART_FAULTS_POINTS for another number of deaths in all than 10,000.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import mount, unmount

HERE = Path(__file__).resolve().parents[2]
POINTS = int(os.environ.get("WARMSTART_FAULTS_POINTS", "10000"))
SHARES = {"publish": 0.35, "install": 0.35, "claim": 0.15, "gc": 0.15}


def test_an_operation_killed_at_any_write_leaves_a_whole_store_and_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("WARMSTART_FAULTS_SEED") or random.SystemRandom().randrange(1 << 30))
    with capsys.disabled():
        print(f"\nkill -9 at system calls that write: seed {seed}", flush=True)
    # Everything in memory: a real disk's fsync would take most of the time, and a kill does not lose what the kernel holds.
    mount(tmp_path / "memory", "size=512m")
    try:
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda name: campaign(name, seed, tmp_path / "memory"), SHARES))
    finally:
        unmount(tmp_path / "memory")
    with capsys.disabled():
        for one in done:
            print(f"  {json.dumps(one)}")
        total, torn = (sum(int(one[name]) for one in done) for name in ("points", "torn"))
        print(f"  in all: {total} deaths, {torn} in the middle of a write")
    assert total >= POINTS
    assert all(one["killed_at"].keys() >= {"openat", "write", "fsync", "rename"} and one["torn"] for one in done)
    assert {name for one in done for name in one["killed_at"]} >= {"link", "unlink", "unlinkat", "mkdir", "fchmod", "utimensat"}


def campaign(name: str, seed: int, memory: Path) -> dict[str, Any]:
    """Run one operation's campaign in a small process of its own, from which a fork is cheap; return its counts."""
    folder = memory / name
    folder.mkdir()
    points = -int(-POINTS * SHARES[name] // 1)
    # Neighbouring seeds run on different cores.
    command = [
        sys.executable,
        "-m",
        "tests.faults.killing",
        name,
        str(points),
        str(seed + list(SHARES).index(name)),
        str(folder),
    ]
    env = {**os.environ, "PYTHONPATH": f"{HERE / 'app'}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    counts: dict[str, Any] = json.loads(done.stdout)
    return counts
