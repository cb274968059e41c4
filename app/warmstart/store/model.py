"""The values that the store gives and takes where it is used; those of its care are in `care_model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from warmstart.value import Value, field


def _ignore(notice: str) -> None:
    del notice


class StoreOptions(Value, kw_only=True):
    """How to open a store.

    `trusted_keys` are files (or folders of files) with Ed25519 public keys in PEM; `signing_key` a private one, used by
    publish. `storage` are fsspec storage options, with the meaning that the URL's fsspec package gives them. `s3_client` picks
    the library for s3://: "auto" takes obstore where it can express the configuration and s3fs where not. `timeout` is seconds
    for one request. `notice` is called with each thing worth saying, once for each opened store.
    """

    trusted_keys: tuple[Path, ...] = ()
    signing_key: Path | None = None
    require_signature: bool = False
    storage: Mapping[str, Any] = field(default_factory=dict)
    s3_client: Literal["auto", "obstore", "s3fs"] = "auto"
    timeout: float = 30.0
    parallel: int = 8
    notice: Callable[[str], None] = _ignore


class Found(Value, kw_only=True):
    """One entry that passed the trust rules. `manifest` is the document itself, out of its envelope.

    `name` is the object that held it (manifest.json, or other-….json beside it), `signed_by` the ids of trusted keys.
    """

    key: str
    name: str
    manifest: bytes
    signed_by: tuple[str, ...]


class LayerFile(Value):
    """A layer to publish: a file, and the digest (`sha256:…`) and bytes that it must have."""

    path: Path
    digest: str
    size: int


class Published(Value, kw_only=True):
    """What publishing came to.

    "published": the entry is this one. "present": an equal entry was there. "beside": another result was there first and
    stays; this one is kept as `name` beside it. `uploaded` counts the bytes that travelled, `skipped` the layers that
    were there.
    """

    outcome: Literal["published", "present", "beside"]
    key: str
    name: str
    uploaded: int
    skipped: int
    signed: bool


class Claim(Protocol):
    """The right to compile for a key, until it expires. A Kubernetes Lease offers the same."""

    @property
    def key(self) -> str:
        """The key that is claimed."""
        ...

    @property
    def owner(self) -> str:
        """Who holds it."""
        ...

    def heartbeat(self) -> bool:
        """Extend the claim to `ttl` from now. False where another has taken it over: stop, it is no longer yours."""
        ...

    def release(self) -> None:
        """Let go, so that the next one need not wait for expiry. Releasing twice, or a lost claim, does nothing."""
        ...


class Claims(Protocol):
    """Where claims are made: the store itself, or the cluster's Leases."""

    def claim(self, key: str, owner: str, ttl: float) -> Claim | None:
        """Claim `key` for `ttl` seconds, or None where a living owner holds it."""
        ...
