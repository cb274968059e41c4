"""Entries of the store: open it, look one up, install it, publish one. What `run`, `precompile`, `pull` and `push` share."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.errors import EntryInvalid, UsageError, WarmstartError
from warmstart.log import Log
from warmstart.value import Value

if TYPE_CHECKING:
    from warmstart.archive import Installed, Manifest, Packed
    from warmstart.report import Result
    from warmstart.settings import Settings
    from warmstart.store import Published, Store
    from warmstart.workflow.resolve import Target

LOG = Log("warmstart.store")

MANIFEST_FILE = ".warmstart/manifest-{key}.json"


def open_from(settings: Settings, notices: list[str]) -> Store:
    """Open the store that the settings name; what it has to say is logged and kept in `notices`.

    Raises UsageError where none is named, or where signatures are asked for and no key is trusted.
    """
    from warmstart.store import StoreOptions, open_store

    if not settings.store:
        raise UsageError(
            "no store is given", hint="give --store or WARMSTART_STORE: a folder, or a URL such as s3://bucket/prefix"
        )
    if settings.require_signature and not settings.trusted_keys:
        raise UsageError("signatures are required, but no key is trusted", hint="give --trusted-keys or WARMSTART_TRUSTED_KEYS")

    def notice(text: str) -> None:
        LOG.info("%s", text)
        notices.append(text)

    options = StoreOptions(
        trusted_keys=settings.trusted_keys,
        signing_key=settings.signing_key,
        require_signature=settings.require_signature,
        storage=settings.store_options,
        timeout=settings.store_timeout,
        notice=notice,
    )
    return open_store(settings.store, options)


class Entry(Value):
    """An entry that was looked up and is installed."""

    manifest: Manifest
    installed: Installed


def install_from(store: Store, key: str, root: Path, *, found: Callable[[], None] | None = None) -> Entry:
    """Install the entry of `key`; where it cannot be used, the next one kept beside it.

    `found` is called when the first of them may be installed.
    Raises EntryNotFound, EntryInvalid, EntryNotTrusted (nothing has been placed), and what reading and writing raise.
    """
    from warmstart.archive import install, parse_manifest

    first: EntryInvalid | None = None
    for candidate in store.candidates(key):
        try:
            manifest = parse_manifest(candidate.manifest, key=key)
            check_factors(manifest)
            if found is not None and first is None:
                found()
            return Entry(manifest, install(manifest, store.fetch, root))
        except EntryInvalid as error:
            LOG.warning("entry %s of key %s cannot be used: %s", candidate.name, key[:12], error)
            first = first or error
    if first is None:
        raise EntryInvalid(f"the store yields no entry for key {key[:12]}")
    raise first


def check_factors(manifest: Manifest) -> None:
    """Raise EntryInvalid where an entry's factors are not those of its key: it was made for something else."""
    from warmstart.identity import Identity

    Identity.from_factors(manifest.factors, manifest.key)


def link_kernels(root: Path, environ: Mapping[str, str]) -> None:
    """Make the entry's Triton kernels findable for the server, and say so where it will not look for them there.

    What fails here costs the server the seconds in which it compiles them, nothing else.
    """
    from warmstart.archive import kernels

    folder = str(root / kernels.FOLDER)
    looked_at = environ.get("TRITON_CACHE_DIR", "").rstrip("/")
    try:
        count = kernels.link_kernels(root, looked_at or folder)
    except OSError as error:
        LOG.info("the Triton kernels below %s are of no use to the server: %s", folder, error)
        return
    if count and looked_at != folder:
        LOG.info(
            "set TRITON_CACHE_DIR to %s on the vLLM container: it finds none of these %d Triton kernels otherwise",
            folder,
            count,
        )


def remember(root: Path, manifest: Manifest) -> None:
    """Keep the manifest beside the installed cache, so that `verify`, `explain` and a restart work without the store."""
    from warmstart.archive.staging import UNFINISHED

    path = root / MANIFEST_FILE.format(key=manifest.key)
    # Drawn, since every container's first process has the same number; a later install removes it if this one dies.
    part = path.with_name(f"{UNFINISHED}{os.urandom(8).hex()}")
    try:
        if not path.exists():
            with part.open("xb") as file:
                file.write(manifest.encode())
            part.replace(path)
    except OSError as error:
        LOG.debug("cannot write %s: %s", path, error)
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def remembered(root: Path, key: str) -> Manifest | None:
    """Return the manifest of what was installed, None where it was not kept."""
    from warmstart.archive import parse_manifest

    try:
        return parse_manifest((root / MANIFEST_FILE.format(key=key)).read_bytes(), key=key)
    except (OSError, EntryInvalid):
        return None


def publish_to(store: Store, packed: Packed) -> Published:
    """Publish what was packed."""
    from warmstart.store import LayerFile

    layers = [LayerFile(layer.path, layer.layer.digest, layer.layer.size) for layer in packed.layers]
    return store.publish(packed.manifest.key, packed.document, layers)


def published_warning(published: Published) -> str:
    """Return what is worth a warning about a publication, empty where nothing is."""
    if published.outcome == "beside":
        return f"another result for this key was there first; this one is kept beside it as {published.name}"
    return ""


def touch(store: Store, key: str) -> None:
    """Record the use of an entry; not being allowed to is no reason to fail."""
    try:
        store.touch(key)
    except WarmstartError as error:
        LOG.debug("cannot record the use of %s: %s", key[:12], error)


def with_entry(result: Result, manifest: Manifest) -> Result:
    """Return a result with what the manifest says of the entry."""
    compiled = manifest.compiled
    return result.replace(
        model=compiled.model,
        request_key=manifest.key,
        gpu=compiled.gpu,
        vllm=compiled.vllm,
        aot_keys=compiled.aot_keys,
        modules=compiled.modules,
        graphs=compiled.graphs,
        ranks=compiled.ranks,
        raw_bytes=manifest.raw_bytes,
        stored_bytes=sum(layer.size for layer in manifest.layers) + len(manifest.encode()),
    )


def with_target(result: Result, target: Target) -> Result:
    """Return a result with what is known of the target."""
    return result.replace(
        model=target.request.model,
        request_key=target.key,
        gpu=target.gpu.name,
        vllm=target.vllm,
        warnings=(*result.warnings, *target.warnings),
    )


def local_fetch(packed: Packed) -> Any:
    """Return what yields a packed layer's bytes from its file (archive.Fetch)."""
    files = {layer.layer.digest: layer.path for layer in packed.layers}

    def fetch(digest: str, size: int) -> Iterator[bytes]:
        del size
        with files[digest].open("rb") as file:
            while chunk := file.read(1 << 20):
                yield chunk

    return fetch
