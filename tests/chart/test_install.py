"""The chart on a real API server: installed, upgraded and removed by both helms, and its pods under the restricted profile."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chart.tools import CHART, STORE, Helm, Object, cases, merge, pods, program

pytestmark = pytest.mark.cluster


def _kubectl(cluster: Path, *arguments: str, stdin: Object | None = None) -> subprocess.CompletedProcess[str]:
    given = json.dumps(stdin) if stdin is not None else None
    return subprocess.run(
        [program("kubectl"), "--kubeconfig", cluster, *arguments], input=given, text=True, capture_output=True, check=False
    )


@pytest.fixture
def namespace(cluster: Path) -> Iterator[str]:
    """Yield a namespace that enforces Pod Security `restricted`."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    assert _kubectl(cluster, "create", "-f", "-", stdin=made).returncode == 0
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tester", "namespace": name}}
    assert _kubectl(cluster, "create", "-f", "-", stdin=account).returncode == 0
    yield name
    _kubectl(cluster, "delete", "namespace", name, "--wait=false")


class _Release:
    """One release of the chart, by one helm."""

    def __init__(self, helm: Helm, cluster: Path, namespace: str) -> None:
        self._options = ["--kubeconfig", str(cluster), "--namespace", namespace]
        self._helm = helm

    def call(self, command: str, *arguments: Any) -> str:
        done = self._helm.run(*self._options, command, "rel", *map(str, arguments))
        assert done.returncode == 0, done.stderr
        return done.stdout


# Roles in namespaces that this cluster does not have are for another test.
_INSTALLED = [case for case in cases() if case.stem != "prewarm-cron"]


@pytest.mark.parametrize("case", _INSTALLED, ids=lambda case: case.stem)
def test_every_case_installs_upgrades_and_leaves_nothing_behind(helm: Helm, cluster: Path, namespace: str, case: Path) -> None:
    """Each object is taken by the API server, a second time without a change, and removed again."""
    release = _Release(helm, cluster, namespace)
    release.call("install", CHART, "--values", case)
    before = _objects(cluster, namespace)
    release.call("upgrade", CHART, "--values", case)
    assert _objects(cluster, namespace) == before, "the same values change nothing"
    release.call("uninstall")
    left = {name for name in _objects(cluster, namespace) if not name.startswith("pod/")}
    assert {name for name in left if "warmstart" in name or "rel" in name} <= {"persistentvolumeclaim/rel-warmstart-store"}


def _objects(cluster: Path, namespace: str) -> dict[str, str]:
    """Return uid and generation of what a release may make, by name; its history left out."""
    kinds = "job,cronjob,deployment,configmap,serviceaccount,role,rolebinding,persistentvolumeclaim"
    found = {}
    for arguments in (("-n", namespace, "get", kinds), ("get", "mutatingadmissionpolicy,clusterrole,clusterrolebinding")):
        done = _kubectl(cluster, *arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        for item in json.loads(done.stdout)["items"]:
            metadata = item["metadata"]
            if metadata.get("deletionTimestamp") is None and "warmstart" in json.dumps(metadata.get("labels", {})):
                name = f"{item['kind'].lower()}/{metadata['name']}"
                found[name] = f"{metadata['uid']} {metadata.get('generation')}"
    return found


def test_changed_values_make_new_jobs_and_remove_the_old_ones(
    helm: Helm, cluster: Path, namespace: str, tmp_path: Path
) -> None:
    """A Job's template cannot be changed; an upgrade must not fail on that."""
    release = _Release(helm, cluster, namespace)
    values = merge(STORE, {"precompile": {"qwen": {"model": "m", "gpus": ["h200"], "args": ["--max-model-len=1"]}}})
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    release.call("install", CHART, "--values", file)
    (old,) = [name for name in _objects(cluster, namespace) if name.startswith("job/")]
    values["precompile"]["qwen"]["args"] = ["--max-model-len=2"]
    file.write_text(json.dumps(values))
    release.call("upgrade", CHART, "--values", file)
    (new,) = [name for name in _objects(cluster, namespace) if name.startswith("job/")]
    assert new != old
    release.call("uninstall")


def test_the_restricted_profile_takes_every_pod(cluster: Path, namespace: str) -> None:
    """Each pod spec of each case, as a pod, in a namespace that enforces it. Other parts of a pod are not looked at here."""
    seen = 0
    for case in cases():
        for kind, spec in pods(Helm("helm4").template(case).objects):
            bare = {name: value for name, value in spec.items() if name not in ("priorityClassName", "runtimeClassName")}
            bare |= {"serviceAccountName": "tester"}
            bare.setdefault("restartPolicy", "Always")
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": bare}
            done = _kubectl(cluster, "-n", namespace, "create", "--dry-run=server", "-f", "-", stdin=pod)
            assert done.returncode == 0, (case.stem, kind, done.stderr)
            assert "violate" not in done.stderr
            seen += 1
    assert seen > 10


def test_the_restricted_profile_refuses_a_pod_that_is_not(cluster: Path, namespace: str) -> None:
    """The namespace of the test above does refuse."""
    spec = {"serviceAccountName": "tester", "containers": [{"name": "x", "image": "x"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}
    assert "restricted" in _kubectl(cluster, "-n", namespace, "create", "--dry-run=server", "-f", "-", stdin=pod).stderr
