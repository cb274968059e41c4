"""Our reading of where a pod can land, against the real scheduler: the same pods, the same nodes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.cluster.conftest import eventually
from tests.unit.cluster.placements import PLACEMENTS, Placement

from warmstart.cluster.api import Api
from warmstart.cluster.landing import fits, pool_of
from warmstart.cluster.resources import NODES, PODS, Object

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def worlds(admin: Api) -> Iterator[dict[str, str]]:
    """Make one node for each case, told apart by a label that the case's pod asks for; yield the label's value by case."""
    mark = uuid.uuid4().hex[:6]
    worlds = {case.name: f"{mark}-{case.name}" for case in PLACEMENTS}
    for case in PLACEMENTS:
        labels = {**case.labels, "world": worlds[case.name]}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": worlds[case.name], "labels": labels},
            "spec": {"taints": list(case.taints)},
        }
        admin.create(NODES, "", node)
        # Admission marks a new node as not ready, and no kubelet is there to say otherwise.
        admin.merge(NODES, "", worlds[case.name], {"spec": {"taints": list(case.taints)}})
        room = {"cpu": "8", "memory": "16Gi", "pods": "110"}
        ready = {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]}
        admin.merge(NODES, "", worlds[case.name], {"status": ready}, subresource="status")
    yield worlds
    for name in worlds.values():
        admin.delete(NODES, "", name)


@pytest.fixture(scope="module")
def decided(admin: Api, worlds: dict[str, str], module_namespace: str) -> dict[str, bool]:
    """Let the scheduler place one pod in each world; return which it placed."""
    for case in PLACEMENTS:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": case.name},
            "spec": {"containers": [{"name": "c", "image": "i"}], **_inside(case.pod, worlds[case.name])},
        }
        admin.create(PODS, module_namespace, pod)
    return {
        case.name: eventually(lambda name=case.name: _verdict(admin, module_namespace, name)) == "placed" for case in PLACEMENTS
    }


@pytest.mark.parametrize("case", PLACEMENTS, ids=lambda case: case.name)
def test_the_scheduler_decides_as_we_do(case: Placement, decided: dict[str, bool], worlds: dict[str, str], admin: Api) -> None:
    node = admin.get(NODES, "", worlds[case.name])
    assert decided[case.name] is case.lands
    assert fits(_inside(case.pod, worlds[case.name]), pool_of(node)) is decided[case.name]


def _inside(pod: Object, world: str) -> Object:
    """Return the pod's wishes, and the wish for its own world."""
    return {**pod, "nodeSelector": {**(pod.get("nodeSelector") or {}), "world": world}}


def _verdict(admin: Api, namespace: str, name: str) -> str:
    """Return "placed" or "refused", empty while the scheduler has not looked."""
    conditions = (admin.get(PODS, namespace, name).get("status") or {}).get("conditions") or ()
    for condition in conditions:
        if condition["type"] == "PodScheduled":
            return "placed" if condition["status"] == "True" else "refused"
    return ""
