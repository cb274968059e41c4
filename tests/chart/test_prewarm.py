"""Pre-warm: its configuration, its roles, and that its Jobs are those of precompile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.tools import HERE, STORE, Helm, Object, env_of, merge

from warmstart.cluster.config import PrewarmConfig, prewarm_config

_WATCH, _CRON = HERE / "values" / "prewarm-watch.yaml", HERE / "values" / "prewarm-cron.yaml"
_ARGS = ("prewarm", "--config", "/warmstart/prewarm/config.yaml")
_ON = merge(STORE, {"prewarm": {"enabled": True}})


def _config(helm: Helm, folder: Path, *values: dict[str, Any] | Path) -> PrewarmConfig:
    text = helm.template(*values).one("ConfigMap", "-prewarm")["data"]["config.yaml"]
    path = folder / "config.yaml"
    path.write_text(text)
    return prewarm_config(path)


@pytest.mark.parametrize("case", [_WATCH, _CRON, _ON], ids=["watch", "cron", "defaults"])
def test_the_program_takes_the_configuration(helm4: Helm, tmp_path: Path, case: dict[str, Any] | Path) -> None:
    """Read by the very code that will read it; an unknown field would be an error there."""
    config = _config(helm4, tmp_path, case)
    assert config.store


def test_every_value_reaches_the_configuration(helm4: Helm, tmp_path: Path) -> None:
    """Selector, namespaces, further kinds, node pools, images and their code, types, limits."""
    config = _config(helm4, tmp_path, _WATCH)
    assert config.selector == "warmstart.dev/prewarm in (yes,true)"
    assert config.resources == ("inferenceservices.v1beta1.serving.kserve.io",)
    assert config.node_pools[0].labels == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert config.image_for("vllm/vllm-openai:v0.32.1") == "vllm-warmstart:v0.32.1-warmstart0.1.0"
    assert config.image_for("own/image:1") == "own/image:1", "serverImage: the server's own image"
    assert config.code_for("vllm/vllm-openai:v0.32.1") == Path("/warmstart/code/v0.32.json")
    assert (config.gpus, config.concurrency, config.resync_seconds, config.queue) == (("l40s",), 5, 60.0, "compile")
    assert _config(helm4, tmp_path, _CRON).namespaces == ("models", "more-models")


def _template(config: PrewarmConfig) -> Object:
    return dict(config.job_template["spec"]["template"]["spec"])


def test_its_jobs_are_those_of_precompile(helm4: Helm, tmp_path: Path) -> None:
    """The same env, volumes, security and limits, but for what pre-warm knows of each workload."""
    values = merge(_ON, {"precompile": {"qwen": {"model": "m", "gpus": ["h200"]}}})
    job = helm4.template(values).one("Job")["spec"]
    config = _config(helm4, tmp_path, values)
    limits = {name: value for name, value in job.items() if name != "template"}
    assert {name: value for name, value in config.job_template["spec"].items() if name != "template"} == limits
    ours, theirs = _template(config)["containers"][0], job["template"]["spec"]["containers"][0]
    assert ours["securityContext"] == theirs["securityContext"]
    assert ours["resources"] == theirs["resources"]
    assert env_of(theirs).items() - env_of(ours).items() == {
        ("WARMSTART_GPU", "h200"),
        ("WARMSTART_STORE", "s3://bucket/prefix"),
    }
    assert "args" not in ours
    assert "image" not in ours


def test_its_jobs_run_under_an_account_of_the_workloads_namespace(helm4: Helm, tmp_path: Path) -> None:
    """The release's own account is not there; the default account is, unless another is named."""
    assert "serviceAccountName" not in _template(_config(helm4, tmp_path, _ON))
    assert _template(_config(helm4, tmp_path, _WATCH))["serviceAccountName"] == "compiler"


