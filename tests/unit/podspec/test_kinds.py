"""Every object that makes pods is read by the same rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.podspec.pods import container, pod, text

from warmstart.errors import SpecError
from warmstart.podspec import load

SPECS = Path(__file__).with_name("specs")
EXAMPLES = Path(__file__).parents[3] / "examples"
POD_SPEC = pod(container("vllm", "serve", "M"))["spec"]
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": POD_SPEC}
KINDS: dict[str, dict[str, Any]] = {
    "Pod": POD_SPEC,
    "Deployment": {"template": TEMPLATE},
    "StatefulSet": {"template": TEMPLATE},
    "DaemonSet": {"template": TEMPLATE},
    "ReplicaSet": {"template": TEMPLATE},
    "Job": {"template": TEMPLATE},
    "CronJob": {"jobTemplate": {"spec": {"template": TEMPLATE}}},
    "LeaderWorkerSet": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
    "JobSet": {"replicatedJobs": [{"name": "servers", "template": {"spec": {"template": TEMPLATE}}}]},
    "InferenceService": {"predictor": POD_SPEC},
    "LLMInferenceService": {"template": POD_SPEC},
    "Rollout": {"template": TEMPLATE},
    "RayService": {"rayClusterConfig": {"headGroupSpec": {"template": TEMPLATE}}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_is_read(kind: str) -> None:
    """One server, named by its object."""
    document = {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "n", "namespace": "ns"}, "spec": KINDS[kind]}
    (found,) = load(text(document), source="spec")
    assert (str(found.workload), found.model, found.gpus, found.container) == (f"{kind}/ns/n", "M", ("h200",), "vllm")


def test_leader_and_worker_are_two_requests_that_differ_only_in_place() -> None:
    """What the controller sets is known where the spec fixes it; the rest is named and changes no artifact."""
    leader, worker = load((SPECS / "leaderworkerset.yaml").read_text(encoding="utf-8"), source="lws")
    assert (leader.role, worker.role) == ("leaderTemplate", "workerTemplate")
    assert leader.args == (
        "--tensor-parallel-size", "8", "--nnodes", "2", "--node-rank", "0", "--master-addr", "$(LWS_LEADER_ADDRESS)",
    )  # fmt: skip
    assert worker.args[4:] == ("--node-rank", "$(LWS_WORKER_INDEX)", "--master-addr", "$(LWS_LEADER_ADDRESS)", "--headless")
    assert [note.what for note in worker.unresolved if note.compiles] == []
    assert (leader.gpu_count, worker.gpu_count) == (8, 8)


def test_kserve_s_pods_are_told_apart_by_role() -> None:
    """Prefill and decode of one service have their own arguments and GPUs."""
    decode, prefill = load((SPECS / "kserve-llm.yaml").read_text(encoding="utf-8"), source="kserve")
    assert (decode.role, decode.gpus, decode.model) == ("", ("l40s",), "/mnt/models")
    assert (prefill.role, prefill.gpus, prefill.args) == ("prefill", ("h200",), ("--max-num-batched-tokens", "16k"))


def test_a_rendered_chart_is_read_as_a_whole() -> None:
    """Other objects are passed over, and looked up where the server refers to them."""
    (found,) = load((SPECS / "stream.yaml").read_text(encoding="utf-8"), source="chart")
    assert found.container == "server"
    assert found.args == (
        "--max-model-len", "8192", "--compilation-config", '{"cudagraph_capture_sizes": [1, 2, 4]}', "--port", "8000",
    )  # fmt: skip
    assert found.env == {"VLLM_USE_FLASHINFER_SAMPLER": "1", "HF_TOKEN": "hf_xxx"}
    assert (found.gpus, found.gpu_count, found.unresolved) == (("h200", "l40s"), 2, ())


def test_the_example_is_what_the_readme_says() -> None:
    """The example deployment, as `make demo` uses it."""
    (found,) = load((EXAMPLES / "qwen3-0.6b/deployment.yaml").read_text(encoding="utf-8"), source="deployment.yaml")
    assert str(found.workload) == "Deployment/models/qwen3-0-6b"
    assert (found.model, found.gpus, found.gpu_count) == ("Qwen/Qwen3-0.6B", ("h200",), 1)
    assert found.env["VLLM_CACHE_ROOT"] == "/var/cache/vllm"
    assert [(note.what, note.compiles) for note in found.unresolved] == [("HF_TOKEN", False)]


def test_a_list_holds_several_objects() -> None:
    """`kubectl get -o json` prints a List."""
    document = {"apiVersion": "v1", "kind": "List", "items": [pod(container("vllm", "serve", name)) for name in "ab"]}
    assert [found.model for found in load(json.dumps(document), source="list")] == ["a", "b"]


def test_json_is_read_without_a_yaml_library() -> None:
    """The init container reads its own pod as JSON; YAML's import would cost it 70 ms."""
    import subprocess
    import sys

    code = (
        "import sys\nfrom warmstart.podspec import load\nload(sys.argv[1], source='spec')\n"
        "heavy = {'yaml', 'torch', 'vllm', 'kubernetes', 'pydantic'} & set(sys.modules)\nassert not heavy, heavy"
    )
    env = {"PYTHONPATH": str(EXAMPLES.parent / "app")}
    subprocess.run([sys.executable, "-c", code, text(pod(container("vllm", "serve", "M")))], check=True, env=env)


def test_of_several_servers_in_a_pod_one_must_be_named() -> None:
    """The candidates are listed; naming one settles it."""
    spec = text(pod(container("vllm", "serve", "A", name="one"), container("vllm", "serve", "B", name="two")))
    with pytest.raises(SpecError, match="several vLLM containers: one, two; name one with --container"):
        load(spec, source="spec")
    (found,) = load(spec, source="spec", container="two")
    assert found.model == "B"


def test_a_container_that_is_named_must_exist_and_run_vllm() -> None:
    """Both are said with the names at hand."""
    spec = text(pod(container("vllm", "serve", "A"), container("envoy", name="proxy", image="envoy:1")))
    with pytest.raises(SpecError, match=r"no container named nope; its containers: vllm \(vllm/vllm-openai:v0.33.0\), proxy"):
        load(spec, source="spec", container="nope")
    with pytest.raises(SpecError, match="container 'proxy' does not run vLLM"):
        load(spec, source="spec", container="proxy")
