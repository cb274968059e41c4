"""What a pod spec resolves to, without compiling, writing, or importing anything heavy."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.unit.workflow.conftest import Place, pod

HEAVY = (
    *("torch", "triton", "vllm", "transformers", "huggingface_hub"),
    *("kubernetes", "pydantic", "fsspec", "s3fs", "obstore", "prometheus_client", "cryptography"),
    *("msgspec", "dataclasses", "inspect", "logging", "concurrent.futures", "importlib.metadata", "tempfile", "yaml"),
)


def test_it_says_what_the_server_is_and_that_the_store_lacks_it(place: Place) -> None:
    (plan,) = place.call("plan").document
    assert plan["model"] == "Qwen/Qwen3-0.6B"
    assert plan["args"] == ["--max-model-len=4096"]
    assert (plan["gpu"], plan["gpu_name"], plan["gpu_count"]) == ("h200", "NVIDIA H200", 1)
    assert plan["layout"]["ranks"] == 1
    assert plan["vllm"] == "0.33.0"
    assert plan["cache_root"] == str(place.root)
    assert len(plan["request_key"]) == 64
    assert plan["state"] == "miss"
    assert "factors" not in plan
    assert not place.store.exists()


def test_it_says_hit_once_the_entry_is_there_and_the_key_is_runs_key(place: Place) -> None:
    done = place.call("run")
    (plan,) = place.call("plan").document
    assert plan["state"] == "hit"
    assert plan["request_key"] == done.document["request_key"]


def test_without_a_store_the_key_is_told_all_the_same(place: Place) -> None:
    (plan,) = place.call("plan", WARMSTART_STORE="").document
    assert plan["state"] == "unknown"
    assert plan["request_key"]


def test_each_gpu_type_has_its_plan(place: Place) -> None:
    plans = place.call("plan", "--gpu=h200,l4").document
    assert [plan["gpu"] for plan in plans] == ["h200", "l4"]
    assert plans[0]["request_key"] != plans[1]["request_key"]


def test_what_cannot_be_known_is_said_in_the_plan(place: Place) -> None:
    spec = pod()
    secret = {"secretKeyRef": {"name": "hub", "key": "token"}}
    spec["spec"]["containers"][0]["env"] = [{"name": "HF_TOKEN", "valueFrom": secret}]
    place.spec.write_text(json.dumps(spec))
    (plan,) = place.call("plan").document
    assert [item["what"] for item in plan["unresolved"]] == ["HF_TOKEN"]
    assert plan["state"] == "miss"


def test_a_problem_of_one_server_does_not_hide_the_others(place: Place) -> None:
    nameless = pod(nodeSelector={})
    nameless["metadata"]["name"] = "nameless"
    place.spec.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [nameless, pod()]}))
    plans = place.call("plan").document
    assert [plan["state"] for plan in plans] == ["problem", "miss"]
    assert "--gpu" in plans[0]["reason"]


def test_a_model_without_files_is_a_problem_of_its_plan(place: Place) -> None:
    (place.model / "config.json").write_text("{")
    done = place.call("plan")
    assert done.code == 0
    assert done.document[0]["state"] == "problem"
    assert "is not JSON" in done.document[0]["reason"]


def test_a_server_without_compilation_is_said(place: Place) -> None:
    place.serve("--enforce-eager")
    assert place.call("plan").document[0]["state"] == "nothing-to-compile"


def test_the_factors_give_the_key_and_serve_as_a_fingerprint_elsewhere(place: Place) -> None:
    done = place.call("plan", "--factors")
    (plan,) = done.document
    assert plan["factors"]["arguments"] == {"max_model_len": 4096}
    document = place.folder / "plan.json"
    document.write_text(done.out)
    (elsewhere,) = place.call("plan", WARMSTART_CODE_FILE=str(document)).document
    assert elsewhere["request_key"] == plan["request_key"]


def test_the_text_is_for_people(place: Place) -> None:
    text = place.call("plan", "--output=text").out
    assert "Qwen/Qwen3-0.6B" in text
    assert "NVIDIA H200 x 1" in text
    assert "miss" in text


def test_neither_plan_nor_run_on_a_hit_imports_anything_heavy(place: Place) -> None:
    place.call("run")
    code = (
        "import sys; from warmstart.cli import main; code = main(sys.argv[1:]); "
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]; "
        "print(heavy, file=sys.stderr); sys.exit(code or len(heavy))"
    )
    base = {name: value for name, value in os.environ.items() if not name.startswith("WARMSTART_")}
    for argv, outcome in ((["plan"], "hit"), (["run", "--cache-root", str(place.folder / "fresh")], "hit")):
        done = subprocess.run(
            [sys.executable, "-c", code, *argv], env={**base, **place.env}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert outcome in done.stdout


def test_a_compiler_that_the_image_names_is_in_the_key_and_this_containers_own_variables_are_not(place: Place) -> None:
    """Torch reads CXX into vLLM's key; credentials of the store and service addresses are this container's own."""

    def key(**env: str) -> str:
        (plan,) = place.call("plan", **env).document
        return str(plan["request_key"])

    assert key(CXX="/opt/gcc/bin/g++") != key()
    assert key(AWS_REGION="eu-central-1", KUBERNETES_SERVICE_HOST="10.0.0.1", OTHER_SERVICE_PORT="80") == key()
