"""The chart's MutatingAdmissionPolicy on a real API server: which pods it changes, how, and what it leaves alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import NAMESPACES, SERVICE_ACCOUNTS, eventually
from tests.cluster.releases import Release

from warmstart import podspec
from warmstart.cluster.api import Api
from warmstart.cluster.resources import DEPLOYMENTS, PODS, Object

pytestmark = pytest.mark.cluster

CACHE = "/var/cache/vllm"
SERVER: Object = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.33.0",
    "command": ["vllm", "serve", "Qwen/Qwen3-0.6B"],
    "args": ["--max-model-len", "4096", "--override-generation-config", '{"top_p": 0.8, "note": "a \\"b\\" $(X) \\\\ \\n"}'],
    "env": [
        {"name": "VLLM_USE_V1", "value": "1"},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "settings"}}],
    "resources": {"limits": {"nvidia.com/gpu": "1"}},
    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
}


@pytest.fixture(scope="module")
def injecting(admin: Api, kubeconfig: Path, module_namespace: str) -> Iterator[str]:
    """Yield a namespace in which the chart is installed with injection, once the policy is in force."""
    namespace = module_namespace
    release = Release(kubeconfig, namespace, name=namespace)
    release.install({"store": {"url": "s3://bucket/cache"}, "injection": {"enabled": True}})
    eventually(lambda: _inits(_create(admin, namespace, dry_run=True)))
    yield namespace
    release.uninstall()


def test_an_opted_in_pod_gets_the_init_container_once(injecting: str, admin: Api) -> None:
    pod = _create(admin, injecting)
    assert _inits(pod) == ["warmstart"]
    (init,) = pod["spec"]["initContainers"]
    server = _server(pod)
    assert init["args"] == ["run"]
    assert {"name": "VLLM_CACHE_ROOT", "value": CACHE} in server["env"]
    for container in (init, server):
        assert [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == CACHE] == ["warmstart-cache"]
    assert [volume["name"] for volume in pod["spec"]["volumes"]].count("warmstart-cache") == 1


def test_the_server_is_otherwise_as_it_was_written(injecting: str, admin: Api) -> None:
    server = _server(_create(admin, injecting))
    for field in ("name", "image", "command", "args", "envFrom"):
        assert server[field] == SERVER[field]
    assert server["env"][: len(SERVER["env"])] == _defaulted(SERVER["env"])


def test_the_spec_that_is_handed_over_is_the_servers_own(injecting: str, admin: Api) -> None:
    """What the init container reads, after the kubelet's expansion, is read by our own reader as the same server."""
    selector = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    pod = _create(admin, injecting, nodeSelector=selector)
    env = {entry["name"]: entry.get("value") for entry in pod["spec"]["initContainers"][0]["env"]}
    handed = (env["WARMSTART_POD_SPEC"] or "").replace("$$", "$")
    (container,) = json.loads(handed)["spec"]["containers"]
    assert container["args"] == SERVER["args"]
    assert container["command"] == SERVER["command"]
    (request,) = podspec.load(handed, source="the injected spec")
    assert (request.model, request.gpus, request.gpu_count) == ("Qwen/Qwen3-0.6B", ("h200",), 1)
    assert request.env["VLLM_CACHE_ROOT"] == CACHE


def test_secrets_and_mounts_of_the_server_reach_the_init_container(injecting: str, admin: Api) -> None:
    pod = _create(admin, injecting)
    (init,) = pod["spec"]["initContainers"]
    env = {entry["name"]: entry for entry in init["env"]}
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"]["name"] == "hf"
    assert {"configMapRef": {"name": "settings"}} in init["envFrom"]
    assert "/models" in {mount["mountPath"] for mount in init["volumeMounts"]}


def test_init_containers_that_were_there_stay_and_keep_their_order(injecting: str, admin: Api) -> None:
    earlier = [{"name": "fetch", "image": "busybox"}, {"name": "check", "image": "busybox"}]
    assert _inits(_create(admin, injecting, initContainers=earlier)) == ["fetch", "check", "warmstart"]


def test_a_pod_that_was_injected_is_not_injected_again(injecting: str, admin: Api) -> None:
    """A controller that copies a running pod's spec, or a second pass of the policy, changes nothing."""
    first = _create(admin, injecting)
    again = {field: first["spec"][field] for field in ("containers", "initContainers", "volumes")}
    second = _create(admin, injecting, spec=again)
    assert second["spec"]["initContainers"] == first["spec"]["initContainers"]
    assert second["spec"]["containers"] == first["spec"]["containers"]
    assert second["spec"]["volumes"] == first["spec"]["volumes"]


