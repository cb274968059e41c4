"""The admission policy as the chart renders it, on a real API server: what it puts into which pods."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chart.tools import CHART, STORE, Object, env_of, merge, program

pytestmark = pytest.mark.cluster

Create = Callable[..., Object]
_VALUES = merge(
    STORE,
    {"injection": {"enabled": True}, "store": {"credentialsSecret": "creds"}, "imagePullSecrets": [{"name": "registry"}]},
)


@pytest.fixture(scope="module")
def kubeconfig(cluster: Path) -> Iterator[Path]:
    """Yield a cluster with the chart installed by a real helm, once the policy is in force."""
    helm = [program("helm4"), "--kubeconfig", cluster]
    subprocess.run(
        [*helm, "install", "ws", CHART, "--values", "-"], input=json.dumps(_VALUES), text=True, check=True, capture_output=True
    )
    _wait_in_force(cluster)
    yield cluster
    subprocess.run([*helm, "uninstall", "ws"], check=True, capture_output=True)


def _wait_in_force(kubeconfig: Path) -> None:
    """Wait for the policy, and for the service accounts without which no pod is taken."""
    give_up = time.monotonic() + 60
    for namespace in ("default", "kube-system"):
        while True:
            done = _try_create(kubeconfig, _pod(), namespace)
            if done.returncode == 0 and (namespace == "kube-system" or _injected(json.loads(done.stdout))):
                break
            assert time.monotonic() < give_up, done.stderr or "the policy is not in force"
            time.sleep(0.2)


@pytest.fixture
def create(kubeconfig: Path) -> Create:
    """Send a pod through admission, without storing it, and return what came of it."""
    return lambda pod, namespace="default": _create(kubeconfig, pod, namespace)


def _try_create(kubeconfig: Path, pod: Object, namespace: str) -> subprocess.CompletedProcess[str]:
    command = [program("kubectl"), "--kubeconfig", kubeconfig, "create", "-n", namespace, "--dry-run=server", "-o", "json"]
    return subprocess.run([*command, "-f", "-"], input=json.dumps(pod), text=True, capture_output=True, check=False)


def _create(kubeconfig: Path, pod: Object, namespace: str = "default") -> Object:
    done = _try_create(kubeconfig, pod, namespace)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _pod(metadata: dict[str, Any] | None = None, **spec: Any) -> Object:
    server = {"name": "vllm", "image": "vllm/vllm-openai:v0.33.0"}
    labels = {"labels": {"warmstart.dev/inject": "true"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "server", **labels, **(metadata or {})},
        "spec": {"automountServiceAccountToken": False, "containers": [server], **spec},
    }


def _server(**fields: Any) -> list[Object]:
    return [{"name": "vllm", "image": "vllm/vllm-openai:v0.33.0", **fields}]


def _injected(pod: Object) -> Object | None:
    found = [one for one in pod["spec"].get("initContainers", ()) if one["name"] == "warmstart"]
    assert len(found) < 2
    return found[0] if found else None


def _init(pod: Object) -> Object:
    init = _injected(pod)
    assert init is not None
    return init


def _handed(pod: Object) -> Object:
    return dict(json.loads(env_of(_init(pod))["WARMSTART_POD_SPEC"].replace("$$", "$")))


def _mounts(container: Object) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", ())}


def test_the_barest_pod_gets_all_of_it(create: Create) -> None:
    """No annotations, no env, no mounts, no volumes, no init containers before."""
    pod = create(_pod())
    (server,) = pod["spec"]["containers"]
    assert env_of(server) == {"VLLM_CACHE_ROOT": "/var/cache/vllm", "TRITON_CACHE_DIR": "/var/cache/vllm/triton"}
    assert _mounts(server) == {"/var/cache/vllm": "warmstart-cache"}
    assert _mounts(_init(pod)) == {"/var/cache/vllm": "warmstart-cache", "/tmp": "warmstart-tmp"}  # noqa: S108
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {"warmstart-cache", "warmstart-tmp"}


def test_what_the_pod_has_stays_and_goes_first(create: Create) -> None:
    """Init containers, volumes, env and mounts in their order; the other containers unchanged."""
    pod = create(
        _pod(
            initContainers=[{"name": "fetch", "image": "busybox"}],
            containers=[{"name": "proxy", "image": "envoy"}, *_server(env=[{"name": "A", "value": "1"}])],
            volumes=[{"name": "data", "emptyDir": {}}],
        )
    )["spec"]
    assert [one["name"] for one in pod["initContainers"]] == ["fetch", "warmstart"]
    assert [one["name"] for one in pod["containers"]] == ["proxy", "vllm"]
    assert "env" not in pod["containers"][0]
    assert [one["name"] for one in pod["containers"][1]["env"]] == ["A", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"]
    assert pod["volumes"][0]["name"] == "data"


def test_the_command_line_is_handed_over_to_the_letter(create: Create) -> None:
    """Quotes, backslashes, line ends, `$(NAME)` and letters of any script: as JSON, safe from the kubelet's expansion."""
    args = ["--model", "m", '{"a": "b \\"q\\""}', "\\", "'", "a\nb\tc\r", "\b\f", "$(X) $$ ${Y}", "é 😀 \u2028", "", " ", "{}"]
    pod = create(_pod(containers=_server(command=["vllm", "serve"], args=args)))
    (server,) = _handed(pod)["spec"]["containers"]
    assert server["command"] == ["vllm", "serve"]
    assert server["args"] == args


