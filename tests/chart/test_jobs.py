"""Precompile Jobs, gc, roles and labels of the chart on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.tools import HERE, STORE, Helm, Object, Rendered, containers, env_of, merge, pods

_MODEL = {"precompile": {"qwen": {"model": "Qwen/Qwen3-0.6B", "gpus": ["h200", "l4"], "args": ["--max-model-len", "8192"]}}}
_CASE = HERE / "values"


def _jobs(helm: Helm, *values: dict[str, Any] | Path) -> list[Object]:
    rendered = helm.template(*values)
    assert rendered.error == ""
    return rendered.of("Job")


def test_one_job_for_each_gpu_type(helm: Helm) -> None:
    """Each says its type in its name, its label and its env."""
    jobs = _jobs(helm, merge(STORE, _MODEL))
    assert [job["metadata"]["labels"]["warmstart.dev/gpu"] for job in jobs] == ["h200", "l4"]
    assert [env_of(job["spec"]["template"]["spec"]["containers"][0])["WARMSTART_GPU"] for job in jobs] == ["h200", "l4"]
    assert "-qwen-h200-" in jobs[0]["metadata"]["name"]


def test_hopeless_failures_end_a_job_and_disruptions_do_not_count(helm4: Helm) -> None:
    """Exit codes 2 (configuration) and 12 (the pass failed) fail at once; an eviction is ignored; no pod is restarted."""
    job = _jobs(helm4, merge(STORE, _MODEL))[0]["spec"]
    first, second = job["podFailurePolicy"]["rules"]
    assert first["action"] == "FailJob"
    assert first["onExitCodes"] == {"containerName": "warmstart", "operator": "In", "values": [2, 12]}
    assert second == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert (job["backoffLimit"], job["activeDeadlineSeconds"], job["ttlSecondsAfterFinished"]) == (3, 3600, 86400)


def test_the_exit_codes_that_end_a_job_are_those_of_the_command_line() -> None:
    """2 and 12 are what the errors of a wrong call and of a failed pass map to."""
    from warmstart import cli, errors

    codes = {cli.exit_code(error("x")) for error in (errors.UsageError, errors.CompileError)}
    assert codes == {2, 12}


def test_a_jobs_name_changes_with_its_template_and_with_nothing_else(helm4: Helm) -> None:
    """A Job's template cannot be changed: new values make a new Job, the same values the same one."""
    base = merge(STORE, _MODEL)
    names = [job["metadata"]["name"] for job in _jobs(helm4, base)]
    assert [job["metadata"]["name"] for job in _jobs(helm4, base)] == names
    for change in (
        {"image": {"tag": "2"}},
        {"precompile": {"qwen": {"args": ["--max-model-len", "4096"]}}},
        {"commonLabels": {"a": "b"}},
        {"job": {"annotations": {"a": "b"}}},
        {"trust": {"requireSignature": False, "signingKeySecret": {"name": "key"}}},
    ):
        changed = [job["metadata"]["name"] for job in _jobs(helm4, merge(base, change))]
        assert not set(changed) & set(names), change
    assert [job["metadata"]["name"] for job in _jobs(helm4, merge(base, {"job": {"backoffLimit": 9}}))] == names


@pytest.mark.parametrize("length", [1, 40, 63])
def test_names_fit_into_63_characters(helm4: Helm, length: int) -> None:
    """However long the release, the entry and the GPU's spelling are; and they are DNS labels."""
    values = merge(STORE, {"precompile": {"e" * length: {"model": "m", "gpus": ["NVIDIA H100 80GB HBM3", "A_b.c"]}}})
    for job in helm4.template(values, release="r" * min(length, 53)).of("Job"):
        name = job["metadata"]["name"]
        assert len(name) <= 63
        assert name == name.lower().strip("-")
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_the_workload_travels_unchanged_in_an_annotation(helm4: Helm) -> None:
    """The Downward API shows it as the file that the command reads; nothing expands `$(NAME)` in it."""
    jobs = {job["metadata"]["labels"]["warmstart.dev/entry"]: job for job in _jobs(helm4, _CASE / "precompile.yaml")}
    given = yaml.safe_load((_CASE / "precompile.yaml").read_text())["precompile"]
    for name, job in jobs.items():
        template = job["spec"]["template"]
        (container,) = template["spec"]["containers"]
        file = container["args"][container["args"].index("-f") + 1]
        volume = next(one for one in template["spec"]["volumes"] if "downwardAPI" in one)
        mount = next(one for one in container["volumeMounts"] if one["name"] == volume["name"])
        (item,) = volume["downwardAPI"]["items"]
        assert f"{mount['mountPath']}/{item['path']}" == file
        assert item["fieldRef"]["fieldPath"] == "metadata.annotations['warmstart.dev/spec']"
        text = template["metadata"]["annotations"]["warmstart.dev/spec"]
        if name == "by_model":
            server = json.loads(text)["spec"]["containers"][0]
            assert server["args"] == ["Qwen/Qwen3-0.6B", *given[name]["args"]]
            assert server["env"] == [{"name": "VLLM_ATTENTION_BACKEND", "value": "FLASH_ATTN"}]
        elif name == "as-map":
            assert json.loads(text) == given[name]["manifest"]
        else:
            assert yaml.safe_load(text) == yaml.safe_load(given[name]["manifest"])


