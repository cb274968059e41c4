"""Triton kernels in an installed entry: the files by which Triton finds them hold absolute paths, so they are written here."""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = "triton"
"""The folder below the cache root that a server's TRITON_CACHE_DIR has to name."""

_GROUP = "__grp__"


def link_kernels(root: Path, seen_at: str) -> int:
    """Make the kernels below `root` findable by a Triton whose cache is `seen_at`; return how many there are.

    `seen_at` is the folder as the server sees it. A kernel that a server has linked already stays as it is. Raises OSError.
    """
    count = 0
    try:
        folders = list((root / FOLDER).iterdir())
    except FileNotFoundError:
        return 0
    for folder in folders:
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        for name in sorted(names):
            binary = f"{name.removesuffix('.json')}.cubin"
            if not name.endswith(".json") or name.startswith(_GROUP) or binary not in names:
                continue
            count += 1
            if _GROUP + name not in names:
                paths = {file: f"{seen_at}/{folder.name}/{file}" for file in (name, binary)}
                _write(folder / f"{_GROUP}{name}", json.dumps({"child_paths": paths}))
    return count


def _write(path: Path, text: str) -> None:
    """Write a file that nobody sees half-written: a server may be reading here."""
    part = path.with_name(f"tmp.{os.urandom(8).hex()}")
    try:
        part.write_text(text)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
