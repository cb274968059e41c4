"""The named templates in a user's own chart: init container, volumes, server env, or a whole pod spec at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.chart.tools import Helm, Object, env_of, invalid, merge

_POD: Object = {
    "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
    "serviceAccountName": "llama",
    "initContainers": [{"name": "fetch", "image": "busybox"}],
    "containers": [
        {"name": "proxy", "image": "envoy"},
        {
            "name": "vllm",
            "image": "vllm/vllm-openai:v0.33.0",
            "args": [
                "--model",
                "/models/m",
                "--override-generation-config",
                '{"a": "$(POD_IP)"}',
                "--served-model-name",
                "$$ <&>",
            ],
            "env": [
                {"name": "VLLM_ATTENTION_BACKEND", "value": "FLASH_ATTN"},
                {"name": "HF_HOME", "value": "/models/hub"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "WARMSTART_STORE", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "more"}}],
            "resources": {"limits": {"nvidia.com/gpu": "2"}},
            "volumeMounts": [
                {"name": "models", "mountPath": "/models"},
                {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
                {"name": "models", "mountPath": "/logs", "subPathExpr": "$(POD_IP)"},
            ],
        },
    ],
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "m"}}, {"name": "shm", "emptyDir": {}}],
}


def _pod(helm: Helm, parent: Path, values: dict[str, Any], pod: Object = _POD, **call: Any) -> Object:
    rendered = helm.template({"how": "whole", "pod": pod, "call": call, "warmstart": values}, chart=parent)
    assert rendered.error == ""
    assert invalid(rendered.objects, "1.37") == []
    return dict(rendered.one("Deployment")["spec"]["template"]["spec"])


def _handed(init: Object) -> Object:
    """Return the spec that the init container gets, after the kubelet has made one `$` of two."""
    return dict(json.loads(env_of(init)["WARMSTART_POD_SPEC"].replace("$$", "$")))


def test_the_parts_make_a_pod_that_shares_the_cache_at_one_path(helm: Helm, parent: Path) -> None:
    """The same emptyDir, at the same absolute path, in both containers; the server's VLLM_CACHE_ROOT is that path."""
    rendered = helm.template({"pod": _POD}, chart=parent)
    assert rendered.error == ""
    assert invalid(rendered.objects, "1.31") == []
    pod = rendered.one("Deployment")["spec"]["template"]["spec"]
    init, server = pod["initContainers"][0], pod["containers"][0]
    paths = {mount["name"]: mount["mountPath"] for mount in init["volumeMounts"]}
    assert paths["warmstart-cache"] == "/var/cache/vllm"
    assert {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]} == {"warmstart-cache": "/var/cache/vllm"}
    assert env_of(server) == {"VLLM_CACHE_ROOT": "/var/cache/vllm", "TRITON_CACHE_DIR": "/var/cache/vllm/triton"}
    assert {"name": "warmstart-cache", "emptyDir": {"sizeLimit": "10Gi"}} in pod["volumes"]


def test_as_a_dependency_the_chart_adds_no_object_and_no_api_access(helm: Helm, parent: Path) -> None:
    """The spec is handed over in an env variable: no role, no account, no ConfigMap."""
    rendered = helm.template({"pod": _POD}, chart=parent)
    assert [item["kind"] for item in rendered.objects] == ["Deployment"]


