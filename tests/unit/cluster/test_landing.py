"""Where a pod can land, as the scheduler decides it. test_scheduler.py compares the same cases with the real scheduler."""

from __future__ import annotations

import pytest
from tests.unit.cluster.placements import PLACEMENTS, Placement

from warmstart.cluster.landing import Pool, fits, pool_of


@pytest.mark.parametrize("case", PLACEMENTS, ids=lambda case: case.name)
def test_a_pod_fits_where_selector_affinity_and_taints_let_it(case: Placement) -> None:
    assert fits(case.pod, Pool("node", case.labels, case.taints)) is case.lands


def test_a_node_is_a_pool_without_the_states_it_passes_through() -> None:
    taints = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
    ]
    node = {"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"taints": taints}}
    assert pool_of(node) == Pool("n", {"a": "b"}, ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},))
