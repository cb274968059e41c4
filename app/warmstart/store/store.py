"""The store as its users see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from warmstart.store.model import (
    Claim,
    Collected,
    EntrySummary,
    Found,
    GcPlan,
    GcPolicy,
    LayerFile,
    Published,
    StoreOptions,
    Usage,
    Verified,
)


def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open the store at a path, file://, memory://, s3:// or any URL that an installed fsspec package answers for."""
    raise NotImplementedError


class Store:
    """A store at one prefix."""

    url: str

    def lookup(self, key: str) -> Found:
        """Return the entry of `key`. Raises EntryNotFound, EntryInvalid, EntryNotTrusted, StoreUnavailable, AccessDenied."""
        raise NotImplementedError

    def candidates(self, key: str) -> Iterator[Found]:
        """Yield the entry of `key`, then the trusted ones kept beside it: for a caller whose install of the first one failed."""
        raise NotImplementedError

    def fetch(self, digest: str, size: int) -> Iterator[bytes]:
        """Yield a blob's bytes (archive.Fetch)."""
        raise NotImplementedError

    def publish(self, key: str, manifest: bytes, layers: Sequence[LayerFile]) -> Published:
        """Publish an entry: blobs, then the manifest (signed where a signing key is set)."""
        raise NotImplementedError

    def touch(self, key: str) -> None:
        """Record that the entry was used now; silent where that is not allowed."""
        raise NotImplementedError

    def claim(self, key: str, owner: str, ttl: float) -> Claim | None:
        """Claim `key` for `ttl` seconds, or None where a living owner holds it."""
        raise NotImplementedError

    def wait_for(self, key: str, deadline: float, claim: Callable[[], Claim | None]) -> Found | Claim | None:
        """Return the entry when it appears, a claim when one can be had, None at the deadline (time.monotonic())."""
        raise NotImplementedError

    def entries(self) -> Iterator[EntrySummary]:
        """Yield a summary of every entry, those kept beside included."""
        raise NotImplementedError

    def verify(self, keys: Sequence[str] = ()) -> Verified:
        """Check every digest and signature, of all entries or of those keys."""
        raise NotImplementedError

    def remove(self, key: str) -> int:
        """Remove the entry (its blobs go with the next collection); return how many objects went."""
        raise NotImplementedError

    def plan_gc(self, policy: GcPolicy) -> GcPlan:
        """Return what a collection under `policy` would remove. Touches nothing."""
        raise NotImplementedError

    def collect(self, plan: GcPlan) -> Collected:
        """Remove what the plan says and is still true."""
        raise NotImplementedError

    def usage(self) -> Usage:
        """Count objects and bytes."""
        raise NotImplementedError
