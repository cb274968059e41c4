"""examples/kubernetes: API servers take them, the program reads them, and both containers agree on the cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.tools import ROOT, Object, env_of, invalid

from warmstart import podspec
from warmstart.settings import Settings, fields, variable

_FOLDER = ROOT / "examples" / "kubernetes"
# Objects whose schema is a CustomResourceDefinition's; their pod specs are checked as pods.
_CUSTOM = ("LeaderWorkerSet", "LLMInferenceService")


def _documents(name: str) -> list[Object]:
    return [one for one in yaml.safe_load_all((_FOLDER / name).read_text()) if one]


def _pod_specs(node: Any) -> Iterator[Object]:
    if isinstance(node, dict):
        if isinstance(node.get("containers"), list):
            yield node
        for value in node.values():
            yield from _pod_specs(value)
    elif isinstance(node, list):
        for value in node:
            yield from _pod_specs(value)


def _as_pod(spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}


def _production_stack() -> Object:
    """Return the pod spec that the production-stack chart makes of its values, as far as they matter here."""
    (model,) = _documents("production-stack-values.yaml")[0]["servingEngineSpec"]["modelSpec"]
    init = {name: value for name, value in model["initContainer"].items() if name != "extraVolumeMounts"}
    options = ["--enable-prefix-caching", "--max-model-len", str(model["vllmConfig"]["maxModelLen"])]
    server = {
        "name": "vllm",
        "image": f"{model['repository']}:{model['tag']}",
        "command": ["vllm", "serve", model["modelURL"], "--host", "0.0.0.0", "--port", "8000", *options],  # noqa: S104
        "env": [{"name": "HF_HOME", "value": "/tmp"}, *model["env"]],  # noqa: S108
        "resources": {"limits": {"nvidia.com/gpu": str(model["requestGPU"])}},
        "volumeMounts": model["extraVolumeMounts"],
    }
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": model["nodeSelectorTerms"]}}
    return {
        "serviceAccountName": model["serviceAccountName"],
        "initContainers": [{**init, "volumeMounts": model["initContainer"]["extraVolumeMounts"]}],
        "containers": [server],
        "volumes": model["extraVolumes"],
        "affinity": {"nodeAffinity": affinity},
    }


def _llm_d() -> Object:
    """Return the pod spec that the modelservice chart makes of its values, as far as they matter here."""
    values = _documents("llm-d-values.yaml")[0]
    decode = values["decode"]
    (container,) = decode["containers"]
    server = {name: value for name, value in container.items() if name not in ("modelCommand", "mountModelVolume")}
    server["command"] = ["vllm", "serve", values["modelArtifacts"]["name"]]
    return {
        "serviceAccountName": values["serviceAccountOverride"],
        "nodeSelector": decode["nodeSelector"],
        "initContainers": decode["initContainers"],
        "containers": [server],
        "volumes": decode["volumes"],
    }


def _pods() -> dict[str, Object]:
    found = {"production-stack": _production_stack(), "llm-d": _llm_d()}
    for path in sorted(_FOLDER.glob("*.yaml")):
        if not path.stem.endswith("-values"):
            for document in _documents(path.name):
                for position, spec in enumerate(_pod_specs(document)):
                    found[f"{path.stem} {position}"] = spec
    return found


_PODS = _pods()
_WITH_INIT = {name: pod for name, pod in _PODS.items() if "initContainers" in pod}


@pytest.mark.parametrize("version", ["1.31", "1.37"])
def test_api_servers_take_them(version: str) -> None:
    """Strictly; the pod specs inside of custom resources and values as pods of their own."""
    objects = [one for path in _FOLDER.glob("*.yaml") if "values" not in path.name for one in _documents(path.name)]
    # KServe adds what its own template has; a container without an image is not a pod yet.
    whole = [one for one in objects if one["kind"] not in _CUSTOM]
    assert invalid([*whole, *map(_as_pod, _PODS.values())], version) == []


def test_readme_lists_every_file() -> None:
    """No example that nobody finds."""
    text = (_FOLDER / "README.md").read_text()
    for path in _FOLDER.iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in text


@pytest.mark.parametrize("name", _WITH_INIT)
def test_both_containers_have_the_cache_at_one_path(name: str) -> None:
    """The server's VLLM_CACHE_ROOT is a mount of one volume in both, and that volume is there."""
    pod = _WITH_INIT[name]
    (init,) = [one for one in pod["initContainers"] if one["name"] == "warmstart"]
    (server,) = pod["containers"]
    root = env_of(server)["VLLM_CACHE_ROOT"]
    names = {next(mount["name"] for mount in one["volumeMounts"] if mount["mountPath"] == root) for one in (init, server)}
    assert len(names) == 1
    assert names <= {volume["name"] for volume in pod["volumes"]}


