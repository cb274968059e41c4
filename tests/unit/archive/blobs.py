"""Layers made by hand, right and wrong, for the reader that must tell them apart."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator

from warmstart.archive import Compiled, Layer, Manifest
from warmstart.archive.zstd import zstd

KEY = "5a" * 32


def tar(*members: tuple[str, bytes], **fields: object) -> bytes:
    """Return a pax tar of regular files; `fields` are set on each header (type, linkname, uid …)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def layer_of(
    raw: bytes, *, files: int, name: str = "shared", blob: bytes | None = None, **stated: object
) -> tuple[Layer, bytes]:
    """Return a layer and its blob, which state the truth but for what is given."""
    blob = zstd.compress(raw) if blob is None else blob
    truth: dict[str, object] = {
        "name": name,
        "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}",
        "size": len(blob),
        "raw_size": len(raw),
        "files": files,
        "content": "sha256:" + "0" * 64,
    }
    return Layer(**{**truth, **stated}), blob  # type: ignore[arg-type]


def manifest_of(*layers: Layer, key: str = KEY) -> Manifest:
    """Return a manifest of those layers."""
    compiled = Compiled(
        model="m",
        gpu="g",
        vllm="0.33.0",
        torch="2.14.0",
        aot_keys=("a" * 64,),
        outcome="compiled",
        ranks=1,
        modules=1,
        graphs=1,
    )
    return Manifest(
        format=1, key=key, created="2026-01-01T00:00:00Z", tool="test", factors={}, compiled=compiled, layers=layers,
        raw_bytes=0, files=sum(layer.files for layer in layers),
    )  # fmt: skip


def pieces(blob: bytes, size: int = 1000) -> Iterator[bytes]:
    """Yield a blob in pieces, as a network does."""
    for start in range(0, len(blob), size):
        yield blob[start : start + size]
