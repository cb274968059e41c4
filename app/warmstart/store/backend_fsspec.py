"""Any object store that an fsspec package serves: memory://, gs://, abfs://, and s3:// where obstore cannot be used.

fsspec file systems that are not object stores (sftp, ftp, http …) are refused: they show readers a file while it is being
written.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from warmstart.errors import AccessDenied, EntryInvalid, StoreUnavailable, UsageError, WarmstartError, shorten
from warmstart.store.backend import ObjectInfo, ObjectMissing
from warmstart.store.model import StoreOptions
from warmstart.store.ranged import read_ranged
from warmstart.store.s3errors import s3_error

_PACKAGES = {
    "memory": "fsspec", "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "oss": "ossfs", "oci": "ocifs",
}  # fmt: skip
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
_CREATE_TRIES = 3
# A HEAD has no body to carry a code: botocore gives the status instead.
_CODES = {
    "412": "PreconditionFailed",
    "409": "ConditionalRequestConflict",
    "403": "",
    "404": "",
    "400": "",
    "301": "",
    "503": "",
}

Answer = TypeVar("Answer")


def open_fsspec(url: str, options: StoreOptions) -> FsspecBackend:
    """Return the back end for a URL. Raises UsageError for a scheme, package or option that cannot be used."""
    scheme = url.partition("://")[0].lower()
    package = _PACKAGES.get(scheme)
    if package is None:
        known = ", ".join(f"{known}://" for known in _PACKAGES)
        raise UsageError(f"no store can be opened at {shorten(scheme, 40)}://", hint=f"use a folder or one of {known}")
    import fsspec.core

    storage: dict[str, Any] = dict(options.storage)
    if scheme == "s3":
        storage = _s3_options(storage, options.timeout)
        _quieten("aiobotocore", "botocore")
    # Cached instances are told apart by options alone, and would keep the environment's credentials of an earlier opening.
    storage["skip_instance_cache"] = True
    try:
        fs, path = fsspec.core.url_to_fs(url, **storage)
    except ImportError as error:
        raise UsageError(f"{scheme}:// needs the package {package}", hint=f"pip install {package}") from error
    except Exception as error:  # noqa: BLE001 - each fsspec package raises its own for options that it cannot use
        raise UsageError(f"the configuration for {url} cannot be used: {_safe(error, storage)}") from None
    if scheme == "s3":
        # s3fs repeats what botocore has already repeated; five rounds of that outlast an init container's deadline.
        fs.retries = 1
    return FsspecBackend(fs, path, url=url, scheme=scheme, secrets=storage, parallel=options.parallel)


def _s3_options(storage: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Return s3fs's options with our limits where the user set none: s3fs would otherwise wait and retry for minutes."""
    ours = {"connect_timeout": 5, "read_timeout": timeout, "retries": {"max_attempts": 3, "mode": "standard"}}
    storage["config_kwargs"] = {**ours, **dict(storage.get("config_kwargs") or {})}
    storage.setdefault("use_listings_cache", False)
    return storage


def _quieten(*libraries: str) -> None:
    """Keep libraries from logging the tracebacks of errors that they also raise, unless their level was set on purpose."""
    import logging

    for library in libraries:
        logger = logging.getLogger(library)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)


