"""The folder that an install fills before anyone may see it, on the target's own disk; and what crashed ones left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from warmstart.archive.disk import make_folders
from warmstart.archive.names import RESERVED

_PREFIX = "staging-"
_LOCK = "lock"
_ABANDONED_SECONDS = 3600.0


@contextlib.contextmanager
def staging(root: Path) -> Iterator[Path]:
    """Give an empty folder below `root`, removed again on the way out, however that is.

    A live install holds a lock on a file in its folder: where the lock can be had, the owner is dead. The lock decides only
    about cleaning, never about what is installed, so a file system without locks costs nothing but an hour of patience.
    """
    make_folders(root / RESERVED, below=root)
    _clean(root)
    folder = root / RESERVED / f"{_PREFIX}{os.urandom(8).hex()}"
    folder.mkdir(mode=0o770)
    try:
        with (folder / _LOCK).open("wb") as lock:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            tree = folder / "tree"
            make_folders(tree, below=folder)
            yield tree
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clean(root: Path) -> None:
    """Remove the folders of installs that are no longer running. Those of others that we may not remove are left."""
    for folder in (root / RESERVED).glob(f"{_PREFIX}*"):
        if _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    try:
        old = time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS
        with (folder / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return _quiet(folder)
    except OSError:
        return old


def _quiet(folder: Path) -> bool:
    """Whether a folder without a lock file is older than the moment between making it and locking it."""
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime > 10.0
    return False
