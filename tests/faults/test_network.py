"""Between the store and a real S3 server, a proxy that delays, resets, truncates, refuses and corrupts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.faults.conftest import Place, on_s3, says_why, visible
from tests.faults.proxy import Fault, Proxy, flaky
from tests.servers import S3Server
from tests.store.cache import KEY
from tests.store.conftest import Entry, make_entry

from warmstart.archive import install, parse_manifest
from warmstart.errors import EntryNotFound, WarmstartError
from warmstart.store import Store, StoreOptions, open_store

DEADLINE = 40
FAULTS = {
    "delays": (Fault(delay=0.3), "hit", ""),
    "resets before the answer": (Fault(reset=True), "failed", "does not answer"),
    "resets after the work": (Fault(reset=True, after=True), "failed", "does not answer"),
    "cuts answers at once": (Fault(cut=0.0), "", ""),
    "cuts answers in the middle": (Fault(cut=0.5), "", ""),
    "corrupts the first byte": (Fault(corrupt=0.0), "", ""),
    "corrupts the middle": (Fault(corrupt=0.5), "", ""),
    "corrupts the last byte": (Fault(corrupt=1.0), "", ""),
    "answers 500": (Fault(status=500, code="InternalError"), "failed", "InternalError"),
    "answers 503": (Fault(status=503, code="ServiceUnavailable"), "failed", "ServiceUnavailable"),
    "asks to slow down": (Fault(status=503, code="SlowDown"), "failed", "SlowDown"),
    "answers 403": (Fault(status=403, code="AccessDenied"), "failed", "access is denied"),
    "says that the credentials have expired": (Fault(status=403, code="ExpiredToken"), "failed", "expired"),
    "says that the clock is wrong": (Fault(status=403, code="RequestTimeTooSkewed"), "failed", "clock"),
    "hangs": (Fault(delay=60), "failed", ""),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_run_whose_store_misbehaves_ends_well_and_the_next_one_hits(
    what: str, place: Place, proxy: Proxy, seaweedfs: S3Server, tmp_path: Path
) -> None:
    fault, outcome, reason = FAULTS[what]
    settings = on_s3(seaweedfs, proxy.endpoint, tmp_path.name, WARMSTART_DEADLINE=str(DEADLINE), WARMSTART_STORE_TIMEOUT="2s")
    assert place.call("run", WARMSTART_CACHE_ROOT=str(place.root), **settings).document["outcome"] == "compiled"
    whole = visible(place.root)
    place.root.rename(tmp_path / "first")
    for whose in ("", "/blobs/"):
        begin, faults = time.monotonic(), proxy.faults
        with proxy.faulty(lambda request, part=whose: fault if part in request.target else None):  # type: ignore[misc]
            done = place.call("run", "--on-miss=skip", **settings)
        assert proxy.faults > faults
        assert time.monotonic() - begin < DEADLINE
        assert done.code == 0
        assert visible(place.root) in ({}, whole), "part of an entry is visible"
        assert not place.left_over()
        if done.document["outcome"] == "hit":
            assert visible(place.root) == whole
            place.root.rename(tmp_path / f"hit{len(whose)}")
        else:
            assert reason in says_why(done.document)
        if not whose and outcome:
            assert done.document["outcome"] == outcome, done.document
    clean = place.call("run", "--on-miss=skip", **settings)
    assert (clean.document["outcome"], visible(place.root)) == ("hit", whole)


def open_by(client: str, server: S3Server, endpoint: str, prefix: str) -> Store:
    storage = {**server.storage(), "endpoint_url": endpoint}
    options: dict[str, Any] = {"storage": storage, "s3_client": client, "timeout": 2.0}
    return open_store(f"s3://{server.bucket}/{prefix}/store", StoreOptions(**options))


@pytest.fixture(scope="module")
def small_entry(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    return make_entry(tmp_path_factory.mktemp("entry"), artifact_bytes=6000)


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_a_publish_through_a_bad_network_is_whole_or_not_there_and_can_be_repeated(
    client: str, proxy: Proxy, seaweedfs: S3Server, small_entry: Entry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, reasons = {"rounds": 0, "published": 0, "refused": 0, "readers": 0}, set()
    faults = proxy.faults
    for seed in range(12 if client == "obstore" else 4):
        prefix = f"{tmp_path.name}-{client}-{seed}"
        store = open_by(client, seaweedfs, proxy.endpoint, prefix)
        with proxy.faulty(flaky(seed, 0.2)):
            try:
                store.publish(KEY, small_entry.document, small_entry.layers)
                counts["published"] += 1
            except WarmstartError as error:
                reasons.add(type(error).__name__)
                counts["refused"] += 1
        reader = open_by("obstore", seaweedfs, seaweedfs.endpoint, prefix)
        try:
            install(parse_manifest(reader.lookup(KEY).manifest), reader.fetch, tmp_path / f"root{seed}")
            counts["readers"] += 1
        except EntryNotFound:
            pass
        again = open_by("obstore", seaweedfs, seaweedfs.endpoint, prefix)
        assert again.publish(KEY, small_entry.document, small_entry.layers).outcome in ("published", "present")
        assert not again.verify().findings
        counts["rounds"] += 1
    with capsys.disabled():
        print(f"\npublish through faults ({client}): {counts}, {proxy.faults - faults} faults, {sorted(reasons)}")
    assert proxy.faults > faults


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_an_install_through_a_bad_network_is_whole_or_nothing(
    client: str, proxy: Proxy, seaweedfs: S3Server, small_entry: Entry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_by(client, seaweedfs, proxy.endpoint, f"{tmp_path.name}-{client}")
    store.publish(KEY, small_entry.document, small_entry.layers)
    install(parse_manifest(store.lookup(KEY).manifest), store.fetch, tmp_path / "whole")
    whole = visible(tmp_path / "whole")
    counts, reasons = {"installed": 0, "refused": 0}, set()
    faults = proxy.faults
    rounds, share = (40, 0.35) if client == "obstore" else (12, 0.7)
    for seed in range(rounds):
        root = tmp_path / f"root{seed}"
        with proxy.faulty(flaky(1000 + seed, share)):
            try:
                install(parse_manifest(store.lookup(KEY).manifest, key=KEY), store.fetch, root)
                counts["installed"] += 1
            except WarmstartError as error:
                reasons.add(type(error).__name__)
                counts["refused"] += 1
                assert visible(root) == {}
        install(parse_manifest(store.lookup(KEY).manifest, key=KEY), store.fetch, root)
        assert visible(root) == whole
    with capsys.disabled():
        print(f"\ninstall through faults ({client}): {counts}, {proxy.faults - faults} faults, {sorted(reasons)}")
    assert counts["installed"]
    assert counts["refused"]


def test_bytes_that_change_on_the_way_up_are_found_by_the_publisher(
    proxy: Proxy, seaweedfs: S3Server, small_entry: Entry, tmp_path: Path
) -> None:
    store = open_by("obstore", seaweedfs, proxy.endpoint, tmp_path.name)
    damage = Fault(corrupt_sent=0.5)
    with (
        proxy.faulty(lambda request: damage if request.method in ("PUT", "POST") and "/blobs/" in request.target else None),
        pytest.raises(WarmstartError),
    ):
        store.publish(KEY, small_entry.document, small_entry.layers)
    with pytest.raises(EntryNotFound):
        store.lookup(KEY)
    assert store.publish(KEY, small_entry.document, small_entry.layers).outcome == "published"
    assert not store.verify().findings
