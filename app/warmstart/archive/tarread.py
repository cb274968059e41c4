"""A strict reader for the layers' subset of tar: regular files with pax headers, and nothing else.

Python's tarfile reads every dialect, holds headers of any size in memory and leaves the checks to its caller. A layer comes
from a place that others can write to, and its subset is small (docs/format.md), so what is not in the subset is refused
here, at the header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from warmstart.archive.manifest import Bounds
from warmstart.archive.names import problem
from warmstart.errors import EntryInvalid, shorten
from warmstart.pattern import pattern
from warmstart.value import Value

BLOCK = 512
_PAX_LIMIT = 16 << 10
_NUMBER = pattern(rb"[0-7]{1,12}")
_TIME = pattern(r"(\d{1,11})(?:\.(\d{1,9}))?")
_PAX_NAMES = {"path", "mtime", "size"}


class Source(Protocol):
    """The tar's bytes, decompressed."""

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes; EntryInvalid where fewer are left."""
        ...

    def some(self, most: int) -> memoryview:
        """Return 1 to `most` bytes; EntryInvalid at the end."""
        ...


class Member(Value):
    """One regular file: relative path, bytes, modification time in nanoseconds since 1970."""

    path: str
    size: int
    mtime_ns: int


def members(source: Source, bounds: Bounds) -> Iterator[Member]:
    """Yield each member of the tar. The caller reads exactly `size` bytes of `source` before it asks for the next."""
    pax: dict[str, str] = {}
    while True:
        header = source.read(BLOCK)
        if header == bytes(BLOCK):
            if pax:
                raise EntryInvalid("a pax header stands at the end of the archive")
            return
        kind, size = _kind_and_size(header)
        if kind == b"x" and not pax:
            pax = _pax_header(source, size)
            continue
        if kind not in (b"0", b"\0"):
            raise EntryInvalid(f"a member has type {kind!r}: only regular files are allowed")
        member = _member(header, size, pax)
        if wrong := problem(member.path, bounds):
            raise EntryInvalid(f"the path {shorten(repr(member.path), 120)} {wrong}")
        yield member
        _skip_padding(source, member.size)
        pax = {}


def _kind_and_size(header: bytes) -> tuple[bytes, int]:
    """Return type and size of a header block whose checksum and magic are right."""
    if header[257:263] != b"ustar\0":
        raise EntryInvalid("a tar header has no ustar magic")
    stated = _number(header[148:156])
    if stated != sum(header[:148]) + 8 * 0x20 + sum(header[156:]):
        raise EntryInvalid("a tar header has a wrong checksum")
    return header[156:157], _number(header[124:136])


def _number(field: bytes) -> int:
    digits = field.strip(b"\0 ")
    if not _NUMBER.fullmatch(digits):
        raise EntryInvalid(f"a tar header holds a number that is none: {field!r}")
    return int(digits, 8)


def _member(header: bytes, size: int, pax: dict[str, str]) -> Member:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0]
    plain = (prefix + b"/" + name if prefix else name).decode(errors="surrogateescape")
    if "size" in pax:
        if not re.fullmatch(r"\d{1,16}", pax["size"]):
            raise EntryInvalid(f"a pax header holds a size that is none: {shorten(pax['size'], 40)!r}")
        size = int(pax["size"])
    return Member(
        pax.get("path", plain), size, _nanoseconds(pax["mtime"]) if "mtime" in pax else _number(header[136:148]) * 10**9
    )


def _nanoseconds(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None:
        raise EntryInvalid(f"a pax header holds a time that is none: {shorten(text, 40)!r}")
    return int(match[1]) * 10**9 + int((match[2] or "0").ljust(9, "0"))


def _pax_header(source: Source, size: int) -> dict[str, str]:
    """Return the records of a pax extended header: length, name=value and a line feed, the length counting itself."""
    if not 0 < size <= _PAX_LIMIT:
        raise EntryInvalid(f"a pax header has {size} bytes, not 1 to {_PAX_LIMIT}")
    data = source.read(size)
    _skip_padding(source, size)
    records: dict[str, str] = {}
    while data:
        length_text, space, _ = data.partition(b" ")
        length = int(length_text) if re.fullmatch(rb"[1-9]\d{0,5}", length_text) else 0
        whole = length <= len(data)
        record, data = data[len(length_text) + 1 : length], data[length:]
        name, equals, value = record[:-1].partition(b"=")
        if not (whole and space and equals) or record[-1:] != b"\n":
            raise EntryInvalid("a pax header is malformed")
        key = name.decode(errors="replace")
        if key not in _PAX_NAMES or key in records:
            raise EntryInvalid(f"a pax header holds {shorten(key, 40)!r}, which is not allowed, or holds it twice")
        records[key] = value.decode(errors="surrogateescape")
    return records


def _skip_padding(source: Source, size: int) -> None:
    if size % BLOCK and any(source.read(BLOCK - size % BLOCK)):
        raise EntryInvalid("the padding of a tar member is not zero")
