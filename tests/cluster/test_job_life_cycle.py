"""The Job that warmstart renders, on a real API server with the real Job controller; the tests play the kubelet."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import NAMESPACES as _NAMESPACES
from tests.cluster.conftest import end_pod, eventually
from tests.unit.cluster.specs import DEPLOYMENT

from warmstart.cluster.api import Api
from warmstart.cluster.failures import ObjectConflict, ObjectInvalid, ObjectNotFound
from warmstart.cluster.jobs import JobOptions, JobSubject, render_job
from warmstart.cluster.resources import DEPLOYMENTS, JOBS, PODS, Object
from warmstart.cluster.workloads import job_state
from warmstart.settings import Settings
from warmstart.workflow import job
from warmstart.workflow.stopping import Stop

pytestmark = pytest.mark.cluster


def test_everything_rendered_passes_strict_validation(admin: Api, namespace: str, tmp_path: Path) -> None:
    """The server refuses fields that it does not know, so what it takes it also means."""
    for queue in ("", "batch"):
        made = _job(namespace, queue=queue)
        admin.create(JOBS, namespace, made, dry_run=True)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(DEPLOYMENT))
    printed = job.main(
        Settings(pod_spec=str(spec), store="s3://bucket/cache"), Stop(), image="warmstart:1", namespace=namespace
    )
    for made in printed.jobs:
        admin.create(JOBS, namespace, made, dry_run=True)


def test_strict_validation_catches_a_misspelt_template(admin: Api, namespace: str) -> None:
    """The proof that the test above can fail."""
    with pytest.raises(ObjectInvalid, match=r'unknown field "spec.backofLimit"'):
        admin.create(JOBS, namespace, _job(namespace, template={"spec": {"backofLimit": 1}}))


def test_the_pods_pass_the_restricted_profile(admin: Api, namespace: str) -> None:
    """The namespace enforces the strictest Pod Security standard; the Job's pod is let in."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    admin.merge(_NAMESPACES, "", namespace, label)
    admin.create(JOBS, namespace, _job(namespace))
    pod = _pod(admin, namespace)
    assert pod["metadata"]["annotations"]["warmstart.dev/spec"]


def test_a_pass_that_succeeds_completes_the_job(admin: Api, namespace: str) -> None:
    made = admin.create(JOBS, namespace, _job(namespace))
    end_pod(admin, _pod(admin, namespace), 0)
    assert eventually(lambda: _state(admin, made).finished)
    assert _state(admin, made).state == "done"


@pytest.mark.parametrize("code", [2, 12])
def test_a_failure_that_would_repeat_ends_the_job_at_once(admin: Api, namespace: str, code: int) -> None:
    made = admin.create(JOBS, namespace, _job(namespace))
    end_pod(admin, _pod(admin, namespace), code)
    assert eventually(lambda: _state(admin, made).finished)
    state = _state(admin, made)
    assert state.state == "failed"
    assert state.why.startswith("PodFailurePolicy: ")
    assert f"exit code {code}" in state.why


def test_a_temporary_failure_is_tried_again(admin: Api, namespace: str) -> None:
    """Exit 75: counted, and the Job lives on."""
    made = admin.create(JOBS, namespace, _job(namespace))
    end_pod(admin, _pod(admin, namespace), 75)
    status = eventually(lambda: _status(admin, made).get("failed") and _status(admin, made))
    assert status["failed"] == 1
    assert not _state(admin, made).finished


def test_an_eviction_does_not_count(admin: Api, namespace: str) -> None:
    """With no retries left, a drained node still does not end the Job: a new pod comes, and it may succeed."""
    made = admin.create(JOBS, namespace, _job(namespace, template={"spec": {"backoffLimit": 0}}))
    first = _pod(admin, namespace)
    end_pod(admin, first, 143, disrupted=True)
    second = eventually(lambda: _pod(admin, namespace, other_than=first))
    assert _status(admin, made).get("failed", 0) == 0
    end_pod(admin, second, 0)
    assert eventually(lambda: _state(admin, made).finished)
    assert _state(admin, made).state == "done"


