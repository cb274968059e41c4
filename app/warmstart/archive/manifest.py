"""The manifest: what one store entry holds. docs/format.md is its specification; a change here is a change there.

A manifest comes from a place that others can write to, so it is parsed strictly: unknown fields, wrong types and figures
beyond the bounds are refused before a byte of any layer is fetched.
"""

from __future__ import annotations

from typing import Any

from warmstart.errors import EntryInvalid, shorten
from warmstart.pattern import pattern
from warmstart.typed import dumps, loads, read
from warmstart.value import Value, field

FORMAT = 1
DIGEST = pattern(r"sha256:[0-9a-f]{64}")
KEY = pattern(r"[0-9a-f]{64}")
LAYER_NAME = pattern(r"shared|rank-\d{1,5}-\d{1,5}")


class Layer(Value, kw_only=True):
    """One tar.zst blob.

    `digest` and `size` (bytes) are those of the compressed blob; `raw_size` is the tar inside it, `files` the regular files in
    that. `content` is the digest of the files' names and bytes alone: equal where two compiles differ in nothing but times. It
    serves to compare entries; what is installed is checked by `digest`.
    """

    name: str
    digest: str
    size: int
    raw_size: int
    files: int
    content: str


class Compiled(Value, kw_only=True):
    """What was compiled, for people, metrics and the check on install. `aot_keys` are vLLM's own directory names.

    `counters` are the pass's figures by name (modules found, compiled, saved …; seconds are rounded to milliseconds).
    """

    model: str
    gpu: str
    vllm: str
    torch: str
    aot_keys: tuple[str, ...]
    outcome: str
    ranks: int
    modules: int
    graphs: int
    counters: dict[str, int] = field(default_factory=dict)


class Manifest(Value, kw_only=True):
    """One entry. `created` is UTC in RFC 3339 with a Z; `raw_bytes` and `files` are sums over the layers' regular files."""

    format: int
    key: str
    created: str
    tool: str
    factors: dict[str, Any]
    compiled: Compiled
    layers: tuple[Layer, ...]
    raw_bytes: int
    files: int

    def encode(self) -> bytes:
        """Return the document as it is stored: compact JSON with sorted names, equal bytes for equal manifests."""
        return dumps(
            {
                **self.items(),
                "compiled": self.compiled.items(),
                "layers": [layer.items() for layer in self.layers],
            },
            sort=True,
        )


class Bounds(Value, kw_only=True):
    """How much an entry may claim before it is refused unread. Sizes are bytes; `depth` counts path components."""

    manifest_bytes: int = 8 << 20
    layers: int = 4097
    layer_bytes: int = 64 << 30
    raw_bytes: int = 64 << 30
    files: int = 200_000
    depth: int = 32
    path_bytes: int = 1024


BOUNDS = Bounds()


class _Version(Value):
    """The one field that every version of the document has."""

    format: int


def parse_manifest(data: bytes, *, key: str | None = None, bounds: Bounds = BOUNDS) -> Manifest:
    """Return the manifest in `data`, fully checked; with `key`, also that it is the entry of that key.

    Raises EntryInvalid with the first thing that is wrong.
    """
    if len(data) > bounds.manifest_bytes:
        raise EntryInvalid(f"the manifest has {len(data)} bytes, more than {bounds.manifest_bytes}")
    try:
        document = loads(data)
        version = read(_Version, document).format
    except ValueError as error:
        raise EntryInvalid(f"the manifest is not readable: {shorten(error)}") from error
    if version > FORMAT:
        raise EntryInvalid(
            f"the manifest has format {version}, this program reads up to {FORMAT}", hint="update warmstart in this image"
        )
    if version != FORMAT:
        raise EntryInvalid(f"the manifest has format {version}, which does not exist")
    try:
        manifest = read(Manifest, document, strict=True)
    except ValueError as error:
        raise EntryInvalid(f"the manifest is not valid: {shorten(error)}") from error
    _check(manifest, bounds)
    if key is not None and manifest.key != key:
        raise EntryInvalid(f"the manifest is of key {shorten(manifest.key, 64)}, not of {key}")
    return manifest


def _check(manifest: Manifest, bounds: Bounds) -> None:
    """Refuse figures that are not possible, or that are beyond the bounds."""
    if not KEY.fullmatch(manifest.key):
        raise EntryInvalid(f"the manifest's key is not 64 hex digits: {shorten(manifest.key, 80)!r}")
    if not 1 <= len(manifest.layers) <= bounds.layers:
        raise EntryInvalid(f"the manifest has {len(manifest.layers)} layers, not 1 to {bounds.layers}")
    names = [layer.name for layer in manifest.layers]
    if len(set(names)) != len(names):
        raise EntryInvalid("the manifest names a layer twice")
    for layer in manifest.layers:
        _check_layer(layer, bounds)
    _within("raw_bytes", manifest.raw_bytes, bounds.raw_bytes)
    _within("files", manifest.files, bounds.files)
    if manifest.files != sum(layer.files for layer in manifest.layers):
        raise EntryInvalid(f"the manifest counts {manifest.files} files, its layers count others")
    if manifest.raw_bytes > sum(layer.raw_size for layer in manifest.layers):
        raise EntryInvalid(f"the manifest's {manifest.raw_bytes} raw bytes are more than its layers hold")


def _check_layer(layer: Layer, bounds: Bounds) -> None:
    if not LAYER_NAME.fullmatch(layer.name):
        raise EntryInvalid(f"the manifest names a layer {shorten(layer.name, 40)!r}")
    for what, digest in (("digest", layer.digest), ("content", layer.content)):
        if not DIGEST.fullmatch(digest):
            raise EntryInvalid(f"layer {layer.name}: {what} is not sha256 and 64 hex digits: {shorten(digest, 80)!r}")
    _within(f"layer {layer.name}: size", layer.size, bounds.layer_bytes)
    _within(f"layer {layer.name}: raw_size", layer.raw_size, bounds.raw_bytes)
    _within(f"layer {layer.name}: files", layer.files, bounds.files)


def _within(what: str, value: int, most: int) -> None:
    if not 0 <= value <= most:
        raise EntryInvalid(f"{what} is {value}, not 0 to {most}")
