"""What every back end promises (warmstart/store/backend.py), in each place."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.store.conftest import Place

from warmstart.errors import EntryInvalid
from warmstart.store.backend import ObjectMissing
from warmstart.store.ranged import PART


def test_what_was_put_is_read_back(place: Place) -> None:
    backend = place.backend()
    backend.put("used/a", b"first")
    backend.put("used/a", b"second")
    assert backend.get("used/a", 100) == b"second"
    assert b"".join(backend.read("used/a", 6)) == b"second"


def test_create_writes_once_and_then_refuses(place: Place) -> None:
    backend = place.backend()
    assert backend.put_create("entries/a", b"mine")
    assert not backend.put_create("entries/a", b"theirs")
    assert backend.get("entries/a", 100) == b"mine"


def test_of_many_racing_creators_one_wins_and_its_bytes_stay(place: Place) -> None:
    backends = [place.backend() for _ in range(8)]
    for turn in range(3):
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda pair: pair[1].put_create(f"race{turn}", b"%d" % pair[0]), enumerate(backends)))  # noqa: B023
        assert won.count(True) == 1
        assert backends[0].get(f"race{turn}", 100) == b"%d" % won.index(True)


def test_an_object_that_is_written_again_and_again_is_whole_to_every_reader(place: Place, tmp_path: Path) -> None:
    writers = [place.backend() for _ in range(2)]
    first, second = (bytes([byte]) * 2_000_000 for byte in b"ab")
    files = [tmp_path / "first", tmp_path / "second"]
    for path, data in zip(files, (first, second), strict=True):
        path.write_bytes(data)
    place.backend().put_file("blob", files[0])

    def write(turn: int) -> None:
        writers[turn % 2].put_file("blob", files[turn % 2])

    with ThreadPoolExecutor(2) as pool:
        writing = pool.map(write, range(24))
        sizes, seen = set(), set()
        for _ in range(24):
            info = place.backend().stat("blob")
            sizes.add(info and info.size)
            seen.add(place.backend().get("blob", len(first)))
            assert len(list(place.backend().objects(""))) == 1
        list(writing)
    assert sizes == {len(first)}
    assert seen <= {first, second}


def test_a_missing_object_is_missing_in_every_call(place: Place) -> None:
    backend = place.backend()
    with pytest.raises(ObjectMissing):
        backend.get("nothing", 100)
    with pytest.raises(ObjectMissing):
        list(backend.read("nothing", 5))
    assert backend.stat("nothing") is None
    assert list(backend.objects("no/such/")) == []
    backend.delete("nothing")


def test_objects_are_listed_below_a_prefix_with_size_and_time(place: Place) -> None:
    backend = place.backend()
    for name in ("entries/k/manifest.json", "entries/k/other.json", "blobs/sha256/x", "top"):
        backend.put(name, name.encode())
    listed = {info.name: info for info in backend.objects("entries/k/")}
    assert set(listed) == {"entries/k/manifest.json", "entries/k/other.json"}
    assert {info.name for info in backend.objects("")} == {*listed, "blobs/sha256/x", "top"}
    assert {info.name for info in backend.objects("entries/")} == set(listed)
    info = backend.stat("entries/k/other.json")
    assert info is not None
    assert info.size == len("entries/k/other.json")
    assert info == listed["entries/k/other.json"]
    newer = backend.stat("top")
    assert newer is not None
    assert abs(newer.modified - info.modified) < 60


def test_a_deleted_object_is_gone_and_its_neighbours_are_not(place: Place) -> None:
    backend = place.backend()
    backend.put("claims/k/1", b"x")
    backend.put("claims/k/2", b"y")
    backend.delete("claims/k/1")
    assert [info.name for info in backend.objects("claims/")] == ["claims/k/2"]
    assert backend.put_create("claims/k/1", b"again")


def test_a_large_file_travels_in_parts_and_arrives_whole(place: Place, tmp_path: Path) -> None:
    data = random.Random(7).randbytes(2 * PART + 12_345)  # noqa: S311
    (tmp_path / "large").write_bytes(data)
    backend = place.backend()
    backend.put_file("blobs/sha256/large", tmp_path / "large")
    pieces = list(backend.read("blobs/sha256/large", len(data)))
    assert len(pieces) > 2
    assert hashlib.sha256(b"".join(pieces)).digest() == hashlib.sha256(data).digest()


def test_a_reader_may_stop_early(place: Place, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3 * PART))
    backend = place.backend()
    backend.put_file("large", tmp_path / "large")
    pieces = backend.read("large", 3 * PART)
    assert next(pieces)
    pieces.close()  # type: ignore[attr-defined]


def test_an_object_larger_than_the_limit_is_refused(place: Place) -> None:
    backend = place.backend()
    backend.put("big", bytes(1000))
    with pytest.raises(EntryInvalid, match="larger than 999 bytes"):
        backend.get("big", 999)


def test_an_empty_object_is_an_object(place: Place) -> None:
    backend = place.backend()
    backend.put("used/k", b"")
    info = backend.stat("used/k")
    assert info is not None
    assert info.size == 0
    assert backend.get("used/k", 10) == b""


def test_the_url_names_the_place_and_no_credentials(place: Place) -> None:
    backend = place.backend()
    assert "secret" not in backend.url
    assert backend.url.endswith("/store")
