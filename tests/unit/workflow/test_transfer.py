"""pull and push by hand; store care; the catalog; compile."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests.unit.workflow import standin
from tests.unit.workflow.conftest import Place


def test_pull_installs_by_spec_by_key_and_by_the_beginning_of_a_key(place: Place) -> None:
    key = place.call("precompile").document[0]["request_key"]
    for number, argv in enumerate(([], [key], [key[:8]])):
        root = place.folder / f"root-{number}"
        done = place.call("pull", *argv, WARMSTART_CACHE_ROOT=str(root))
        assert (done.code, done.document["outcome"], done.document["request_key"]) == (0, "hit", key)
        assert list(root.rglob("model"))


@pytest.mark.parametrize(
    ("key", "code", "reason"),
    [
        ("0" * 64, 10, "no entry"),
        ("00000000", 10, "begins with"),
        ("xyz", 2, "is no key"),
        ("../../../etc", 2, "is no key"),
        ("abc", 2, "is no key"),
    ],
)
def test_pull_of_a_key_that_is_not_there(place: Place, key: str, code: int, reason: str) -> None:
    place.call("precompile")
    done = place.call("pull", key)
    assert done.code == code
    assert reason in done.document["reason"]
    assert not place.root.exists() or not place.artifacts()


def test_pull_by_key_must_be_told_where_to(place: Place) -> None:
    assert place.call("pull", "0" * 64, WARMSTART_CACHE_ROOT="").code == 2


def test_push_publishes_what_a_server_compiled_and_others_hit_it(place: Place) -> None:
    aot = standin.write_cache(place.root, "compiled by a server", 2)
    done = place.call("push")
    assert (done.code, done.document["outcome"]) == (0, "published")
    assert done.document["aot_keys"] == [aot]
    assert done.document["ranks"] == 2
    hit = place.call("run", "--on-miss=skip", WARMSTART_CACHE_ROOT=str(place.folder / "other"))
    assert hit.document["outcome"] == "hit"
    assert place.call("push").document["reason"] == "an equal entry was there"


def test_push_takes_only_the_artifacts_named(place: Place) -> None:
    mine = standin.write_cache(place.root, "mine", 1)
    standin.write_cache(place.root, "another model's", 1)
    assert place.call("push", "--aot-key", mine).document["aot_keys"] == [mine]


def test_push_leaves_another_entry_where_it_is(place: Place) -> None:
    place.call("precompile")
    place.call("run", "--on-miss=skip")
    choose(place)
    done = place.call("push")
    assert "another result for this key was there first" in done.document["warnings"][0]
    assert not choices(place, "other")


def test_push_that_replaces_brings_what_a_server_chose_to_the_next_one(place: Place) -> None:
    """The artifact is the one of the pass; a second push finds an equal entry and removes none."""
    place.call("precompile")
    place.call("run", "--on-miss=skip")
    choose(place)
    done = place.call("push", "--replace")
    assert (done.code, done.document["outcome"], done.document["reason"]) == (0, "published", "in the place of another entry")
    assert done.document["warnings"] == []
    assert choices(place, "other") == ["fastest.best_config", "kernel.autotune.json"]
    assert {path.read_bytes() for path in (place.folder / "other").rglob("model")} == {
        path.read_bytes() for path in place.root.rglob("model")
    }
    assert place.call("push", "--replace").document["reason"] == "an equal entry was there"
    assert len(list((place.store / "entries").rglob("*.json"))) == 1


def choose(place: Place) -> None:
    """Leave what a server does that has timed its kernels."""
    (artifact,) = place.root.glob("torch_compile_cache/torch_aot_compile/*")
    for file in (
        artifact / "inductor_cache/be/fastest.best_config",
        place.root / "triton" / ("A" * 52) / "kernel.autotune.json",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")


def choices(place: Place, root: str) -> list[str]:
    """Install into another root; return the names of such files there."""
    hit = place.call("run", "--on-miss=skip", WARMSTART_CACHE_ROOT=str(place.folder / root))
    assert hit.document["outcome"] == "hit"
    names = [path.name for path in (place.folder / root).rglob("*") if path.is_file()]
    return sorted(name for name in names if name.endswith((".best_config", ".autotune.json")))


def test_push_of_an_empty_cache_is_refused(place: Place) -> None:
    done = place.call("push")
    assert done.code == 12
    assert "holds no compiled artifact" in done.document["reason"]
    assert not (place.store / "entries").exists()


# store …


def age(store: Path, *, days: int) -> None:
    """Make everything in a store look as old as if it had been written days ago."""
    moment = time.time() - days * 86400
    for manifest in store.rglob("manifest.json"):
        document = json.loads(manifest.read_text())
        document["created"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
        manifest.chmod(0o644)
        manifest.write_text(json.dumps(document))
    for path in store.rglob("*"):
        os.utime(path, (moment, moment))


def test_the_care_of_a_store(place: Place) -> None:
    key = place.call("precompile").document[0]["request_key"]
    (entry,) = place.call("store", "ls").document
    assert entry["key"] == key
    assert entry["model"] == "Qwen/Qwen3-0.6B"
    assert entry["created"].endswith("Z")
    assert key[:16] in place.call("store", "ls", "--output=text").out
    assert place.call("store", "du").document["entries"] == 1
    assert place.call("store", "verify").code == 0
    assert place.call("store", "verify", key[:10]).document["entries"] == 1

    blob = next(path for path in (place.store / "blobs").rglob("*") if path.is_file())
    blob.chmod(0o644)
    blob.write_bytes(b"x" * blob.stat().st_size)
    damaged = place.call("store", "verify")
    assert damaged.code == 11
    assert damaged.document["findings"]

    assert place.call("store", "gc", "--keep=0", "--grace=0s").code == 2
    age(place.store, days=3)
    planned = place.call("store", "gc", "--keep=0", "--grace=2h")
    assert list(planned.document["plan"]["entries"]) == [f"entries/{key}/manifest.json"]
    assert len(place.call("store", "ls").document) == 1
    executed = place.call("store", "gc", "--keep=0", "--grace=2h", "--execute")
    assert executed.document["collected"]["entries"] == 1
    assert place.call("store", "ls").document == []
    assert "holds no entry" in place.call("store", "ls", "--output=text").out


def test_rm_removes_the_entries_named(place: Place) -> None:
    key = place.call("precompile").document[0]["request_key"]
    assert place.call("store", "rm").code == 2
    assert key in place.call("store", "rm", key[:12]).document["removed"]
    assert place.call("run", "--on-miss=skip").document["outcome"] == "miss"


@pytest.mark.parametrize(
    "argv",
    [
        ["gc", "--older-than=soon"],
        ["gc", "--keep=few"],
        ["gc", "--max-bytes=big"],
        ["gc", "0" * 64],
        ["ls", "x"],
        ["keygen"],
        ["keygen", "/nowhere/key.pem"],
        ["verify", "xyz"],
    ],
)
def test_care_that_is_asked_for_wrongly(place: Place, argv: list[str]) -> None:
    place.call("precompile")
    done = place.call("store", *argv)
    assert done.code == 2
    assert "unexpected" not in done.document["reason"]


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("500", 500),
        ("10kB", 10_000),
        ("1.5GB", 1_500_000_000),
        ("2GiB", 2 << 30),
        ("1 TiB", 1 << 40),
        ("3m", 3_000_000),
    ],
)
def test_sizes_are_read(typed: str, size: int) -> None:
    from warmstart.workflow.care import size as read

    assert read(typed) == size


def test_keygen_does_not_overwrite(place: Place) -> None:
    key = place.folder / "key.pem"
    assert place.call("store", "keygen", str(key)).code == 0
    before = key.read_bytes()
    assert key.stat().st_mode & 0o077 == 0
    assert place.call("store", "keygen", str(key)).code == 2
    assert key.read_bytes() == before


# gpus


def test_the_catalog_is_listed_with_the_spellings(place: Place) -> None:
    rows = {row["id"]: row for row in place.call("gpus").document}
    assert rows["h200"]["name"] == "NVIDIA H200"
    assert rows["h200"]["spellings"]
    assert "NVIDIA H200" in place.call("gpus", "--output=text").out


def test_types_of_ones_own_are_added(place: Place) -> None:
    done = place.call("gpus", "--gpu-file", str(place.folder / "none.yaml"))
    assert done.code == 2
    assert "none.yaml" in done.document["reason"]


def test_the_gpu_of_this_machine_is_described_or_said_to_be_none(place: Place) -> None:
    done = place.call("gpus", "describe")
    if Path("/dev/nvidiactl").exists():
        assert done.code == 0
        assert done.document
    else:
        assert done.code == 2
        assert "no NVIDIA driver" in done.document["reason"]


# compile


def test_compile_fills_the_cache_root(place: Place) -> None:
    done = place.call("compile", str(place.model), "--gpu=h200", "--tensor-parallel-size=2")
    assert (done.code, done.document["outcome"]) == (0, "compiled")
    assert done.document["ranks"] == 2
    assert len(place.artifacts()) == 2
    assert not place.store.exists()


def test_compile_needs_one_gpu_type(place: Place) -> None:
    assert place.call("compile", "m").document["error"] == "UnknownGpuError"
    assert place.call("compile", "m", "--gpu=h200,l4").document["error"] == "UnknownGpuError"


def test_compile_that_fails_exits_12(place: Place) -> None:
    assert place.call("compile", "m", "--gpu=h200", WARMSTART_TEST_PASS="fail=x").code == 12


# job


def test_job_prints_a_manifest_for_kubectl(place: Place) -> None:
    done = place.call("job", WARMSTART_STORE="s3://bucket/prefix")
    assert done.code == 0
    assert {item["kind"] for item in done.document["items"]} == {"Job"}
    assert "kind: Job" in place.call("job", "--output=text", WARMSTART_STORE="s3://bucket/prefix").out
    assert json.loads(done.out)
