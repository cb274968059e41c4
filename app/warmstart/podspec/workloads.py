"""Kubernetes object → the pods it makes.

One rule for every kind: a mapping with a list `containers` below `spec` is a pod spec. That covers Pod, Deployment,
StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, LeaderWorkerSet, JobSet, Argo Rollout, RayService and KServe's
InferenceService and LLMInferenceService, and kinds that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from warmstart.errors import SpecError, shorten
from warmstart.podspec.plain import Plain, mapping, strings, text
from warmstart.podspec.request import Workload
from warmstart.value import Value

_LAYERS = frozenset({"spec", "template", "jobTemplate", "leaderWorkerTemplate", "templates"})

_LONGEST_NAME = 253


class PodTemplate(Value):
    """One pod spec inside an object.

    `role` tells the pods of one object apart ("leaderTemplate", "prefill/worker"); it is empty where the object makes one
    kind of pod. `injected` are variables that the object's controller adds with values known from the spec,
    `injected_unknown` those whose values differ from pod to pod, with where they come from.
    """

    workload: Workload
    role: str
    where: str
    spec: Plain
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    injected: Mapping[str, str]
    injected_unknown: Mapping[str, str]


def pod_templates(document: Plain) -> list[PodTemplate]:
    """Return every pod spec in a Kubernetes object, in the object's order. Raises SpecError on metadata of the wrong type."""
    kind = text(document, "kind", "object")
    metadata = mapping(document, "metadata", kind)
    name = text(metadata, "name", f"{kind}.metadata") or text(metadata, "generateName", f"{kind}.metadata")
    if len(name) > _LONGEST_NAME:
        raise SpecError(f"{shorten(kind, 60)} {shorten(name, 60)!r} has a name longer than {_LONGEST_NAME} characters")
    workload = Workload(kind, text(metadata, "namespace", f"{kind}.metadata"), name)
    templates = []
    for path, spec, around in _pod_specs(document):
        own = metadata if around is document else mapping(around, "metadata", f"{workload} {'.'.join(path[:-1])}")
        role = "/".join(part for part in path if part not in _LAYERS)
        injected, unknown = _injected(document, role)
        where = f"{workload} {'.'.join(path)}"
        templates.append(
            PodTemplate(
                workload,
                role,
                where,
                spec,
                strings(own, "labels", where),
                strings(metadata, "annotations", str(workload)) | strings(own, "annotations", where),
                injected,
                unknown,
            )
        )
    return templates


def _pod_specs(document: Plain) -> Iterator[tuple[tuple[str, ...], Plain, Plain]]:
    """Yield path, pod spec, and the mapping whose metadata is the pod's."""
    roots = [key for key in ("spec", "template") if isinstance(document.get(key), dict)]
    stack: list[tuple[tuple[str, ...], object, Plain]] = [((key,), document[key], document) for key in reversed(roots)]
    while stack:
        path, node, parent = stack.pop()
        if isinstance(node, dict):
            if _is_pod_spec(node):
                # The pod's metadata stands beside `spec`; where a pod spec is inlined (KServe), it is the spec's own
                # business.
                yield path, node, parent if path[-1] == "spec" else {}
                continue
            stack += [((*path, key), node[key], node) for key in reversed(node)]
        elif isinstance(node, list):
            stack += [((*path, _name(item, i)), item, {}) for i, item in reversed(list(enumerate(node)))]


def _is_pod_spec(node: Plain) -> bool:
    containers = node.get("containers")
    return isinstance(containers, list) and bool(containers) and all(isinstance(item, dict) for item in containers)


def _name(item: object, position: int) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) and name else str(position)


def _injected(document: Plain, role: str) -> tuple[dict[str, str], dict[str, str]]:
    if document["kind"] != "LeaderWorkerSet":
        return {}, {}
    size = mapping(mapping(document, "spec", "LeaderWorkerSet"), "leaderWorkerTemplate", "LeaderWorkerSet.spec").get("size", 1)
    known = {"LWS_GROUP_SIZE": str(size)}
    differs = {"LWS_LEADER_ADDRESS": "the LeaderWorkerSet controller gives each group its leader's address"}
    if role == "leaderTemplate":
        return known | {"LWS_WORKER_INDEX": "0"}, differs
    return known, differs | {"LWS_WORKER_INDEX": "the LeaderWorkerSet controller numbers the pods of a group"}
