"""One bit flipped, in every byte of an entry's manifest and every four bytes of its blobs: found before anything is visible."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.conftest import Place, says_why, visible
from tests.faults.operations import KEY, make_entry

from warmstart.archive import install, parse_manifest
from warmstart.errors import EntryInvalid
from warmstart.store import Store, StoreOptions, keygen, open_store


def every_range(path: Path, seed: int, length: int) -> Iterator[int]:
    """Flip one bit in each range of `length` bytes of a file in turn; put the file right at the end. Yield the position."""
    whole = path.read_bytes()
    path.chmod(0o644)
    draw = random.Random(seed)  # noqa: S311
    for start in range(0, len(whole), length):
        position = min(start + draw.randrange(length), len(whole) - 1)
        damaged = bytearray(whole)
        damaged[position] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        yield position
    path.write_bytes(whole)


def taken(store: Store, root: Path) -> bytes | None:
    """Look up and install; return the manifest that was believed, None where the entry was refused."""
    try:
        found = store.lookup(KEY)
        install(parse_manifest(found.manifest, key=KEY), store.fetch, root)
    except EntryInvalid:
        assert visible(root) == {}, "part of a damaged entry is visible"
        return None
    return found.manifest


@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing_that_is_installed(
    signed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = make_entry(tmp_path, KEY, 1)
    options = StoreOptions()
    if signed:
        public = keygen(tmp_path / "key.pem")
        options = StoreOptions(signing_key=tmp_path / "key.pem", trusted_keys=(public,), require_signature=True)
    entry.publish(open_store(str(tmp_path / "store"), options))
    store = open_store(str(tmp_path / "store"), options)
    whole = {path: data for path, (data, _) in entry.files.items()}
    seed = random.SystemRandom().randrange(1 << 30)
    counts = {"flips": 0, "refused": 0, "harmless": 0}
    for path in sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.parts[-2] != "claims"):
        is_blob = "blobs" in path.parts
        if signed and is_blob:
            continue  # the same as unsigned
        for position in every_range(path, seed, 4 if is_blob else 1):
            root = tmp_path / "roots" / f"{path.name[:8]}-{position}"
            opened = open_store(str(tmp_path / "store"), options) if "warmstart-store.json" in path.name else store
            manifest = taken(opened, root)
            counts["flips"] += 1
            counts["refused" if manifest is None else "harmless"] += 1
            assert not (is_blob and manifest), f"seed {seed}: a flip at byte {position} of a blob went unseen"
            if manifest is not None:
                assert visible(root) == whole, f"seed {seed}: byte {position} of {path.name} changed what is installed"
                assert not signed or manifest == entry.packed.document, f"seed {seed}: a signed manifest changed unseen"
    with capsys.disabled():
        print(f"\nflipped bits ({'signed' if signed else 'unsigned'}): seed {seed}, {counts}")
    assert taken(store, tmp_path / "after") == entry.packed.document


def test_a_run_that_meets_flipped_bits_says_so_and_a_clean_one_hits(place: Place, tmp_path: Path) -> None:
    place.call("run")
    whole = visible(place.root)
    place.root.rename(tmp_path / "first")
    objects = sorted(path for path in place.store.rglob("*") if path.is_file() and {"blobs", "entries"} & set(path.parts))
    draw = random.Random(7)  # noqa: S311
    for path in objects:
        data = path.read_bytes()
        for part in range(6):
            damaged = bytearray(data)
            position = (2 * part + 1) * len(data) // 12
            damaged[position] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            done = place.call("run", "--on-miss=skip", WARMSTART_DEADLINE="60")
            assert done.code == 0
            if done.document["outcome"] == "hit":
                assert "entries" in path.parts
                assert visible(place.root) == whole
                place.root.rename(tmp_path / f"{path.name[:8]}-{part}")
            else:
                assert done.document["outcome"] == "miss"
                assert "cannot be used" in says_why(done.document)
                assert visible(place.root) == {}
        path.write_bytes(data)
    assert place.call("run", "--on-miss=skip").document["outcome"] == "hit"
    assert visible(place.root) == whole
