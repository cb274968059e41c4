"""Publishing and looking up, in each place."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.store.cache import KEY, facts, snapshot
from tests.store.conftest import Entry, Place

from warmstart.archive import install, pack, parse_manifest
from warmstart.errors import EntryInvalid, EntryNotFound, StoreUnavailable, UsageError
from warmstart.store import LayerFile, Store, StoreOptions, names
from warmstart.store.backend import Backend
from warmstart.store.store import Store as StoreClass

OTHER_KEY = "ab" * 32


def publish(store: Store, entry: Entry) -> str:
    return store.publish(KEY, entry.document, entry.layers).outcome


def install_into(store: Store, root: Path) -> dict[str, tuple[bytes, int]]:
    found = store.lookup(KEY)
    install(parse_manifest(found.manifest, key=KEY), store.fetch, root)
    return snapshot(root)


def test_what_is_published_installs_elsewhere_byte_for_byte(place: Place, entry: Entry, tmp_path: Path) -> None:
    published = place.store().publish(KEY, entry.document, entry.layers)
    assert published.outcome == "published"
    assert published.uploaded == sum(layer.size for layer in entry.layers)
    installed = install_into(place.store(), tmp_path / "root")
    original = snapshot(entry.root)
    assert len(installed) == entry.packed.manifest.files
    assert installed == {path: original[path] for path in installed}


def test_an_empty_place_has_no_entry_and_reading_leaves_it_empty(place: Place) -> None:
    with pytest.raises(EntryNotFound, match=KEY):
        place.store().lookup(KEY)
    assert list(place.backend().objects("")) == []


def test_another_key_is_not_found(place: Place, entry: Entry) -> None:
    publish(place.store(), entry)
    with pytest.raises(EntryNotFound, match=OTHER_KEY):
        place.store().lookup(OTHER_KEY)


def test_publishing_twice_changes_nothing_and_sends_nothing(place: Place, entry: Entry) -> None:
    publish(place.store(), entry)
    again = place.store().publish(KEY, entry.document, entry.layers)
    assert (again.outcome, again.uploaded, again.skipped) == ("present", 0, len(entry.layers))


def test_the_same_files_packed_at_another_time_are_the_same_result(place: Place, entry: Entry) -> None:
    publish(place.store(), entry)
    later = msgspec.json.encode({**msgspec.json.decode(entry.document), "created": "2031-01-01T00:00:00Z"})
    assert place.store().publish(KEY, later, entry.layers).outcome == "present"
    assert place.store().lookup(KEY).manifest == entry.document


def test_a_different_result_is_kept_beside_and_the_first_one_stays(place: Place, entry: Entry, rival: Entry) -> None:
    publish(place.store(), entry)
    beside = place.store().publish(KEY, rival.document, rival.layers)
    assert beside.outcome == "beside"
    assert beside.name.startswith("other-")
    assert place.store().publish(KEY, rival.document, rival.layers) == dataclasses.replace(beside, uploaded=0, skipped=3)
    assert [found.manifest for found in place.store().candidates(KEY)] == [entry.document, rival.document]


def test_many_publishers_of_one_result_converge_on_one_entry(place: Place, entry: Entry) -> None:
    stores = [place.store() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda store: publish(store, entry), stores))
    assert outcomes.count("published") == 1
    assert outcomes.count("present") == 7
    assert len(list(place.backend().objects(names.ENTRIES))) == 1
    assert place.store().verify().findings == ()


def test_racing_publishers_of_different_results_lose_nothing(place: Place, entry: Entry, rival: Entry) -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda item: publish(place.store(), item), [entry, rival] * 2))
    assert outcomes.count("published") == 1
    assert {found.manifest for found in place.store().candidates(KEY)} == {entry.document, rival.document}
    assert place.store().verify().findings == ()


class Crash(Exception):
    """The publisher dies here."""


class Dying:
    """A back end whose process dies at its n-th write: before it, or right after."""

    def __init__(self, backend: Backend, at: int, *, after: bool) -> None:
        self._backend, self._left, self._after = backend, at, after

    def __getattr__(self, name: str) -> object:
        call = getattr(self._backend, name)
        if name not in ("put", "put_create", "put_file"):
            return call

        def write(*args: object) -> object:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crash
            result = call(*args)
            if self._left == 0:
                raise Crash
            return result

        return write


@pytest.mark.parametrize("place", ["memory", "folder", "seaweedfs-obstore"], indirect=True)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_publisher_that_dies_at_any_write_leaves_all_or_nothing_and_a_retry_succeeds(
    place: Place, entry: Entry, after: bool
) -> None:
    deaths = 0
    for at in range(1, 100):
        prefix = dataclasses.replace(place, url=f"{place.url}/{at}")
        dying = StoreClass(Dying(prefix.backend(), at, after=after), StoreOptions(parallel=1))  # type: ignore[arg-type]
        try:
            publish(dying, entry)
        except Crash:
            deaths += 1
        else:
            break
        try:
            assert prefix.store().lookup(KEY).manifest == entry.document
            assert prefix.store().verify().findings == ()
        except EntryNotFound:
            pass
        assert publish(prefix.store(), entry) in ("published", "present")
        assert prefix.store().lookup(KEY).manifest == entry.document
        assert prefix.store().verify().findings == ()
    assert deaths >= 2 + len(entry.layers)


def test_a_damaged_blob_is_refused_on_install_and_healed_by_the_next_publish(
    place: Place, entry: Entry, tmp_path: Path
) -> None:
    publish(place.store(), entry)
    victim = entry.layers[1]
    place.backend().put(names.blob(victim.digest), bytes(victim.size))
    with pytest.raises(EntryInvalid, match="rank-0-0"):
        install_into(place.store(), tmp_path / "a")
    assert snapshot(tmp_path / "a") == {}
    healed = place.store().publish(KEY, entry.document, entry.layers)
    assert (healed.outcome, healed.uploaded) == ("present", victim.size)
    assert install_into(place.store(), tmp_path / "b")


class Garbling:
    """A back end behind something that damages what is read of blobs on the way."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)

    def read(self, name: str, size: int) -> Iterator[bytes]:
        del name
        yield bytes(size)


