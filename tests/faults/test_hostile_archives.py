"""Archives made by hand, put into the store by someone who can, with every digest right: none gets out of its folder."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import Place, says_why, visible
from tests.unit.archive.blobs import layer_of, tar

LINK = {"type": tarfile.SYMTYPE, "size": 0}


def chained(*parts: bytes) -> bytes:
    """Return one tar of several: the end marks of all but the last left out."""
    return b"".join(part.rstrip(b"\0") + bytes(-len(part.rstrip(b"\0")) % 512) for part in parts[:-1]) + parts[-1]


def archives(outside: Path) -> dict[str, tuple[bytes, int, dict[str, Any]]]:
    """Return archives by name: the tar, the files stated, and what else the layer states falsely."""
    up = "../" * 12
    return {
        "traversal": (tar((f"{up}{outside}/x".replace("//", "/"), b"x")), 1, {}),
        "traversal in the middle": (tar((f"a/{up}{outside}/x".replace("//", "/"), b"x")), 1, {}),
        "absolute": (tar((f"{outside}/x", b"x")), 1, {}),
        "symlink": (tar(("a", b""), **LINK, linkname=str(outside)), 1, {}),
        "symlink and a file through it": (chained(tar(("a", b""), **LINK, linkname=str(outside)), tar(("a/x", b"x"))), 2, {}),
        "symlink over the sentinel": (tar(("a", b""), **LINK, linkname=str(outside / "sentinel")), 1, {}),
        "hard link": (tar(("a", b""), type=tarfile.LNKTYPE, size=0, linkname=str(outside / "sentinel")), 1, {}),
        "character device": (tar(("a", b""), type=tarfile.CHRTYPE, devmajor=1, devminor=3, size=0), 1, {}),
        "block device": (tar(("a", b""), type=tarfile.BLKTYPE, devmajor=7, devminor=0, size=0), 1, {}),
        "fifo": (tar(("a", b""), type=tarfile.FIFOTYPE, size=0), 1, {}),
        "folder": (tar(("a", b""), type=tarfile.DIRTYPE, size=0), 1, {}),
        "duplicate": (tar(("a", b"first"), ("a", b"second")), 2, {}),
        "duplicate in another case": (tar(("Kernel", b"first"), ("kernel", b"second")), 2, {}),
        "a file below a file": (tar(("a", b"x"), ("a/b", b"x")), 2, {}),
        "more files than stated": (tar(*((f"f{number}", b"x") for number in range(50))), 2, {}),
        "more bytes than stated": (tar(("a", bytes(32 << 20))), 1, {"raw_size": 4096}),
        "a size beyond the end": (tar(("a", b"x" * 4000))[:2048], 1, {}),
        "our own marker": (tar((".warmstart/key.json", b"{}")), 1, {}),
        "not an archive": (b"MZ" + bytes(4000), 1, {}),
        "nothing at all": (b"", 0, {}),
    }


NAMES = tuple(archives(Path("/outside")))


def offer(place: Place, raw: bytes, files: int, stated: dict[str, Any]) -> None:
    """Put the archive into the store as the shared layer of the entry that is there."""
    layer, blob = layer_of(raw, files=files, **stated)
    blobs = place.store / "blobs" / "sha256"
    (blobs / hashlib.sha256(blob).hexdigest()).write_bytes(blob)
    (path,) = (place.store / "entries").rglob("manifest.json")
    document = json.loads(path.read_text())
    shared = next(item for item in document["layers"] if item["name"] == "shared")
    document["files"] += files - shared["files"]
    shared.update({name: getattr(layer, name) for name in ("digest", "size", "raw_size", "files", "content")})
    document["raw_bytes"] = 0
    path.unlink()
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_archive_installs_nothing_and_the_true_entry_still_does(name: str, place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "sentinel").write_text("precious")
    assert place.call("run").document["outcome"] == "compiled"
    whole = visible(place.root)
    place.root.rename(tmp_path / "first")
    (path,) = (place.store / "entries").rglob("manifest.json")
    true = path.read_bytes()
    offer(place, *archives(outside)[name])
    done = place.call("run", "--on-miss=skip", WARMSTART_DEADLINE="60")
    assert (done.code, done.document["outcome"]) == (0, "miss")
    assert "cannot be used" in says_why(done.document)
    assert "layer shared" in says_why(done.document)
    assert visible(place.root) == {}
    assert not place.left_over()
    assert {item.name: item.read_text() for item in outside.iterdir()} == {"sentinel": "precious"}
    assert (outside / "sentinel").stat().st_nlink == 1
    path.write_bytes(true)
    assert place.call("run", "--on-miss=skip").document["outcome"] == "hit"
    assert visible(place.root) == whole