def test_there_is_never_a_second_pod_beside_the_first(admin: Api, namespace: str) -> None:
    """A pod that is on its way out (it drops its claim meanwhile) is waited for."""
    admin.create(JOBS, namespace, _job(namespace))
    first = _pod(admin, namespace)
    # As while the kubelet ends the container: marked for deletion, not gone.
    admin.merge(PODS, namespace, first["metadata"]["name"], {"metadata": {"finalizers": _kept(first, "test/held")}})
    admin.delete(PODS, namespace, first["metadata"]["name"])
    job_seen = eventually(lambda: [one for one in admin.list(JOBS, namespace) if (one["status"] or {}).get("terminating")])
    assert job_seen[0]["status"].get("active", 0) == 0
    assert [pod["metadata"]["uid"] for pod in admin.list(PODS, namespace)] == [first["metadata"]["uid"]]
    end_pod(admin, first, 143, disrupted=True)
    assert eventually(lambda: _pod(admin, namespace, other_than=first))
    admin.merge(PODS, namespace, first["metadata"]["name"], {"metadata": {"finalizers": None}})


def test_the_same_job_twice_is_a_conflict_not_a_second_compile(admin: Api, namespace: str) -> None:
    admin.create(JOBS, namespace, _job(namespace))
    with pytest.raises(ObjectConflict, match="already exists"):
        admin.create(JOBS, namespace, _job(namespace))


def test_a_suspended_job_makes_no_pod_until_kueue_starts_it(admin: Api, namespace: str) -> None:
    made = admin.create(JOBS, namespace, _job(namespace, queue="batch"))
    eventually(lambda: [one for one in _status(admin, made).get("conditions") or () if one["type"] == "Suspended"])
    assert list(admin.list(PODS, namespace)) == []
    assert _state(admin, made).state == "suspended"
    admin.merge(JOBS, namespace, made["metadata"]["name"], {"spec": {"suspend": False}})
    assert _pod(admin, namespace)


def test_a_deleted_workload_takes_its_job_along(admin: Api, namespace: str) -> None:
    manifest = copy.deepcopy(DEPLOYMENT)
    manifest["metadata"]["namespace"] = namespace
    live = admin.create(DEPLOYMENTS, namespace, manifest)
    made = admin.create(JOBS, namespace, _job(namespace, manifest=live))
    admin.delete(DEPLOYMENTS, namespace, live["metadata"]["name"])
    eventually(lambda: _gone(admin, made))


def _gone(admin: Api, made: Object) -> bool:
    try:
        admin.get(JOBS, made["metadata"]["namespace"], made["metadata"]["name"])
    except ObjectNotFound:
        return True
    return False


def _job(namespace: str, *, manifest: Object | None = None, queue: str = "", template: Any = None) -> Object:
    workload = copy.deepcopy(manifest or DEPLOYMENT)
    workload["metadata"]["namespace"] = namespace
    pod = workload["spec"]["template"]["spec"]
    subject = JobSubject(manifest=workload, pod=pod, container="vllm", paths=(), gpu="h200", identity="0" * 64)
    return render_job(subject, JobOptions(image="warmstart:1", store="s3://b/c", queue=queue, template=template or {}))


def _pod(admin: Api, namespace: str, *, other_than: Object | None = None) -> Object:
    """Return the pod that the Job controller made."""

    def look() -> Object | None:
        for pod in admin.list(PODS, namespace, labels="batch.kubernetes.io/job-name"):
            if other_than is None or pod["metadata"]["uid"] != other_than["metadata"]["uid"]:
                return pod
        return None

    found: Object = eventually(look)
    return found


def _kept(pod: Object, finalizer: str) -> list[str]:
    return [*(pod["metadata"].get("finalizers") or ()), finalizer]


def _status(admin: Api, made: Object) -> Object:
    status: Object = admin.get(JOBS, made["metadata"]["namespace"], made["metadata"]["name"]).get("status") or {}
    return status


def _state(admin: Api, made: Object) -> Any:
    return job_state(admin.get(JOBS, made["metadata"]["namespace"], made["metadata"]["name"]))
