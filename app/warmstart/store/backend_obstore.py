"""S3 through obstore: no Python dependencies, 5 ms to import, requests outside the interpreter lock."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, PreconditionError
from obstore.store import S3Store

from warmstart.aside import Aside
from warmstart.errors import AccessDenied, EntryInvalid, UsageError, WarmstartError
from warmstart.pattern import pattern
from warmstart.store.backend import ObjectInfo, ObjectMissing
from warmstart.store.ranged import PART, read_ranged
from warmstart.store.s3errors import s3_error

_CODE = pattern(r"<Code>(\w{1,64})</Code>|\(code: (\w{1,64})\)")
_STATUS = pattern(r"status code: (\d{3})")
_REQUEST = pattern(r"<RequestId>([\w-]{1,64})</RequestId>")
_NO_CREDENTIALS = pattern(r"169\.254\.|[Cc]redential|AssumeRoleWithWebIdentity|web identity", re.ASCII)
_REDIRECT = "redirect without LOCATION"

Answer = TypeVar("Answer")


class ObstoreBackend:
    """Objects below a prefix of a bucket."""

    remote = True
    exclusive = True

    def __init__(self, bucket: str, prefix: str, *, config: dict[str, Any], client: dict[str, Any], parallel: int) -> None:
        self._url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._parallel = parallel
        try:
            self._store = S3Store(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=_retries())
        except (BaseError, ValueError) as error:
            raise UsageError(f"the S3 configuration for {self._url} cannot be used: {_first_line(error)}") from None

    @property
    def url(self) -> str:
        """The prefix."""
        return self._url

    def get(self, name: str, limit: int) -> bytes:
        """Return an object of at most `limit` bytes."""

        def get() -> bytes:
            result = obstore.get(self._store, name)
            # The size is known from the answer's headers: nothing that is too large is taken into memory.
            if result.meta["size"] > limit:
                raise EntryInvalid(f"{self._url}/{name} is larger than {limit} bytes")
            return bytes(result.bytes())

        return self._ask("read", name, get)

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """Yield the object's bytes in order, large ones by several ranges at once."""

        def read(start: int, length: int) -> bytes:
            # Read-only memory of obstore's, which hashing and decompressing take as it is: a copy is worth saving.
            part = self._ask("read", name, lambda: obstore.get_range(self._store, name, start=start, length=length))
            return cast(bytes, memoryview(part))

        return read_ranged(lambda: self.get(name, size), read, size, self._parallel, f"{self._url}/{name}")

    def put_create(self, name: str, data: bytes) -> bool:
        """Write an object only if there is none (`If-None-Match: *`)."""

        def put() -> bool:
            try:
                obstore.put(self._store, name, data, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        return self._ask("write", name, put)

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a small object."""
        self._ask("write", name, lambda: obstore.put(self._store, name, data))

    def mark(self, name: str) -> None:
        """Give an empty object the time of now."""
        self.put(name, b"")

    def put_file(self, name: str, path: Path) -> None:
        """Write or replace an object with a file's bytes, large ones in several parts at once."""
        self._ask("write", name, lambda: obstore.put(self._store, name, path, chunk_size=PART, max_concurrency=self._parallel))

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below `prefix`."""
        pages = iter(self._ask("list", prefix, lambda: obstore.list(self._store, prefix.rstrip("/") or None)))
        while page := self._ask("list", prefix, lambda: next(pages, None)):
            for meta in page:
                # An object named like the prefix and a slash is what consoles make of "create folder".
                if not meta["path"]:
                    continue
                yield ObjectInfo(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def stat(self, name: str) -> ObjectInfo | None:
        """Return what is known of an object."""
        try:
            meta = self._ask("read", name, lambda: obstore.head(self._store, name))
        except ObjectMissing:
            return None
        return ObjectInfo(name, meta["size"], meta["last_modified"].timestamp())

    def delete(self, name: str) -> None:
        """Remove an object."""
        try:
            self._ask("remove", name, lambda: obstore.delete(self._store, name))
        except ObjectMissing:
            return

    def sweep(self, before: float) -> int:
        """Do nothing: a write that was cut off leaves no object; its parts are for the bucket's lifecycle rule to remove."""
        del before
        return 0

    def _ask(self, doing: str, name: str, call: Callable[[], Answer]) -> Answer:
        try:
            return _interruptible(call)
        except (BaseError, OSError, ValueError) as error:
            # Not chained: the library's text is a debug dump of the request, some of it from the server.
            raise self._explain(error, doing, name) from None

    def _explain(self, error: Exception, doing: str, name: str) -> WarmstartError:
        text = str(error)
        code = _CODE.search(text)
        status = _STATUS.search(text)
        request = _REQUEST.search(text)
        where = f"{self._url}/{name}".rstrip("/")
        if isinstance(error, InvalidPathError):
            return UsageError(
                f"cannot {doing} {where}: an object has a name that no store has (an empty, . or .. part, control characters)",
                hint="remove it, or choose an empty prefix",
            )
        if _REDIRECT in text:
            return s3_error("PermanentRedirect", 0, where, doing)
        if code or status:
            return s3_error(
                (code[1] or code[2]) if code else "",
                int(status[1]) if status else 0,
                where,
                doing,
                request[1] if request else "",
            )
        if isinstance(error, FileNotFoundError):
            return ObjectMissing(f"{where} is not there")
        if _NO_CREDENTIALS.search(text.split("Debug source", 1)[0]):
            return AccessDenied(
                f"cannot {doing} {where}: no credentials could be had",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a service account's role, or anonymous access",
            )
        return s3_error("", 0, where, doing)


def _interruptible(call: Callable[[], Answer]) -> Answer:
    """Call from a thread of its own where this is the main one: Python runs signal handlers only between its own instructions.

    A call into obstore would hold up SIGTERM until the server answers or the time is out; waiting for a thread does not.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    return Aside(call).result()


def _retries() -> dict[str, Any]:
    from datetime import timedelta

    return {
        "max_retries": 4,
        "retry_timeout": timedelta(seconds=30),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=3), "base": 2},
    }


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]
