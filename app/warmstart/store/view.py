"""As much of a manifest as the store itself needs. The archive room checks the rest, strictly.

Every version of the manifest keeps these fields (docs/format.md), so that an older program can list and collect a store that
newer ones write to.
"""

from __future__ import annotations

import hashlib

from warmstart.errors import EntryInvalid, shorten
from warmstart.typed import dumps, loads, read
from warmstart.value import Value

MANIFEST_LIMIT = 12 << 20
"""Bytes of the largest manifest that is read, envelope included."""


class LayerView(Value):
    """A layer: which blob, and the digest of its content without times."""

    name: str
    digest: str
    size: int
    content: str


class CompiledView(Value):
    """What was compiled, for people."""

    model: str = ""
    gpu: str = ""
    vllm: str = ""


class ManifestView(Value):
    """What the store reads of a manifest."""

    format: int
    key: str
    layers: tuple[LayerView, ...]
    created: str = ""
    raw_bytes: int = 0
    compiled: CompiledView = CompiledView()


def result(document: bytes) -> str:
    """Return what identifies a manifest's result: equal where the same files were made for the same reasons.

    Left out is what differs between two passes over the same thing: when and by what it was packed, the pass's own counters,
    and the layers' digests and sizes, which depend on the files' times and on zstd. Raises EntryInvalid.
    """
    view(document)
    try:
        whole = loads(document)
    except ValueError as error:
        raise EntryInvalid(f"the manifest is not readable: {shorten(error)}") from error
    said = {name: value for name, value in whole.items() if name not in ("created", "tool")}
    compiled = whole.get("compiled")
    if isinstance(compiled, dict):
        said["compiled"] = {name: value for name, value in compiled.items() if name not in ("outcome", "counters")}
    said["layers"] = [
        {name: value for name, value in layer.items() if name not in ("digest", "size", "raw_size")}
        for layer in whole["layers"]
    ]
    return hashlib.sha256(dumps(said, sort=True)).hexdigest()


def view(document: bytes, key: str | None = None) -> ManifestView:
    """Return the view of a manifest; EntryInvalid where it is none, or not that of `key`."""
    try:
        seen = read(ManifestView, loads(document))
    except ValueError as error:
        raise EntryInvalid(f"the manifest is not readable: {shorten(error)}") from error
    if key is not None and seen.key != key:
        raise EntryInvalid(f"the manifest is of key {shorten(seen.key, 64)}, not of {key}")
    return seen
