"""As much of a manifest as the store itself needs. The archive room checks the rest, strictly.

Every version of the manifest keeps these fields (docs/format.md), so that an older program can list and collect a store that
newer ones write to.
"""

from __future__ import annotations

import hashlib

import msgspec

from warmstart.errors import EntryInvalid, shorten

MANIFEST_LIMIT = 12 << 20
"""Bytes of the largest manifest that is read, envelope included."""


class LayerView(msgspec.Struct, frozen=True):
    """A layer: which blob, and the digest of its content without times."""

    name: str
    digest: str
    size: int
    content: str


class CompiledView(msgspec.Struct, frozen=True):
    """What was compiled, for people."""

    model: str = ""
    gpu: str = ""
    vllm: str = ""


class ManifestView(msgspec.Struct, frozen=True):
    """What the store reads of a manifest."""

    format: int
    key: str
    layers: tuple[LayerView, ...]
    created: str = ""
    raw_bytes: int = 0
    compiled: CompiledView = CompiledView()

    def result(self) -> str:
        """Return what identifies the result: equal where layers hold the same files, whenever and by whom they were packed."""
        lines = sorted(f"{layer.name} {layer.content}" for layer in self.layers)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def view(document: bytes, key: str | None = None) -> ManifestView:
    """Return the view of a manifest; EntryInvalid where it is none, or not that of `key`."""
    try:
        seen = msgspec.json.decode(document, type=ManifestView)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EntryInvalid(f"the manifest is not readable: {shorten(error)}") from error
    if key is not None and seen.key != key:
        raise EntryInvalid(f"the manifest is of key {shorten(seen.key, 64)}, not of {key}")
    return seen
