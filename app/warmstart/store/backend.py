"""What the store asks of a place that keeps objects. Nothing else in this room touches a disk or a network.

Contract, for every back end:

- Names are relative, `/`-separated and made by this room; a back end adds its own prefix.
- A read sees a whole object or none, never part of one.
- `read` and `get` raise `ObjectMissing` where there is none; `put_create` returns False where there is one.
- Errors are those of `warmstart.errors`, mapped by the back end; text of a server is shortened and holds no secret.
- Calls may come from several threads at once.
- Retries of a single request are the back end's; the store never repeats a call that failed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from warmstart.errors import WarmstartError
from warmstart.value import Value

CHUNK = 1 << 20


class ObjectMissing(WarmstartError):
    """There is no object of that name. Never leaves this room: the store says what it means."""


class ObjectInfo(Value):
    """One object: its name under the prefix, bytes, and when it was last written, in seconds of the server's own clock."""

    name: str
    size: int
    modified: float


class Backend(Protocol):
    """A prefix in some storage."""

    @property
    def url(self) -> str:
        """The prefix, for messages: no credentials in it."""
        ...

    @property
    def remote(self) -> bool:
        """Whether a call takes a network round trip, so that calls are worth doing side by side."""
        ...

    @property
    def exclusive(self) -> bool:
        """False once `put_create` was seen to be unable to keep its promise here."""
        ...

    def get(self, name: str, limit: int) -> bytes:
        """Return an object of at most `limit` bytes; EntryInvalid where it is larger."""
        ...

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """Yield an object of `size` bytes in order, in bounded memory. Closing the iterator ends the transfer.

        What is yielded may be any read-only buffer of bytes.
        """
        ...

    def put_create(self, name: str, data: bytes) -> bool:
        """Write an object only if there is none: atomic, and durable on return. False where there was one."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a small object: atomic, and durable on return."""
        ...

    def mark(self, name: str) -> None:
        """Give an empty object the time of now, durable or not: it is lost at worst."""
        ...

    def put_file(self, name: str, path: Path) -> None:
        """Write or replace an object with a file's bytes: atomic, and durable on return."""
        ...

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below `prefix` (empty, or ending in `/`), in no order that means anything."""
        ...

    def stat(self, name: str) -> ObjectInfo | None:
        """Return what is known of an object, or None."""
        ...

    def delete(self, name: str) -> None:
        """Remove an object; none is no error."""
        ...

    def sweep(self, before: float) -> int:
        """Remove what crashed writers left unfinished before that moment of the server's clock; return how many."""
        ...
