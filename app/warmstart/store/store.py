"""The store as its users see it: one prefix, opened once. Each method's work is in the module that it imports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from warmstart.aside import Aside
from warmstart.errors import AccessDenied, EntryInvalid, EntryNotFound, UsageError, WarmstartError, shorten
from warmstart.store import names
from warmstart.store.backend import Backend, ObjectMissing
from warmstart.store.clock import ServerClock
from warmstart.store.model import Found, StoreOptions
from warmstart.store.trust import Trust
from warmstart.store.view import MANIFEST_LIMIT, view
from warmstart.typed import dumps, loads, read
from warmstart.value import Value

if TYPE_CHECKING:
    from warmstart.store.care_model import Collected, EntrySummary, GcPlan, GcPolicy, Usage, Verified
    from warmstart.store.claims import ObjectClaims
    from warmstart.store.model import Claim, LayerFile, Published

_MARKER = dumps({"format": names.STORE_FORMAT})
_MARKER_LIMIT = 4096
_MOST_OTHERS = 32


class _Marker(Value):
    format: int


def open_store(url: str, options: StoreOptions | None = None) -> Store:
    """Open the store at a path, file://, memory://, s3:// or any URL that an installed fsspec package answers for.

    Nothing is read or written yet: what is wrong with the place shows at the first call. Raises UsageError for a URL or an
    option that cannot be used.
    """
    from warmstart.store.opening import open_backend

    options = options or StoreOptions()
    return Store(open_backend(url, options), options)


class Store:
    """A store at one prefix. Its methods may be called from several threads."""

    def __init__(self, backend: Backend, options: StoreOptions) -> None:
        self._backend = backend
        self._options = options
        self._said: set[str] = set()
        self._trust = Trust(options.trusted_keys, options.signing_key, require=options.require_signature, notice=self._notice)
        self._clock = ServerClock(backend)
        self._recognised = False
        self._writable = False
        self._exclusive = True
        self.read_only = False

    @property
    def url(self) -> str:
        """The prefix, for messages."""
        return self._backend.url

    def greet(self) -> None:
        """Look at the marker ahead of the first question, which need not wait for it then. What goes wrong shows there."""
        if self._backend.remote:
            with contextlib.suppress(WarmstartError):
                self._recognise()

    # Reading

    def lookup(self, key: str) -> Found:
        """Return the entry of `key`. Raises EntryNotFound, EntryInvalid, EntryNotTrusted, StoreUnavailable, AccessDenied."""
        return next(self.candidates(key))

    def candidates(self, key: str) -> Iterator[Found]:
        """Yield the entry of `key`, then those kept beside it: for a caller whose install of the first one failed.

        Entries that fail the trust rules are passed over; where none is left, the first one's error is raised.
        """
        first_error: EntryInvalid | None = None
        usable = False
        for name, stored in self._stored(names.check_key(key)):
            try:
                document, signed_by = self._trust.open(stored)
                view(document, key)
            except EntryInvalid as error:
                first_error = first_error or error
                continue
            usable = True
            yield Found(key=key, name=name, manifest=document, signed_by=signed_by)
        if first_error and not usable:
            raise type(first_error)(f"{self.url}: {first_error.message}", hint=first_error.hint) from first_error

    def fetch(self, digest: str, size: int) -> Iterator[bytes]:
        """Yield a blob's bytes in order, unchecked: `archive.install` compares size and digest as it unpacks."""
        try:
            yield from self._backend.read(names.blob(digest), size)
        except ObjectMissing as error:
            raise EntryInvalid(f"{self.url} does not hold the blob {digest}", hint="run warmstart store verify") from error

    def touch(self, key: str) -> None:
        """Record that the entry was used now. Readers need no write permission: a refusal is not even said."""
        with contextlib.suppress(WarmstartError):
            self._backend.mark(names.used(key))

    # Writing

    def publish(self, key: str, manifest: bytes, layers: Sequence[LayerFile]) -> Published:
        """Publish an entry: blobs, then the manifest (signed where a signing key is set). May be repeated and raced."""
        from warmstart.store.publish import Publisher

        if self._options.require_signature and self._options.signing_key is None:
            self._notice(
                "signatures are required for reading, but this entry is published without one: no signing key is given"
            )
        with self._writing():
            publisher = Publisher(
                self._backend, self._trust, self._clock, parallel=self._options.parallel, exclusive=self._exclusive
            )
            published = publisher.publish(key, manifest, layers)
        if published.outcome == "present":
            # An entry that a publisher relies on counts as used, so that a collection under way spares it.
            self.touch(key)
        return published

    def claim(self, key: str, owner: str, ttl: float) -> Claim | None:
        """Claim `key` for `ttl` seconds, or None where a living owner holds it. `owner` names one process at a time."""
        with self._writing():
            return self._claims().claim(key, owner, ttl)

    def wait_for(self, key: str, deadline: float, claim: Callable[[], Claim | None]) -> Found | Claim | None:
        """Return the entry when it appears, a claim when one can be had, None at the deadline (time.monotonic())."""
        from warmstart.store.waiting import wait_for

        return wait_for(lambda: self.lookup(key), claim, deadline)

    # Care

    def entries(self) -> Iterator[EntrySummary]:
        """Yield a summary of every entry, those kept beside and those that cannot be used included."""
        from warmstart.store.care import entries

        self._recognise()
        yield from entries(self._backend, self._trust, self._options.parallel)

    def verify(self, keys: Sequence[str] = ()) -> Verified:
        """Check every digest and signature, of the whole store or of those keys."""
        from warmstart.store.care import verify

        self._recognise()
        return verify(self._backend, self._trust, self._options.parallel, keys)

    def remove(self, key: str) -> int:
        """Remove an entry, those beside it included; its blobs go with the next collection. Return how many objects went."""
        with self._writing():
            found = [info.name for info in self._backend.objects(f"{names.ENTRIES}{names.check_key(key)}/")]
            for name in [*found, names.used(key)]:
                self._backend.delete(name)
        return len(found)

    def plan_gc(self, policy: GcPolicy) -> GcPlan:
        """Return what a collection under `policy` would remove. Removes nothing (but writes the clock object)."""
        from warmstart.store.gc import plan

        with self._writing():
            return plan(self._backend, self._trust, self._clock, policy, self._options.parallel)

    def collect(self, plan: GcPlan) -> Collected:
        """Remove what the plan says and is still true."""
        from warmstart.store.gc import collect

        with self._writing():
            return collect(self._backend, self._clock, plan, self._options.parallel)

    def usage(self) -> Usage:
        """Count objects and bytes."""
        from warmstart.store.care import usage

        self._recognise()
        return usage(self._backend, self._options.parallel)

    # Inside

    def _stored(self, key: str) -> Iterator[tuple[str, bytes]]:
        """Yield the manifests of a key as they are stored, with their names: the first, then those beside it."""
        yield names.PRIMARY, self._first_manifest(key)
        listed = (names.parse_entry(info.name) for info in self._backend.objects(f"{names.ENTRIES}{key}/"))
        others = sorted(parsed[1] for parsed in listed if parsed and parsed[1] != names.PRIMARY)
        # Whoever can write can put any number of them there; a reader does not go through them all.
        for name in others[:_MOST_OTHERS]:
            with contextlib.suppress(ObjectMissing, EntryInvalid):
                yield name, self._backend.get(names.entry(key, name), MANIFEST_LIMIT)

    def _first_manifest(self, key: str) -> bytes:
        """Get the manifest; where a call is a round trip, the marker is looked at in the meantime."""
        try:
            if self._recognised or not self._backend.remote:
                self._recognise()
                return self._backend.get(names.entry(key), MANIFEST_LIMIT)
            recognised = Aside(self._recognise)
            try:
                stored = self._backend.get(names.entry(key), MANIFEST_LIMIT)
            except WarmstartError:
                # That this is no store says more than that it has no such entry.
                recognised.result()
                raise
            recognised.result()
        except ObjectMissing as error:
            raise EntryNotFound(f"{self.url} holds no entry for key {key}") from error
        return stored

    def _recognise(self) -> bool:
        """Check the marker: False for a prefix with nothing in it; UsageError for one with other data."""
        if self._recognised:
            return True
        stored = self._marker()
        if stored is None:
            stray = next(iter(self._backend.objects("")), None)
            if stray is None:
                return False
            # The marker is written before anything else: where there is a store now, there is one by now.
            stored = self._marker()
            if stored is None:
                raise UsageError(
                    f"{self.url} is not a warmstart store: no {names.MARKER}, but other data ({shorten(stray.name, 80)})",
                    hint="choose an empty prefix or folder",
                )
        try:
            marker = read(_Marker, loads(stored))
        except ValueError as error:
            raise EntryInvalid(f"{self.url}/{names.MARKER} is not readable: {shorten(error)}") from error
        if marker.format > names.STORE_FORMAT:
            raise EntryInvalid(
                f"{self.url} has store format {marker.format}, this program knows up to {names.STORE_FORMAT}",
                hint="update warmstart in this image",
            )
        if marker.format != names.STORE_FORMAT:
            raise EntryInvalid(f"{self.url} has store format {marker.format}, which does not exist")
        self._recognised = True
        return True

    def _marker(self) -> bytes | None:
        try:
            return self._backend.get(names.MARKER, _MARKER_LIMIT)
        except ObjectMissing:
            return None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Make sure that this is a store and that it can be written; note where it cannot."""
        try:
            if not self._writable:
                self._prepare()
                self._writable = True
            yield
        except AccessDenied:
            self.read_only = True
            self._notice(f"{self.url} cannot be written with these credentials: it is used read-only")
            raise

    def _prepare(self) -> None:
        """Mark an empty prefix as a store; try out on the marker whether create-only is honoured, which changes nothing."""
        if not self._recognise():
            self._backend.put_create(names.MARKER, _MARKER)
            self._recognise()
        if self._backend.put_create(names.MARKER, _MARKER) or not self._backend.exclusive:
            self._exclusive = False
            self._notice(
                f"{self.url} ignores the create-only condition: two pods may compile at once, what they publish stays safe"
            )

    def _claims(self) -> ObjectClaims:
        from warmstart.store.claims import ObjectClaims

        return ObjectClaims(self._backend, self._clock, exclusive=self._exclusive)

    def _notice(self, notice: str) -> None:
        if notice not in self._said:
            self._said.add(notice)
            self._options.notice(notice)
