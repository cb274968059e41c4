"""Which paths may be in an archive. One rule for packing and for unpacking, so that what packs also unpacks."""

from __future__ import annotations

from warmstart.archive.manifest import Bounds

RESERVED = ".warmstart"


def problem(path: str, bounds: Bounds) -> str:
    """Say what is wrong with a relative path, or return the empty string.

    Refused beside the plainly dangerous (absolute, `..`): control characters and backslashes, which read differently to
    different tools; bytes that are not UTF-8 (surrogates); our own folder, where a made-up marker would pass for an install.
    """
    try:
        raw = path.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    if not raw or len(raw) > bounds.path_bytes:
        return f"has {len(raw)} bytes, not 1 to {bounds.path_bytes}"
    if any(ord(char) < 32 or ord(char) == 127 for char in path) or "\\" in path:
        return "holds a control character or backslash"
    parts = path.split("/")
    if path.startswith("/"):
        return "is absolute"
    if any(part in ("", ".", "..") for part in parts):
        return "holds an empty, . or .. component"
    if any(len(part.encode()) > 255 for part in parts):
        return "holds a component of more than 255 bytes"
    if len(parts) > bounds.depth:
        return f"is {len(parts)} deep, more than {bounds.depth}"
    if parts[0] == RESERVED:
        return f"lies in {RESERVED}"
    return ""


class Taken:
    """The paths seen so far: finds duplicates, also those that differ in case only, and files that are folders elsewhere."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, path: str) -> str:
        """Add a file's path; say what it collides with, or return the empty string."""
        folded = path.casefold()
        if folded in self._files:
            return "is there twice"
        if folded in self._folders:
            return "is a file and a folder"
        parent = folded
        while "/" in parent:
            parent = parent.rpartition("/")[0]
            if parent in self._files:
                return "lies below a file"
            if parent in self._folders:
                break
            self._folders.add(parent)
        self._files.add(folded)
        return ""
