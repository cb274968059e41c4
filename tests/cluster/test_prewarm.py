"""Pre-warming on a real API server: Deployments that change, node pools, limits, and what is said about it."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.chart.tools import ROOT
from tests.cluster.conftest import CRDS, end_pod, eventually
from tests.unit.cluster.specs import DEPLOYMENT

from warmstart import identity
from warmstart.cluster.api import Api
from warmstart.cluster.resources import DEPLOYMENTS, EVENTS, JOBS, NODES, PODS, STATEFUL_SETS, Object, Resource
from warmstart.cluster.workloads import RESOURCE_CLAIM_TEMPLATES
from warmstart.settings import Settings
from warmstart.store import open_store
from warmstart.workflow import prewarm
from warmstart.workflow.prewarming import Look
from warmstart.workflow.stopping import Stop

pytestmark = pytest.mark.cluster

Run = Callable[..., Look]


@pytest.fixture
def run(kubeconfig: Path, namespace: str, tmp_path: Path) -> Run:
    """Run `warmstart prewarm` once over the test's namespace, with some fields of the configuration file."""

    def once(**fields: Any) -> Look:
        return prewarm.main(Settings(), Stop(), kubeconfig=kubeconfig, config=_config(tmp_path, namespace, **fields))

    return once


def test_an_opted_in_deployment_gets_its_job_and_an_event(run: Run, admin: Api, namespace: str) -> None:
    live = _deploy(admin, namespace, "qwen3")

    look = run()

    (target,) = look.targets
    assert (target.state, target.gpu, target.model) == ("created", "h200", "Qwen/Qwen3-0.6B")
    (job,) = admin.list(JOBS, namespace)
    assert job["metadata"]["name"] == target.job
    assert job["metadata"]["ownerReferences"][0]["uid"] == live["metadata"]["uid"]
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "warmstart:1"
    (event,) = _events(admin, namespace, "PrecompileStarted")
    assert event["regarding"]["name"] == "qwen3"
    assert target.job in event["note"]


def test_looking_again_changes_nothing(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "qwen3")
    run()
    look = run()
    assert [target.state for target in look.targets] == ["running"]
    assert len(list(admin.list(JOBS, namespace))) == 1


def test_who_did_not_opt_in_is_left_alone(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "qwen3", labels={})
    assert run().targets == ()
    assert list(admin.list(JOBS, namespace)) == []


def test_a_rollout_gets_a_job_of_its_own(run: Run, admin: Api, namespace: str) -> None:
    """New arguments, then a new image: each is another cache."""
    _deploy(admin, namespace, "qwen3")
    names = {run(concurrency=9).targets[0].job}
    for change in ({"args": ["--max-model-len", "8192"]}, {"image": "vllm/vllm-openai:v0.33.0-cu130"}):
        container = {**admin.get(DEPLOYMENTS, namespace, "qwen3")["spec"]["template"]["spec"]["containers"][0], **change}
        admin.merge(DEPLOYMENTS, namespace, "qwen3", {"spec": {"template": {"spec": {"containers": [container]}}}})
        (target,) = run(concurrency=9).targets
        assert target.state == "created"
        names.add(target.job)
    assert {job["metadata"]["name"] for job in admin.list(JOBS, namespace)} == names
    assert len(names) == 3


def test_scaling_is_no_rollout(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "qwen3")
    run()
    admin.merge(DEPLOYMENTS, namespace, "qwen3", {"spec": {"replicas": 7}})
    assert run().targets[0].state == "running"


def test_a_finished_job_is_left_alone_and_a_failed_one_is_told(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "good")
    _deploy(admin, namespace, "bad", args=["--max-model-len", "1"])
    run(concurrency=9)
    for pod in eventually(lambda: _two(list(admin.list(PODS, namespace, labels="batch.kubernetes.io/job-name")))):
        end_pod(admin, pod, 0 if pod["metadata"]["name"].startswith("good") else 12)
    eventually(lambda: all(target.state in ("done", "failed") for target in run().targets))
    look = run()
    assert {target.workload.rsplit("/")[-1]: target.state for target in look.targets} == {"good": "done", "bad": "failed"}
    assert len(list(admin.list(JOBS, namespace))) == 2
    told = {event["regarding"]["name"]: event for event in _events(admin, namespace, "PrecompileFailed")}
    assert told.keys() == {"bad"}
    assert told["bad"]["type"] == "Warning"
    assert "exit code 12" in told["bad"]["note"]
    assert told["bad"]["series"]["count"] >= 2, "the same thing again is counted, not repeated"


