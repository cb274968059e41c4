"""Kinds of objects as the API addresses them, and plain JSON in and out. Imports nothing that takes time."""

from __future__ import annotations

import dataclasses
import json
from typing import Any
from urllib.parse import quote

from warmstart.errors import TemporaryError

Object = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Resource:
    """A kind of object as the API addresses it: group ("" for core), version and plural name."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of one object, or of a collection where `name` is empty."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [part for part in (name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes")
CONFIG_MAPS = Resource("", "v1", "configmaps")
EVENTS = Resource("events.k8s.io", "v1", "events")
JOBS = Resource("batch", "v1", "jobs")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
LEADER_WORKER_SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")


def decode(answer: bytes, doing: str) -> Object:
    """Return the object in an answer. Raises `TemporaryError` for anything else: a proxy's page, a cut answer."""
    try:
        decoded = json.loads(answer)
    except (UnicodeDecodeError, ValueError) as error:
        raise TemporaryError(f"{doing}: the answer is not JSON", hint="is the address that of an API server?") from error
    if not isinstance(decoded, dict):
        raise TemporaryError(f"{doing}: the answer is not an object", hint="is the address that of an API server?")
    return decoded


def sentence(method: str, resource: Resource, namespace: str, name: str) -> str:
    """Return a call in words, for messages: get pods web in namespace default."""
    verb = {"GET": "get" if name else "list", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
    return " ".join([verb, str(resource), *([name] if name else []), *([f"in namespace {namespace}"] if namespace else [])])
