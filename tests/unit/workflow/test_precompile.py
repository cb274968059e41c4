"""What a Job runs: one compile for each server and GPU type, idempotent, and closed to failure."""

from __future__ import annotations

import json

import pytest
from tests.unit.workflow import standin
from tests.unit.workflow.conftest import Place, pod

from warmstart.compiler.report import CompileReport, CompileRequest
from warmstart.workflow import compiling
from warmstart.workflow.stopping import Stop


def test_it_publishes_and_installs_nothing_and_the_second_run_is_a_hit(place: Place) -> None:
    first = place.call("precompile")
    assert (first.code, [one["outcome"] for one in first.document]) == (0, ["compiled"])
    assert not place.root.exists()
    assert not place.left_over()
    second = place.call("precompile")
    assert (second.code, [one["outcome"] for one in second.document]) == (0, ["hit"])
    assert second.document[0]["request_key"] == first.document[0]["request_key"]


def test_the_init_container_hits_what_the_job_published(place: Place) -> None:
    (published,) = place.call("precompile").document
    done = place.call("run", "--on-miss=skip")
    assert done.document["outcome"] == "hit"
    assert done.document["request_key"] == published["request_key"]


def test_each_gpu_type_asked_for_is_compiled(place: Place) -> None:
    done = place.call("precompile", "--gpu", "h200,NVIDIA L4,a100-sxm-80gb")
    assert [one["outcome"] for one in done.document] == ["compiled"] * 3
    assert len({one["request_key"] for one in done.document}) == 3
    assert [one["gpu"] for one in done.document] == ["NVIDIA H200", "NVIDIA L4", "NVIDIA A100-SXM4-80GB"]


def test_every_server_of_a_spec_is_compiled(place: Place) -> None:
    other = pod("--max-model-len=8192")
    other["metadata"]["name"] = "other"
    place.spec.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod(), other]}))
    done = place.call("precompile")
    assert [one["outcome"] for one in done.document] == ["compiled", "compiled"]


def test_a_failure_ends_with_its_code_and_the_others_are_still_compiled(place: Place) -> None:
    broken = pod("--trust-remote-code", "--hf-config-path=/nowhere")
    broken["metadata"]["name"] = "broken"
    place.spec.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [broken, pod()]}))
    done = place.call("precompile")
    assert done.code == 2
    assert [one["outcome"] for one in done.document] == ["failed", "compiled"]
    assert done.document[0]["error"] == "ModelFilesError"
    assert place.message()["outcome"] == "compiled"


@pytest.mark.parametrize(
    ("env", "code", "error"),
    [
        ({"WARMSTART_TEST_PASS": "fail=x"}, 12, "CompileError"),
        ({"WARMSTART_STORE": ""}, 2, "UsageError"),
        ({"WARMSTART_GPU": "h2000"}, 2, "UnknownGpuError"),
        ({"WARMSTART_POD_SPEC": "{}"}, 2, "SpecError"),
    ],
)
def test_failures_are_closed(place: Place, env: dict[str, str], code: int, error: str) -> None:
    done = place.call("precompile", **env)
    assert done.code == code
    assert error in json.dumps(done.document)
    assert not place.left_over()


def test_what_only_the_running_pod_knows_and_decides_nothing_is_kept_from_vllms_parser(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, ...]] = []

    def remember(request: CompileRequest, stop: Stop) -> CompileReport:
        seen.append(request.args)
        return standin.run_pass(request, stop)

    monkeypatch.setattr(compiling, "start", remember)
    spec = pod("--port=$(MY_PORT)", "--host", "$(MY_IP)", "--max-model-len", "4096", "--served-model-name", "$(MY_NAME)", "-O3")
    spec["spec"]["containers"][0]["env"] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in (("MY_PORT", "metadata.uid"), ("MY_IP", "status.podIP"), ("MY_NAME", "metadata.name"))
    ]
    place.spec.write_text(json.dumps(spec))
    assert place.call("precompile").code == 0
    assert seen == [("--max-model-len", "4096", "-O3")]


def test_a_spec_without_a_gpu_type_is_refused(place: Place) -> None:
    place.spec.write_text(json.dumps(pod(nodeSelector={})))
    done = place.call("precompile")
    assert done.code == 2
    assert "does not say which GPU" in done.document["reason"]


def test_nothing_to_compile_is_done(place: Place) -> None:
    place.serve("--enforce-eager")
    done = place.call("precompile")
    assert (done.code, [one["outcome"] for one in done.document]) == (0, ["nothing-to-compile"])


def test_without_claims_it_compiles_all_the_same(place: Place) -> None:
    done = place.call("precompile", "--claims=off")
    assert [one["outcome"] for one in done.document] == ["compiled"]
    assert not (place.store / "claims").exists()


def test_claims_by_lease_need_a_namespace(place: Place) -> None:
    done = place.call("precompile", "--claims=lease")
    assert done.code == 2
    assert "WARMSTART_POD_NAMESPACE" in done.document[0]["reason"]


def test_what_is_published_is_signed_where_a_key_is_given(place: Place) -> None:
    key = place.folder / "key.pem"
    place.call("store", "keygen", str(key))
    place.call("precompile", WARMSTART_SIGNING_KEY=str(key))
    public = next(path for path in place.folder.glob("key*") if path != key)
    (entry,) = place.call("store", "ls", WARMSTART_TRUSTED_KEYS=str(public)).document
    assert entry["signed_by"]
