"""Publishing: blobs first, the manifest last and create-only. Whatever dies when, no reader sees half an entry.

Everything here may run twice, stop anywhere and run again, or run in many pods at once: blobs are named by content, so writing
one again changes nothing, and the manifest is created by one writer only. The others find it and compare.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from warmstart.errors import EntryInvalid, StoreUnavailable, UsageError
from warmstart.store import names
from warmstart.store.backend import Backend, ObjectMissing
from warmstart.store.clock import ServerClock
from warmstart.store.model import LayerFile, Published
from warmstart.store.trust import Trust, unwrap
from warmstart.store.view import MANIFEST_LIMIT, ManifestView, result, view

REFRESH_SECONDS = 3600.0
"""A blob that was written longer ago is written again, not skipped.

A collection never removes a blob younger than its grace, which is at least twice this; so no blob that a publish relies on can
be collected before its manifest is there.
"""


class Publisher:
    """Publishes entries into one store."""

    def __init__(self, backend: Backend, trust: Trust, clock: ServerClock, *, parallel: int, exclusive: bool) -> None:
        self._backend = backend
        self._trust = trust
        self._clock = clock
        self._parallel = parallel
        self._exclusive = exclusive

    def publish(self, key: str, document: bytes, layers: Sequence[LayerFile]) -> Published:
        """Publish a manifest and its layers. Raises UsageError where they do not belong together."""
        blobs = _check_layers(view(document, names.check_key(key)), layers)
        name, theirs = self._place(key, document, blobs)
        # Where the same result is there already, its own blobs matter: ours have other digests if the files' times differ.
        needed = blobs if theirs is None else [layer for layer in blobs if layer.digest in theirs]
        uploaded = self._upload(needed, refresh=theirs is None)
        if theirs is None and not self._create(key, name, document):
            # Another publisher was faster: what it left decides where ours belongs.
            name, theirs = self._place(key, document, blobs)
            if theirs is None and not self._create(key, name, document):
                theirs = frozenset()
        self._upload(needed, missing_only=True)
        return Published(
            outcome="beside" if name != names.PRIMARY else "published" if theirs is None else "present",
            key=key,
            name=name,
            uploaded=sum(uploaded),
            skipped=len(blobs) - sum(size > 0 for size in uploaded),
            signed=bool(self._trust.signer),
        )

    def _place(self, key: str, document: bytes, blobs: Sequence[LayerFile]) -> tuple[str, frozenset[str] | None]:
        """Return the name under which our manifest belongs, and the blobs of the equal one that is there, or None."""
        ours, own = result(document), {layer.digest for layer in blobs}
        first = self._stored(key, names.PRIMARY)
        if first is None:
            return names.PRIMARY, None
        if (theirs := self._equal(first, key, ours, own)) is not None:
            return names.PRIMARY, theirs
        for info in self._backend.objects(f"{names.ENTRIES}{key}/"):
            name = info.name.rpartition("/")[2]
            stored = self._stored(key, name) if name != names.PRIMARY else None
            if stored is not None and (theirs := self._equal(stored, key, ours, own)) is not None:
                return name, theirs
        distinct = " ".join([ours, self._trust.signer, *sorted(own)])
        return names.other(hashlib.sha256(distinct.encode()).hexdigest()), None

    def _stored(self, key: str, name: str) -> bytes | None:
        try:
            return self._backend.get(names.entry(key, name), MANIFEST_LIMIT)
        except ObjectMissing:
            return None
        except EntryInvalid:
            return b""

    def _equal(self, stored: bytes, key: str, ours: str, own: set[str]) -> frozenset[str] | None:
        """Return the blobs of a stored manifest that makes ours unnecessary, None where it does not.

        It says what ours would to those who read it (the same result, under our signature if there is one), and those of its
        blobs that we could not bring again are whole.
        """
        try:
            document, signatures = unwrap(stored)
            theirs = view(document, key).layers
            if not self._trust.ours(document, signatures) or result(document) != ours:
                return None
        except EntryInvalid:
            return None
        if not all(self._intact(layer.digest, layer.size) for layer in theirs if layer.digest not in own):
            return None
        return frozenset(layer.digest for layer in theirs)

    def _create(self, key: str, name: str, document: bytes) -> bool:
        """Create the manifest. Where the server ignores the condition, look what became of it."""
        sealed = self._trust.seal(document)
        target = names.entry(key, name)
        if not self._exclusive and self._backend.stat(target) is not None:
            return False
        created = self._backend.put_create(target, sealed)
        if created and not self._exclusive:
            return self._stored(key, name) == sealed
        return created

    def _upload(self, blobs: Sequence[LayerFile], *, refresh: bool = False, missing_only: bool = False) -> list[int]:
        """Bring the blobs that are not there, or are damaged; return for each the bytes that travelled.

        With `refresh`, old ones are written again too: no manifest of ours protects them yet. With `missing_only`, a last look
        once the manifest is there: what a collection took in between is brought again.
        """

        def bring(layer: LayerFile) -> int:
            info = self._backend.stat(names.blob(layer.digest))
            if info is not None and info.size == layer.size:
                recent = not refresh or self._clock.now() - info.modified < REFRESH_SECONDS
                if missing_only or (recent and self._intact(layer.digest, layer.size)):
                    return 0
            return self._put(layer)

        with ThreadPoolExecutor(min(self._parallel, len(blobs) or 1)) as pool:
            return list(pool.map(bring, blobs))

    def _put(self, layer: LayerFile) -> int:
        name = names.blob(layer.digest)
        self._backend.put_file(name, layer.path)
        if not self._intact(layer.digest, layer.size):
            # It stays: others may read it right, and rely on it. Whoever reads it wrong sees that by the digest.
            raise StoreUnavailable(
                f"{self._backend.url}/{name} reads back as other bytes than were sent",
                hint="check the storage",
            )
        return layer.size

    def _intact(self, digest: str, size: int) -> bool:
        """Read a blob back and compare: what is published is what a reader will get, whatever lies in between."""
        sha256 = hashlib.sha256()
        try:
            for chunk in self._backend.read(names.blob(digest), size):
                sha256.update(chunk)
        except (ObjectMissing, EntryInvalid, UsageError):
            return False
        return f"sha256:{sha256.hexdigest()}" == digest


def _check_layers(seen: ManifestView, layers: Sequence[LayerFile]) -> list[LayerFile]:
    """Refuse layer files that are not those that the manifest names; return one for each blob."""
    stated = {(layer.digest, layer.size) for layer in seen.layers}
    given = {(layer.digest, layer.size) for layer in layers}
    if stated != given:
        raise UsageError("the layers to publish are not those that the manifest names")
    for layer in layers:
        try:
            size = layer.path.stat().st_size
            with layer.path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UsageError(f"cannot read the layer {layer.path}: {error.strerror}") from error
        if size != layer.size or f"sha256:{digest}" != layer.digest:
            raise UsageError(f"the layer {layer.path} is not what the manifest says: pack again")
    return list({layer.digest: layer for layer in layers}.values())
