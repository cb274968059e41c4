"""Clocks that are hours apart: this machine's, the file server's, the S3 server's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.faults.conftest import Place, on_s3, says_why, visible
from tests.faults.proxy import Fault, Proxy
from tests.servers import S3Server
from tests.store.cache import KEY
from tests.store.conftest import Entry, make_entry

from warmstart.store import GcPolicy, Store, StoreOptions, open_store

HOURS = (-6 * 3600.0, 6 * 3600.0)
POLICY = GcPolicy(max_age=1.0, grace=7200.0)


@pytest.fixture(scope="module")
def small_entry(tmp_path_factory: pytest.TempPathFactory) -> Entry:
    return make_entry(tmp_path_factory.mktemp("entry"), artifact_bytes=3000)


def on(server: S3Server, proxy: Proxy, prefix: str) -> Store:
    storage = {**server.storage(), "endpoint_url": proxy.endpoint}
    return open_store(f"s3://{server.bucket}/{prefix}/store", StoreOptions(storage=storage))


def check_claims_and_collection(store: Store, late: Store, entry: Entry) -> None:
    """Assert that a claim is kept for its time and no longer, and that a fresh entry survives any collection."""
    held = store.claim(KEY, "me", 2)
    assert held
    assert late.claim(KEY, "another", 60) is None, "a living claim was taken over"
    assert store.publish(KEY, entry.document, entry.layers).outcome == "published"
    plan = late.plan_gc(POLICY)
    assert (plan.entries, plan.blobs) == ({}, ()), "a fresh entry would be collected"
    late.collect(plan)
    assert late.lookup(KEY).manifest == entry.document
    assert not late.verify().findings
    deadline = time.monotonic() + 20
    while (taken := late.claim(KEY, "another", 60)) is None and time.monotonic() < deadline:
        time.sleep(0.2)
    assert taken, "an expired claim was never taken over"
    assert not held.heartbeat()


@pytest.mark.parametrize("skew", HOURS)
def test_an_s3_server_whose_clock_is_hours_off_is_believed_throughout(
    skew: float, proxy: Proxy, seaweedfs: S3Server, small_entry: Entry, tmp_path: Path
) -> None:
    with proxy.faulty(lambda _: Fault(skew=skew)):
        prefix = f"{tmp_path.name}{skew > 0}"
        summaries = on(seaweedfs, proxy, prefix)
        check_claims_and_collection(on(seaweedfs, proxy, prefix), on(seaweedfs, proxy, prefix), small_entry)
        (summary,) = summaries.entries()
        assert abs(summary.created - time.time() - skew) < 600, "the proxy did not move the server's clock"


@pytest.mark.parametrize("skew", HOURS)
def test_a_machine_whose_clock_is_hours_off_shares_a_volume_with_others(
    skew: float, small_entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + skew)
    assert abs(time.time() - right()) > 3600
    check_claims_and_collection(open_store(str(tmp_path)), open_store(str(tmp_path)), small_entry)


@pytest.mark.parametrize("skew", HOURS)
def test_an_entry_from_a_writer_whose_clock_is_hours_off_is_found_and_installed(
    skew: float, place: Place, tmp_path: Path
) -> None:
    place.call("run")
    whole = visible(place.root)
    for path in place.store.rglob("*"):
        os.utime(path, (time.time() + skew,) * 2)
    place.root.rename(tmp_path / "first")
    done = place.call("run", "--on-miss=skip")
    assert (done.code, done.document["outcome"], visible(place.root)) == (0, "hit", whole)
    assert place.call("store", "gc", "--older-than=1s", "--grace=2h", "--execute").code == 0
    again = place.call("run", "--on-miss=skip", WARMSTART_CACHE_ROOT=str(place.root))
    assert again.document["outcome"] == "hit"


def test_an_s3_server_that_refuses_our_clock_is_told_apart_from_a_missing_permission(
    place: Place, proxy: Proxy, seaweedfs: S3Server, tmp_path: Path
) -> None:
    settings = on_s3(seaweedfs, proxy.endpoint, tmp_path.name, WARMSTART_DEADLINE="30")
    with proxy.faulty(lambda _: Fault(status=403, code="RequestTimeTooSkewed")):
        done = place.call("run", "--on-miss=skip", **settings)
    assert (done.code, done.document["outcome"]) == (0, "failed")
    assert "set the clock" in says_why(done.document)
