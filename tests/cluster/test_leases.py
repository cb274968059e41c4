"""Claims as Leases: one of many takers wins, a dead owner loses, and only the server's clock counts."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.cluster.conftest import Account, Rules, eventually

from warmstart.cluster.api import Api, connect
from warmstart.cluster.failures import ObjectConflict, ObjectNotFound
from warmstart.cluster.leases import LeaseClaims, lease_name
from warmstart.cluster.resources import LEASES
from warmstart.errors import AccessDenied, TemporaryError

if TYPE_CHECKING:
    from warmstart.store.model import Claim, Claims

pytestmark = pytest.mark.cluster

KEY = "ab" * 32
CLAIM_RULES = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "delete"]}]


def test_a_lease_claim_is_a_claim_of_the_store(admin: Api, namespace: str) -> None:
    """The type checker compares the two; here each call answers as the store's."""
    claims: Claims = LeaseClaims(admin, namespace)
    claim: Claim | None = claims.claim(KEY, "pod-a", 60)
    assert claim is not None
    assert (claim.key, claim.owner) == (KEY, "pod-a")
    assert claim.heartbeat() is True
    assert claims.claim(KEY, "pod-b", 60) is None
    claim.release()
    claim.release()
    assert claim.heartbeat() is False
    assert claims.claim(KEY, "pod-b", 60) is not None


def test_the_rules_of_the_docs_are_enough_and_needed(account: Callable[[Rules], Account], namespace: str) -> None:
    claim = LeaseClaims(account(CLAIM_RULES).connect(), namespace).claim(KEY, "pod-a", 60)
    assert claim is not None
    assert claim.heartbeat()
    claim.release()
    with pytest.raises(AccessDenied, match=r'coordination.k8s.io.*"leases".*"get"'):
        LeaseClaims(account([]).connect(), namespace).claim(KEY, "pod-b", 60)


def test_of_many_takers_of_a_free_key_one_wins(kubeconfig: str, namespace: str) -> None:
    """Each taker has a connection of its own and all start at one moment; 10 keys, 16 takers each."""
    takers = [LeaseClaims(connect(kubeconfig), namespace) for _ in range(16)]
    for round_ in range(10):
        assert _race(takers, f"free{round_}") == 1


def test_of_many_takers_of_a_dead_owners_key_one_wins(admin: Api, kubeconfig: str, namespace: str) -> None:
    takers = [LeaseClaims(connect(kubeconfig), namespace) for _ in range(16)]
    for round_ in range(5):
        key = f"dead{round_}"
        assert LeaseClaims(admin, namespace).claim(key, "dead", 60) is not None
        _age(admin, namespace, key, seconds=3600)
        assert _race(takers, key) == 1
        assert admin.get(LEASES, namespace, lease_name(key))["spec"]["leaseTransitions"] == 1


def test_an_owner_that_lives_keeps_its_claim_beyond_the_first_time_to_live(admin: Api, namespace: str) -> None:
    """With a time to live of 1 s the heartbeats of 3 s decide, not the moment of claiming."""
    owner = LeaseClaims(admin, namespace).claim(KEY, "alive", 1)
    assert owner is not None
    for _ in range(6):
        time.sleep(0.5)
        assert owner.heartbeat()
        assert LeaseClaims(admin, namespace).claim(KEY, "taker", 1) is None


def test_an_owner_that_dies_is_followed_by_itself_alone(admin: Api, namespace: str) -> None:
    """Nobody helps: the taker gets in once the time to live is over, and the dead owner notices when it comes back."""
    dead = LeaseClaims(admin, namespace).claim(KEY, "dead", 1)
    assert dead is not None
    taker = eventually(lambda: LeaseClaims(admin, namespace).claim(KEY, "taker", 60), seconds=10)
    assert dead.heartbeat() is False
    dead.release()
    assert taker.heartbeat() is True, "the dead owner's release took the taker's claim away"


def test_a_client_whose_clock_is_hours_off_neither_steals_nor_starves(
    admin: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that reads the wall clock in this process is off; only the server's own time is right."""
    claim = LeaseClaims(admin, namespace).claim(KEY, "pod-a", 60)
    assert claim is not None
    true_time, true_datetime = time.time, datetime.datetime
    for skew in (-5 * 3600, 5 * 3600):

        class Skewed(true_datetime):  # type: ignore[misc, valid-type]
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None, offset: int = skew) -> datetime.datetime:
                return true_datetime.now(tz) + datetime.timedelta(seconds=offset)

        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda offset=skew: true_time() + offset)
            patch.setattr(datetime, "datetime", Skewed)
            assert LeaseClaims(admin, namespace).claim(KEY, "pod-b", 60) is None
            assert claim.heartbeat()
        written = admin.get(LEASES, namespace, lease_name(KEY))["spec"]["renewTime"]
        assert abs(datetime.datetime.fromisoformat(written).timestamp() - time.time()) < 60


def test_a_heartbeat_survives_a_change_by_someone_else(admin: Api, namespace: str) -> None:
    claim = LeaseClaims(admin, namespace).claim(KEY, "pod-a", 60)
    assert claim is not None
    admin.merge(LEASES, namespace, lease_name(KEY), {"metadata": {"labels": {"seen-by": "operator"}}})
    assert claim.heartbeat() is True
    assert admin.get(LEASES, namespace, lease_name(KEY))["metadata"]["labels"]["seen-by"] == "operator"


def test_a_deleted_lease_is_a_lost_claim(admin: Api, namespace: str) -> None:
    claim = LeaseClaims(admin, namespace).claim(KEY, "pod-a", 60)
    assert claim is not None
    admin.delete(LEASES, namespace, lease_name(KEY))
    assert claim.heartbeat() is False
    claim.release()


def test_release_leaves_nothing_behind(admin: Api, namespace: str) -> None:
    claim = LeaseClaims(admin, namespace).claim(KEY, "pod-a", 60)
    assert claim is not None
    claim.release()
    with pytest.raises(ObjectNotFound):
        admin.get(LEASES, namespace, lease_name(KEY))


def test_a_stale_write_is_refused(admin: Api, namespace: str) -> None:
    """What everything above rests on: the API server compares resourceVersion."""
    LeaseClaims(admin, namespace).claim(KEY, "pod-a", 60)
    old = admin.get(LEASES, namespace, lease_name(KEY))
    admin.merge(LEASES, namespace, lease_name(KEY), {"spec": {"holderIdentity": "someone"}})
    with pytest.raises(ObjectConflict):
        admin.replace(LEASES, namespace, lease_name(KEY), old)


def test_a_claim_whose_answer_got_lost_is_found_again(kubeconfig: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write arrives, its answer does not: the claim is the caller's, not everybody's loss for a time to live."""
    api = connect(kubeconfig)
    create = api.create

    def create_and_lose(*args: object, **kwargs: object) -> None:
        create(*args, **kwargs)  # type: ignore[arg-type]
        raise TemporaryError("the connection was reset")

    monkeypatch.setattr(api, "create", create_and_lose)
    claim = LeaseClaims(api, namespace).claim(KEY, "pod-a", 60)
    assert claim is not None
    assert claim.heartbeat() is True


def test_any_text_is_a_key() -> None:
    assert lease_name(KEY) == f"warmstart-{KEY}"
    assert lease_name("../Über key") == f"warmstart-{lease_name('../Über key')[10:]}"
    assert len(lease_name("x/" * 500)) == len("warmstart-") + 64


def _race(takers: list[LeaseClaims], key: str) -> int:
    """Return how many takers got the claim."""
    gate = threading.Barrier(len(takers))

    def take(numbered: tuple[int, LeaseClaims]) -> bool:
        number, claims = numbered
        gate.wait()
        return claims.claim(key, f"taker-{number}", 60) is not None

    with ThreadPoolExecutor(len(takers)) as pool:
        return sum(pool.map(take, enumerate(takers)))


def _age(admin: Api, namespace: str, key: str, *, seconds: int) -> None:
    """Let a claim look as if its owner was last heard of a while ago."""
    past = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    admin.merge(LEASES, namespace, lease_name(key), {"spec": {"renewTime": past}})
