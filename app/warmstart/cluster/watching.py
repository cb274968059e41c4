"""Waking up when something changed: watches of workloads and Jobs that set one flag. What changed is then looked up afresh.

Watches make a rollout noticed in seconds. Nothing rests on them: one that breaks costs time until the next full look, no more.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable

from warmstart.cluster.api import Api
from warmstart.cluster.failures import ObjectNotFound
from warmstart.cluster.jobs import SELECTED
from warmstart.cluster.resources import JOBS, Object, Resource
from warmstart.cluster.workloads import job_state
from warmstart.errors import WarmstartError

_WATCH_SECONDS = 60
_LONGEST_BACKOFF_SECONDS = 60.0
# A kind that the cluster does not have may be installed later.
_ABSENT_SECONDS = 300.0


class Watches:
    """One thread for each kind and namespace. The threads end with the process; `close` lets them end earlier."""

    def __init__(self, api: Api, resources: Iterable[Resource], namespaces: Iterable[str], selector: str) -> None:
        self._api = api
        self._changed = threading.Event()
        self._closed = threading.Event()
        jobs = ",".join(f"{name}={value}" for name, value in SELECTED.items())
        for namespace in tuple(namespaces) or ("",):
            for resource in resources:
                self._start(resource, namespace, selector)
            self._start(JOBS, namespace, jobs)

    def wait(self, seconds: float) -> bool:
        """Wait until something changed, at most `seconds`; True where it did. Changes until then are forgotten."""
        changed = self._changed.wait(seconds)
        self._changed.clear()
        return changed

    def close(self) -> None:
        """Let the threads end at their next turn."""
        self._closed.set()

    def _start(self, resource: Resource, namespace: str, labels: str) -> None:
        threading.Thread(target=self._follow, args=(resource, namespace, labels), name=f"watch {resource}", daemon=True).start()

    def _follow(self, resource: Resource, namespace: str, labels: str) -> None:
        seen: dict[str, object] = {}
        backoff = 1.0
        while not self._closed.is_set():
            try:
                for change in self._api.watch(resource, namespace, labels=labels, seconds=_WATCH_SECONDS):
                    self._note(resource, change, seen)
                    backoff = 1.0
            except ObjectNotFound:
                self._closed.wait(_ABSENT_SECONDS)
            except WarmstartError:
                self._closed.wait(backoff * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, keeps no secret
                backoff = min(2 * backoff, _LONGEST_BACKOFF_SECONDS)
                self._changed.set()  # something may have been missed

    def _note(self, resource: Resource, change: Object, seen: dict[str, object]) -> None:
        """Set the flag where what matters is new: a workload's spec, or that a Job has finished; the rest comes and goes."""
        thing = change["object"]
        uid = thing["metadata"]["uid"]
        mark = job_state(thing).state if resource == JOBS else thing["metadata"].get("generation")
        if change["type"] == "DELETED":
            seen.pop(uid, None)
            self._changed.set()
        elif seen.get(uid, _NEVER) != mark:
            seen[uid] = mark
            self._changed.set()


_NEVER = object()
