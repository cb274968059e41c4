"""The folder that an install fills before anyone may see it, on the target's own disk; and what crashed ones left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from warmstart.archive.disk import make_folders
from warmstart.archive.names import RESERVED

_PREFIX = "staging-"
UNFINISHED = "new-"
"""What the name of a file or folder begins with that is being made, and that nobody may be waiting for after an hour."""
_LOCK = "lock"
_ABANDONED_SECONDS = 3600.0


@contextlib.contextmanager
def staging(root: Path) -> Iterator[Path]:
    """Give an empty folder below `root`, removed again on the way out, however that is.

    A live install holds a lock on a file in its folder: where the lock can be had, the owner is dead. The lock decides only
    about cleaning, never about what is installed, so a file system without locks costs nothing but an hour of patience.
    """
    make_folders(root / RESERVED, below=root)
    clean(root)
    name = os.urandom(8).hex()
    folder = root / RESERVED / f"{UNFINISHED}{name}"
    folder.mkdir(mode=0o770)
    try:
        with (folder / _LOCK).open("wb") as lock:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            # Locked before it bears the name that others look for: nobody finds it without its lock.
            folder = folder.rename(root / RESERVED / f"{_PREFIX}{name}")
            tree = folder / "tree"
            make_folders(tree, below=folder)
            yield tree
    finally:
        _remove(folder)


def clean(root: Path) -> None:
    """Remove the folders of installs that are no longer running. Those of others that we may not remove are left."""
    try:
        folders = [(entry.name, Path(entry.path)) for entry in os.scandir(root / RESERVED)]
    except OSError:
        return
    for name, folder in folders:
        if (name.startswith(_PREFIX) and _abandoned(folder)) or (name.startswith(UNFINISHED) and _old(folder)):
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a staging folder: an emptied one, as an install leaves it, without the library that can do more."""
    with contextlib.suppress(OSError):
        if not folder.is_dir():
            folder.unlink(missing_ok=True)
            return
        (folder / _LOCK).unlink(missing_ok=True)
        for inside in (folder / "tree", folder):
            inside.rmdir()
        return
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except OSError:
        # No lock file (being removed now), or no locks on this file system.
        return _old(folder)


def _old(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
    return False
