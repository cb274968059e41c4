"""A folder, on a local disk or on a volume that many machines share, without flock and without fsspec.

Writing: a temporary file beside its final name, synced, then linked (create) or renamed (replace) into place, then the folder
synced. `link` fails where the name exists, on every POSIX file system and on NFS: that is the
whole of the create-only promise.
Volumes that have no hard links (some FUSE and SMB mounts) get renameat2 with RENAME_NOREPLACE, and failing that a check
before the rename.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from warmstart.errors import AccessDenied, EntryInvalid, NoSpaceError, StoreUnavailable, UsageError, WarmstartError
from warmstart.store.backend import CHUNK, ObjectInfo, ObjectMissing

_TEMPORARY = ".tmp-"
_FOLDER_MODE = 0o775
_FILE_MODE = 0o664
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
_NO_SYNC = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
_WRITE_TRIES = 3
_LINKED = 2

Written = TypeVar("Written")


class LocalBackend:
    """Objects as files below a folder."""

    remote = False

    def __init__(self, root: Path) -> None:
        self._root = root
        self.exclusive = True

    @property
    def url(self) -> str:
        """The folder."""
        return str(self._root)

    def get(self, name: str, limit: int) -> bytes:
        """Return an object of at most `limit` bytes."""
        with self._errors("read", name), (self._root / name).open("rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise EntryInvalid(f"{self._root / name} is larger than {limit} bytes")
        return data

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """Yield the object's bytes in order."""
        del size
        with self._errors("read", name), (self._root / name).open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def put_create(self, name: str, data: bytes) -> bool:
        """Write an object only if there is none."""

        def write(temporary: Path, target: Path) -> bool:
            _write_bytes(temporary, data)
            return self._link(temporary, target)

        return self._write(name, write)

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a small object."""

        def write(temporary: Path, target: Path) -> None:
            _write_bytes(temporary, data)
            self._rename(temporary, target)

        self._write(name, write)

    def mark(self, name: str) -> None:
        """Give an empty object the time of now, by the file server's clock, without waiting for the disk."""
        with self._errors("write", name):
            try:
                os.utime(self._root / name)
            except FileNotFoundError:
                _make_folders((self._root / name).parent)
                descriptor = os.open(self._root / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
                with contextlib.suppress(PermissionError):
                    os.fchmod(descriptor, _FILE_MODE)
                os.close(descriptor)

    def put_file(self, name: str, path: Path) -> None:
        """Write or replace an object with a file's bytes."""

        def write(temporary: Path, target: Path) -> None:
            with path.open("rb") as source, temporary.open("xb") as copy:
                while chunk := source.read(CHUNK):
                    copy.write(chunk)
                copy.flush()
                _finish(copy.fileno())
            self._rename(temporary, target)

        self._write(name, write)

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below `prefix`."""
        pending = [prefix]
        while pending:
            folder = pending.pop()
            for entry in self._scan(folder):
                name = f"{folder}{entry.name}"
                with contextlib.suppress(FileNotFoundError):
                    if name == "lost+found":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{name}/")
                    elif not entry.name.startswith(_TEMPORARY):
                        status = entry.stat()
                        yield ObjectInfo(name, status.st_size, status.st_mtime)

    def stat(self, name: str) -> ObjectInfo | None:
        """Return what is known of an object."""
        try:
            with self._errors("read", name):
                status = (self._root / name).stat()
        except ObjectMissing:
            return None
        return ObjectInfo(name, status.st_size, status.st_mtime)

    def delete(self, name: str) -> None:
        """Remove an object. Its folder stays until `sweep`: another writer may be about to use it."""
        target = self._root / name
        with contextlib.suppress(ObjectMissing), self._errors("remove", name):
            target.unlink()

    def sweep(self, before: float) -> int:
        """Remove temporary files of writers that died before that moment, and folders that have been empty since then."""
        swept = 0
        for folder, _, files in os.walk(self._root, topdown=False):
            for path in (Path(folder, file) for file in files if file.startswith(_TEMPORARY)):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < before:
                        path.unlink()
                        swept += 1
            with contextlib.suppress(OSError):
                if Path(folder) != self._root and Path(folder).stat().st_mtime < before:
                    Path(folder).rmdir()
        return swept

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with self._errors("list", folder), os.scandir(self._root / folder) as entries:
                return list(entries)
        except ObjectMissing:
            return []

    def _write(self, name: str, write: Callable[[Path, Path], Written]) -> Written:
        """Write an object by way of a temporary file; once more where a sweep removed its empty folder at that moment."""
        target = self._root / name
        for _ in range(_WRITE_TRIES):
            with contextlib.suppress(ObjectMissing), self._errors("write", name), self._temporary(target) as temporary:
                return write(temporary, target)
        raise StoreUnavailable(f"cannot write {target}: its folder goes away")

    @contextlib.contextmanager
    def _temporary(self, target: Path) -> Iterator[Path]:
        """Give a name beside `target`, that of a process which may die here; remove what is left there."""
        _make_folders(target.parent)
        path = target.parent / f"{_TEMPORARY}{target.name[:64]}-{os.urandom(6).hex()}"
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _link(self, temporary: Path, target: Path) -> bool:
        try:
            os.link(temporary, target)
        except FileExistsError:
            # An NFS client that lost the answer asks again and is told that the name exists, by its own first request.
            if temporary.stat().st_nlink < _LINKED:
                return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._rename_if_missing(temporary, target)
        _sync_folder(target.parent)
        return True

    def _rename_if_missing(self, temporary: Path, target: Path) -> bool:
        done = _rename_noreplace(temporary, target)
        if done is None:
            self.exclusive = False
            if target.exists():
                return False
            temporary.rename(target)
            done = True
        if done:
            _sync_folder(target.parent)
        return done

    def _rename(self, temporary: Path, target: Path) -> None:
        temporary.replace(target)
        _sync_folder(target.parent)

    @contextlib.contextmanager
    def _errors(self, doing: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ObjectMissing(f"{self._root / name} is not there") from error
        except OSError as error:
            raise _explain(error, doing, self._root / name) from error


def _explain(error: OSError, doing: str, path: Path) -> WarmstartError:
    what = f"cannot {doing} {path}: {os.strerror(error.errno) if error.errno else error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoSpaceError(what, hint="free space in the store's volume, or run warmstart store gc")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessDenied(what, hint="the store can be read without, but publishing needs a writable volume")
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG):
        return UsageError(what, hint="the store's URL must name a folder")
    return StoreUnavailable(what)


def _make_folders(path: Path) -> None:
    """Create `path` and its parents, with group write: pods with other user ids publish into the same folders."""
    if path.is_dir():
        return
    _make_folders(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        return
    path.chmod(_FOLDER_MODE)
    _sync_folder(path.parent)


def _write_bytes(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        _finish(file.fileno())


def _finish(descriptor: int) -> None:
    """Give the file its mode and get it to the disk."""
    with contextlib.suppress(PermissionError):
        os.fchmod(descriptor, _FILE_MODE)
    _sync(descriptor)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _rename_noreplace(source: Path, target: Path) -> bool | None:
    """Rename where `target` is missing: True, False where it is there, None where the file system cannot promise it."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return None
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number == errno.EEXIST:
        return False
    if number in _NO_LINKS:
        return None
    raise OSError(number, os.strerror(number), str(target))
