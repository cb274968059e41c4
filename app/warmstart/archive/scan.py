"""What lies below a cache root, and whether it holds still."""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from warmstart.archive.disk import disk_errors
from warmstart.archive.manifest import Bounds
from warmstart.archive.names import problem
from warmstart.archive.rules import AOT_ARTIFACT, aot_key_of, decide
from warmstart.errors import CompileError, TemporaryError, UsageError, shorten


@dataclasses.dataclass(frozen=True)
class CacheFile:
    """One file that travels: path relative to the root, bytes, mtime in nanoseconds, inode."""

    path: str
    size: int
    mtime_ns: int
    inode: int


@dataclasses.dataclass(frozen=True)
class Scan:
    """What travels, in the order of its paths; what was left out, counted by reason; and the bytes of both."""

    files: tuple[CacheFile, ...]
    dropped: dict[str, int]
    folder_bytes: int


def scan(root: Path, aot_keys: tuple[str, ...], bounds: Bounds) -> Scan:
    """Apply the rules to everything below `root`. With `aot_keys`, the folders of other AOT keys are left out."""
    files, dropped, folder_bytes = [], Counter[str](), 0
    with disk_errors("read", root):
        for path, entry in _walk(root):
            status = entry.stat(follow_symlinks=False)
            folder_bytes += status.st_size
            reason = _reason_to_drop(path, entry, aot_keys)
            if reason:
                dropped[reason] += 1
                continue
            if wrong := problem(path, bounds):
                raise UsageError(
                    f"{root} holds {shorten(ascii(path), 120)}, which {wrong}", hint="remove it, or name a rule for it"
                )
            files.append(CacheFile(path, status.st_size, status.st_mtime_ns, status.st_ino))
    files.sort(key=lambda file: file.path)
    return Scan(tuple(files), dict(sorted(dropped.items())), folder_bytes)


def check_artifacts(root: Path, found: Scan, aot_keys: tuple[str, ...]) -> None:
    """Refuse a cache that a server could not start from: no AOT artifact, an empty one, or not one for each key."""
    artifacts = {match["aot_key"]: file.size for file in found.files if (match := AOT_ARTIFACT.fullmatch(file.path))}
    if not artifacts:
        raise CompileError(f"{root} holds no AOT artifact (torch_compile_cache/torch_aot_compile/…/rank_…/model)")
    if empty := [key for key, size in artifacts.items() if not size]:
        raise CompileError(f"{root}: the AOT artifact {empty[0]} is empty")
    if missing := [key for key in aot_keys if key not in artifacts]:
        raise CompileError(f"{root} holds no artifact for the AOT key {shorten(missing[0], 64)}")


def check_settled(root: Path, before: Scan, aot_keys: tuple[str, ...], bounds: Bounds, wait: float = 0.0) -> None:
    """Refuse a cache that is still being written: compared with `before`, no file may have come, gone or changed."""
    time.sleep(wait)
    now = scan(root, aot_keys, bounds)
    if now.files != before.files:
        changed = sorted({file.path for file in set(now.files) ^ set(before.files)})
        raise TemporaryError(
            f"{root} is still being written: {shorten(changed[0], 120)} changed", hint="pack it when the compile has ended"
        )


def _reason_to_drop(path: str, entry: os.DirEntry[str], aot_keys: tuple[str, ...]) -> str:
    aot_key = aot_key_of(path)
    if aot_key is not None and aot_keys and aot_key not in aot_keys:
        return "of another AOT key"
    rule = decide(path)
    if not rule.keep:
        return rule.reason
    if not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
        return "not a regular file"
    return ""


def _walk(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield everything that is not a folder, with its path relative to `root`."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(f"{path}/")
                else:
                    yield path, entry
