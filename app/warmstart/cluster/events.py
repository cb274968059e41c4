"""Events on a workload: what pre-warming did about it, where `kubectl describe` and `kubectl events` show it.

An Event that says the same thing again is counted up, not repeated: its name is made of what it says. The API server forgets
Events after an hour, which is how long one is counted. Needs the verbs create, get and patch on events.events.k8s.io.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from typing import Literal

from warmstart.cluster.api import Api
from warmstart.cluster.failures import ObjectConflict, ObjectNotFound
from warmstart.cluster.resources import EVENTS, Object

_CONTROLLER = "warmstart.dev/prewarm"
_LONGEST_NOTE = 1000


@dataclasses.dataclass(frozen=True)
class Notice:
    """One thing to say about an object. `reason` is one word in CamelCase, `note` a sentence."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


class Events:
    """Writes Events, as one instance of the controller."""

    def __init__(self, api: Api, *, instance: str) -> None:
        self._api = api
        self._instance = instance[:128] or "warmstart"

    def say(self, about: Object, notice: Notice) -> None:
        """Write an Event on an object as read from the API server (a cluster-scoped one goes to namespace default)."""
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or "default"
        name = _name(metadata, notice)
        try:
            self._api.create(EVENTS, namespace, self._event(about, name, notice))
        except ObjectConflict:
            self._count_up(namespace, name)

    def _event(self, about: Object, name: str, notice: Notice) -> Object:
        metadata = about["metadata"]
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name},
            "eventTime": self._now(),
            "type": notice.type,
            "reason": notice.reason,
            "action": notice.action,
            "note": notice.note[:_LONGEST_NOTE],
            "reportingController": _CONTROLLER,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                **{field: metadata[field] for field in ("namespace", "uid") if metadata.get(field)},
            },
        }

    def _count_up(self, namespace: str, name: str) -> None:
        try:
            seen = self._api.get(EVENTS, namespace, name)
            count = (seen.get("series") or {}).get("count", 1) + 1
            self._api.merge(EVENTS, namespace, name, {"series": {"count": count, "lastObservedTime": self._now()}})
        except (ObjectConflict, ObjectNotFound):  # it ran out, or another instance counted: nothing is lost
            return

    @staticmethod
    def _now() -> str:
        return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _name(metadata: Object, notice: Notice) -> str:
    said = "\n".join((str(metadata.get("uid")), notice.type, notice.reason, notice.action, notice.note))
    return f"{metadata['name'][:200]}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