def test_the_spec_is_handed_over_as_the_server_will_run(helm4: Helm, parent: Path) -> None:
    """Arguments come through unchanged, `$` and all; env holds what the chart adds; nothing that cannot matter is in it."""
    pod = _pod(helm4, parent, {"cache": {"serverEnv": {"VLLM_USE_AOT_COMPILE": "1"}}})
    init = pod["initContainers"][1]
    spec = _handed(init)["spec"]
    server = next(one for one in spec["containers"] if one["name"] == "vllm")
    assert server["args"] == _POD["containers"][1]["args"]
    assert spec["nodeSelector"] == _POD["nodeSelector"]
    env = {entry["name"]: entry.get("value") for entry in server["env"]}
    assert env["VLLM_CACHE_ROOT"] == "/var/cache/vllm"
    assert env["TRITON_CACHE_DIR"] == "/var/cache/vllm/triton"
    assert env["VLLM_USE_AOT_COMPILE"] == "1"
    assert env["VLLM_ATTENTION_BACKEND"] == "FLASH_ATTN"
    assert server["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert not {"volumes", "initContainers", "serviceAccountName"} & spec.keys()


def test_our_own_loader_reads_what_is_handed_over(helm4: Helm, parent: Path) -> None:
    """The same text gives the request that the pod spec itself gives."""
    from warmstart import podspec

    init = _pod(helm4, parent, {})["initContainers"][1]
    (request,) = podspec.load(json.dumps(_handed(init)), source="handed", env={"TOKEN": "t"})
    assert request.model == "/models/m"
    assert request.gpu_count == 2
    assert request.gpus == ("h200",)
    assert request.env["VLLM_CACHE_ROOT"] == "/var/cache/vllm"


def test_what_there_was_stays_and_goes_first(helm4: Helm, parent: Path) -> None:
    """Init containers, volumes, env and mounts of the pod are kept in their order; other containers are left alone."""
    pod = _pod(helm4, parent, {})
    assert [one["name"] for one in pod["initContainers"]] == ["fetch", "warmstart"]
    assert [one["name"] for one in pod["volumes"]] == ["models", "shm", "warmstart-cache", "warmstart-tmp"]
    proxy, server = pod["containers"]
    assert proxy == _POD["containers"][0]
    assert server["env"][:-2] == _POD["containers"][1]["env"]
    assert [one["name"] for one in server["env"][-2:]] == ["VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"]
    assert server["volumeMounts"][:-1] == _POD["containers"][1]["volumeMounts"]


def test_the_secret_that_pulls_its_image_is_there_once(helm4: Helm, parent: Path) -> None:
    """Beside those of the pod."""
    pod = {**_POD, "imagePullSecrets": [{"name": "own"}, {"name": "registry"}]}
    warm = _pod(helm4, parent, {"imagePullSecrets": [{"name": "registry"}, {"name": "second"}]}, pod=pod)
    assert [secret["name"] for secret in warm["imagePullSecrets"]] == ["own", "registry", "second"]


def test_a_pod_with_warmstart_is_left_alone(helm4: Helm, parent: Path) -> None:
    """Calling it twice is calling it once."""
    once = _pod(helm4, parent, {})
    assert _pod(helm4, parent, {}, pod=once) == once


def test_the_init_container_sees_what_the_server_sees(helm4: Helm, parent: Path) -> None:
    """Model folders read-only, hub settings and Secrets; no shared memory, no mount that the kubelet could not expand."""
    init = _pod(helm4, parent, {"store": {"credentialsSecret": "creds"}})["initContainers"][1]
    mounts = {mount["mountPath"]: mount for mount in init["volumeMounts"]}
    assert mounts["/models"]["readOnly"] is True
    assert "/dev/shm" not in mounts  # noqa: S108
    assert "/logs" not in mounts
    assert env_of(init)["HF_HOME"] == "/models/hub"
    referenced = {entry["name"] for entry in init["env"] if "secretKeyRef" in entry.get("valueFrom", {})}
    assert referenced == {"TOKEN"}, "what the chart sets itself is not taken from the server"
    assert env_of(init)["WARMSTART_STORE"] == "s3://bucket/prefix"
    assert init["envFrom"] == [{"configMapRef": {"name": "more"}}, {"secretRef": {"name": "creds", "optional": True}}]


def test_nothing_that_is_missing_keeps_the_server_from_starting(helm4: Helm, parent: Path) -> None:
    """Each Secret and ConfigMap of the init container is optional: without it the command fails open, with its reason."""
    values = {
        "store": {"credentialsSecret": "creds"},
        "huggingFace": {"tokenSecret": "hub"},
        "trust": {"signingKeySecret": {"name": "key"}, "trustedKeysConfigMap": {"name": "keys", "keys": ["a.pub"]}},
        "init": {"modelFiles": {"configMap": "files"}, "code": {"configMap": "code"}},
    }
    pod = _pod(helm4, parent, values)
    sources = [volume.get("secret") or volume.get("configMap") for volume in pod["volumes"]]
    assert [source["optional"] for source in sources if source] == [True] * 4
    assert all(source["secretRef"]["optional"] for source in pod["initContainers"][1]["envFrom"] if "secretRef" in source)


@pytest.mark.parametrize("user", [0, 1000, None])
def test_a_pod_that_runs_as_root_does_not_stop_at_our_container(helm4: Helm, parent: Path, user: int | None) -> None:
    """The kubelet refuses runAsNonRoot where the pod says root: then, and only then, our container gets the image's user."""
    pod = {**_POD, "securityContext": {"runAsUser": user} if user is not None else {}}
    context = _pod(helm4, parent, {}, pod=pod)["initContainers"][1]["securityContext"]
    assert context.get("runAsUser") == (65532 if user == 0 else None)
    assert context["runAsNonRoot"] is True


def _with_cache(root: str, mounted: str = "", *more: Object) -> Object:
    mounts = [{"name": "own", "mountPath": mounted}] if mounted else []
    env = [{"name": "VLLM_CACHE_ROOT", "value": root}, *more]
    server = {"name": "vllm", "image": "vllm", "env": env, "volumeMounts": mounts}
    return {"containers": [server], "volumes": [{"name": "own", "emptyDir": {}}] if mounted else []}


@pytest.mark.parametrize("mounted", ["/data/cache", "/data"])
def test_a_server_with_a_cache_volume_of_its_own_keeps_it(helm4: Helm, parent: Path, mounted: str) -> None:
    """The init container writes where the server looks, and no emptyDir of ours covers it."""
    pod = _pod(helm4, parent, {}, pod=_with_cache("/data/cache", mounted))
    (init,), (server,) = pod["initContainers"], pod["containers"]
    assert [volume["name"] for volume in pod["volumes"]] == ["own", "warmstart-tmp"]
    assert {"name": "own", "mountPath": mounted} in init["volumeMounts"]
    assert server["volumeMounts"] == [{"name": "own", "mountPath": mounted}]
    assert server["env"] == [{"name": "VLLM_CACHE_ROOT", "value": "/data/cache"}, _triton("/data/cache/triton")]


@pytest.mark.parametrize("mounted", ["", "/data/cache-of-another", "/dat"])
def test_a_server_with_a_cache_root_of_its_own_gets_the_emptydir_there(helm4: Helm, parent: Path, mounted: str) -> None:
    """At the same absolute path in both; a volume that only starts with the same letters is another one."""
    pod = _pod(helm4, parent, {}, pod=_with_cache("/data/cache", mounted))
    for one in (pod["initContainers"][0], pod["containers"][0]):
        assert {"name": "warmstart-cache", "mountPath": "/data/cache"} in one["volumeMounts"]


@pytest.mark.parametrize(("root", "folder"), [("/data/cache", "/data/cache/triton"), ("/data/cache/", "/data/cache/triton")])
def test_tritons_folder_follows_the_servers_own_cache_root(helm: Helm, parent: Path, root: str, folder: str) -> None:
    """And not cache.path: in the whole pod, in the spec that is handed over, and piece by piece where the pod is given."""
    given = _with_cache(root)
    pod = _pod(helm, parent, {"cache": {"path": "/other", "serverEnv": {"A": "1"}}}, pod=given)
    (server,) = pod["containers"]
    assert server["env"] == [*given["containers"][0]["env"], _triton(folder), {"name": "A", "value": "1"}]
    (handed,) = _handed(pod["initContainers"][0])["spec"]["containers"]
    assert handed["env"] == server["env"]
    assert _piece(helm, parent, given) == [_triton(folder)]


@pytest.mark.parametrize(
    "own",
    [
        {"value": "/elsewhere"},
        {"value": "$(HOME)/.triton"},
        {"value": ""},
        {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    ],
)
def test_a_server_with_a_triton_folder_of_its_own_keeps_it(helm4: Helm, parent: Path, own: Object) -> None:
    """Whatever it says: it is there once, as it was."""
    entry = {"name": "TRITON_CACHE_DIR", **own}
    given = _with_cache("/data/cache", "", entry)
    pod = _pod(helm4, parent, {}, pod=given)
    (server,) = pod["containers"]
    assert server["env"] == given["containers"][0]["env"]
    (handed,) = _handed(pod["initContainers"][0])["spec"]["containers"]
    assert handed["env"] == server["env"]
    without_root = {"containers": [{"name": "vllm", "image": "vllm", "env": [entry]}]}
    assert _piece(helm4, parent, without_root) == [{"name": "VLLM_CACHE_ROOT", "value": "/var/cache/vllm"}]


def _triton(folder: str) -> Object:
    return {"name": "TRITON_CACHE_DIR", "value": folder}


def _piece(helm: Helm, parent: Path, pod: Object) -> Any:
    """Return what `warmstart.serverEnv` gives for a pod."""
    rendered = helm.template({"pod": pod, "follow": True}, chart=parent)
    assert rendered.error == ""
    return rendered.one("Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("root", ["$(HOME)/cache", "cache", "~/cache"])
def test_a_cache_root_that_cannot_be_told_is_refused(helm: Helm, parent: Path, root: str) -> None:
    """With the way out, instead of a cache that nobody looks for."""
    error = helm.template({"how": "whole", "pod": _with_cache(root)}, chart=parent).error
    assert "plain absolute path" in error
    assert "set cache.path" in error


def test_gpus_are_asked_for_only_when_wanted(helm4: Helm, parent: Path) -> None:
    """Off by default; with a count they are a limit, and the root file system is writable for the driver's hook."""
    none, some = (_pod(helm4, parent, {"init": {"gpuCount": count}})["initContainers"][1] for count in (0, 2))
    assert "nvidia.com/gpu" not in none["resources"]["limits"]
    assert none["securityContext"]["readOnlyRootFilesystem"] is True
    assert some["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert some["securityContext"]["readOnlyRootFilesystem"] is False


def test_a_pull_only_container_uses_the_small_image_and_no_signing_key(helm4: Helm, parent: Path) -> None:
    """It publishes nothing, so it is given nothing to sign with."""
    values = {
        "init": {"onMiss": "skip", "pullOnly": True, "code": {"configMap": "code"}},
        "trust": {"signingKeySecret": {"name": "key"}},
    }
    pod = _pod(helm4, parent, values)
    init = pod["initContainers"][1]
    assert init["image"] == "vllm-warmstart-store:0.1.0"
    assert env_of(init)["WARMSTART_CODE_FILE"] == "/warmstart/code/code.json"
    assert "WARMSTART_SIGNING_KEY" not in env_of(init)
    assert not [volume for volume in pod["volumes"] if "secret" in volume]


def test_the_call_can_name_gpu_and_container(helm4: Helm, parent: Path) -> None:
    """Charts with several servers say it for each."""
    init = _pod(helm4, parent, {"init": {"gpu": "l4", "container": "proxy"}}, gpu="h200", container="vllm")["initContainers"][1]
    assert env_of(init)["WARMSTART_GPU"] == "h200"
    assert env_of(init)["WARMSTART_CONTAINER"] == "vllm"


@pytest.mark.parametrize(("names", "container"), [(["vllm", "vllm-2"], ""), (["vllm"], "nope")])
def test_a_container_that_cannot_be_told_is_refused_with_the_names(
    helm: Helm, parent: Path, names: list[str], container: str
) -> None:
    """Two candidates, or a name that matches none."""
    pod = {"containers": [{"name": name, "image": "vllm/vllm-openai"} for name in names]}
    values = {"how": "whole", "pod": pod, "warmstart": {"init": {"container": container}}}
    error = helm.template(values, chart=parent).error
    assert "set init.container" in error
    assert ", ".join(names) in error


def test_a_contradiction_shows_in_the_parent_chart_too(helm: Helm, parent: Path) -> None:
    """Values of a dependency go through the same schema and the same checks."""
    assert "store.url" in helm.template(merge({"pod": _POD}, {"warmstart": {"store": {"url": ""}}}), chart=parent).error
    assert "onMis" in helm.template(merge({"pod": _POD}, {"warmstart": {"init": {"onMis": "skip"}}}), chart=parent).error


def test_without_a_pod_the_container_reads_its_own(helm4: Helm, parent: Path) -> None:
    """It then has its name and namespace from the Downward API, and no spec in its env."""
    rendered = helm4.template({"pod": {}}, chart=parent)
    init = rendered.one("Deployment")["spec"]["template"]["spec"]["initContainers"][0]
    assert "WARMSTART_POD_SPEC" not in env_of(init)
    fields = {entry["name"]: entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in init["env"] if "valueFrom" in entry}
    assert fields == {"WARMSTART_POD_NAME": "metadata.name", "WARMSTART_POD_NAMESPACE": "metadata.namespace"}
