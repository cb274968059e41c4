"""Folder to manifest and layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmstart.archive.manifest import Compiled, Layer, Manifest


@dataclasses.dataclass(frozen=True)
class PackedLayer:
    """A layer and the file that holds it."""

    layer: Layer
    path: Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """What `pack` made: the manifest, its bytes as they are stored, the layer files; `dropped` counts files by the rule that left them out."""

    manifest: Manifest
    document: bytes
    layers: tuple[PackedLayer, ...]
    dropped: Mapping[str, int]

    @property
    def stored_bytes(self) -> int:
        """Bytes that the entry takes in a store: the layers and the manifest."""
        return len(self.document) + sum(packed.layer.size for packed in self.layers)


def pack(
    root: Path,
    work: Path,
    *,
    key: str,
    factors: Mapping[str, Any],
    facts: Compiled,
    level: int | None = None,
    settle_seconds: float = 0.0,
) -> Packed:
    """Pack what a warm start reads below the cache root `root` into layer files in the folder `work`."""
    raise NotImplementedError
