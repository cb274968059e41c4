"""Looking after a store: what is in it, whether it is whole, how much it takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from warmstart.errors import EntryInvalid, EntryNotTrusted
from warmstart.store import names
from warmstart.store.backend import Backend, ObjectInfo, ObjectMissing
from warmstart.store.care_model import EntrySummary, Finding, Usage, Verified
from warmstart.store.trust import Trust, unwrap
from warmstart.store.view import MANIFEST_LIMIT, ManifestView, view


def read_manifests(
    backend: Backend, parallel: int, keys: Sequence[str] = ()
) -> Iterator[tuple[ObjectInfo, bytes, ManifestView | EntryInvalid]]:
    """Yield every manifest, or those of `keys`: the object, its bytes, and what it says or why it cannot be read."""
    prefixes = [f"{names.ENTRIES}{names.check_key(key)}/" for key in keys] or [names.ENTRIES]
    infos = sorted(
        (info for prefix in prefixes for info in backend.objects(prefix) if names.parse_entry(info.name)),
        key=lambda info: info.name,
    )

    def read(info: ObjectInfo) -> tuple[ObjectInfo, bytes, ManifestView | EntryInvalid] | None:
        stored = b""
        try:
            stored = backend.get(info.name, MANIFEST_LIMIT)
            return info, stored, view(unwrap(stored)[0], _key_of(info))
        except ObjectMissing:
            return None
        except EntryInvalid as error:
            return info, stored, error

    with ThreadPoolExecutor(parallel) as pool:
        yield from (found for found in pool.map(read, infos) if found is not None)


def entries(backend: Backend, trust: Trust, parallel: int) -> Iterator[EntrySummary]:
    """Yield a summary of every entry, those kept beside and those that cannot be used included."""
    used = {info.name.removeprefix(names.USED): info.modified for info in backend.objects(names.USED)}
    for info, stored, seen in read_manifests(backend, parallel):
        key, name = _key_of(info), info.name.rpartition("/")[2]
        signed_by: tuple[str, ...] = ()
        problem = seen.message if isinstance(seen, EntryInvalid) else ""
        if not problem:
            try:
                signed_by = trust.open(stored)[1]
            except EntryInvalid as error:
                problem = error.message
        known = seen if isinstance(seen, ManifestView) else ManifestView(format=0, key=key, layers=())
        yield EntrySummary(
            key=key,
            name=name,
            model=known.compiled.model,
            gpu=known.compiled.gpu,
            vllm=known.compiled.vllm,
            created=info.modified,
            used=used.get(key, 0.0),
            raw_bytes=known.raw_bytes,
            stored_bytes=info.size + sum(layer.size for layer in known.layers),
            layers=len(known.layers),
            signed_by=signed_by,
            problem=problem,
        )


def verify(backend: Backend, trust: Trust, parallel: int, keys: Sequence[str]) -> Verified:
    """Check every manifest's signature and the digest of every blob (with `keys`: of those that they name)."""
    findings: list[Finding] = []
    count = 0
    blobs: dict[str, int] = {}
    for info, stored, seen in read_manifests(backend, parallel, keys):
        count += 1
        if isinstance(seen, EntryInvalid):
            findings.append(Finding(info.name, seen.message))
            continue
        blobs.update({layer.digest: layer.size for layer in seen.layers})
        try:
            trust.open(stored)
        except EntryNotTrusted as error:
            findings.append(Finding(info.name, error.message))
    if not keys:
        found = ((names.parse_blob(info.name), info.size) for info in backend.objects(names.BLOBS))
        blobs = {digest: size for digest, size in found if digest} | blobs
    with ThreadPoolExecutor(parallel) as pool:
        results = list(pool.map(lambda item: _check_blob(backend, *item), sorted(blobs.items())))
    findings += [finding for finding, _ in results if finding]
    return Verified(entries=count, blobs=len(blobs), bytes=sum(size for _, size in results), findings=tuple(findings))


def usage(backend: Backend, parallel: int) -> Usage:
    """Count objects and bytes."""
    live: set[str] = set()
    manifests = manifest_bytes = 0
    for info, _, seen in read_manifests(backend, parallel):
        manifests += 1
        manifest_bytes += info.size
        if isinstance(seen, ManifestView):
            live |= {layer.digest for layer in seen.layers}
    blobs = {info.name: info.size for info in backend.objects(names.BLOBS) if names.parse_blob(info.name)}
    orphans = [size for name, size in blobs.items() if names.parse_blob(name) not in live]
    others = [info.size for info in backend.objects("") if not names.parse_entry(info.name) and info.name not in blobs]
    return Usage(
        entries=manifests,
        blobs=len(blobs),
        blob_bytes=sum(blobs.values()),
        manifest_bytes=manifest_bytes,
        orphan_blobs=len(orphans),
        orphan_bytes=sum(orphans),
        other_objects=len(others),
        other_bytes=sum(others),
    )


def _check_blob(backend: Backend, digest: str, size: int) -> tuple[Finding | None, int]:
    """Return what is wrong with a blob, if anything, and the bytes that were read."""
    name = names.blob(digest)
    sha256, seen = hashlib.sha256(), 0
    info = backend.stat(name)
    if info is None:
        return Finding(name, "is missing, but a manifest names it"), 0
    if info.size != size:
        return Finding(name, f"has {info.size} bytes, a manifest states {size}"), 0
    try:
        for chunk in backend.read(name, size):
            sha256.update(chunk)
            seen += len(chunk)
    except (ObjectMissing, EntryInvalid) as error:
        return Finding(name, error.message), seen
    if f"sha256:{sha256.hexdigest()}" != digest:
        return Finding(name, "does not have the digest that it is named for"), seen
    return None, seen


def _key_of(info: ObjectInfo) -> str:
    parsed = names.parse_entry(info.name)
    return parsed[0] if parsed else ""
