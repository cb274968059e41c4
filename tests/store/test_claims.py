"""Single-flight: one claim for each key, in each place."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.store.cache import KEY
from tests.store.conftest import Entry, Place

from warmstart.errors import StoreUnavailable, UsageError
from warmstart.store import Found, names
from warmstart.store.claims import LONGEST_TTL, Body
from warmstart.store.waiting import wait_for
from warmstart.typed import loads, read


def test_a_claim_keeps_others_out_until_it_is_released(place: Place) -> None:
    mine = place.store().claim(KEY, "pod-a", 60)
    assert mine is not None
    assert (mine.key, mine.owner) == (KEY, "pod-a")
    assert place.store().claim(KEY, "pod-b", 60) is None
    assert mine.heartbeat()
    mine.release()
    mine.release()
    theirs = place.store().claim(KEY, "pod-b", 60)
    assert theirs is not None
    assert theirs.heartbeat()
    assert not mine.heartbeat()


def test_of_many_that_claim_together_one_wins(place: Place) -> None:
    stores = [place.store() for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda pair: pair[1].claim(KEY, f"pod-{pair[0]}", 60), enumerate(stores)))
    assert sum(claim is not None for claim in claims) == 1


def test_a_dead_owners_claim_is_taken_over_by_one_and_the_dead_one_learns_it(place: Place) -> None:
    dead = place.store().claim(KEY, "dead", 1)
    assert dead is not None
    stores = [place.store() for _ in range(4)]
    assert stores[0].claim(KEY, "early", 60) is None
    deadline = time.monotonic() + 20
    takers: list[object] = []
    while not takers and time.monotonic() < deadline:
        time.sleep(0.3)
        with ThreadPoolExecutor(4) as pool:
            claims = pool.map(lambda pair: pair[1].claim(KEY, f"taker-{pair[0]}", 60), enumerate(stores))
            takers = [claim for claim in claims if claim is not None]
    assert len(takers) == 1
    assert not dead.heartbeat()
    dead.release()
    assert place.store().claim(KEY, "late", 60) is None


def test_a_heartbeat_keeps_a_short_claim_alive(folder: Place) -> None:
    held = folder.store().claim(KEY, "pod-a", 1)
    assert held is not None
    for _ in range(4):
        time.sleep(0.5)
        assert held.heartbeat()
        assert folder.store().claim(KEY, "pod-b", 60) is None


def test_a_restarted_owner_succeeds_its_dead_self_at_once(place: Place) -> None:
    first = place.store().claim(KEY, "pod-a", 600)
    assert first is not None
    again = place.store().claim(KEY, "pod-a", 600)
    assert again is not None
    assert not first.heartbeat()
    assert again.heartbeat()


def test_old_generations_are_cleared_but_their_count_goes_on(folder: Place) -> None:
    for turn in range(3):
        held = folder.store().claim(KEY, f"pod-{turn}", 60)
        assert held is not None
        held.release()
    left = [info.name for info in folder.backend().objects(f"{names.CLAIMS}{KEY}/")]
    assert left == [names.claim(KEY, 3)]


def test_a_claim_that_cannot_be_read_counts_as_held_for_the_longest_time(folder: Place) -> None:
    store = folder.store()
    first = store.claim(KEY, "pod-a", 60)
    assert first is not None
    folder.backend().put(names.claim(KEY, 1), b"\0not json")
    assert store.claim(KEY, "pod-b", 60) is None


def test_a_claim_cannot_ask_for_more_than_the_longest_time(folder: Place) -> None:
    folder.store().claim(KEY, "x" * 1000, 10**9)
    body = read(Body, loads(folder.backend().get(names.claim(KEY, 1), 4096)))
    assert body.ttl == LONGEST_TTL
    assert len(body.owner) == 256


def test_expiry_goes_by_the_servers_clock_not_this_machines(folder: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    held = folder.store().claim(KEY, "pod-a", 60)
    assert held is not None
    for skew in (-86_400.0, 86_400.0):
        now = time.time() + skew
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert folder.store().claim(KEY, "pod-b", 60) is None


def test_claims_of_different_keys_do_not_meet(folder: Place) -> None:
    assert folder.store().claim(KEY, "pod-a", 60)
    assert folder.store().claim("cd" * 32, "pod-b", 60)
    with pytest.raises(UsageError):
        folder.store().claim("../x", "pod-c", 60)


def test_a_waiter_gets_the_entry_when_it_appears(folder: Place, entry: Entry) -> None:
    held = folder.store().claim(KEY, "pod-a", 60)
    assert held is not None
    waiter = folder.store()
    publishing = threading.Timer(0.5, lambda: folder.store().publish(KEY, entry.document, entry.layers))
    publishing.start()
    got = waiter.wait_for(KEY, time.monotonic() + 20, lambda: waiter.claim(KEY, "pod-b", 60))
    publishing.join()
    assert isinstance(got, Found)
    assert got.manifest == entry.document


def test_a_waiter_gets_the_claim_when_it_comes_free(folder: Place) -> None:
    held = folder.store().claim(KEY, "pod-a", 60)
    assert held is not None
    waiter = folder.store()
    threading.Timer(0.5, held.release).start()
    got = waiter.wait_for(KEY, time.monotonic() + 20, lambda: waiter.claim(KEY, "pod-b", 60))
    assert got is not None
    assert not isinstance(got, Found)
    assert got.owner == "pod-b"


def test_a_waiter_gives_up_at_its_deadline(folder: Place) -> None:
    assert folder.store().claim(KEY, "pod-a", 60)
    waiter = folder.store()
    assert waiter.wait_for(KEY, time.monotonic() + 0.5, lambda: waiter.claim(KEY, "pod-b", 60)) is None


def test_of_sixteen_that_miss_together_one_compiles_and_the_others_install(place: Place, entry: Entry) -> None:
    compiled = []

    def pod(number: int) -> str:
        store = place.store()
        got = store.wait_for(KEY, time.monotonic() + 60, lambda: store.claim(KEY, f"pod-{number}", 30))
        if isinstance(got, Found):
            return "installed"
        assert got is not None
        compiled.append(number)
        time.sleep(0.3)
        outcome = store.publish(KEY, entry.document, entry.layers).outcome
        got.release()
        return outcome

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(pod, range(16)))
    assert len(compiled) == 1
    assert sorted(outcomes) == ["installed"] * 15 + ["published"]


def test_a_store_that_does_not_answer_is_asked_again_until_the_deadline() -> None:
    answers = iter([StoreUnavailable("down"), StoreUnavailable("down"), None])

    def lookup() -> Found:
        if error := next(answers):
            raise error
        return Found(key=KEY, name="manifest.json", manifest=b"{}", signed_by=())

    assert isinstance(wait_for(lookup, lambda: None, time.monotonic() + 60, sleep=lambda _: None), Found)

    def down() -> Found:
        raise StoreUnavailable("down")

    with pytest.raises(StoreUnavailable):
        wait_for(down, lambda: None, time.monotonic() - 1, sleep=lambda _: None)