def test_a_publisher_that_reads_back_other_bytes_says_so_and_takes_nothing_from_those_who_read_right(
    place: Place, entry: Entry, tmp_path: Path
) -> None:
    publish(place.store(), entry)
    garbled = StoreClass(Garbling(place.backend()), StoreOptions())  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="reads back as other bytes than were sent"):
        publish(garbled, entry)
    assert place.store().verify().findings == ()
    assert install_into(place.store(), tmp_path / "root")


def test_a_missing_blob_is_an_invalid_entry(place: Place, entry: Entry, tmp_path: Path) -> None:
    publish(place.store(), entry)
    place.backend().delete(names.blob(entry.layers[0].digest))
    with pytest.raises(EntryInvalid, match="does not hold the blob"):
        install_into(place.store(), tmp_path / "root")


def test_a_truncated_blob_is_refused(place: Place, entry: Entry, tmp_path: Path) -> None:
    publish(place.store(), entry)
    layer = entry.layers[0]
    place.backend().put(names.blob(layer.digest), layer.path.read_bytes()[: layer.size // 2])
    with pytest.raises(EntryInvalid):
        install_into(place.store(), tmp_path / "root")


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff\xfe", b'{"format": 1}', b"[" * 100_000])
def test_a_damaged_manifest_is_refused_and_a_new_result_is_found_past_it(folder: Place, entry: Entry, damage: bytes) -> None:
    publish(folder.store(), entry)
    folder.backend().put(names.entry(KEY), damage)
    with pytest.raises(EntryInvalid, match="manifest"):
        folder.store().lookup(KEY)
    assert publish(folder.store(), entry) == "beside"
    assert folder.store().lookup(KEY).manifest == entry.document


def test_a_manifest_under_another_key_is_refused(folder: Place, entry: Entry) -> None:
    publish(folder.store(), entry)
    folder.backend().put(names.entry(OTHER_KEY), entry.document)
    with pytest.raises(EntryInvalid, match="not of"):
        folder.store().lookup(OTHER_KEY)


def test_a_prefix_with_other_data_is_refused_for_reading_and_writing(place: Place, entry: Entry) -> None:
    place.backend().put("someone/elses.txt", b"data")
    for call in (lambda: place.store().lookup(KEY), lambda: publish(place.store(), entry), lambda: place.store().usage()):
        with pytest.raises(UsageError, match="not a warmstart store"):
            call()
    assert [info.name for info in place.backend().objects("")] == ["someone/elses.txt"]


def test_a_newer_store_format_is_refused_by_number(place: Place, entry: Entry) -> None:
    place.backend().put(names.MARKER, b'{"format": 7, "new": true}')
    for call in (lambda: place.store().lookup(KEY), lambda: publish(place.store(), entry), lambda: place.store().verify()):
        with pytest.raises(EntryInvalid, match="store format 7"):
            call()


@pytest.mark.parametrize("marker", [b"", b"no json", b'{"format": "1"}', b'{"format": 0}', b'{"format": -3}'])
def test_a_damaged_marker_is_refused(folder: Place, marker: bytes) -> None:
    folder.backend().put(names.MARKER, marker)
    with pytest.raises(EntryInvalid, match=r"format|not readable"):
        folder.store().lookup(KEY)


def test_layers_that_are_not_those_of_the_manifest_are_refused(
    folder: Place, entry: Entry, rival: Entry, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="not those"):
        folder.store().publish(KEY, entry.document, rival.layers)
    with pytest.raises(UsageError, match="not those"):
        folder.store().publish(KEY, entry.document, entry.layers[:-1])
    changed = tmp_path / "changed"
    changed.write_bytes(bytes(entry.layers[0].size))
    layers = [LayerFile(changed, entry.layers[0].digest, entry.layers[0].size), *entry.layers[1:]]
    with pytest.raises(UsageError, match="pack again"):
        folder.store().publish(KEY, entry.document, layers)
    missing = [LayerFile(tmp_path / "no", entry.layers[0].digest, entry.layers[0].size), *entry.layers[1:]]
    with pytest.raises(UsageError, match="cannot read"):
        folder.store().publish(KEY, entry.document, missing)
    with pytest.raises(UsageError, match="64 hex"):
        folder.store().publish("../../etc", entry.document, entry.layers)
    with pytest.raises(EntryInvalid, match="not of"):
        folder.store().publish(OTHER_KEY, entry.document, entry.layers)
    assert list(folder.backend().objects(names.BLOBS)) == []


def test_blobs_shared_by_two_entries_are_stored_once(place: Place, entry: Entry) -> None:
    publish(place.store(), entry)
    second = msgspec.json.encode({**msgspec.json.decode(entry.document), "key": OTHER_KEY})
    published = place.store().publish(OTHER_KEY, second, entry.layers)
    assert (published.outcome, published.uploaded) == ("published", 0)
    assert len(list(place.backend().objects(names.BLOBS))) == len(entry.layers)


def test_use_is_recorded_without_a_word_where_it_may_not_be(place: Place, entry: Entry) -> None:
    publish(place.store(), entry)
    place.store().touch(KEY)
    (summary,) = place.store().entries()
    assert summary.used >= summary.created - 1


def test_a_manifest_with_something_more_is_another_result_even_with_the_same_layers(folder: Place, entry: Entry) -> None:
    """Else a manifest that readers refuse would count as present, and the key would stay cold for good."""
    strange = msgspec.json.encode({**msgspec.json.decode(entry.document), "surprise": 1})
    folder.store().publish(KEY, strange, entry.layers)
    assert publish(folder.store(), entry) == "beside"
    assert entry.document in [found.manifest for found in folder.store().candidates(KEY)]


def test_counters_of_the_pass_do_not_make_another_result(folder: Place, entry: Entry) -> None:
    publish(folder.store(), entry)
    document = msgspec.json.decode(entry.document)
    document["compiled"]["counters"] = {"seconds_ms": 123456}
    assert publish_document(folder, msgspec.json.encode(document), entry) == "present"
    document["compiled"]["graphs"] += 1
    assert publish_document(folder, msgspec.json.encode(document), entry) == "beside"


def publish_document(place: Place, document: bytes, entry: Entry) -> str:
    return place.store().publish(KEY, document, entry.layers).outcome


def test_a_manifest_nested_beyond_reason_does_not_stop_a_publisher(folder: Place, entry: Entry) -> None:
    publish(folder.store(), entry)
    deep = entry.document.replace(b'"factors":{', b'"factors":{"deep":' + b"[" * 50_000 + b"]" * 50_000 + b",", 1)
    folder.backend().put(names.entry(KEY), deep)
    assert publish(folder.store(), entry) == "beside"
    assert entry.document in [found.manifest for found in folder.store().candidates(KEY)]


@pytest.fixture(scope="session")
def retimed(entry: Entry, tmp_path_factory: pytest.TempPathFactory) -> Entry:
    """Pack the same files with other times: the same result in other blobs."""
    folder = tmp_path_factory.mktemp("retimed")
    shutil.copytree(entry.root, folder / "cache")
    for path in (folder / "cache").rglob("*"):
        os.utime(path, ns=(1_600_000_000_000_000_001, 1_600_000_000_000_000_001))
    return Entry(pack(folder / "cache", folder / "work", key=KEY, factors={"seed": 1}, facts=facts(ranks=2), level=3), folder)


def test_the_same_files_with_other_times_are_present_and_nothing_is_sent(place: Place, entry: Entry, retimed: Entry) -> None:
    assert {layer.digest for layer in entry.layers}.isdisjoint(layer.digest for layer in retimed.layers)
    publish(place.store(), entry)
    again = place.store().publish(KEY, retimed.document, retimed.layers)
    assert (again.outcome, again.uploaded, again.skipped) == ("present", 0, 3)
    assert place.store().usage().orphan_blobs == 0


def test_a_damaged_entry_that_cannot_be_healed_gets_a_whole_one_beside(folder: Place, entry: Entry, retimed: Entry) -> None:
    publish(folder.store(), entry)
    folder.backend().delete(names.blob(entry.layers[1].digest))
    for _ in range(2):
        assert publish(folder.store(), retimed) == "beside"
    assert [found.manifest for found in folder.store().candidates(KEY)] == [entry.document, retimed.document]
    assert len(folder.store().verify().findings) == 1
    assert publish(folder.store(), entry) == "present"
    assert folder.store().verify().findings == ()