def test_no_more_jobs_at_once_than_allowed(run: Run, admin: Api, namespace: str) -> None:
    for number in range(3):
        _deploy(admin, namespace, f"web{number}", args=["--max-model-len", str(1024 * (number + 1))])
    assert sorted(target.state for target in run(concurrency=1).targets) == ["created", "waiting", "waiting"]
    assert sorted(target.state for target in run(concurrency=1).targets) == ["running", "waiting", "waiting"]
    end_pod(admin, eventually(lambda: _first_pod(admin, namespace)), 0)
    states = eventually(lambda: _when(sorted(target.state for target in run(concurrency=1).targets), "created"))
    assert states == ["created", "done", "waiting"]


def test_equal_servers_share_one_job(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "blue")
    _deploy(admin, namespace, "green")
    look = run(concurrency=9)
    assert [target.state for target in look.targets] == ["created", "created"]
    assert len(list(admin.list(JOBS, namespace))) == 1


def test_every_alternative_of_an_affinity_is_a_job(run: Run, admin: Api, namespace: str) -> None:
    values = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H200", "NVIDIA-L4"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [values]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    _deploy(admin, namespace, "either", pod={"nodeSelector": None, "affinity": affinity})
    look = run(concurrency=9)
    assert {target.gpu for target in look.targets} == {"h200", "l4"}
    assert len(list(admin.list(JOBS, namespace))) == 2


def test_node_pools_tell_what_the_spec_does_not(run: Run, admin: Api, namespace: str, nodes: Callable[..., None]) -> None:
    """Of three pools, one exists with a node, one is declared at zero nodes, and one keeps this pod out by a taint."""
    nodes(f"{namespace}-a", {"pool": namespace, "nvidia.com/gpu.product": "NVIDIA-H200"})
    declared = [
        {"name": "later", "labels": {"pool": namespace, "cloud.google.com/gke-accelerator": "nvidia-l4"}},
        {
            "name": "kept",
            "labels": {"pool": namespace, "nvidia.com/gpu.product": "NVIDIA-B200"},
            "taints": [{"key": "reserved", "effect": "NoSchedule"}],
        },
        {"name": "other", "labels": {"pool": "another", "nvidia.com/gpu.product": "NVIDIA-A30"}},
    ]
    _deploy(admin, namespace, "pooled", pod={"nodeSelector": {"pool": namespace}})
    assert {target.gpu for target in run(nodePools=declared, concurrency=9).targets} == {"h200", "l4"}


def test_a_workload_that_may_land_anywhere_is_told_so(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "anywhere", pod={"nodeSelector": {"no-pool-has": "this-label"}})
    look = run()
    assert [target.state for target in look.targets] == ["unknown-gpu"]
    (event,) = _events(admin, namespace, "UnknownGpu")
    assert "warmstart.dev/gpu" in event["note"]
    assert run(gpus=["h200"]).targets[0].gpu == "h200"


def test_a_dra_claim_tells_the_gpu(run: Run, admin: Api, namespace: str) -> None:
    selectors = [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H200'"}}]
    exactly = {"deviceClassName": "gpu.nvidia.com", "selectors": selectors}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }
    admin.create(RESOURCE_CLAIM_TEMPLATES, namespace, claim)
    resources = {"claims": [{"name": "gpu"}]}
    pod = {"nodeSelector": None, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
    _deploy(admin, namespace, "dra", pod=pod, resources=resources)
    assert [target.gpu for target in run().targets] == ["h200"]


def test_a_workload_that_is_not_understood_does_not_stop_the_others(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "a-web-server", command=["nginx"], args=[])
    _deploy(admin, namespace, "b-qwen3")
    look = run()
    assert [target.state for target in look.targets] == ["unreadable", "created"]
    (event,) = _events(admin, namespace, "SpecNotUnderstood")
    assert event["regarding"]["name"] == "a-web-server"


def test_stateful_sets_and_kinds_of_the_configuration_count(run: Run, admin: Api, namespace: str, crd: Resource) -> None:
    """A kind that nobody knew when this was written: its pod template lies where the object wants."""
    spec = copy.deepcopy(DEPLOYMENT["spec"])
    spec["template"]["spec"]["containers"][0]["args"] = ["--max-model-len", "2048"]
    stateful = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "stateful", "labels": OPTED_IN},
        "spec": {**spec, "serviceName": "web"},
    }
    admin.create(STATEFUL_SETS, namespace, stateful)
    custom = {
        "apiVersion": "example.com/v1",
        "kind": "ModelServer",
        "metadata": {"name": "custom", "labels": OPTED_IN},
        "spec": {"serving": {"template": DEPLOYMENT["spec"]["template"]}},
    }
    admin.create(crd, namespace, custom)
    look = run(resources=["modelservers.v1.example.com"], concurrency=9)
    assert {target.workload.partition("/")[0] for target in look.targets} == {"StatefulSet", "ModelServer"}
    assert {target.state for target in look.targets} == {"created"}
    (owned,) = [job for job in admin.list(JOBS, namespace) if job["metadata"]["name"].startswith("custom")]
    assert owned["metadata"]["ownerReferences"][0]["kind"] == "ModelServer"