def test_our_own_loader_reads_each_workload(helm4: Helm) -> None:
    """What a Job is given is a pod spec that says what the server runs."""
    from warmstart import podspec

    for job in _jobs(helm4, _CASE / "precompile.yaml"):
        template = job["spec"]["template"]
        env = env_of(template["spec"]["containers"][0])
        text = template["metadata"]["annotations"]["warmstart.dev/spec"]
        (request,) = podspec.load(text, source="job", container=env.get("WARMSTART_CONTAINER"), gpu=env.get("WARMSTART_GPU"))
        assert request.model == "Qwen/Qwen3-0.6B"
        assert len(request.gpus) == 1


def test_no_job_refuses_its_own_workload_for_its_images_version(helm4: Helm) -> None:
    """The check of the server's image passes for entries by model, and for servers that run our image."""
    from warmstart import podspec
    from warmstart.workflow.resolve import check_image

    jobs = _jobs(helm4, _CASE / "precompile.yaml")
    for job in jobs:
        template = job["spec"]["template"]
        text = template["metadata"]["annotations"]["warmstart.dev/spec"]
        (request,) = podspec.load(text, source="job", gpu="h200")
        assert check_image(request, "0.33.0", "refuse") == []
        ours = template["spec"]["containers"][0]["image"]
        if ours.startswith("vllm-warmstart:"):
            (request,) = podspec.load(text.replace("vllm/vllm-openai:v0.33.0", ours), source="job", gpu="h200")
            assert check_image(request, "0.33.0", "refuse") == []


def test_an_entry_can_differ_from_the_defaults(helm4: Helm) -> None:
    """Image, resources and model files of one entry; the others keep the defaults."""
    jobs = {job["metadata"]["labels"]["warmstart.dev/entry"]: job for job in _jobs(helm4, _CASE / "precompile.yaml")}
    own, other = (jobs[name]["spec"]["template"]["spec"] for name in ("by_model", "as-map"))
    assert own["containers"][0]["image"] == "registry.example.com/vllm-warmstart:0.32"
    assert own["containers"][0]["resources"]["requests"] == {"cpu": 8, "memory": "32Gi"}
    assert env_of(own["containers"][0])["WARMSTART_MODEL_FILES"] == "/warmstart/model"
    assert other["containers"][0]["image"] == "vllm-warmstart:v0.33.0-warmstart0.1.0"
    assert env_of(other["containers"][0])["WARMSTART_MODEL_FILES"] == "/warmstart/model/qwen"


def test_kueue_gets_its_labels_and_a_suspended_job(helm4: Helm) -> None:
    """On the Job, where Kueue reads them, not on its pods."""
    job = _jobs(helm4, merge(STORE, _MODEL), {"job": {"kueue": {"queueName": "compile", "priorityClass": "low"}}})[0]
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "compile"
    assert job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "low"
    assert "kueue.x-k8s.io/queue-name" not in job["spec"]["template"]["metadata"]["labels"]


def _all(helm: Helm) -> list[tuple[str, Rendered]]:
    return [(case.stem, helm.template(case)) for case in sorted(_CASE.glob("*.yaml"))]


