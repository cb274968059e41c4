"""s3://: which library serves it, and with what configuration."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from warmstart.errors import UsageError, shorten
from warmstart.pattern import pattern
from warmstart.store.backend import Backend
from warmstart.store.s3config import fsspec_defaults, obstore_config

if TYPE_CHECKING:
    from warmstart.store.model import StoreOptions

_URL = pattern(r"s3a?://([a-z0-9][a-z0-9._-]{1,61}[a-z0-9])(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_HINT = "write s3://bucket/prefix"


def open_s3(url: str, options: StoreOptions) -> Backend:
    """Return the back end for an s3:// URL: obstore where it can express the configuration, s3fs where not."""
    match = _URL.fullmatch(url)
    if match is None:
        raise UsageError(f"{shorten(url, 120)} is not an S3 URL", hint=_HINT)
    bucket, prefix = match[1], (match[2] or "").strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise UsageError(f"the prefix of {shorten(url, 120)} holds an empty, . or .. part", hint=_HINT)
    storage = {**fsspec_defaults("s3", os.environ), **options.storage}
    if options.s3_client != "s3fs":
        settings = obstore_config(bucket, storage, os.environ, options.timeout)
        if settings is not None:
            try:
                from warmstart.store.backend_obstore import ObstoreBackend
            except ImportError as error:
                if options.s3_client == "obstore":
                    raise UsageError("obstore is not installed", hint="pip install 'vllm-warmstart[s3]'") from error
            else:
                config, client = settings
                return ObstoreBackend(bucket, prefix, config=config, client=client, parallel=options.parallel)
        elif options.s3_client == "obstore":
            raise UsageError("obstore cannot express this S3 configuration", hint="leave the choice to warmstart, or use s3fs")
    from warmstart.store.backend_fsspec import open_fsspec

    return open_fsspec(f"s3://{bucket}/{prefix}", options)
