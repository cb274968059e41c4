"""From a URL to the back end that serves it."""

from __future__ import annotations

import re
from pathlib import Path

from warmstart.errors import UsageError, shorten
from warmstart.pattern import pattern
from warmstart.store.backend import Backend
from warmstart.store.model import StoreOptions

_SCHEME = pattern(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def open_backend(url: str, options: StoreOptions) -> Backend:
    """Return the back end for `url`. Raises UsageError for a URL that cannot be used."""
    if "\0" in url or not url.strip():
        raise UsageError("the store's URL is empty or holds a NUL", hint="give a folder or a URL such as s3://bucket/prefix")
    match = _SCHEME.match(url)
    scheme = match[1].lower() if match else "file"
    if match and scheme not in ("abfs", "abfss", "az") and "@" in url[match.end() :].partition("/")[0]:
        raise UsageError(f"the store's URL {scheme}://… holds credentials", hint="pass them in the environment or a Secret")
    if scheme in ("file", "local"):
        from warmstart.store.backend_local import LocalBackend

        return LocalBackend(_folder(url, match is not None))
    if scheme in ("s3", "s3a"):
        from warmstart.store.opening_s3 import open_s3

        return open_s3(url, options)
    from warmstart.store.backend_fsspec import open_fsspec

    return open_fsspec(url, options)


def _folder(url: str, has_scheme: bool) -> Path:
    """Return the absolute folder of a path or a file:// URL."""
    if not has_scheme:
        return Path(url).expanduser().absolute()
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{shorten(url)} names a host", hint="write file:///absolute/folder")
    return Path(unquote(parts.path)).absolute()
