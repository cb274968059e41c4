"""Manifest and layers to folder: staged on the target's disk, verified, made durable, renamed into place, marked."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from warmstart.archive.disk import disk_errors, make_durable, make_folders, sync_folder
from warmstart.archive.manifest import BOUNDS, Bounds, Layer, Manifest
from warmstart.archive.marker import FORMAT, Marker, place_marker, read_marker, write_marker
from warmstart.archive.names import Taken
from warmstart.archive.staging import clean, staging
from warmstart.archive.unpack import unpack
from warmstart.aside import each
from warmstart.errors import EntryInvalid, NoSpaceError, UsageError, shorten
from warmstart.value import Value

Fetch = Callable[[str, int], Iterator[bytes]]
"""`fetch(digest, size)` yields a blob's bytes in order; closing the iterator ends the transfer."""


class Installed(Value, kw_only=True):
    """What came of an install. `already` is true where nothing had to be done.

    `placed` files are new, `kept` were there and equal, `replaced` were there and differed; `fetched_bytes` travelled.
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
    """Return what an earlier install of `key` into `root` left, if every file of it is still there; None otherwise."""
    marker = read_marker(root, key)
    if marker is None:
        return None
    # What a process that was killed between its marker and its cleaning has left.
    clean(root)
    return _already(root, marker)


def install(
    manifest: Manifest,
    fetch: Fetch,
    root: Path,
    *,
    layers: frozenset[str] | None = None,
    bounds: Bounds = BOUNDS,
    parallel: int = 4,
) -> Installed:
    """Install the entry into the cache root `root`: all layers, or those named. A second call does nothing.

    Other entries below `root` stay as they are, and a server may be running from it: what is new appears by rename, what is
    there and equal is not touched.
    Raises EntryInvalid (nothing has been placed), NoSpaceError, UsageError, and what `fetch` raises.
    """
    wanted = [layer for layer in manifest.layers if layers is None or layer.name in layers]
    if layers is not None and (missing := layers - {layer.name for layer in wanted}):
        raise EntryInvalid(f"the entry of key {manifest.key} has no layer {shorten(', '.join(sorted(missing)))}")
    identity = hashlib.sha256(manifest.encode()).hexdigest()
    marker = read_marker(root, manifest.key)
    if marker and marker.manifest == identity and {layer.name for layer in wanted} <= set(marker.layers):
        return _already(root, marker)
    with disk_errors("install into", root):
        make_folders(root)
        _check_space(root, sum(layer.raw_size for layer in wanted))
        with staging(root) as tree:
            files = _unpack_all(wanted, fetch, tree, bounds, parallel)
            done = Marker(
                format=FORMAT,
                key=manifest.key,
                manifest=identity,
                layers=[layer.name for layer in wanted],
                raw_bytes=sum(size for _, size in files),
                aot_keys=manifest.compiled.aot_keys,
                files=files,
            )
            # Written before anything is placed: a disk that is full by now shows nothing of the entry, not all but the marker.
            write_marker(done, tree.parent / "marker")
            make_durable(root, [*(tree / path for path, _ in files), tree.parent / "marker"])
            placing = _Placing()
            placing.folder(tree, root)
            for folder in placing.touched:
                sync_folder(folder)
            place_marker(root, manifest.key, tree.parent / "marker")
    return Installed(
        key=manifest.key,
        root=root,
        already=False,
        files=len(files),
        raw_bytes=done.raw_bytes,
        placed=len(files) - placing.kept - placing.replaced,
        kept=placing.kept,
        replaced=placing.replaced,
        fetched_bytes=sum(layer.size for layer in wanted),
        aot_keys=done.aot_keys,
    )


def _already(root: Path, marker: Marker) -> Installed:
    return Installed(
        key=marker.key,
        root=root,
        already=True,
        files=len(marker.files),
        raw_bytes=marker.raw_bytes,
        placed=0,
        kept=len(marker.files),
        replaced=0,
        fetched_bytes=0,
        aot_keys=marker.aot_keys,
    )


def _check_space(root: Path, need: int) -> None:
    """Say before the transfer, not in the middle of it, that the disk is too small."""
    disk = os.statvfs(root)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < need:
        raise NoSpaceError(f"{root} has {free} bytes free, the entry needs {need}", hint="free space, or give the volume more")


def _unpack_all(layers: list[Layer], fetch: Fetch, tree: Path, bounds: Bounds, parallel: int) -> list[tuple[str, int]]:
    """Unpack the layers side by side into `tree`; return all files with their bytes."""

    def one(layer: Layer) -> tuple[tuple[str, int], ...]:
        blob = fetch(layer.digest, layer.size)
        try:
            return unpack(layer, blob, tree, bounds)
        finally:
            if close := getattr(blob, "close", None):
                close()

    lists = each(one, layers, parallel)
    files = [file for files in lists for file in files]
    taken = Taken()
    for path, _ in files:
        if collision := taken.add(path):
            raise EntryInvalid(f"the path {shorten(path, 120)} {collision}, in two layers")
    return files


class _Placing:
    """Moves a staged tree into place, folder by folder: a folder that is missing there goes in with one rename."""

    def __init__(self) -> None:
        self.kept = 0
        self.replaced = 0
        self.touched: set[Path] = set()

    def folder(self, staged: Path, target: Path) -> None:
        """Place what is in `staged` into the folder `target`, which is there."""
        with os.scandir(staged) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    self._place_folder(Path(entry.path), target / entry.name)
                else:
                    self._place_file(Path(entry.path), target / entry.name)

    def _place_folder(self, staged: Path, target: Path) -> None:
        if not os.path.lexists(target):
            try:
                staged.rename(target)
            except OSError:
                # Another install was faster, or the name cannot be made: the second try says which.
                if not target.is_dir():
                    raise
            else:
                self.touched.add(target.parent)
                return
        if not target.is_dir():
            raise UsageError(f"{target} is in the way: the entry has a folder of that name")
        self.folder(staged, target)

    def _place_file(self, staged: Path, target: Path) -> None:
        try:
            there = target.lstat()
        except FileNotFoundError:
            there = None
        if there is not None:
            if stat.S_ISDIR(there.st_mode):
                raise UsageError(f"{target} is in the way: the entry has a file of that name")
            if stat.S_ISREG(there.st_mode) and _equal(staged, target):
                self.kept += 1
                return
            self.replaced += 1
        staged.replace(target)
        self.touched.add(target.parent)


def _equal(a: Path, b: Path) -> bool:
    import filecmp

    try:
        return filecmp.cmp(a, b, shallow=False)
    except OSError:
        return False
