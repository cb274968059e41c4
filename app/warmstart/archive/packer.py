"""Folder to manifest and layers: what a warm start reads, as deterministic archives named by content."""

from __future__ import annotations

import dataclasses
import hashlib
import tarfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from warmstart import __version__
from warmstart.archive.disk import disk_errors
from warmstart.archive.manifest import BOUNDS, FORMAT, KEY, Bounds, Compiled, Layer, Manifest
from warmstart.archive.rules import layer_of
from warmstart.archive.scan import CacheFile, check_artifacts, check_settled, scan
from warmstart.archive.zstd import window_log, zstd
from warmstart.errors import TemporaryError, UsageError

LEVEL = 12
"""The zstd level. Measured on the 23 MB artifact of Qwen3-0.6B, one core: level 3 gives 1/31 in 0.04 s, 9 1/39 in 0.2 s,
12 1/40 in 0.3 s, 17 1/40 in 2.6 s, 19 1/45 in 7.7 s. What 19 saves, 62 kB, is not worth that time in every compile.
Long-distance matching makes it larger at every level below 17: the window already spans the whole of such an artifact.
"""


@dataclasses.dataclass(frozen=True)
class PackedLayer:
    """A layer and the file that holds it."""

    layer: Layer
    path: Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """What `pack` made: the manifest, its bytes as they are stored, and the layer files.

    `dropped` counts the files that were left out, by the reason of the rule that did; `folder_bytes` is the size of all files
    of the cache, those included.
    """

    manifest: Manifest
    document: bytes
    layers: tuple[PackedLayer, ...]
    dropped: Mapping[str, int]
    folder_bytes: int

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
    level: int = LEVEL,
    settle_seconds: float = 0.0,
    bounds: Bounds = BOUNDS,
) -> Packed:
    """Pack what a warm start reads below the cache root `root` into layer files in the folder `work`.

    The same folder gives the same bytes again: members in the order of their paths, owner 0, fixed modes, times as they are.
    `facts.aot_keys` say which AOT artifacts belong to the entry; `level` is zstd's. The cache must
    hold still for `settle_seconds` before and all through the packing: 0 is right where the compiling processes have ended.
    Raises CompileError where there is no artifact, TemporaryError where the cache is still being written, UsageError,
    NoSpaceError.
    """
    if not KEY.fullmatch(key):
        raise UsageError(f"a key has 64 hex digits, not {key[:80]!r}")
    found = scan(root, facts.aot_keys, bounds)
    check_artifacts(root, found, facts.aot_keys)
    if settle_seconds:
        check_settled(root, found, facts.aot_keys, bounds, settle_seconds)
    raw_bytes = sum(file.size for file in found.files)
    groups: dict[str, list[CacheFile]] = defaultdict(list)
    for file in found.files:
        groups[layer_of(file.path)].append(file)
    with disk_errors("pack into", work):
        work.mkdir(parents=True, exist_ok=True)
        layers = tuple(
            _pack_layer(name, root, files, work, level)
            for name, files in sorted(groups.items(), key=lambda group: (group[0] != "shared", group[0]))
        )
    check_settled(root, found, facts.aot_keys, bounds)
    manifest = Manifest(
        format=FORMAT,
        key=key,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        tool=f"warmstart {__version__}",
        factors=dict(factors),
        compiled=facts,
        layers=tuple(packed.layer for packed in layers),
        raw_bytes=raw_bytes,
        files=len(found.files),
    )
    return Packed(
        manifest=manifest, document=manifest.encode(), layers=layers, dropped=found.dropped, folder_bytes=found.folder_bytes
    )


def _pack_layer(name: str, root: Path, files: list[CacheFile], work: Path, level: int) -> PackedLayer:
    """Write one layer; its file is named for the layer."""
    path = work / f"{name}.tar.zst"
    content = hashlib.sha256()
    with path.open("wb") as target:
        writer = _BlobWriter(target, level, sum(file.size for file in files))
        with tarfile.open(fileobj=cast(IO[bytes], writer), mode="w", format=tarfile.PAX_FORMAT) as tar:
            for file in files:
                content.update(f"{_add(tar, root, file)} {file.size} {file.path}\n".encode())
        writer.finish()
    layer = Layer(
        name=name,
        digest=f"sha256:{writer.sha256.hexdigest()}",
        size=writer.size,
        raw_size=writer.raw_size,
        files=len(files),
        content=f"sha256:{content.hexdigest()}",
    )
    return PackedLayer(layer, path)


def _add(tar: tarfile.TarFile, root: Path, file: CacheFile) -> str:
    """Add one file to the archive; return the SHA-256 of its bytes."""
    info = tarfile.TarInfo(file.path)
    info.size, info.mode = file.size, 0o664
    seconds, nanoseconds = divmod(file.mtime_ns, 10**9)
    info.mtime = seconds
    # tarfile writes float times, which cannot hold nanoseconds of this century; the record by hand can.
    info.pax_headers = {"mtime": f"{seconds}.{nanoseconds:09d}"}
    with (root / file.path).open("rb") as source:
        reader = _HashingReader(source, root / file.path)
        tar.addfile(info, cast(IO[bytes], reader))
    return reader.sha256.hexdigest()


class _HashingReader:
    """A file that is hashed as it is read, and that says so where it is shorter than it was."""

    def __init__(self, source: IO[bytes], path: Path) -> None:
        self._source = source
        self._path = path
        self.sha256 = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return exactly `size` bytes."""
        data = self._source.read(size)
        if len(data) < size:
            raise TemporaryError(
                f"{self._path} is still being written: it became shorter", hint="pack it when the compile has ended"
            )
        self.sha256.update(data)
        return data


class _BlobWriter:
    """Where the tar goes: compressed, hashed and counted on its way into a file."""

    def __init__(self, target: IO[bytes], level: int, raw_bytes: int) -> None:
        options = {
            int(zstd.CompressionParameter.compression_level): level,
            int(zstd.CompressionParameter.window_log): window_log(raw_bytes),
        }
        self._target = target
        self._compressor = zstd.ZstdCompressor(options=options)
        self.sha256 = hashlib.sha256()
        self.size = 0
        self.raw_size = 0

    def tell(self) -> int:
        """Return how many bytes of tar went in, which tarfile asks for."""
        return self.raw_size

    def write(self, data: bytes) -> int:
        """Take tar bytes."""
        self.raw_size += len(data)
        self._emit(self._compressor.compress(data))
        return len(data)

    def finish(self) -> None:
        """End the frame."""
        self._emit(self._compressor.flush())

    def _emit(self, data: bytes) -> None:
        self._target.write(data)
        self.sha256.update(data)
        self.size += len(data)
