"""Laying a partial manifest over ours, and reading what a Job's status says."""

from __future__ import annotations

from typing import Any

import pytest

from warmstart.cluster.overlay import overlay
from warmstart.cluster.workloads import JobState, job_state


@pytest.mark.parametrize(
    ("base", "over", "result"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"tolerations": [1]}, {"tolerations": [2]}, {"tolerations": [2]}),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "B"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B"}]},
        ),
        (
            {"env": [{"name": "A", "valueFrom": {}}]},
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "1"}]},
        ),
        (
            {"containers": [{"name": "a", "image": "i", "args": ["x"]}]},
            {"containers": [{"name": "a", "image": "j"}]},
            {"containers": [{"name": "a", "image": "j", "args": ["x"]}]},
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/a"}]},
        ),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
    ],
)
def test_what_is_given_goes_over_what_is_built_in(base: Any, over: Any, result: Any) -> None:
    before = repr((base, over))
    assert overlay(base, over) == result
    assert repr((base, over)) == before, "neither side is changed"


@pytest.mark.parametrize(
    ("spec", "conditions", "state"),
    [
        ({}, [], JobState("running")),
        ({"suspend": True}, [], JobState("suspended")),
        ({}, [{"type": "Complete", "status": "True"}], JobState("done")),
        ({}, [{"type": "Complete", "status": "False"}], JobState("running")),
        ({}, [{"type": "SuccessCriteriaMet", "status": "True"}], JobState("done")),
        (
            {},
            [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "too long"}],
            JobState("failed", "DeadlineExceeded: too long"),
        ),
        (
            {},
            [{"type": "FailureTarget", "status": "True", "reason": "PodFailurePolicy"}],
            JobState("failed", "PodFailurePolicy"),
        ),
        ({"suspend": True}, [{"type": "Suspended", "status": "True"}], JobState("suspended")),
    ],
)
def test_a_jobs_status_is_read_as_kubernetes_writes_it(spec: Any, conditions: Any, state: JobState) -> None:
    assert job_state({"spec": spec, "status": {"conditions": conditions}}) == state
    assert state.finished is (state.state in ("done", "failed"))
