"""How many ranks are compiled at once follows the container's limits, not the node's size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmstart.compiler.room import MEMORY_PER_RANK, jobs_for

CORES = len(os.sched_getaffinity(0))


def _limits(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(content)
    return folder


def test_without_limits_every_core_gets_a_rank_as_far_as_memory_goes(tmp_path: Path) -> None:
    assert 1 <= jobs_for(tmp_path) <= CORES


@pytest.mark.parametrize(("used", "expected"), [(0, min(CORES, 2)), (MEMORY_PER_RANK, 1), (3 * MEMORY_PER_RANK, 1)])
def test_a_memory_limit_bounds_the_ranks_by_what_is_left_of_it(tmp_path: Path, used: int, expected: int) -> None:
    limits = _limits(tmp_path, memory_max=f"{2 * MEMORY_PER_RANK}\n", memory_current=f"{used}\n")
    (tmp_path / "meminfo").write_text(f"MemFree: 1 kB\nMemAvailable: {64 << 20} kB\n")
    assert jobs_for(limits, tmp_path / "meminfo") == expected


def test_what_the_machine_can_free_counts_not_what_is_free(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemFree: 1 kB\nMemAvailable: 67108864 kB\n")
    assert jobs_for(tmp_path, meminfo) == CORES
    meminfo.write_text("MemFree: 1 kB\nMemAvailable: 1024 kB\n")
    assert jobs_for(tmp_path, meminfo) == 1


def test_a_cpu_quota_bounds_the_ranks_and_less_than_one_core_is_one_rank(tmp_path: Path) -> None:
    assert jobs_for(_limits(tmp_path, cpu_max="100000 100000\n")) == 1
    assert jobs_for(_limits(tmp_path, cpu_max="50000 100000\n")) == 1


def test_no_quota_is_no_bound_and_a_file_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    assert jobs_for(_limits(tmp_path, cpu_max="max 100000\n", memory_max="max\n", memory_current="nonsense\n")) >= 1
