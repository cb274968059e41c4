"""Disks that are full or read-only, for real: a small tmpfs, a read-only bind mount."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"these tests mount a small tmpfs and need root for it: {done.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def read_only_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system that cannot be written."""
    folder = tmp_path / "readonly"
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