def test_a_whole_job_comes_out_of_our_own_renderer(helm4: Helm, tmp_path: Path) -> None:
    """The configuration laid over the built-in Job is a Job that an API server takes."""
    from tests.chart.tools import invalid

    from warmstart.cluster.jobs import JobOptions, JobSubject, render_job

    config = _config(helm4, tmp_path, _WATCH)
    pod = {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.33.0"}]}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "server", "namespace": "models"},
        "spec": {"template": {"spec": pod}},
    }
    subject = JobSubject(manifest=manifest, pod=pod, container="vllm", paths=(), gpu="h200", identity="a" * 64)
    options = JobOptions(image="i", store=config.store, queue=config.queue, template=config.job_template)
    job = render_job(subject, options)
    assert invalid([job], "1.37") == []
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "i"
    assert container["args"][0] == "precompile"
    assert env_of(container)["WARMSTART_STORE"] == "s3://bucket/prefix"
    assert env_of(container)["VLLM_CACHE_ROOT"] == "/var/cache/vllm"


def test_watch_is_a_deployment_of_one_and_cron_never_overlaps(helm: Helm) -> None:
    """A changed configuration restarts the Deployment."""
    deployment = helm.template(_WATCH).one("Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "--watch"
    other = helm.template(_WATCH, {"prewarm": {"concurrency": 6}}).one("Deployment")
    checksums = [one["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for one in (deployment, other)]
    assert checksums[0] != checksums[1]
    cron = helm.template(_CRON).one("CronJob", "-prewarm")
    assert cron["spec"]["concurrencyPolicy"] == "Forbid"
    assert cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["args"] == [*_ARGS]


def test_all_namespaces_take_cluster_roles_and_named_ones_a_role_each(helm4: Helm) -> None:
    """Reading and writing apart; no verb that changes a workload, none that deletes."""
    everywhere = helm4.template(_WATCH)
    assert {role["metadata"]["name"] for role in everywhere.of("ClusterRole")} == {
        "models-rel-warmstart-prewarm-read",
        "models-rel-warmstart-prewarm-write",
        "models-rel-warmstart-prewarm-nodes",
    }
    named = helm4.template(_CRON)
    assert not named.of("ClusterRole")
    assert sorted((role["metadata"]["namespace"], role["metadata"]["name"]) for role in named.of("Role")) == [
        ("models", "rel-warmstart-prewarm-read"),
        ("models", "rel-warmstart-prewarm-write"),
        ("more-models", "rel-warmstart-prewarm-read"),
        ("more-models", "rel-warmstart-prewarm-write"),
    ]
    subjects = {(s["name"], s["namespace"]) for binding in named.of("RoleBinding") for s in binding["subjects"]}
    assert subjects == {("prewarmer", "models")}
    for role in [*everywhere.of("ClusterRole"), *named.of("Role")]:
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if set(rule["verbs"]) - {"get", "list", "watch"}:
                assert rule["resources"] in (["jobs"], ["events"])
                assert set(rule["verbs"]) <= {"create", "patch"}


def test_its_role_names_every_kind_that_it_lists(helm4: Helm, tmp_path: Path) -> None:
    """What the configuration makes the program list, the role lets it."""
    rendered = helm4.template(_WATCH)
    rules = rendered.one("ClusterRole", "-read")["rules"]
    listed = [rule for rule in rules if "list" in rule["verbs"]]
    allowed = {(group, plural) for rule in listed for group in rule["apiGroups"] for plural in rule["resources"]}
    watched = _config(helm4, tmp_path, _WATCH).watched()
    assert {(resource.group, resource.plural) for resource in watched} <= allowed


def test_a_cron_job_watches_nothing(helm4: Helm) -> None:
    """And nodes are only listed."""
    cron = [rule for role in helm4.template(_CRON).of("Role") for rule in role["rules"]]
    assert not [rule for rule in cron if "watch" in rule["verbs"]]
    assert helm4.template(_WATCH).one("ClusterRole", "-nodes")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}
    ]


def test_no_rights_where_pre_warm_is_off_or_roles_are_made_elsewhere(helm4: Helm) -> None:
    """No stray role."""
    off = yaml.safe_load(_WATCH.read_text())
    off["prewarm"]["enabled"] = False
    assert helm4.template(off).objects == ()
    assert not helm4.template(_WATCH, {"rbac": {"create": False}}).of("ClusterRole")