def test_what_decides_the_cache_is_handed_over(create: Create) -> None:
    """Env with its references, limits, node selector, required affinity, and our own annotations."""
    term = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a", "b"]}, {"key": "x", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    env = [
        {"name": "VLLM_X", "value": "1"},
        {"name": "EMPTY"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    pod = create(
        _pod(
            {"annotations": {"warmstart.dev/gpu": "h200", "other": "x"}},
            containers=_server(env=env, resources={"limits": {"nvidia.com/gpu": 2, "cpu": 4}}),
            nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H200"},
            affinity={"nodeAffinity": required},
        )
    )
    handed = _handed(pod)
    assert handed["metadata"]["annotations"] == {"warmstart.dev/gpu": "h200"}
    assert handed["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert handed["spec"]["affinity"] == {"nodeAffinity": required}
    (server,) = handed["spec"]["containers"]
    assert server["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "4"}
    values = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in server["env"]}
    assert values == {
        "VLLM_X": "1",
        "EMPTY": "",
        "TOKEN": {"secretKeyRef": {"name": "s", "key": "k"}},
        "MAP": {"configMapKeyRef": {"name": "c", "key": "k"}},
        "IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "CPU": {"resourceFieldRef": {"resource": "limits.cpu"}},
        "VLLM_CACHE_ROOT": "/var/cache/vllm",
        "TRITON_CACHE_DIR": "/var/cache/vllm/triton",
    }


def test_our_own_loader_reads_what_is_handed_over(create: Create) -> None:
    """The whole way: pod, policy, env variable, serve request."""
    from warmstart import podspec

    pod = create(
        _pod(
            containers=_server(args=["--model", "Qwen/Qwen3-0.6B"], resources={"limits": {"nvidia.com/gpu": "2"}}),
            nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H200"},
        )
    )
    (request,) = podspec.load(json.dumps(_handed(pod)), source="handed")
    assert (request.model, request.gpus, request.gpu_count) == ("Qwen/Qwen3-0.6B", ("h200",), 2)


def test_the_init_container_sees_what_the_server_sees(create: Create) -> None:
    """Secrets and hub settings; mounts read-only, but no shared memory and none that the kubelet could not expand."""
    mounts = [
        {"name": "models", "mountPath": "/models", "subPath": "a"},
        {"name": "models", "mountPath": "/logs", "subPathExpr": "$(HF_HOME)"},
        {"name": "models", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "models", "mountPath": "/tmp"},  # noqa: S108
    ]
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    env = [{"name": "HF_HOME", "value": "/models"}, {"name": "OTHER", "value": "1"}, secret]
    pod = create(
        _pod(
            containers=_server(env=env, envFrom=[{"configMapRef": {"name": "more"}}], volumeMounts=mounts),
            volumes=[{"name": "models", "emptyDir": {}}],
        )
    )
    init = _init(pod)
    assert {"name": "models", "mountPath": "/models", "subPath": "a", "readOnly": True} in init["volumeMounts"]
    assert _mounts(init).keys() == {"/models", "/tmp", "/var/cache/vllm"}  # noqa: S108
    assert _mounts(init)["/tmp"] == "warmstart-tmp"  # noqa: S108
    assert secret in init["env"]
    assert env_of(init)["HF_HOME"] == "/models"
    assert "OTHER" not in env_of(init)
    assert init["envFrom"] == [{"configMapRef": {"name": "more"}}, {"secretRef": {"name": "creds", "optional": True}}]


def test_the_service_accounts_token_is_mounted_once(create: Create) -> None:
    """Where the pod has one, both containers have it, read-only, for a client that reads its own pod."""
    pod = create(_pod(automountServiceAccountToken=True))
    (volume,) = [one["name"] for one in pod["spec"]["volumes"] if "projected" in one]
    for one in (_init(pod), pod["spec"]["containers"][0]):
        (mount,) = [mount for mount in one["volumeMounts"] if mount["name"] == volume]
        assert mount["readOnly"] is True


_CACHE_MOUNTS = [("/x/c", "own"), ("/x", "own"), ("", "warmstart-cache"), ("/x/cc", "warmstart-cache")]


@pytest.mark.parametrize(("mounted", "volume"), _CACHE_MOUNTS)
def test_a_server_keeps_its_own_cache_root_and_its_own_volume(create: Create, mounted: str, volume: str) -> None:
    """The cache is installed where the server looks; our emptyDir is there only where nothing is mounted at or above it."""
    mounts = [{"name": "own", "mountPath": mounted}] if mounted else []
    pod = create(
        _pod(
            containers=_server(env=[{"name": "VLLM_CACHE_ROOT", "value": "/x/c"}], volumeMounts=mounts),
            volumes=[{"name": "own", "emptyDir": {}}],
        )
    )
    (server,) = pod["spec"]["containers"]
    assert env_of(server) == {"VLLM_CACHE_ROOT": "/x/c", "TRITON_CACHE_DIR": "/x/c/triton"}
    assert _handed(pod)["spec"]["containers"][0]["env"] == server["env"]
    place = mounted if volume == "own" else "/x/c"
    assert _mounts(server)[place] == volume
    assert _mounts(_init(pod))[place] == volume
    assert not [one for one in _init(pod)["volumeMounts"] if one["mountPath"] == place and one.get("readOnly")]
    assert ("warmstart-cache" in {one["name"] for one in pod["spec"]["volumes"]}) is (volume == "warmstart-cache")


@pytest.mark.parametrize("own", [{"value": "/elsewhere"}, {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}])
def test_a_server_keeps_its_own_triton_folder(create: Create, own: Object) -> None:
    """Whatever it says, beside a cache root of its own or ours."""
    entry = {"name": "TRITON_CACHE_DIR", **own}
    for roots in ([], [{"name": "VLLM_CACHE_ROOT", "value": "/x/c"}]):
        (server,) = create(_pod(containers=_server(env=[*roots, entry])))["spec"]["containers"]
        assert [one for one in server["env"] if one["name"] == "TRITON_CACHE_DIR"] == [entry]
        assert [one["name"] for one in server["env"]].count("VLLM_CACHE_ROOT") == 1


@pytest.mark.parametrize("own", [[], ["other"], ["registry", "other"]])
def test_the_secret_that_pulls_its_image_is_there_once(create: Create, own: list[str]) -> None:
    """Beside those of the pod."""
    pod = create(_pod(imagePullSecrets=[{"name": name} for name in own]) if own else _pod())
    names = [secret["name"] for secret in pod["spec"]["imagePullSecrets"]]
    assert names == (own if "registry" in own else [*own, "registry"])


def test_a_volume_of_the_same_name_is_used_as_it_is(create: Create) -> None:
    """A user's own `warmstart-cache` (a host folder that outlives the pod, say)."""
    pod = create(_pod(volumes=[{"name": "warmstart-cache", "hostPath": {"path": "/var/cache/vllm"}}]))
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert "hostPath" in volumes["warmstart-cache"]
    assert len(pod["spec"]["volumes"]) == 2


def test_a_second_time_changes_nothing(create: Create) -> None:
    """Idempotent: a pod that went through it goes through unchanged."""
    once = create(_pod())
    again = create({**once, "metadata": {"name": "again", "labels": once["metadata"]["labels"]}})
    assert again["spec"] == once["spec"]


@pytest.mark.parametrize(("user", "expected"), [(0, 65532), (1000, None)])
def test_a_pod_that_runs_as_root_does_not_stop_at_our_container(create: Create, user: int, expected: int | None) -> None:
    """The kubelet refuses runAsNonRoot where the pod says root."""
    init = _init(create(_pod(securityContext={"runAsUser": user})))
    assert init["securityContext"].get("runAsUser") == expected


def test_the_annotation_names_the_container(create: Create) -> None:
    """Of two candidates the named one gets the cache; a name that matches none changes nothing."""
    two = [{"name": name, "image": "vllm/vllm-openai:v0.33.0"} for name in ("a", "b")]
    named = create(_pod({"annotations": {"warmstart.dev/container": "b"}}, containers=two))
    assert ["env" in one for one in named["spec"]["containers"]] == [False, True]
    assert _injected(create(_pod({"annotations": {"warmstart.dev/container": "c"}}, containers=two))) is None


_FROM_FIELD = {"name": "VLLM_CACHE_ROOT", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(_pod({"labels": {}}), id="no label"),
        pytest.param(_pod({"labels": {"warmstart.dev/inject": "false"}}), id="label false"),
        pytest.param(_pod(containers=[{"name": n, "image": "vllm"} for n in ("a", "b")]), id="two candidates"),
        pytest.param(_pod(containers=[{"name": n, "image": "x"} for n in ("a", "b")]), id="no candidate"),
        pytest.param(_pod(os={"name": "windows"}), id="windows"),
        pytest.param(_pod(containers=_server(env=[{"name": "VLLM_CACHE_ROOT", "value": "/x/$(A)"}])), id="root expands"),
        pytest.param(_pod(containers=_server(env=[{"name": "VLLM_CACHE_ROOT", "value": "x"}])), id="root relative"),
        pytest.param(_pod(containers=_server(env=[_FROM_FIELD])), id="root from a field"),
    ],
)
def test_a_pod_that_it_is_not_for_is_left_alone(create: Create, pod: Object) -> None:
    """No label, no certainty: the pod is created as it was written."""
    made = create(pod)
    assert _injected(made) is None
    assert not any("warmstart" in volume["name"] for volume in made["spec"].get("volumes", ()))
    assert not any("/var/cache/vllm" in env_of(one).values() for one in made["spec"]["containers"])


def test_system_namespaces_are_left_alone(create: Create) -> None:
    """Even with the label."""
    assert _injected(create(_pod(), namespace="kube-system")) is None


def test_it_is_in_force_again_after_it_was_removed(cluster: Path, kubeconfig: Path) -> None:
    """An API server forgets nothing of it, and keeps nothing: removed, installed with other values, removed, installed."""
    helm = [program("helm4"), "--kubeconfig", cluster]
    for path in ("/one", "/two", "/var/cache/vllm"):
        subprocess.run([*helm, "uninstall", "ws"], check=True, capture_output=True)
        values = json.dumps(merge(_VALUES, {"cache": {"path": path}}))
        install = [*helm, "install", "ws", CHART, "--values", "-"]
        subprocess.run(install, input=values, text=True, check=True, capture_output=True)
        give_up = time.monotonic() + 60
        while path not in _mounts(_create(kubeconfig, _pod())["spec"]["containers"][0]):
            assert time.monotonic() < give_up, path
            time.sleep(0.2)


def test_the_api_server_has_no_complaint_about_the_policy(kubeconfig: Path) -> None:
    """Type checking of its expressions gave no warning."""
    command = [
        program("kubectl"),
        "--kubeconfig",
        kubeconfig,
        "get",
        "mutatingadmissionpolicy/default-ws-warmstart",
        "-o",
        "json",
    ]
    policy = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert not policy.get("status", {}).get("typeChecking", {}).get("expressionWarnings")
    assert policy["spec"]["failurePolicy"] == "Ignore"
