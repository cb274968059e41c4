"""The init container: hit, miss, compile, publish, install; and exit 0 with the reason whatever goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.workflow.conftest import Place, pod
from tests.unit.workflow.standin import KERNEL

from warmstart.workflow import compiling


def test_a_miss_compiles_publishes_and_installs_and_the_next_pod_hits(place: Place, tmp_path: Path) -> None:
    first = place.call("run")
    assert (first.code, first.document["outcome"]) == (0, "compiled")
    assert len(place.artifacts()) == 1
    assert not any("inductor_cache" in name for name in place.files())
    installed = {path.name: path.read_bytes() for path in place.artifacts()}

    other = tmp_path / "other"
    second = place.call("run", WARMSTART_CACHE_ROOT=str(other))
    assert (second.code, second.document["outcome"]) == (0, "hit")
    assert {path.name: path.read_bytes() for path in other.rglob("model")} == installed
    same = ("request_key", "aot_keys", "modules", "graphs", "ranks", "raw_bytes", "stored_bytes", "gpu", "vllm", "model")
    assert {name: second.document[name] for name in same} == {name: first.document[name] for name in same}
    assert second.document["gpu"] == "NVIDIA H200"
    assert second.document["graphs"] == 29
    assert second.document["gpu_memory_bytes"] == 0


def test_the_result_is_told_on_stdout_in_the_log_and_in_the_termination_message(place: Place) -> None:
    done = place.call("run")
    (summary,) = [line["result"] for line in done.log if "result" in line]
    assert summary == done.document
    message = place.message()
    assert message == {name: value for name, value in done.document.items() if value not in ("", 0, 0.0, [])}


def test_a_restarted_container_finds_its_installation_without_the_store(place: Place) -> None:
    first = place.call("run")
    before = {path: path.stat().st_mtime_ns for path in place.root.rglob("*")}
    again = place.call("run", WARMSTART_STORE=str(place.folder / "gone"))
    assert (again.code, again.document["outcome"], again.document["reason"]) == (0, "hit", "already installed")
    assert again.document["graphs"] == first.document["graphs"]
    assert {path: path.stat().st_mtime_ns for path in place.root.rglob("*")} == before


def link(place: Place) -> Path:
    return place.root / "triton" / KERNEL / "__grp___k.json"


@pytest.mark.parametrize("outcome", ["compiled", "hit", "already installed"])
def test_the_servers_triton_finds_the_kernels_where_it_looks(place: Place, outcome: str) -> None:
    """Also after a container that was killed between its install and these files."""
    place.serve(env={"TRITON_CACHE_DIR": str(place.root / "triton")})
    done = place.call("run")
    if outcome != "compiled":
        link(place).unlink()
        if outcome == "hit":
            shutil.rmtree(place.root)
        done = place.call("run")
        assert (done.document["outcome"], done.document["reason"] == "already installed") == ("hit", outcome != "hit")
    paths = json.loads(link(place).read_text())["child_paths"]
    assert paths == {name: str(place.root / "triton" / KERNEL / name) for name in ("_k.json", "_k.cubin")}
    assert all(Path(path).is_file() for path in paths.values())
    assert not any("TRITON_CACHE_DIR" in line["message"] for line in done.log)


@pytest.mark.parametrize("env", [{}, {"TRITON_CACHE_DIR": "/elsewhere"}], ids=["not told", "told another"])
def test_a_server_that_does_not_look_there_is_named_and_keeps_its_key(place: Place, env: dict[str, str]) -> None:
    place.serve(env={"TRITON_CACHE_DIR": str(place.root / "triton")})
    key = place.call("run").document["request_key"]
    shutil.rmtree(place.root)
    place.serve(env=env)
    done = place.call("run")
    assert (done.code, done.document["outcome"], done.document["request_key"]) == (0, "hit", key)
    (told,) = [line["message"] for line in done.log if "TRITON_CACHE_DIR" in line["message"]]
    assert f"{place.root}/triton" in told
    assert "1 Triton kernel" in told


def test_kernels_that_cannot_be_linked_do_not_keep_the_cache_from_the_server(place: Place) -> None:
    place.call("run")
    shutil.rmtree(place.root)
    place.root.mkdir()
    (place.root / "triton").mkdir()
    (place.root / "triton" / KERNEL).mkdir()
    (place.root / "triton" / KERNEL / "__grp___k.json").mkdir()
    done = place.call("run")
    assert (done.code, done.document["outcome"]) == (0, "hit")
    assert len(place.artifacts()) == 1


def test_a_damaged_installation_is_put_right(place: Place) -> None:
    place.call("run")
    (artifact,) = place.artifacts()
    whole = artifact.read_bytes()
    artifact.write_bytes(whole[:100])
    assert place.call("run").document["outcome"] == "hit"
    assert artifact.read_bytes() == whole


def test_every_rank_is_installed(place: Place) -> None:
    place.serve("--tensor-parallel-size=2")
    assert place.call("run").document["ranks"] == 2
    assert {path.parent.name for path in place.artifacts()} == {"rank_0_0", "rank_1_0"}


def test_on_a_miss_nothing_is_compiled_where_it_is_not_wanted(place: Place) -> None:
    done = place.call("run", "--on-miss=skip")
    assert (done.code, done.document["outcome"]) == (0, "miss")
    assert not place.root.exists() or not place.artifacts()
    assert place.call("run", "--on-miss=skip", "--fail-closed").code == 10


@pytest.mark.parametrize(
    ("args", "env", "reason"),
    [
        (["--enforce-eager"], {}, "--enforce-eager"),
        (["-O0"], {}, "-O0"),
        (["-O", "0"], {}, "-O0"),
        (['--compilation-config={"mode": 0}'], {}, "NONE"),
        (["-cc.mode=NONE"], {}, "NONE"),
        ([], {"VLLM_DISABLE_COMPILE_CACHE": "1"}, "VLLM_DISABLE_COMPILE_CACHE"),
    ],
)
def test_a_server_without_a_compile_cache_has_nothing_to_compile(
    place: Place, args: list[str], env: dict[str, str], reason: str
) -> None:
    place.serve(*args, env=env)
    done = place.call("run")
    assert (done.code, done.document["outcome"]) == (0, "nothing-to-compile")
    assert reason in done.document["reason"]
    assert not place.store.exists()


def test_the_pass_may_find_that_there_is_nothing_to_compile(place: Place) -> None:
    done = place.call("run", WARMSTART_TEST_PASS="nothing=the model compiles nothing")
    assert (done.code, done.document["outcome"]) == (0, "nothing-to-compile")
    assert done.document["reason"] == "the model compiles nothing"
    assert not place.left_over()


# What goes wrong

AWAY = {
    "WARMSTART_STORE": "s3://bucket/prefix",
    "WARMSTART_STORE_OPTIONS": '{"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s"}',
    "WARMSTART_STORE_TIMEOUT": "2s",
}
FAILURES = {
    "a store that does not answer": (AWAY, 75, "the server does not answer"),
    "no spec": ({"WARMSTART_POD_SPEC": "/nowhere.yaml"}, 2, "cannot read /nowhere.yaml"),
    "no spec and no pod": ({"WARMSTART_POD_SPEC": ""}, 2, "no pod spec is given"),
    "a spec that is no Kubernetes object": ({"WARMSTART_POD_SPEC": '{"a": 1}'}, 2, ""),
    "a spec that is empty": ({"WARMSTART_POD_SPEC": "\n"}, 2, ""),
    "an unknown GPU": ({"WARMSTART_GPU": "h2000"}, 2, "h2000"),
    "two GPU types": ({"WARMSTART_GPU": "h200,h100-sxm"}, 2, "several GPU types are possible"),
    "a container that is not there": ({"WARMSTART_CONTAINER": "other"}, 2, "other"),
    "no store": ({"WARMSTART_STORE": ""}, 2, "no store is given"),
    "a store of an unknown kind": ({"WARMSTART_STORE": "nonsense://x"}, 2, "nonsense"),
    "model files that are not there": ({"WARMSTART_MODEL_FILES": "/nowhere"}, 2, "/nowhere"),
    "signatures without keys": ({"WARMSTART_REQUIRE_SIGNATURE": "true"}, 2, "no key is trusted"),
    "a pass that fails": ({"WARMSTART_TEST_PASS": "fail=no kernel for this"}, 12, "no kernel for this"),
    "a work folder that cannot be": ({"WARMSTART_WORK_DIR": "/proc/nowhere"}, 2, "cannot work in /proc/nowhere"),
    "a cache root that cannot be": ({"WARMSTART_CACHE_ROOT": "/proc/nowhere"}, 2, "/proc/nowhere"),
    "a fingerprint that is not there": ({"WARMSTART_CODE_FILE": "/nowhere.json"}, 2, "/nowhere.json"),
    "a time that runs out": ({"WARMSTART_TEST_PASS": "seconds=60", "WARMSTART_DEADLINE": "2"}, 75, ""),
}


@pytest.mark.parametrize("what", FAILURES)
def test_whatever_fails_the_server_starts_and_the_reason_is_told(place: Place, what: str) -> None:
    env, code, reason = FAILURES[what]
    done = place.call("run", **env)
    assert done.code == 0
    assert done.document["outcome"] == "failed"
    assert reason in done.document["reason"]
    assert "\n" not in done.document["reason"]
    assert "unexpected" not in done.document["reason"]
    assert place.message()["reason"]
    assert not place.left_over()
    assert not place.root.exists() or not place.artifacts()
    closed = place.call("run", "--fail-closed", **env)
    assert closed.code == code
    assert closed.document["error"] == done.document["error"]


def test_a_failure_is_told_with_what_was_known_by_then(place: Place) -> None:
    done = place.call("run", WARMSTART_TEST_PASS="fail=x")
    assert len(done.document["request_key"]) == 64
    assert done.document["model"] == "Qwen/Qwen3-0.6B"
    assert done.document["vllm"] == "0.33.0"
    assert done.document["seconds"] > 0


def test_a_bug_of_ours_does_not_keep_the_server_from_starting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(compiling, "compile_into", broken)
    done = place.call("run")
    assert done.code == 0
    assert "unexpected AssertionError: a bug" in done.document["reason"]
    assert place.call("run", "--fail-closed").code == 70


def damage(place: Place) -> Path:
    """Flip a byte of a published blob."""
    blob = next(path for path in (place.store / "blobs").rglob("*") if path.is_file())
    blob.chmod(0o644)
    content = bytearray(blob.read_bytes())
    content[len(content) // 2] ^= 1
    blob.write_bytes(content)
    return blob


def damaged_copy(place: Place) -> Path:
    """Return a copy of the store of which every blob is damaged."""
    copy = place.folder / "damaged-store"
    shutil.copytree(place.store, copy)
    for blob in (path for path in (copy / "blobs").rglob("*") if path.is_file()):
        blob.chmod(0o644)
        blob.write_bytes(blob.read_bytes()[:-1])
    return copy


def test_a_damaged_entry_is_never_installed_and_is_compiled_anew(place: Place, tmp_path: Path) -> None:
    place.call("run")
    damage(place)
    other = tmp_path / "other"
    done = place.call("run", WARMSTART_CACHE_ROOT=str(other))
    assert (done.code, done.document["outcome"]) == (0, "compiled")
    assert "cannot be used" in done.document["warnings"][0]
    assert len(list(other.rglob("model"))) == 1
    # What it published is whole: written over the damaged blob, or kept beside an entry that cannot be put right.
    healed = place.call("run", "--on-miss=skip", WARMSTART_CACHE_ROOT=str(tmp_path / "healed"))
    assert (healed.code, healed.document["outcome"]) == (0, "hit")
    assert len(list((tmp_path / "healed").rglob("model"))) == 1
    env = {"WARMSTART_STORE": str(damaged_copy(place)), "WARMSTART_CACHE_ROOT": str(tmp_path / "third")}
    skipped = place.call("run", "--on-miss=skip", **env)
    assert (skipped.code, skipped.document["outcome"]) == (0, "miss")
    assert not (tmp_path / "third").exists() or not list((tmp_path / "third").rglob("model"))


def test_an_entry_of_other_factors_under_this_key_is_refused(place: Place, tmp_path: Path) -> None:
    place.call("run")
    manifest = next((place.store / "entries").rglob("manifest.json"))
    document = json.loads(manifest.read_text())
    document["factors"]["pass"] = 99
    manifest.chmod(0o644)
    manifest.write_text(json.dumps(document))
    done = place.call("run", "--on-miss=skip", WARMSTART_CACHE_ROOT=str(tmp_path / "other"))
    assert done.document["outcome"] == "miss"
    assert "give another key" in done.document["warnings"][0]
    assert not (tmp_path / "other").exists()


def test_an_unsigned_entry_is_refused_where_signatures_are_required(place: Place, tmp_path: Path) -> None:
    keys = {name: tmp_path / f"{name}.pem" for name in ("one", "two")}
    for path in keys.values():
        assert place.call("store", "keygen", str(path)).code == 0
    public = {name: next(path for path in tmp_path.glob(f"{name}*") if path != keys[name]) for name in keys}
    place.call("run", WARMSTART_SIGNING_KEY=str(keys["one"]))

    def hit(trusted: str) -> str:
        root = str(tmp_path / f"root-{trusted}")
        env = {"WARMSTART_TRUSTED_KEYS": str(public[trusted]), "WARMSTART_CACHE_ROOT": root}
        return str(place.call("run", "--on-miss=skip", "--require-signature", **env).document["outcome"])

    assert hit("one") == "hit"
    assert hit("two") == "miss"


def test_a_folder_with_other_data_is_not_taken_for_a_store(place: Place) -> None:
    place.store.mkdir()
    (place.store / "other-data").write_text("not a store")
    done = place.call("run")
    assert done.code == 0
    assert "is not a warmstart store" in done.document["reason"]
    assert (place.store / "other-data").read_text() == "not a store"
    assert {path.name for path in place.store.iterdir()} == {"other-data"}


# The pod


def test_the_servers_image_names_another_vllm(place: Place) -> None:
    place.serve(image="vllm/vllm-openai:v0.26.0")
    refused = place.call("run")
    assert refused.document["outcome"] == "failed"
    assert "vLLM 0.26.0, this one 0.33.0" in refused.document["reason"]
    warned = place.call("run", "--image-mismatch=warn")
    assert warned.document["outcome"] == "compiled"
    assert "0.26.0" in warned.document["warnings"][0]


@pytest.mark.parametrize(
    "image",
    ["vllm/vllm-openai:latest", "registry:5000/vllm/vllm-openai@sha256:" + "a" * 64, "vllm-openai:v0.33.0-cu130", "vllm"],
)
def test_an_image_that_names_no_other_version_is_not_doubted(place: Place, image: str) -> None:
    place.serve(image=image)
    assert place.call("run", "--on-miss=skip").document["outcome"] == "miss"


def test_a_value_that_decides_the_key_and_is_not_known_is_refused(place: Place) -> None:
    spec = pod()
    reference = {"configMapKeyRef": {"name": "tuning", "key": "runner"}}
    spec["spec"]["containers"][0]["env"] = [{"name": "VLLM_USE_V2_MODEL_RUNNER", "valueFrom": reference}]
    place.spec.write_text(json.dumps(spec))
    refused = place.call("run")
    assert "VLLM_USE_V2_MODEL_RUNNER is not known here" in refused.document["reason"]
    known = place.call("run", VLLM_USE_V2_MODEL_RUNNER="1")
    assert known.document["outcome"] == "compiled"


def test_two_pods_of_one_deployment_have_one_key(place: Place) -> None:
    keys = set()
    for name, address in (("qwen-7c9d8-abcde", "10.0.0.1"), ("qwen-7c9d8-fghij", "10.0.0.2")):
        spec = pod("--port=$(MY_PORT)")
        spec["metadata"] = {"name": name, "namespace": "models"}
        spec["spec"]["containers"][0]["env"] = [
            {"name": "MY_PORT", "value": "8000"},
            {"name": "VLLM_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "VLLM_PEER", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "VLLM_ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]
        place.spec.write_text(json.dumps(spec))
        own = {"VLLM_HOST_IP": address, "VLLM_PEER": address, "VLLM_ME": name, "HOSTNAME": name, "WARMSTART_POD_NAME": name}
        done = place.call("run", "--on-miss=skip", HOME=f"/home/{name}", **own)
        assert done.document["outcome"] == "miss", done.document
        keys.add(done.document["request_key"])
    assert len(keys) == 1


def test_the_spec_may_be_handed_over_in_the_environment(place: Place) -> None:
    done = place.call("run", "--on-miss=skip", WARMSTART_POD_SPEC=place.spec.read_text())
    assert done.document["outcome"] == "miss"


def test_an_api_server_that_is_not_there_is_told(place: Place) -> None:
    env = {"WARMSTART_POD_SPEC": "", "WARMSTART_POD_NAME": "qwen", "WARMSTART_POD_NAMESPACE": "models"}
    done = place.call("run", KUBECONFIG="/nowhere", HOME=str(place.folder), **env)
    assert done.code == 0
    assert done.document["outcome"] == "failed"
    assert "unexpected" not in done.document["reason"]


def test_the_cache_root_is_the_servers_own(place: Place) -> None:
    for env, root in (
        ({"VLLM_CACHE_ROOT": str(place.folder / "a")}, place.folder / "a"),
        ({"XDG_CACHE_HOME": str(place.folder / "b")}, place.folder / "b" / "vllm"),
        ({"HOME": str(place.folder / "c")}, place.folder / "c" / ".cache" / "vllm"),
        ({"VLLM_CACHE_ROOT": "~/d", "HOME": str(place.folder)}, place.folder / "d"),
    ):
        place.serve(env=env)
        done = place.call("run", WARMSTART_CACHE_ROOT="")
        assert done.document["cache_root"] == str(root), done.document
        assert (root / ".warmstart").is_dir()


def test_a_cache_root_that_cannot_be_known_is_refused(place: Place) -> None:
    done = place.call("run", WARMSTART_CACHE_ROOT="", XDG_CACHE_HOME="")
    assert "it is not known where the server keeps its cache" in done.document["reason"]
    (plan,) = place.call("plan", WARMSTART_CACHE_ROOT="", XDG_CACHE_HOME="").document
    assert (plan["state"], plan["cache_root"]) == ("miss", "")


def test_a_cache_root_that_is_not_absolute_is_refused(place: Place) -> None:
    place.serve(env={"VLLM_CACHE_ROOT": "cache"})
    assert "is not an absolute path" in place.call("run", WARMSTART_CACHE_ROOT="").document["reason"]


def test_metrics_are_written_beside(place: Place) -> None:
    textfile = place.folder / "warmstart.prom"
    place.call("run", WARMSTART_METRICS_TEXTFILE=str(textfile))
    assert 'outcome="compiled"' in textfile.read_text()


def test_a_termination_log_that_cannot_be_written_changes_nothing(place: Place) -> None:
    assert place.call("run", WARMSTART_TERMINATION_LOG="/nowhere/log").document["outcome"] == "compiled"


def test_the_group_may_write_what_was_installed(place: Place) -> None:
    place.call("run")
    assert all(path.stat().st_mode & 0o020 for path in place.artifacts())


def program(place: Place, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Call the program as an init container does: a process of its own, which begins the fingerprint before it imports."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("WARMSTART_", "VLLM_", "TORCH"))}
    return subprocess.run(
        [sys.executable, "-m", "warmstart", *argv],
        env={**base, **place.env, **env}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_the_program_arrives_at_the_same_key_and_tells_all_of_it_before_it_ends(place: Place, tmp_path: Path) -> None:
    first = place.call("run")
    done = program(place, "run", WARMSTART_CACHE_ROOT=str(tmp_path / "other"))
    assert done.returncode == 0
    document = json.loads(done.stdout)
    assert (document["outcome"], document["request_key"]) == ("hit", first.document["request_key"])
    assert [json.loads(line)["message"] for line in done.stderr.splitlines()][-1] == "run: hit"
    assert len(list((tmp_path / "other").rglob("model"))) == 1


def test_the_program_ends_with_the_code_of_what_went_wrong(place: Place) -> None:
    missed = program(place, "run", "--on-miss=skip", "--fail-closed")
    assert (missed.returncode, json.loads(missed.stdout)["outcome"]) == (10, "miss")
    assert program(place, "run", "--no-such-option", "--fail-closed").returncode == 2
    elsewhere = {"WARMSTART_CODE_FILE": "/nowhere.json"}
    assert program(place, "run", "--fail-closed", **elsewhere).returncode == 2
    assert program(place, "run", **elsewhere).returncode == 0