def _environments(node: Any) -> Iterator[dict[str, str]]:
    if isinstance(node, dict):
        if isinstance(node.get("env"), list):
            yield env_of(node)
        for value in node.values():
            yield from _environments(value)
    elif isinstance(node, list):
        for value in node:
            yield from _environments(value)


def test_every_server_finds_the_kernels_below_its_cache_root() -> None:
    """In manifests and values alike: where VLLM_CACHE_ROOT is set, so is Triton's folder."""
    seen = 0
    for path in (ROOT / "examples").rglob("*.yaml"):
        for env in _environments(list(yaml.safe_load_all(path.read_text()))):
            if "VLLM_CACHE_ROOT" in env:
                assert env.get("TRITON_CACHE_DIR") == f"{env['VLLM_CACHE_ROOT']}/triton", path.name
                seen += 1
    assert seen >= 7


@pytest.mark.parametrize("name", _WITH_INIT)
def test_nothing_but_the_image_can_keep_the_server_from_starting(name: str) -> None:
    """Secrets of the init container are optional; a read-only root comes with a /tmp."""
    (init,) = [one for one in _WITH_INIT[name]["initContainers"] if one["name"] == "warmstart"]
    sources = [source["secretRef"] for source in init.get("envFrom", ())]
    sources += [one["valueFrom"]["secretKeyRef"] for one in init["env"] if "secretKeyRef" in one.get("valueFrom", {})]
    assert sources
    assert all(source["optional"] for source in sources)
    if init.get("securityContext", {}).get("readOnlyRootFilesystem"):
        assert "/tmp" in {mount["mountPath"] for mount in init["volumeMounts"]}  # noqa: S108


def test_every_variable_is_a_setting_with_a_value_that_is_read() -> None:
    """The examples speak the program's language."""
    known = {variable(name) for name in fields()}
    seen = 0
    for pod in _PODS.values():
        for one in [*pod.get("initContainers", ()), *pod["containers"]]:
            if one["name"] == "warmstart":
                assert {entry["name"] for entry in one["env"] if entry["name"].startswith("WARMSTART_")} <= known
                assert Settings.read(env_of(one)).store == "s3://models/warmstart"
                seen += 1
    assert seen >= 7


@pytest.mark.parametrize("name", [name for name in _PODS if not name.startswith(("precompile", "kserve"))])
def test_the_program_reads_what_each_server_runs(name: str) -> None:
    """Model, GPU type and count of each pod spec; of the groups, both kinds of pod."""
    if name.startswith("leaderworkerset"):
        requests = podspec.load((_FOLDER / "leaderworkerset.yaml").read_text(), source=name)
        assert len(requests) == 2
    else:
        requests = podspec.load(yaml.safe_dump(_as_pod(_PODS[name])), source=name)
    for request in requests:
        assert request.gpus == ("h200",)
        assert request.gpu_count in (1, 8)
        assert "/" in request.model


def test_the_jobs_workload_is_that_of_the_deployment(tmp_path: Path) -> None:
    """What the Job compiles is what the plain Deployment's servers look up: the same request."""
    template = _documents("precompile-job.yaml")[0]["spec"]["template"]
    spec = tmp_path / "workload.yaml"
    spec.write_text(template["metadata"]["annotations"]["warmstart.dev/spec"])
    (compiled,) = podspec.load(spec.read_text(), source="job")
    (served,) = podspec.load((_FOLDER / "deployment.yaml").read_text(), source="deployment")
    (injected,) = podspec.load((_FOLDER / "injected-deployment.yaml").read_text(), source="injected")
    for request in (served, injected):
        assert (request.model, request.args, request.gpus, request.gpu_count) == (
            compiled.model,
            compiled.args,
            compiled.gpus,
            compiled.gpu_count,
        )


def test_the_job_ends_at_once_where_the_chart_would() -> None:
    """The same rules as the chart's Jobs."""
    from tests.chart.tools import STORE, Helm, merge

    rendered = Helm("helm4").template(merge(STORE, {"precompile": {"q": {"model": "m", "gpus": ["h200"]}}})).one("Job")
    (job,) = _documents("precompile-job.yaml")
    for name in (
        "podFailurePolicy",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
        "podReplacementPolicy",
    ):
        assert job["spec"][name] == rendered["spec"][name]
