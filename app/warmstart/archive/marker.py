"""The marker of an install, `.warmstart/<key>.json` below the cache root: written last, so where it is, everything is."""

from __future__ import annotations

import os
from pathlib import Path

from warmstart.archive.disk import FILE_MODE
from warmstart.archive.names import RESERVED
from warmstart.typed import dumps, loads, read
from warmstart.value import Value

FORMAT = 1


class Marker(Value, kw_only=True):
    """One install: which manifest (its SHA-256), which layers of it, and each file with its bytes."""

    format: int
    key: str
    manifest: str
    layers: list[str]
    raw_bytes: int
    aot_keys: tuple[str, ...]
    files: list[tuple[str, int]]


def read_marker(root: Path, key: str) -> Marker | None:
    """Return the marker of `key` if it is readable and every file that it lists is there with its size.

    A marker that cannot be used is as good as none: the install runs again and writes a new one.
    """
    try:
        marker = parse_marker((root / RESERVED / f"{key}.json").read_bytes())
        if marker.format != FORMAT or marker.key != key:
            return None
        for path, size in marker.files:
            if (root / path).stat().st_size != size:
                return None
    except (OSError, ValueError):
        return None
    return marker


def parse_marker(data: bytes) -> Marker:
    """Return the marker in a file's bytes. Raises ValueError where there is none."""
    return read(Marker, loads(data))


def write_marker(marker: Marker, temporary: Path) -> None:
    """Write the marker to the file `temporary`, on the cache root's disk, but not yet to that disk."""
    with temporary.open("wb") as file:
        file.write(dumps(marker.items()))
        os.fchmod(file.fileno(), FILE_MODE)


def place_marker(root: Path, key: str, temporary: Path) -> None:
    """Put a written marker, which is on the disk, into its place: whole or not at all.

    Its name need not be: where the power fails before it is, the next start installs again.
    """
    temporary.replace(root / RESERVED / f"{key}.json")