class FsspecBackend:
    """Objects below a path of an fsspec file system."""

    exclusive = True

    def __init__(self, fs: Any, path: str, *, url: str, scheme: str, secrets: Mapping[str, Any], parallel: int) -> None:
        self._fs = fs
        self._path = path.rstrip("/")
        self._url = url.rstrip("/")
        self._secrets = secrets
        self._parallel = parallel
        self.remote = scheme != "memory"
        # s3fs asks for the size first, to split large objects. Ours are split already, and a HEAD's refusal states no reason.
        self._plain = {"max_concurrency": 1} if scheme == "s3" else {}
        # fsspec's memory file system is not made for threads: it looks, creates an empty object and fills it, in three steps,
        # and lists while others write. Real servers decide for themselves.
        self._turn = contextlib.nullcontext() if self.remote else _MEMORY_LOCK

    @property
    def url(self) -> str:
        """The prefix."""
        return self._url

    def get(self, name: str, limit: int) -> bytes:
        """Return an object of at most `limit` bytes."""
        data: bytes = self._ask("read", name, lambda: self._fs.cat_file(self._full(name), **self._plain))
        if len(data) > limit:
            raise EntryInvalid(f"{self._url}/{name} is larger than {limit} bytes")
        return data

    def read(self, name: str, size: int) -> Iterator[bytes]:
        """Yield the object's bytes in order, large ones by several ranges at once."""

        def read(start: int, length: int) -> bytes:
            full = self._full(name)
            return self._ask("read", name, lambda: bytes(self._fs.cat_file(full, start=start, end=start + length)))

        return read_ranged(lambda: self.get(name, size), read, size, self._parallel, f"{self._url}/{name}")

    def put_create(self, name: str, data: bytes) -> bool:
        """Write an object only if there is none."""

        def put() -> bool:
            try:
                self._fs.pipe_file(self._full(name), data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                if _server_code(error)[0] == "PreconditionFailed":
                    return False
                raise
            return True

        for _ in range(_CREATE_TRIES):
            try:
                return self._ask("write", name, put)
            except _Conflict:
                # Another create of the same name is in progress: ask again what came of it.
                continue
        raise StoreUnavailable(f"cannot write {self._url}/{name}: the server keeps reporting a conflict")

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a small object."""
        self._ask("write", name, lambda: self._fs.pipe_file(self._full(name), data))

    def mark(self, name: str) -> None:
        """Give an empty object the time of now."""
        self.put(name, b"")

    def put_file(self, name: str, path: Path) -> None:
        """Write or replace an object with a file's bytes."""
        self._ask("write", name, lambda: self._fs.put_file(str(path), self._full(name)))

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield every object below `prefix`."""
        folder = self._full(prefix).rstrip("/")
        try:
            found: Mapping[str, Any] = self._ask("list", prefix, lambda: self._fs.find(folder, detail=True))
        except ObjectMissing:
            return
        for path, info in found.items():
            if info.get("type") == "file" and path.rstrip("/") != self._path:
                with contextlib.suppress(ObjectMissing):
                    yield self._info(path.removeprefix(self._path).lstrip("/"), info)

    def stat(self, name: str) -> ObjectInfo | None:
        """Return what is known of an object."""
        try:
            info: Mapping[str, Any] = self._ask("read", name, lambda: self._fs.info(self._full(name)))
            return self._info(name, info) if info.get("type") == "file" else None
        except ObjectMissing:
            return None

    def delete(self, name: str) -> None:
        """Remove an object."""
        with contextlib.suppress(ObjectMissing):
            self._ask("remove", name, lambda: self._fs.rm_file(self._full(name)))

    def sweep(self, before: float) -> int:
        """Do nothing: an object store shows nothing of a write that was cut off."""
        del before
        return 0

    def _full(self, name: str) -> str:
        return f"{self._path}/{name}"

    def _info(self, name: str, info: Mapping[str, Any]) -> ObjectInfo:
        modified = next((info[field] for field in _TIMES if self.remote and info.get(field) is not None), None)
        if modified is None:
            modified = self._ask("read", name, lambda: self._fs.modified(self._full(name)))
        return ObjectInfo(name, int(info["size"]), _seconds(modified))

    def _ask(self, doing: str, name: str, call: Callable[[], Answer]) -> Answer:
        try:
            with self._turn:
                return call()
        except WarmstartError:
            raise
        except Exception as error:  # noqa: BLE001 - each fsspec package raises its own; none of them may leave this room
            raise self._explain(error, doing, name) from None

    def _explain(self, error: Exception, doing: str, name: str) -> WarmstartError:
        where = f"{self._url}/{name}".rstrip("/")
        code, status, request_id = _server_code(error)
        if code == "ConditionalRequestConflict":
            return _Conflict(f"cannot {doing} {where}: the server reports a conflict")
        if code or status:
            return s3_error(code, status, where, doing, request_id)
        if isinstance(error, FileNotFoundError):
            return ObjectMissing(f"{where} is not there")
        kind = type(error).__name__
        if isinstance(error, PermissionError) or "Credential" in kind or "Token" in kind:
            return AccessDenied(f"cannot {doing} {where}: {_safe(error, self._secrets)}", hint="check the credentials")
        if kind in ("ProfileNotFound", "ConfigParseError", "InvalidConfigError", "ParamValidationError"):
            return UsageError(f"cannot {doing} {where}: {_safe(error, self._secrets)}")
        return StoreUnavailable(f"cannot {doing} {where}: {kind}: {_safe(error, self._secrets)}")


_MEMORY_LOCK = threading.Lock()


class _Conflict(StoreUnavailable):
    """A create met another create of the same name."""


def _server_code(error: BaseException) -> tuple[str, int, str]:
    """Return code, HTTP status and request id of the botocore answer behind an error; empty where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        response = getattr(seen, "response", None)
        if isinstance(response, Mapping):
            meta = response.get("ResponseMetadata") or {}
            code = str((response.get("Error") or {}).get("Code") or "")
            status = int(meta.get("HTTPStatusCode") or 0)
            return _CODES.get(code, code), status or (int(code) if code.isdigit() else 0), str(meta.get("RequestId") or "")
        seen = seen.__cause__ or seen.__context__
    return "", 0, ""


def _safe(error: Exception, secrets: Mapping[str, Any]) -> str:
    """Return an error's text as one short line without any value of the options that could be a secret."""
    text = str(error)
    for name in ("secret", "token", "key", "password", "account_key", "sas_token", "connection_string", "credential"):
        value = secrets.get(name)
        if isinstance(value, str) and len(value) > 3:
            text = text.replace(value, "…")
    return shorten(text, 200)


def _seconds(modified: object) -> float:
    """Return a modification time, as the packages spell it, in seconds since 1970."""
    if isinstance(modified, datetime):
        return modified.timestamp()
    if isinstance(modified, int | float):
        return float(modified)
    return datetime.fromisoformat(str(modified).replace("Z", "+00:00")).timestamp()