def test_every_pod_keeps_to_the_restricted_profile(helm4: Helm) -> None:
    """Pod Security `restricted`, a read-only root but where a GPU is held, and no token where the API server is not needed."""
    seen = 0
    for name, rendered in _all(helm4):
        for kind, pod in pods(rendered.objects):
            for container in containers(pod):
                seen += 1
                context = {**pod.get("securityContext", {}), **container["securityContext"]}
                assert context["runAsNonRoot"] is True, (name, kind)
                assert context["seccompProfile"] == {"type": "RuntimeDefault"}
                assert context["allowPrivilegeEscalation"] is False
                assert context["capabilities"] == {"drop": ["ALL"]}
                assert context["readOnlyRootFilesystem"] is True
                assert any(mount["mountPath"] == "/tmp" for mount in container["volumeMounts"])  # noqa: S108
            wants_api = any("prewarm" in one.get("args", []) for one in pod["containers"]) or name == "leases"
            if kind != "Injection":
                assert pod["automountServiceAccountToken"] is wants_api, (name, kind)
    assert seen > 10


def test_every_mount_has_its_volume(helm4: Helm) -> None:
    """And every volume of ours is mounted."""
    for name, rendered in _all(helm4):
        for _, pod in pods(rendered.objects):
            volumes = {volume["name"] for volume in pod.get("volumes", ())}
            mounted = {mount["name"] for one in containers(pod) for mount in one["volumeMounts"]}
            assert mounted == volumes, name


def test_users_labels_and_annotations_are_on_everything_and_never_change_a_selector(helm4: Helm) -> None:
    """CommonLabels cannot replace a label that a selector relies on."""
    for item in helm4.template(_CASE / "names-and-extras.yaml").objects:
        assert item["metadata"]["labels"]["team"] == "serving"
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "warm"
        assert item["metadata"]["annotations"]["example.com/owner"] == "serving@example.com"
    deployment = helm4.template(_CASE / "prewarm-watch.yaml").one("Deployment")
    assert deployment["spec"]["selector"]["matchLabels"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_env_values_are_safe_from_the_kubelets_expansion(helm4: Helm) -> None:
    """`$(NAME)` in the store's options arrives as it was written."""
    job = _jobs(helm4, _CASE / "names-and-extras.yaml")[0]
    options = env_of(job["spec"]["template"]["spec"]["containers"][0])["WARMSTART_STORE_OPTIONS"]
    assert json.loads(options.replace("$$", "$")) == {"anon": True, "note": "$(NOT_EXPANDED)"}
    assert "$$(NOT_EXPANDED)" in options


def test_gc_says_each_limit(helm4: Helm) -> None:
    """As the command line spells them; without dryRun it removes."""
    dry = helm4.template(_CASE / "claim-created.yaml").one("CronJob")
    container = dry["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == [
        "store", "gc", "--older-than=30d", "--keep=100", "--max-bytes=500GB", "--vllm=0.31.*", "--vllm=0.32.0", "--grace=2d",
    ]  # fmt: skip
    assert container["image"] == "vllm-warmstart-store:0.1.0"
    wet = helm4.template(_CASE / "claim-created.yaml", {"gc": {"dryRun": False}}).one("CronJob")
    assert wet["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--execute"


def test_the_claim_is_kept_unless_told_otherwise(helm4: Helm) -> None:
    """Removing a release must not remove what took hours to compile."""
    kept = helm4.template({"store": {"claim": {"create": True}}}).one("PersistentVolumeClaim")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    dropped = helm4.template(_CASE / "claim-created.yaml").one("PersistentVolumeClaim")
    assert "annotations" not in dropped["metadata"]
    assert dropped["spec"]["storageClassName"] == "shared"


def test_roles_say_no_more_than_what_is_done(helm4: Helm) -> None:
    """Own pods are read, Leases are written; nothing else, no cluster role, and nothing at all by default."""
    rendered = helm4.template(_CASE / "leases.yaml")
    rules = {role["metadata"]["name"]: role["rules"] for role in rendered.of("Role")}
    assert rules == {
        "rel-warmstart-read": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        "rel-warmstart-write": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update", "delete"]}
        ],
    }
    write = rendered.one("RoleBinding", "-write")
    assert [subject["name"] for subject in write["subjects"]] == ["compiler", "llama", "qwen"]
    assert not rendered.of("ClusterRole")
    assert not helm4.template(_CASE / "gpu-init.yaml").of("Role"), "rbac.create: false"
