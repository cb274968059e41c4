"""The names of the store's objects. docs/format.md draws the tree."""

from __future__ import annotations

from warmstart.errors import UsageError, shorten
from warmstart.pattern import pattern

STORE_FORMAT = 1
MARKER = "warmstart-store.json"
CLOCK = "claims/clock"
ENTRIES = "entries/"
BLOBS = "blobs/sha256/"
CLAIMS = "claims/"
USED = "used/"
PRIMARY = "manifest.json"

KEY = pattern(r"[0-9a-f]{64}")
_DIGEST = pattern(r"sha256:([0-9a-f]{64})")
_ENTRY = pattern(rf"{ENTRIES}([0-9a-f]{{64}})/(manifest\.json|other-[0-9a-f]{{64}}\.json)")
_BLOB = pattern(rf"{BLOBS}([0-9a-f]{{64}})")
_CLAIM = pattern(rf"{CLAIMS}([0-9a-f]{{64}})/(\d{{8}})\.json")


def check_key(key: str) -> str:
    """Return `key`; UsageError where it is none, since keys become parts of names."""
    if not KEY.fullmatch(key):
        raise UsageError(f"a key has 64 hex digits, not {shorten(key, 80)!r}")
    return key


def entry(key: str, name: str = PRIMARY) -> str:
    """Return the object that holds a manifest."""
    return f"{ENTRIES}{check_key(key)}/{name}"


def other(digest_hex: str) -> str:
    """Return the name, within an entry, of a result that came second."""
    return f"other-{digest_hex}.json"


def blob(digest: str) -> str:
    """Return the object that holds the bytes with that digest (`sha256:…`)."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise UsageError(f"a digest is sha256: and 64 hex digits, not {shorten(digest, 80)!r}")
    return f"{BLOBS}{match[1]}"


def claim(key: str, generation: int) -> str:
    """Return the object of a claim."""
    return f"{CLAIMS}{check_key(key)}/{generation:08d}.json"


def used(key: str) -> str:
    """Return the object whose time says when the entry was last used."""
    return f"{USED}{check_key(key)}"


def parse_entry(name: str) -> tuple[str, str] | None:
    """Return key and manifest name of an entry's object, or None."""
    match = _ENTRY.fullmatch(name)
    return (match[1], match[2]) if match else None


def parse_blob(name: str) -> str | None:
    """Return the digest (`sha256:…`) that a blob's name states, or None."""
    match = _BLOB.fullmatch(name)
    return f"sha256:{match[1]}" if match else None


def parse_claim(name: str) -> tuple[str, int] | None:
    """Return key and generation of a claim's object, or None."""
    match = _CLAIM.fullmatch(name)
    return (match[1], int(match[2])) if match else None
