"""How many ranks to compile at once: what this process's container may use, not what its node has."""

from __future__ import annotations

import os
from pathlib import Path

MEMORY_PER_RANK = 2 << 30
"""Bytes to reckon with for each rank; one peaks at 1.0 to 1.5 GiB (docs/benchmarks.md)."""

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def jobs_for(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int:
    """Return how many ranks to compile at once: as many as there are cores, as far as memory goes, and at least one."""
    return max(1, min(_cores(cgroup), _memory(cgroup, meminfo) // MEMORY_PER_RANK))


def _cores(cgroup: Path) -> int:
    """Return the cores that this process may use, whole ones of a quota."""
    cores = len(os.sched_getaffinity(0))
    quota = _numbers(cgroup / "cpu.max") or [
        *_numbers(cgroup / "cpu/cpu.cfs_quota_us"),
        *_numbers(cgroup / "cpu/cpu.cfs_period_us"),
    ]
    if len(quota) == 2 and min(quota) > 0:
        return min(cores, quota[0] // quota[1])
    return cores


def _memory(cgroup: Path, meminfo: Path) -> int:
    """Return the bytes that this process may still take: what the machine can free, within the container's limit."""
    free = _available(meminfo)
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        found = [*_numbers(cgroup / limit), *_numbers(cgroup / used)]
        if len(found) == 2:
            return min(free, max(0, found[0] - found[1]))
    return free


def _available(meminfo: Path) -> int:
    """Return the kernel's own estimate, page cache included; the pages free at this moment where it gives none."""
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _numbers(path: Path) -> list[int]:
    """Return the numbers in a control file; none where it is not there or says "max"."""
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []
