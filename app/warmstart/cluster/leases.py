"""Claims as Leases: pods that miss together agree through the API server on who compiles.

Offers what `store.model.Claims` describes. One Lease for each key. Nobody trusts a client's clock: times written and times
compared are the API server's own (its answers' Date), and every write names the resourceVersion that it replaces, so that of
two takers one wins. Needs the verbs get, create, update and delete on leases in one namespace.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import re
import uuid
from typing import Any

from warmstart.cluster.api import Api
from warmstart.cluster.failures import ObjectConflict, ObjectNotFound
from warmstart.cluster.resources import LEASES, Object
from warmstart.errors import TemporaryError

_LABELS = {"app.kubernetes.io/managed-by": "warmstart", "app.kubernetes.io/component": "claim"}
_PLAIN_KEY = re.compile(r"[a-z0-9]{1,200}")
# Date headers are whole seconds, so the time written may be up to a second early.
_CLOCK_GRAIN = datetime.timedelta(seconds=1)


class LeaseClaims:
    """Makes claims in one namespace. Safe to share between threads."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    def claim(self, key: str, owner: str, ttl: float) -> LeaseClaim | None:
        """Claim `key` for `ttl` seconds (rounded up), or None where a living owner holds it.

        Raises `AccessDenied` with the missing rule, or `TemporaryError` where the API server does not answer.
        """
        holder = f"{owner}_{uuid.uuid4().hex[:8]}"
        name = lease_name(key)
        try:
            written = self._take(name, key, holder, math.ceil(ttl))
        except ObjectConflict:
            return None
        except TemporaryError:
            # The write may have arrived and only its answer got lost; then the claim is ours, and nobody else would use it.
            written = self._own(name, holder)
            if written is None:
                raise
        return None if written is None else LeaseClaim(self._api, self._namespace, written, key, owner)

    def _take(self, name: str, key: str, holder: str, ttl: int) -> Object | None:
        try:
            lease = self._api.get(LEASES, self._namespace, name)
        except ObjectNotFound:
            fresh = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "labels": _LABELS, "annotations": {"warmstart.dev/key": key}},
                "spec": _spec(holder, ttl, self._api.now(), transitions=0),
            }
            return self._api.create(LEASES, self._namespace, fresh)
        if _alive(lease, self._api.now()):
            return None
        transitions = _number(lease["spec"].get("leaseTransitions")) + 1 if lease.get("spec") else 1
        return self._api.replace(
            LEASES, self._namespace, name, {**lease, "spec": _spec(holder, ttl, self._api.now(), transitions=transitions)}
        )

    def _own(self, name: str, holder: str) -> Object | None:
        try:
            lease = self._api.get(LEASES, self._namespace, name)
        except (ObjectNotFound, TemporaryError):
            return None
        return lease if _holder(lease) == holder else None


class LeaseClaim:
    """One claim that is held: see `store.model.Claim`."""

    def __init__(self, api: Api, namespace: str, lease: Object, key: str, owner: str) -> None:
        self._api = api
        self._namespace = namespace
        self._lease = lease
        self._held = True
        self.key = key
        self.owner = owner

    def heartbeat(self) -> bool:
        """Extend the claim to its time to live from now; False where another has taken it over."""
        if not self._held:
            return False
        try:
            self._renew()
        except ObjectConflict:
            self._held = self._renew_reread()
        except ObjectNotFound:
            self._held = False
        return self._held

    def release(self) -> None:
        """Let go, by deleting the very Lease that is held. A lost or released claim is left alone."""
        if not self._held:
            return
        self._held = False
        metadata = self._lease["metadata"]
        try:
            self._api.delete(LEASES, self._namespace, metadata["name"], resource_version=metadata["resourceVersion"])
        except (ObjectConflict, ObjectNotFound):
            return

    def _renew(self) -> None:
        renewed = {**self._lease, "spec": {**self._lease["spec"], "renewTime": _micro_time(self._api.now())}}
        self._lease = self._api.replace(LEASES, self._namespace, renewed["metadata"]["name"], renewed)

    def _renew_reread(self) -> bool:
        """Try once more where something else changed the Lease (a label, say) while it stayed ours."""
        try:
            current = self._api.get(LEASES, self._namespace, self._lease["metadata"]["name"])
            if _holder(current) != _holder(self._lease):
                return False
            self._lease = current
            self._renew()
        except (ObjectConflict, ObjectNotFound):
            return False
        return True


def lease_name(key: str) -> str:
    """Return the name of the Lease for a key: the key itself where it is a DNS name, else its SHA-256."""
    return f"warmstart-{key if _PLAIN_KEY.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()}"


def _spec(holder: str, ttl: int, now: datetime.datetime, *, transitions: int) -> Object:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": max(1, ttl),
        "acquireTime": _micro_time(now),
        "renewTime": _micro_time(now),
        "leaseTransitions": transitions,
    }


def _alive(lease: Object, now: datetime.datetime) -> bool:
    """Whether the Lease has a holder whose time is not over; one that was never renewed counts from its creation."""
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return False
    renewed = spec.get("renewTime") or spec.get("acquireTime") or lease["metadata"]["creationTimestamp"]
    duration = datetime.timedelta(seconds=_number(spec.get("leaseDurationSeconds")))
    return now <= datetime.datetime.fromisoformat(renewed) + duration + _CLOCK_GRAIN


def _holder(lease: Object) -> Any:
    return (lease.get("spec") or {}).get("holderIdentity")


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _micro_time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
