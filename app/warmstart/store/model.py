"""The values that the store gives and takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol


def _ignore(notice: str) -> None:
    del notice


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How to open a store.

    `trusted_keys` are files (or folders of files) with Ed25519 public keys in PEM; `signing_key` a private one, used by
    publish. `storage` are fsspec storage options, with the meaning that the URL's fsspec package gives them. `s3_client` picks
    the library for s3://: "auto" takes obstore where it can express the configuration and s3fs where not. `timeout` is seconds
    for one request. `notice` is called with each thing worth saying, once for each opened store.
    """

    trusted_keys: tuple[Path, ...] = ()
    signing_key: Path | None = None
    require_signature: bool = False
    storage: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    s3_client: Literal["auto", "obstore", "s3fs"] = "auto"
    timeout: float = 30.0
    parallel: int = 8
    notice: Callable[[str], None] = _ignore


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """One entry that passed the trust rules. `manifest` is the document itself, out of its envelope.

    `name` is the object that held it (manifest.json, or other-….json beside it), `signed_by` the ids of trusted keys.
    """

    key: str
    name: str
    manifest: bytes
    signed_by: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LayerFile:
    """A layer to publish: a file, and the digest (`sha256:…`) and bytes that it must have."""

    path: Path
    digest: str
    size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntrySummary:
    """One line of `store ls`. Times are seconds since 1970 on the server's clock; `used` is 0 where never recorded.

    `stored_bytes` counts the entry's own manifest and all its blobs, shared ones too. `problem` is empty for a readable entry.
    """

    key: str
    name: str
    model: str
    gpu: str
    vllm: str
    created: float
    used: float
    raw_bytes: int
    stored_bytes: int
    layers: int
    signed_by: tuple[str, ...]
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that `verify` found wrong: the object, and what."""

    name: str
    problem: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verified:
    """What `verify` looked at, and what it found."""

    entries: int
    blobs: int
    bytes: int
    findings: tuple[Finding, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GcPolicy:
    """What to let go. A rule left at its default does not apply; an entry goes if any rule says so.

    `max_age` is seconds since last use (creation where never used), `keep` the number of entries kept, `max_bytes` the stored
    total, both keeping the most recently used; `vllm` are version patterns (`0.32.*`) to drop. `grace` is the age in seconds
    below
    which nothing is touched: a publish may be in progress.
    """

    max_age: float | None = None
    keep: int | None = None
    max_bytes: int | None = None
    vllm: tuple[str, ...] = ()
    grace: float = 24 * 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class GcPlan:
    """What `collect` would remove, and why (`entries`: object to reason). Nothing has been touched.

    `blocked` names a manifest that cannot be read and so might name any blob: no blob is planned until it is removed or a newer
    program reads it.
    """

    entries: Mapping[str, str]
    blobs: tuple[str, ...]
    others: tuple[str, ...]
    freed: int
    kept_entries: int
    grace: float
    blocked: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected:
    """What a plan's execution removed; `spared` are planned objects that had come back into use."""

    entries: int
    blobs: int
    others: int
    freed: int
    spared: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Usage:
    """What the store takes, in objects and bytes."""

    entries: int
    blobs: int
    blob_bytes: int
    manifest_bytes: int
    orphan_blobs: int
    orphan_bytes: int
    other_objects: int
    other_bytes: int
