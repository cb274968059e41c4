"""The values of looking after a store: ls, verify, gc, du."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


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
