"""The Job that `warmstart job` prints: what it runs, what it carries over, and what a template may change."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cluster.specs import DEPLOYMENT

from warmstart.cluster.jobs import JobOptions, JobSubject, job_name, render_job
from warmstart.errors import SpecError, UnknownGpuError, UsageError
from warmstart.settings import Settings
from warmstart.workflow import job
from warmstart.workflow.stopping import Stop


def test_the_job_runs_precompile_for_the_container_and_the_gpu(tmp_path: Path) -> None:
    container = _container(_one(_jobs(tmp_path, DEPLOYMENT)))
    assert container["args"][0] == "precompile"
    assert ("--gpu", "h200") in _pairs(container["args"])
    assert ("--container", "vllm") in _pairs(container["args"])
    assert "command" not in container, "the image's entrypoint is warmstart"


def test_the_spec_arrives_whole_in_a_file_of_the_pod(tmp_path: Path) -> None:
    template = _one(_jobs(tmp_path, DEPLOYMENT))["spec"]["template"]
    carried = json.loads(template["metadata"]["annotations"]["warmstart.dev/spec"])
    assert carried["spec"] == DEPLOYMENT["spec"]
    assert carried["metadata"] == {"name": "qwen3", "namespace": "serving", "annotations": {}}
    item = _volume(template, "warmstart-spec")["downwardAPI"]["items"][0]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['warmstart.dev/spec']"
    mount = next(mount for mount in _container_of(template)["volumeMounts"] if mount["name"] == "warmstart-spec")
    assert ("-f", f"{mount['mountPath']}/{item['path']}") in _pairs(_container_of(template)["args"])


def test_only_what_the_spec_cannot_say_comes_from_the_servers_env(tmp_path: Path) -> None:
    container = _container(_one(_jobs(tmp_path, DEPLOYMENT)))
    env = {entry["name"]: entry for entry in container["env"]}
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "hf", "key": "token"}
    assert "LD_PRELOAD" not in env
    assert "POD_IP" not in env
    assert container["envFrom"] == [{"configMapRef": {"name": "settings"}}]
    assert env["WARMSTART_STORE"]["value"] == "s3://bucket/cache"


def test_failures_that_repeat_end_the_job_and_disruptions_do_not_count(tmp_path: Path) -> None:
    spec = _one(_jobs(tmp_path, DEPLOYMENT))["spec"]
    fail, ignore = spec["podFailurePolicy"]["rules"]
    assert fail["action"] == "FailJob"
    assert fail["onExitCodes"]["values"] == [2, 12]
    assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["activeDeadlineSeconds"] > 0
    assert spec["ttlSecondsAfterFinished"] > 0


def test_the_pod_has_no_token_no_gpu_and_no_rights(tmp_path: Path) -> None:
    pod = _one(_jobs(tmp_path, DEPLOYMENT))["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "nvidia.com/gpu" not in json.dumps(container["resources"])
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}, "the Job must run where there is no GPU"


def test_each_gpu_type_gets_a_job_of_its_own(tmp_path: Path) -> None:
    spec = json.loads(json.dumps(DEPLOYMENT))
    pod = spec["spec"]["template"]["spec"]
    del pod["nodeSelector"]
    values = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H200", "NVIDIA-L4"]}
    terms = [{"matchExpressions": [values]}]
    pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    names = [one["metadata"]["name"] for one in _jobs(tmp_path, spec)]
    assert len(names) == len(set(names)) == 2
    assert {name.split("-")[-2] for name in names} == {"h200", "l4"}


def test_the_name_is_stable_and_follows_what_is_compiled(tmp_path: Path) -> None:
    again = json.loads(json.dumps(DEPLOYMENT))
    again["spec"]["template"]["metadata"]["labels"]["rollout"] = "7"
    changed = json.loads(json.dumps(DEPLOYMENT))
    changed["spec"]["template"]["spec"]["containers"][0]["args"] = ["--max-model-len", "8192"]
    name = _one(_jobs(tmp_path, DEPLOYMENT))["metadata"]["name"]
    assert _one(_jobs(tmp_path, again))["metadata"]["name"] == name
    assert _one(_jobs(tmp_path, changed))["metadata"]["name"] != name


@pytest.mark.parametrize("name", ["x" * 253, "a.b.c", "9", "ünï"])
def test_any_workload_name_gives_a_job_name(name: str) -> None:
    subject = JobSubject(
        manifest={"metadata": {"name": name}}, pod={}, container="c", paths=(), gpu="h100-80gb-mig-1g.10gb", identity="f" * 64
    )
    made = job_name(subject)
    assert len(made) <= 63
    assert made == made.strip("-").lower()
    assert made.replace("-", "").isalnum()
    assert made.isascii()


def test_a_model_on_a_claim_is_mounted_read_only_and_a_scratch_folder_is_not(tmp_path: Path) -> None:
    spec = json.loads(json.dumps(DEPLOYMENT))
    pod = spec["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = ["vllm", "serve", "/models/qwen3"]
    pod["containers"][0]["volumeMounts"] = [
        {"name": "models", "mountPath": "/models/"},
        {"name": "scratch", "mountPath": "/scratch-of-server"},
        {"name": "unrelated", "mountPath": "/models-of-others"},
    ]
    pod["volumes"] = [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "unrelated", "persistentVolumeClaim": {"claimName": "others"}},
    ]
    template = _one(_jobs(tmp_path, spec))["spec"]["template"]
    assert _volume(template, "models") == {"name": "models", "persistentVolumeClaim": {"claimName": "models"}}
    mount = next(mount for mount in _container_of(template)["volumeMounts"] if mount["name"] == "models")
    assert mount == {"name": "models", "mountPath": "/models/", "readOnly": True}
    assert {volume["name"] for volume in template["spec"]["volumes"]} == {"warmstart-spec", "warmstart-scratch", "models"}


def test_a_template_goes_over_the_built_in_job(tmp_path: Path) -> None:
    over = {
        "metadata": {"labels": {"team": "ml"}, "name": "not-this"},
        "spec": {
            "ttlSecondsAfterFinished": None,
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "tolerations": [{"key": "batch", "operator": "Exists"}],
                    "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": "store"}}],
                    "containers": [
                        {
                            "name": "warmstart",
                            "resources": {"requests": {"cpu": "8"}},
                            "env": [{"name": "HF_TOKEN", "value": "another"}],
                            "volumeMounts": [{"name": "store", "mountPath": "/store"}],
                        },
                        {"name": "sidecar", "image": "busybox"},
                    ],
                }
            },
        },
    }
    made = _one(_jobs(tmp_path, DEPLOYMENT, template=over))
    pod, container = made["spec"]["template"]["spec"], _container(made)
    assert made["metadata"]["labels"]["team"] == "ml"
    assert made["metadata"]["name"] != "not-this"
    assert "ttlSecondsAfterFinished" not in made["spec"]
    assert made["spec"]["backoffLimit"] == 0
    assert made["spec"]["podFailurePolicy"]["rules"], "what the template does not mention stays"
    assert pod["tolerations"] == [{"key": "batch", "operator": "Exists"}]
    assert [one["name"] for one in pod["containers"]] == ["warmstart", "sidecar"]
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "4Gi"}
    assert [entry for entry in container["env"] if entry["name"] == "HF_TOKEN"] == [{"name": "HF_TOKEN", "value": "another"}]
    assert {mount["name"] for mount in container["volumeMounts"]} == {"warmstart-spec", "warmstart-scratch", "store"}


def test_a_queue_makes_the_job_wait_for_kueue() -> None:
    made = render_job(_subject(DEPLOYMENT), JobOptions(image="i", queue="batch"))
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "batch"
    assert made["spec"]["suspend"] is True


def test_a_workload_of_the_cluster_owns_its_job() -> None:
    live = {**DEPLOYMENT, "metadata": {**DEPLOYMENT["metadata"], "uid": "1-2-3"}}
    made = render_job(_subject(live), JobOptions(image="i"))
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen3", "uid": "1-2-3"}
    assert made["metadata"]["ownerReferences"] == [owner]
    assert "ownerReferences" not in render_job(_subject(DEPLOYMENT), JobOptions(image="i"))["metadata"]


def test_a_dollar_in_an_option_is_not_expanded_by_the_kubelet() -> None:
    made = render_job(_subject(DEPLOYMENT), JobOptions(image="i", store="s3://bucket/$(HOME)"))
    env = {entry["name"]: entry.get("value") for entry in _container(made)["env"]}
    assert env["WARMSTART_STORE"] == "s3://bucket/$$(HOME)"


def test_the_stream_is_what_kubectl_takes(tmp_path: Path) -> None:
    made = _manifests(tmp_path, DEPLOYMENT)
    assert list(yaml.safe_load_all(made.text())) == list(made.jobs)
    assert "&id" not in made.text(), "no anchors"
    assert made.document()["kind"] == "List"
    assert made.document()["items"] == list(made.jobs)


def test_a_folder_as_store_needs_a_volume(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder, and the Job mounts no volume there"):
        _jobs(tmp_path, DEPLOYMENT, store="file:///store/cache")
    container = {"name": "warmstart", "volumeMounts": [{"name": "store", "mountPath": "/store"}]}
    volume = {"name": "store", "persistentVolumeClaim": {"claimName": "store"}}
    template = {"spec": {"template": {"spec": {"containers": [container], "volumes": [volume]}}}}
    assert _jobs(tmp_path, DEPLOYMENT, store="file:///store/cache", template=template)


def test_a_spec_too_large_for_an_annotation_is_refused_by_size() -> None:
    large = json.loads(json.dumps(DEPLOYMENT))
    large["spec"]["template"]["metadata"]["annotations"] = {"notes": "x" * 250_000}
    with pytest.raises(UsageError, match="bytes, an annotation at most"):
        render_job(_subject(large), JobOptions(image="i"))


def test_a_spec_that_names_no_gpu_says_how_to(tmp_path: Path) -> None:
    spec = json.loads(json.dumps(DEPLOYMENT))
    del spec["spec"]["template"]["spec"]["nodeSelector"]
    with pytest.raises(UnknownGpuError, match="--gpu"):
        _jobs(tmp_path, spec)


def test_a_spec_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read .*nowhere\.yaml"):
        job.main(Settings(pod_spec=str(tmp_path / "nowhere.yaml")), Stop())
    with pytest.raises(UsageError, match="no pod spec is given"):
        job.main(Settings(), Stop())


def _manifests(
    folder: Path, manifest: dict[str, Any], *, store: str = "s3://bucket/cache", template: Any = None
) -> job.Manifests:
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(manifest))
    file = None
    if template is not None:
        file = folder / "template.yaml"
        file.write_text(yaml.safe_dump(template))
    return job.main(Settings(pod_spec=str(spec), store=store, job_template=file), Stop(), image="warmstart:1")


def _jobs(folder: Path, manifest: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return list(_manifests(folder, manifest, **options).jobs)


def _subject(manifest: dict[str, Any]) -> JobSubject:
    pod = manifest["spec"]["template"]["spec"]
    return JobSubject(manifest=manifest, pod=pod, container="vllm", paths=(), gpu="h200", identity="0" * 64)


def _one(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    (only,) = jobs
    return only


def _container(made: dict[str, Any]) -> dict[str, Any]:
    return _container_of(made["spec"]["template"])


def _container_of(template: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in template["spec"]["containers"] if one["name"] == "warmstart")


def _volume(template: dict[str, Any], name: str) -> dict[str, Any]:
    return next(volume for volume in template["spec"]["volumes"] if volume["name"] == name)


def _pairs(args: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(args))
