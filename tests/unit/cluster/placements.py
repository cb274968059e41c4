"""Pods and nodes, and whether the one may land on the other: cases for our reading and for the real scheduler alike."""

from __future__ import annotations

import dataclasses
from typing import Any

LABELS = {"pool": "gpu", "memory": "80", "zone": "a"}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@dataclasses.dataclass(frozen=True)
class Placement:
    """A pod spec's scheduling fields, a node's labels and taints, and whether they go together."""

    name: str
    pod: dict[str, Any]
    lands: bool
    labels: dict[str, str] = dataclasses.field(default_factory=lambda: dict(LABELS))
    taints: tuple[dict[str, Any], ...] = ()


def _affinity(*terms: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _term(key: str, operator: str, *values: str) -> dict[str, Any]:
    expression: dict[str, Any] = {"key": key, "operator": operator}
    if values:
        expression["values"] = list(values)
    return {"matchExpressions": [expression]}


def _tolerates(**toleration: str) -> dict[str, Any]:
    return {"tolerations": [toleration]}


_BOTH = {"matchExpressions": [*_term("pool", "In", "gpu")["matchExpressions"], *_term("zone", "In", "b")["matchExpressions"]]}

PLACEMENTS = (
    Placement("no-wish", {}, lands=True),
    Placement("selector-fits", {"nodeSelector": {"pool": "gpu"}}, lands=True),
    Placement("selector-differs", {"nodeSelector": {"pool": "cpu"}}, lands=False),
    Placement("selector-missing", {"nodeSelector": {"pool": "gpu", "rack": "1"}}, lands=False),
    Placement("in", _affinity(_term("pool", "In", "cpu", "gpu")), lands=True),
    Placement("in-none", _affinity(_term("pool", "In", "cpu")), lands=False),
    Placement("not-in", _affinity(_term("pool", "NotIn", "gpu")), lands=False),
    Placement("not-in-absent", _affinity(_term("rack", "NotIn", "1")), lands=True),
    Placement("exists", _affinity(_term("pool", "Exists")), lands=True),
    Placement("exists-absent", _affinity(_term("rack", "Exists")), lands=False),
    Placement("does-not-exist", _affinity(_term("rack", "DoesNotExist")), lands=True),
    Placement("does-not-exist-present", _affinity(_term("pool", "DoesNotExist")), lands=False),
    Placement("gt", _affinity(_term("memory", "Gt", "40")), lands=True),
    Placement("gt-equal", _affinity(_term("memory", "Gt", "80")), lands=False),
    Placement("lt", _affinity(_term("memory", "Lt", "81")), lands=True),
    Placement("lt-no-number", _affinity(_term("pool", "Lt", "81")), lands=False),
    Placement("one-term-of-two", _affinity(_term("pool", "In", "cpu"), _term("zone", "In", "a")), lands=True),
    Placement("all-of-a-term", _affinity(_BOTH), lands=False),
    Placement("selector-and-affinity", {"nodeSelector": {"pool": "cpu"}, **_affinity(_term("zone", "In", "a"))}, lands=False),
    Placement("taint", {}, lands=False, taints=(GPU_TAINT,)),
    Placement("taint-tolerated", _tolerates(key="nvidia.com/gpu", operator="Exists"), lands=True, taints=(GPU_TAINT,)),
    Placement("taint-by-value", _tolerates(key="nvidia.com/gpu", value="present"), lands=True, taints=(GPU_TAINT,)),
    Placement("taint-other-value", _tolerates(key="nvidia.com/gpu", value="absent"), lands=False, taints=(GPU_TAINT,)),
    Placement(
        "taint-other-effect",
        _tolerates(key="nvidia.com/gpu", operator="Exists", effect="NoExecute"),
        lands=False,
        taints=(GPU_TAINT,),
    ),
    Placement("tolerates-everything", _tolerates(operator="Exists"), lands=True, taints=(GPU_TAINT,)),
    Placement("taint-preferred", {}, lands=True, taints=({**GPU_TAINT, "effect": "PreferNoSchedule"},)),
    Placement(
        "two-taints-one-tolerated",
        _tolerates(key="nvidia.com/gpu", operator="Exists"),
        lands=False,
        taints=(GPU_TAINT, {"key": "spot", "effect": "NoSchedule"}),
    ),
)