def test_a_change_of_labels_of_a_running_pod_changes_nothing_else(injecting: str, admin: Api) -> None:
    pod = _create(admin, injecting)
    patched = admin.merge(PODS, injecting, pod["metadata"]["name"], {"metadata": {"labels": {"note": "seen"}}})
    assert patched["spec"] == admin.get(PODS, injecting, pod["metadata"]["name"])["spec"]
    assert _inits(patched) == ["warmstart"]


def test_who_did_not_opt_in_is_left_alone(injecting: str, admin: Api) -> None:
    pod = _create(admin, injecting, labels={})
    assert _inits(pod) == []
    assert _server(pod)["env"] == _defaulted(SERVER["env"])


def test_system_namespaces_are_left_alone(injecting: str, admin: Api) -> None:
    assert injecting
    eventually(lambda: admin.get(SERVICE_ACCOUNTS, "kube-public", "default"))
    assert _inits(_create(admin, "kube-public", dry_run=True)) == []


def test_beside_other_containers_the_server_is_found(injecting: str, admin: Api) -> None:
    pod = _create(admin, injecting, containers=[{"name": "proxy", "image": "envoy"}, SERVER])
    assert _inits(pod) == ["warmstart"]
    assert "env" not in pod["spec"]["containers"][0]
    assert {"name": "VLLM_CACHE_ROOT", "value": CACHE} in pod["spec"]["containers"][1]["env"]


def test_a_pod_without_a_server_that_can_be_told_is_created_unchanged(injecting: str, admin: Api) -> None:
    two = [{"name": "a", "image": "nginx"}, {"name": "b", "image": "nginx"}]
    assert _inits(_create(admin, injecting, containers=two)) == []


def test_a_bare_pod_gets_every_list_that_it_lacks(injecting: str, admin: Api) -> None:
    pod = _create(admin, injecting, spec={"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.33.0", "args": ["m"]}]})
    assert _inits(pod) == ["warmstart"]
    assert {"name": "VLLM_CACHE_ROOT", "value": CACHE} in _server(pod)["env"]


def test_pods_of_a_deployment_are_injected(injecting: str, admin: Api) -> None:
    """What users have: they label the pod template and change nothing else."""
    labels = {"app": "web", "warmstart.dev/inject": "true"}
    template = {"metadata": {"labels": labels}, "spec": {"schedulerName": "nobody", **_pod_spec()}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    admin.create(DEPLOYMENTS, injecting, deployment)
    pod = eventually(lambda: next(iter(admin.list(PODS, injecting, labels="app=web")), None))
    assert _inits(pod) == ["warmstart"]
    assert "initContainers" not in admin.get(DEPLOYMENTS, injecting, "web")["spec"]["template"]["spec"]


def test_the_injected_pod_passes_the_restricted_profile(injecting: str, admin: Api) -> None:
    """The policy must not be why a namespace refuses a pod that it would take without."""
    context = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    own = {**SERVER, "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    label = "pod-security.kubernetes.io/enforce"
    admin.merge(NAMESPACES, "", injecting, {"metadata": {"labels": {label: "restricted"}}})
    try:
        assert _inits(_create(admin, injecting, containers=[own], securityContext=context)) == ["warmstart"]
    finally:
        admin.merge(NAMESPACES, "", injecting, {"metadata": {"labels": {label: None}}})


def _pod_spec() -> Object:
    return {"containers": [copy.deepcopy(SERVER)], "volumes": [{"name": "models", "emptyDir": {}}]}


def _create(
    admin: Api, namespace: str, *, labels: Any = None, dry_run: bool = False, spec: Object | None = None, **changes: Any
) -> Object:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "web-",
            "labels": {"warmstart.dev/inject": "true"} if labels is None else labels,
        },
        "spec": {"schedulerName": "nobody", **(_pod_spec() if spec is None else spec), **changes},
    }
    return admin.create(PODS, namespace, pod, dry_run=dry_run)


def _inits(pod: Object) -> list[str]:
    return [container["name"] for container in pod["spec"].get("initContainers") or ()]


def _server(pod: Object) -> Object:
    found: Object = next(container for container in pod["spec"]["containers"] if container["name"] == "vllm")
    return found


def _defaulted(env: list[Object]) -> list[Object]:
    """Return env entries as the API server completes them."""
    completed = copy.deepcopy(env)
    for entry in completed:
        if "fieldRef" in entry.get("valueFrom", {}):
            entry["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    return completed