def test_a_dry_run_asks_the_server_and_creates_nothing(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> None:
    _deploy(admin, namespace, "qwen3")
    look = prewarm.main(Settings(), Stop(), kubeconfig=kubeconfig, config=_config(tmp_path, namespace), dry_run=True)
    assert [(target.state, target.reason) for target in look.targets] == [("created", "dry run")]
    assert list(admin.list(JOBS, namespace)) == []
    assert list(admin.list(EVENTS, namespace, fields="reportingController=warmstart.dev/prewarm")) == []


def test_metrics_name_every_state(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> None:
    _deploy(admin, namespace, "qwen3")
    _deploy(admin, namespace, "unlike", command=["nginx"], args=[])
    textfile = tmp_path / "prewarm.prom"
    prewarm.main(Settings(metrics_textfile=textfile), Stop(), kubeconfig=kubeconfig, config=_config(tmp_path, namespace))
    text = textfile.read_text()
    assert 'warmstart_prewarm_targets{state="created"} 1.0' in text
    assert 'warmstart_prewarm_targets{state="unreadable"} 1.0' in text
    assert 'warmstart_prewarm_targets{state="failed"} 0.0' in text
    assert "warmstart_prewarm_workloads 2.0" in text


def test_a_queue_and_a_job_template_reach_the_job(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "qwen3")
    template = {"spec": {"template": {"spec": {"priorityClassName": "system-node-critical", "hostNetwork": False}}}}
    run(queue="batch", jobTemplate=template)
    (job,) = admin.list(JOBS, namespace)
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "batch"
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "system-node-critical"


def test_two_at_once_make_one_job(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> None:
    for number in range(4):
        _deploy(admin, namespace, f"web{number}", args=["--max-model-len", str(1024 * (number + 1))])
    config = _config(tmp_path, namespace, concurrency=99)
    gate = threading.Barrier(2)
    looks: list[Look] = []

    def look() -> None:
        gate.wait()
        looks.append(prewarm.main(Settings(), Stop(), kubeconfig=kubeconfig, config=config))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    states = [target.state for one in looks for target in one.targets]
    assert len(states) == 8
    assert states.count("created") == 4
    assert len(list(admin.list(JOBS, namespace))) == 4


def test_what_the_store_has_needs_no_job(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> None:
    """With the code fingerprint of the servers' image at hand, the key is known before any Job has run."""
    settings, config = _with_store(tmp_path, namespace)
    _deploy(admin, namespace, "qwen3")
    look = prewarm.main(settings, Stop(), kubeconfig=kubeconfig, config=config, dry_run=True)
    (target,) = look.targets
    assert target.state == "created"
    assert target.job.endswith(target.key[:10]), "a Job is named by the key where that is known"

    manifest = json.dumps({"format": 1, "key": target.key, "layers": []}).encode()
    open_store(str(settings.store)).publish(target.key, manifest, [])

    (target,) = prewarm.main(settings, Stop(), kubeconfig=kubeconfig, config=config).targets
    assert target.state == "present"
    assert list(admin.list(JOBS, namespace)) == []


def test_a_store_that_does_not_answer_makes_no_jobs(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> None:
    settings, config = _with_store(
        tmp_path, namespace, storage={"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"}
    )
    _deploy(admin, namespace, "qwen3")
    (target,) = prewarm.main(
        dataclasses.replace(settings, store="s3://bucket/cache"), Stop(), kubeconfig=kubeconfig, config=config
    ).targets
    assert target.state == "store-unavailable"
    assert target.reason
    assert list(admin.list(JOBS, namespace)) == []


def test_a_server_that_compiles_nothing_gets_no_job(run: Run, admin: Api, namespace: str) -> None:
    _deploy(admin, namespace, "eager", args=["--enforce-eager"])
    (target,) = run().targets
    assert (target.state, target.reason) == ("nothing-to-compile", "the server runs with --enforce-eager")
    assert list(admin.list(JOBS, namespace)) == []


def test_a_watch_notices_a_rollout_long_before_the_next_full_look(
    kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path
) -> None:
    """The next full look is an hour away; the watch is told to stop in the end and does."""
    config = _config(tmp_path, namespace, resyncSeconds=3600, concurrency=9)
    stop = Stop()
    looks: list[Look] = []
    thread = threading.Thread(
        target=prewarm.main,
        args=(Settings(), stop),
        kwargs={"kubeconfig": kubeconfig, "config": config, "watch": True, "told": looks.append},
    )
    thread.start()
    try:
        eventually(lambda: looks)
        _deploy(admin, namespace, "qwen3")
        eventually(lambda: _count(admin, namespace) == 1)
        container = {**DEPLOYMENT["spec"]["template"]["spec"]["containers"][0], "args": ["--max-model-len", "8192"]}
        admin.merge(DEPLOYMENTS, namespace, "qwen3", {"spec": {"template": {"spec": {"containers": [container]}}}})
        eventually(lambda: _count(admin, namespace) == 2)
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_sigterm_ends_a_watch_at_once(kubeconfig: Path, admin: Api, namespace: str, tmp_path: Path) -> None:
    """A rollout of pre-warm itself: the process ends with 143, well within any grace period, whatever it waits for."""
    _deploy(admin, namespace, "qwen3")
    config = _config(tmp_path, namespace, resyncSeconds=3600)
    command = [
        sys.executable,
        "-m",
        "warmstart",
        "prewarm",
        "--watch",
        "--config",
        str(config),
        "--kubeconfig",
        str(kubeconfig),
    ]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "app"), "HOME": str(tmp_path)}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: _count(admin, namespace) == 1, seconds=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    finally:
        process.kill()
        process.communicate()


OPTED_IN = {"warmstart.dev/prewarm": "true"}


@pytest.fixture
def nodes(admin: Api) -> Iterator[Callable[..., None]]:
    """Make nodes, and remove them in the end."""
    made: list[str] = []

    def make(name: str, labels: dict[str, str]) -> None:
        admin.create(NODES, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        made.append(name)

    yield make
    for name in made:
        admin.delete(NODES, "", name)


@pytest.fixture
def crd(admin: Api) -> Iterator[Resource]:
    """Install a kind with a pod template in a place of its own."""
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "modelservers.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {
                "plural": "modelservers",
                "singular": "modelserver",
                "kind": "ModelServer",
                "listKind": "ModelServerList",
            },
            "versions": [served],
        },
    }
    admin.create(CRDS, "", definition)
    resource = Resource("example.com", "v1", "modelservers")
    eventually(lambda: list(admin.list(resource)) == [])
    yield resource
    admin.delete(CRDS, "", "modelservers.example.com")


def _config(folder: Path, namespace: str, **fields: Any) -> Path:
    path = folder / "prewarm.yaml"
    base = {"image": "warmstart:1", "store": "s3://bucket/cache", "namespaces": [namespace]}
    path.write_text(yaml.safe_dump(base | fields))
    return path


def _with_store(folder: Path, namespace: str, storage: Any = None) -> tuple[Settings, Path]:
    """Return settings and a configuration with which keys can be computed: code fingerprint and model files are at hand."""
    code = identity.fingerprint()
    (folder / "code.json").write_text(json.dumps({"code": dict(code.packages), "python": dict(code.python)}))
    model = folder / "models" / "Qwen" / "Qwen3-0.6B"
    model.mkdir(parents=True)
    (model / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}))
    settings = Settings(store=str(folder / "store"), model_files=folder / "models", store_options=storage or {})
    return settings, _config(folder, namespace, store="", images=[{"server": "vllm/*", "code": str(folder / "code.json")}])


def _deploy(
    admin: Api, namespace: str, name: str, *, labels: Any = None, pod: Object | None = None, **container: Any
) -> Object:
    manifest = copy.deepcopy(DEPLOYMENT)
    manifest["metadata"] = {"name": name, "namespace": namespace, "labels": OPTED_IN if labels is None else labels}
    spec = manifest["spec"]["template"]["spec"]
    spec["containers"] = [{**spec["containers"][0], **container}]
    spec |= pod or {}
    return admin.create(DEPLOYMENTS, namespace, manifest)


def _events(admin: Api, namespace: str, reason: str) -> list[Object]:
    return [event for event in admin.list(EVENTS, namespace) if event["reason"] == reason]


def _first_pod(admin: Api, namespace: str) -> Object | None:
    return next(iter(admin.list(PODS, namespace, labels="batch.kubernetes.io/job-name")), None)


def _count(admin: Api, namespace: str) -> int:
    return len(list(admin.list(JOBS, namespace)))


def _two(found: list[Object]) -> list[Object] | None:
    return found if len(found) == 2 else None


def _when(states: list[str], wanted: str) -> list[str] | None:
    return states if wanted in states else None
