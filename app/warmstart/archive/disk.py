"""The local disk: what its errors mean here, and how files get durable."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from warmstart.aside import Aside
from warmstart.errors import NoSpaceError, TemporaryError, UsageError, WarmstartError

FOLDER_MODE = 0o775
FILE_MODE = 0o664
"""Group 0 may write: the server can run under another, arbitrary user id that shares only the group."""

_SYNC_EACH = 32
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EROFS}


@contextlib.contextmanager
def disk_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn OSError into one of ours, naming what was done and where."""
    try:
        yield
    except OSError as error:
        raise explain(error, doing, path) from error


def explain(error: OSError, doing: str, path: Path) -> WarmstartError:
    """Return the error of ours for `error`, met while `doing` something to `path`."""
    where = error.filename or path
    what = f"cannot {doing} {where}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(what, hint="free space, or give the volume a larger size limit")
    if error.errno in (errno.EACCES, errno.EPERM):
        return UsageError(what, hint=f"give user {os.geteuid()} or group {os.getegid()} write permission there")
    if error.errno == errno.EROFS:
        return UsageError(what, hint="mount it writable, or choose another folder")
    if error.errno == errno.EXDEV:
        return UsageError(what, hint="the cache root must be one file system, not several mounts")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG, errno.EEXIST, errno.ELOOP):
        return UsageError(what)
    return TemporaryError(what)


def make_folders(path: Path, *, below: Path | None = None) -> None:
    """Create `path` and its parents; those that are new get group write, whatever the umask says."""
    if path == below or path.is_dir():
        return
    make_folders(path.parent, below=below)
    try:
        path.mkdir()
    except FileExistsError:
        return
    path.chmod(FOLDER_MODE)


def make_durable(root: Path, files: Iterable[Path]) -> None:
    """Get the files' bytes to the disk before any of them is renamed into place.

    A rename can reach the disk before the data it makes visible, and a server would then load zeros. A few files are synced one
    by one, since syncfs also waits for whatever else is dirty on that disk, such as weights that are being downloaded. Each
    fsync waits for a journal commit, which those at the same time share; beyond a few files one syncfs is the shorter wait.
    """
    files = list(files)
    if len(files) > _SYNC_EACH and _syncfs(root):
        return
    for one in [Aside(partial(_fsync, file)) for file in files]:
        one.result()


def sync_folder(path: Path) -> None:
    """Get a folder's names to the disk."""
    _fsync(path)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def _syncfs(root: Path) -> bool:
    """Sync the file system of `root`; False where this C library cannot."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return False
    descriptor = os.open(root, os.O_RDONLY)
    try:
        if call(descriptor) == 0:
            return True
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            return False
        raise OSError(number, os.strerror(number), str(root))
    finally:
        os.close(descriptor)
