"""Which nodes a pod can land on: node selector, required node affinity and taints, as the scheduler reads them.

Pools are label sets: of nodes that exist, or declared for nodes that an autoscaler would make. What else the scheduler weighs
(room, spreading, other pods) says nothing about a GPU's type and is left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from warmstart.cluster.resources import Object


@dataclasses.dataclass(frozen=True)
class Pool:
    """Nodes that look alike to the scheduler: a name for messages, their labels, and their taints."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...] = ()


def pool_of(node: Object) -> Pool:
    """Return a Node object as a pool of its own. A cordoned node counts: it tells which types there are."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    taints = tuple(taint for taint in spec.get("taints") or () if not _passing(taint))
    return Pool(metadata["name"], metadata.get("labels") or {}, taints)


def fits(pod: Mapping[str, Any], pool: Pool) -> bool:
    """Whether the scheduler could put a pod with this spec on a node of the pool."""
    selector = pod.get("nodeSelector") or {}
    if any(pool.labels.get(label) != value for label, value in selector.items()):
        return False
    return _affinity_allows(pod, pool) and _tolerates(pod.get("tolerations") or (), pool.taints)


def _passing(taint: Mapping[str, Any]) -> bool:
    """Whether a taint is a state that a node passes through (not ready, unreachable, cordoned), not a property of its pool."""
    return str(taint.get("key", "")).startswith(("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"))


def _affinity_allows(pod: Mapping[str, Any], pool: Pool) -> bool:
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term_matches(term, pool) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], pool: Pool) -> bool:
    """Whether all expressions of a term hold. A term without any matches nothing, as in the scheduler."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": pool.name}
    return all(_holds(expression, pool.labels) for expression in expressions) and all(_holds(field, names) for field in fields)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    operator, values = expression["operator"], expression.get("values") or ()
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    return _compares(operator, value, values)


def _compares(operator: str, value: str | None, values: Iterable[str]) -> bool:
    """Gt and Lt: both sides whole numbers, or it does not hold."""
    try:
        left, right = int(value or ""), int(next(iter(values), ""))
    except ValueError:
        return False
    return left > right if operator == "Gt" else operator == "Lt" and left < right


def _tolerates(tolerations: Iterable[Mapping[str, Any]], taints: Iterable[Mapping[str, Any]]) -> bool:
    hard = (taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute"))
    tolerations = tuple(tolerations)
    return all(any(_tolerated(taint, toleration) for toleration in tolerations) for taint in hard)


def _tolerated(taint: Mapping[str, Any], toleration: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") in (None, ""):
        return toleration.get("operator") == "Exists"
    if toleration["key"] != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")
