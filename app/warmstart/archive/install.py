"""Manifest and layers to folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from warmstart.archive.manifest import BOUNDS, Bounds, Manifest

Fetch = Callable[[str, int], Iterator[bytes]]
"""`fetch(digest, size)` yields a blob's bytes in order; closing the iterator ends the transfer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installed:
    """What came of an install. `already` is true where nothing had to be done; figures then are those of the first time.

    `placed` files are new, `kept` were there and equal, `replaced` were there and differed. `fetched_bytes` travelled.
    """

    key: str
    root: Path
    already: bool
    files: int
    raw_bytes: int
    placed: int
    kept: int
    replaced: int
    fetched_bytes: int
    aot_keys: tuple[str, ...]


def find_installed(root: Path, key: str) -> Installed | None:
    """Return what an earlier install of `key` into `root` left, if every file of it is still there; None otherwise. Milliseconds."""
    raise NotImplementedError


def install(
    manifest: Manifest,
    fetch: Fetch,
    root: Path,
    *,
    layers: frozenset[str] | None = None,
    bounds: Bounds = BOUNDS,
    parallel: int = 4,
) -> Installed:
    """Install the entry into the cache root `root`: all layers, or those named."""
    raise NotImplementedError
