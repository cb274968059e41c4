"""One layer into an empty folder: fetched, hashed, decompressed and written in one pass, in bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from warmstart.archive.disk import FILE_MODE, disk_errors, make_folders
from warmstart.archive.manifest import Bounds, Layer
from warmstart.archive.names import Taken
from warmstart.archive.tarread import Member, members
from warmstart.archive.zstd import LARGEST_WINDOW_LOG, zstd
from warmstart.errors import EntryInvalid, shorten

_STEP = 128 << 10
_WRITE_BACK = 1 << 20
"""Bytes of a file after which the disk is told to begin: the sync at the end then waits for little more than the last ones."""


def unpack(layer: Layer, blob: Iterator[bytes], folder: Path, bounds: Bounds) -> tuple[tuple[str, int], ...]:
    """Unpack `blob` into `folder`, which nobody else uses; return the paths and bytes of its files.

    Raises EntryInvalid for anything but what the layer states.
    Files land before the digest is known, so the caller lets nobody see the folder until this returns.
    """
    source = BlobReader(layer, blob)
    try:
        files = tuple(_write_all(source, layer.files, folder, bounds))
        source.finish()
        if len(files) != layer.files:
            _refuse(f"it holds {len(files)} files, {layer.files} stated")
    except EntryInvalid as error:
        raise type(error)(f"layer {layer.name} ({layer.digest[:19]}…): {error.message}", hint=error.hint) from error
    return files


def _write_all(source: BlobReader, most: int, folder: Path, bounds: Bounds) -> Iterator[tuple[str, int]]:
    """Write each member below `folder`; yield its path and bytes."""
    taken = Taken()
    made: set[str] = set()
    for count, member in enumerate(members(source, bounds)):
        if collision := taken.add(member.path):
            _refuse(f"the path {shorten(member.path, 120)} {collision}")
        if count == most:
            _refuse(f"it holds more than the {most} files it states")
        parent = member.path.rpartition("/")[0]
        with disk_errors("write", folder):
            if parent not in made:
                make_folders(folder / parent, below=folder)
                made.add(parent)
            _write(source, member, folder)
        yield member.path, member.size


def _refuse(why: str) -> NoReturn:
    raise EntryInvalid(why)


def _write(source: BlobReader, member: Member, folder: Path) -> None:
    """Write one file. O_EXCL and O_NOFOLLOW: never through something that is there."""
    path = f"{folder}/{member.path}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        left = member.size
        begun = written = 0
        while left:
            piece = source.some(min(left, _STEP))
            left -= len(piece)
            written += len(piece)
            while piece:
                piece = piece[os.write(descriptor, piece) :]
            if written - begun >= _WRITE_BACK:
                _begin_write_back(descriptor, begun, written - begun)
                begun = written
        os.fchmod(descriptor, FILE_MODE)
        os.utime(descriptor, ns=(member.mtime_ns, member.mtime_ns))
    finally:
        os.close(descriptor)


def _begin_write_back(descriptor: int, start: int, length: int) -> None:
    """Let the kernel begin to write a part of a file.

    Linux does that for dirty pages that are said not to be needed; it drops clean ones only, and these are not.
    """
    with contextlib.suppress(OSError):
        os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_DONTNEED)


class BlobReader:
    """The bytes of the tar inside a blob; what it reads is counted and hashed against what the layer states."""

    def __init__(self, layer: Layer, blob: Iterator[bytes]) -> None:
        self._layer = layer
        self._blob = blob
        self._hash = hashlib.sha256()
        self._size = 0
        self._raw_size = 0
        self._decompressor = zstd.ZstdDecompressor(
            options={int(zstd.DecompressionParameter.window_log_max): LARGEST_WINDOW_LOG}
        )
        self._ready = memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes of the tar."""
        pieces = []
        while size:
            piece = self.some(size)
            size -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def some(self, most: int) -> memoryview:
        """Return 1 to `most` bytes of the tar."""
        while not self._ready:
            self._ready = memoryview(self._decompress())
        piece, self._ready = self._ready[:most], self._ready[most:]
        return piece

    def finish(self) -> None:
        """Check that nothing but padding follows the last member, and that size and digest are those stated."""
        while not self._decompressor.eof:
            if any(self._ready):
                break
            self._ready = memoryview(self._decompress(at_end=True))
        if any(self._ready):
            raise EntryInvalid("data follows the end of the archive")
        for chunk in self._blob:
            self._take(chunk)
        if self._decompressor.unused_data or self._size != self._layer.size:
            raise EntryInvalid(f"it has {self._size} bytes or more than one frame, {self._layer.size} bytes stated")
        if self._raw_size != self._layer.raw_size:
            raise EntryInvalid(f"it unpacks to {self._raw_size} bytes, {self._layer.raw_size} stated")
        if f"sha256:{self._hash.hexdigest()}" != self._layer.digest:
            raise EntryInvalid("its bytes do not have the digest stated", hint="run warmstart store verify")

    def _decompress(self, *, at_end: bool = False) -> bytes:
        """Return the next piece of the tar; empty only at the end of the frame, and only where that is allowed."""
        while True:
            if self._decompressor.eof:
                if at_end:
                    return b""
                raise EntryInvalid("it ends inside a member")
            chunk = b""
            if self._decompressor.needs_input:
                chunk = next(self._blob, b"")
                if not chunk:
                    raise EntryInvalid("it is cut short")
                self._take(chunk)
            try:
                piece = self._decompressor.decompress(chunk, max_length=_STEP)
            except zstd.ZstdError as error:
                raise EntryInvalid(f"it is not readable zstd: {shorten(error)}") from error
            if piece:
                self._raw_size += len(piece)
                if self._raw_size > self._layer.raw_size:
                    raise EntryInvalid(f"it unpacks to more than the {self._layer.raw_size} bytes it states")
                return piece

    def _take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self._layer.size:
            raise EntryInvalid(f"it has more than the {self._layer.size} bytes it states")
        self._hash.update(chunk)
