"""Looking after a store: ls, verify, gc, rm, du."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.store.conftest import Entry, Place, make_entry

from warmstart.errors import EntryNotFound, UsageError
from warmstart.store import GcPolicy, names
from warmstart.store.gc import LEAST_GRACE
from warmstart.store.view import view

KEYS = [f"{number:02x}" * 32 for number in range(1, 4)]
DAY = 86_400.0


@pytest.fixture(scope="module")
def entries(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """Pack three entries of different files, for different vLLM versions."""
    versions = ("0.32.1", "0.33.0", "0.33.0")
    return [
        make_entry(tmp_path_factory.mktemp("entry"), seed=10 + number, key=key, vllm=version)
        for number, (key, version) in enumerate(zip(KEYS, versions, strict=True))
    ]


def publish(place: Place, *items: Entry) -> None:
    for item in items:
        place.store().publish(item.packed.manifest.key, item.document, item.layers)


def age(place: Place, days: float, *keys: str) -> None:
    """Make objects of a folder store older: everything, or what belongs to some keys."""
    root = Path(place.url)
    digests = {
        layer.digest.removeprefix("sha256:") for key in keys for layer in view(place.store().lookup(key).manifest).layers
    }
    for path in root.rglob("*"):
        if path.is_file() and (not keys or path.name in digests or any(key in str(path) for key in keys)):
            then = path.stat().st_mtime - days * DAY
            os.utime(path, (then, then))


def keys_left(place: Place) -> set[str]:
    return {summary.key for summary in place.store().entries()}


def test_entries_are_listed_with_what_they_are(place: Place, entries: list[Entry]) -> None:
    publish(place, *entries)
    listed = {summary.key: summary for summary in place.store().entries()}
    assert set(listed) == set(KEYS)
    summary, manifest = listed[KEYS[0]], entries[0].packed.manifest
    assert (summary.model, summary.gpu, summary.vllm) == ("Qwen/Qwen3-0.6B", "NVIDIA H200", "0.32.1")
    assert (summary.raw_bytes, summary.stored_bytes) == (manifest.raw_bytes, entries[0].packed.stored_bytes)
    assert summary.problem == ""


def test_an_entry_that_cannot_be_read_is_listed_with_its_problem(folder: Place, entries: list[Entry]) -> None:
    publish(folder, entries[0])
    folder.backend().put(names.entry(KEYS[1]), b"{ not json")
    problems = {summary.key: summary.problem for summary in folder.store().entries()}
    assert problems[KEYS[0]] == ""
    assert "not readable" in problems[KEYS[1]]


def test_a_whole_store_verifies_and_each_kind_of_damage_is_found(place: Place, entries: list[Entry]) -> None:
    publish(place, *entries)
    good = place.store().verify()
    assert (good.entries, good.blobs, good.findings) == (3, 9, ())
    assert good.bytes == sum(layer.size for item in entries for layer in item.layers)
    backend = place.backend()
    missing, short, changed = (names.blob(entries[0].layers[number].digest) for number in range(3))
    backend.delete(missing)
    backend.put(short, b"short")
    backend.put(changed, bytes(entries[0].layers[2].size))
    backend.put(names.entry(KEYS[1]), b"null")
    stray = names.blob("sha256:" + "0" * 64)
    backend.put(stray, b"not what its name says")
    found = {finding.name: finding.problem for finding in place.store().verify().findings}
    assert set(found) == {missing, short, changed, stray, names.entry(KEYS[1])}
    assert "missing" in found[missing]
    assert "5 bytes" in found[short]
    assert "digest" in found[changed]


def test_verify_of_one_key_looks_at_that_key_alone(folder: Place, entries: list[Entry]) -> None:
    publish(folder, *entries)
    folder.backend().delete(names.blob(entries[0].layers[0].digest))
    assert len(folder.store().verify([KEYS[0]]).findings) == 1
    assert folder.store().verify([KEYS[1]]).findings == ()


def test_usage_adds_up(place: Place, entries: list[Entry]) -> None:
    publish(place, *entries)
    place.store().remove(KEYS[0])
    used = place.store().usage()
    assert (used.entries, used.blobs, used.orphan_blobs) == (2, 9, 3)
    assert used.orphan_bytes == sum(layer.size for layer in entries[0].layers)
    total = sum(info.size for info in place.backend().objects(""))
    assert used.blob_bytes + used.manifest_bytes + used.other_bytes == total


def test_a_removed_entry_is_gone_and_the_others_are_not(place: Place, entries: list[Entry]) -> None:
    publish(place, *entries)
    place.store().touch(KEYS[0])
    assert place.store().remove(KEYS[0]) == 1
    assert place.store().remove(KEYS[0]) == 0
    with pytest.raises(EntryNotFound):
        place.store().lookup(KEYS[0])
    assert keys_left(place) == set(KEYS[1:])
    assert names.used(KEYS[0]) not in {info.name for info in place.backend().objects("")}


def test_a_plan_removes_nothing_and_young_objects_are_never_planned(place: Place, entries: list[Entry]) -> None:
    publish(place, *entries)
    plan = place.store().plan_gc(GcPolicy(keep=0, vllm=("*",), max_bytes=0, max_age=0))
    assert (plan.entries, plan.blobs, plan.kept_entries) == ({}, (), 3)
    assert keys_left(place) == set(KEYS)


@pytest.mark.parametrize(
    ("policy", "gone", "reason"),
    [
        (GcPolicy(max_age=20 * DAY), {KEYS[0]}, "not used for 30.0 days"),
        (GcPolicy(keep=1), {KEYS[0], KEYS[1]}, "more than 1 entries"),
        (GcPolicy(vllm=("0.32.*",)), {KEYS[0]}, "of vLLM 0.32.1"),
        (GcPolicy(max_bytes=0), set(KEYS), "more than 0 bytes"),
        (GcPolicy(), set(), ""),
    ],
    ids=["age", "count", "vllm", "size", "nothing"],
)
def test_each_rule_lets_go_what_it_says_and_no_more(
    folder: Place, entries: list[Entry], policy: GcPolicy, gone: set[str], reason: str
) -> None:
    publish(folder, *entries)
    for key, days in zip(KEYS, (30.0, 10.0, 5.0), strict=True):
        age(folder, days, key)
    plan = folder.store().plan_gc(policy)
    assert set(plan.entries) == {names.entry(key) for key in gone}
    assert all(reason in why for why in plan.entries.values())
    assert len(plan.blobs) == 3 * len(gone)
    done = folder.store().collect(plan)
    assert (done.entries, done.blobs, done.spared) == (len(gone), 3 * len(gone), 0)
    assert done.freed == plan.freed
    assert keys_left(folder) == set(KEYS) - gone
    assert folder.store().verify().findings == ()
    assert folder.store().usage().orphan_blobs == 0


def test_a_recently_used_entry_is_not_old(folder: Place, entries: list[Entry]) -> None:
    publish(folder, *entries)
    age(folder, 30)
    folder.store().touch(KEYS[0])
    plan = folder.store().plan_gc(GcPolicy(max_age=20 * DAY))
    assert set(plan.entries) == {names.entry(key) for key in KEYS[1:]}


def test_an_entry_used_after_the_plan_is_spared_with_its_blobs(folder: Place, entries: list[Entry]) -> None:
    publish(folder, *entries)
    age(folder, 30)
    plan = folder.store().plan_gc(GcPolicy(max_age=20 * DAY))
    folder.store().touch(KEYS[0])
    done = folder.store().collect(plan)
    assert (done.entries, done.blobs, done.spared) == (2, 6, 4)
    assert keys_left(folder) == {KEYS[0]}
    assert folder.store().verify().findings == ()


def test_a_blob_that_another_entry_names_stays(folder: Place, entries: list[Entry]) -> None:
    publish(folder, entries[0])
    shared = entries[0].document.replace(KEYS[0].encode(), KEYS[1].encode())
    folder.store().publish(KEYS[1], shared, entries[0].layers)
    age(folder, 30)
    folder.store().touch(KEYS[1])
    folder.store().collect(folder.store().plan_gc(GcPolicy(max_age=20 * DAY)))
    assert keys_left(folder) == {KEYS[1]}
    assert folder.store().verify().findings == ()


def test_a_manifest_that_cannot_be_read_keeps_every_blob_and_is_named(folder: Place, entries: list[Entry]) -> None:
    publish(folder, *entries)
    folder.backend().put(names.entry(KEYS[2]), b'{"format": 2, "key": 5}')
    age(folder, 30)
    plan = folder.store().plan_gc(GcPolicy())
    assert plan.blobs == ()
    assert plan.blocked == names.entry(KEYS[2])
    folder.store().remove(KEYS[2])
    assert len(folder.store().plan_gc(GcPolicy()).blobs) == 3


def test_a_publish_in_progress_loses_nothing_to_a_collection(folder: Place, entries: list[Entry]) -> None:
    """The blobs lie there, old, without a manifest: a publish that finds them writes them anew before it relies on them."""
    publish(folder, entries[0])
    folder.store().remove(KEYS[0])
    age(folder, 30)
    plan = folder.store().plan_gc(GcPolicy())
    assert len(plan.blobs) == 3
    published = folder.store().publish(KEYS[0], entries[0].document, entries[0].layers)
    assert published.uploaded == sum(layer.size for layer in entries[0].layers)
    done = folder.store().collect(plan)
    assert (done.blobs, done.spared) == (0, 3)
    assert folder.store().verify().findings == ()


def test_collections_and_publishes_side_by_side_leave_whole_entries(folder: Place, entries: list[Entry]) -> None:
    publish(folder, *entries)
    age(folder, 30)

    def gc(_: int) -> None:
        folder.store().collect(folder.store().plan_gc(GcPolicy(max_age=DAY)))

    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(gc, 0)] + [pool.submit(publish, folder, item) for item in entries] + [pool.submit(gc, 1)]
        for job in jobs:
            job.result()
    publish(folder, *entries)
    assert keys_left(folder) == set(KEYS)
    assert folder.store().verify().findings == ()


def test_a_grace_period_that_a_publish_could_outlast_is_refused(folder: Place, entries: list[Entry]) -> None:
    publish(folder, entries[0])
    with pytest.raises(UsageError, match="grace"):
        folder.store().plan_gc(GcPolicy(grace=LEAST_GRACE - 1))


def test_what_dead_writers_and_old_claims_left_is_swept(folder: Place, entries: list[Entry]) -> None:
    publish(folder, entries[0])
    held = folder.store().claim(KEYS[1], "pod", 60)
    assert held is not None
    leftover = Path(folder.url) / "blobs/sha256/.tmp-dead"
    leftover.write_bytes(b"half a blob")
    folder.backend().put(names.used(KEYS[2]), b"")
    age(folder, 3)
    folder.store().touch(KEYS[0])
    young = Path(folder.url) / "blobs/sha256/.tmp-alive"
    young.write_bytes(b"being written")
    assert leftover.name not in {info.name.rpartition("/")[2] for info in folder.backend().objects("")}
    done = folder.store().collect(folder.store().plan_gc(GcPolicy()))
    assert done.others == 3
    assert not leftover.exists()
    assert young.exists()
    assert [info.name for info in folder.backend().objects(names.CLAIMS)] == [names.CLOCK]


def test_age_goes_by_the_servers_clock(folder: Place, entries: list[Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    publish(folder, *entries)
    now = time.time() + 365 * DAY
    monkeypatch.setattr(time, "time", lambda: now)
    assert folder.store().plan_gc(GcPolicy(max_age=DAY)).entries == {}


def test_two_collections_of_one_plan_do_not_fall_over_each_other(folder: Place, entries: list[Entry]) -> None:
    publish(folder, *entries)
    age(folder, 30)
    plan = folder.store().plan_gc(GcPolicy(keep=1))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: folder.store().collect(plan), range(2)))
    assert len(keys_left(folder)) == 1
    assert folder.store().usage().blobs == 3
    assert folder.store().verify().findings == ()
