"""Real pods: a miss that compiles, a hit, a store that is down, a deadline, a SIGTERM; the server always starts."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.cluster.pods.conftest import CACHE, Pods, fresh_claim, last_result

pytestmark = pytest.mark.cluster

STORE_DOWN: dict[str, Any] = {
    "store": {"url": "s3://bucket/cache", "endpointUrl": "http://127.0.0.1:1", "region": "eu-west-1"},
    "init": {"extraEnv": [{"name": "AWS_ACCESS_KEY_ID", "value": "a"}, {"name": "AWS_SECRET_ACCESS_KEY", "value": "b"}]},
}


@pytest.mark.compile
def test_a_miss_compiles_and_the_server_and_the_next_pod_use_it(pods: Pods) -> None:
    """The whole way: the first pod compiles and publishes, its server compiles nothing; the second pod hits."""
    values = _claimed(fresh_claim())
    first = pods.play(pods.render(values, check="compile"))
    assert first.init().exit_code == 0, first.init().log[-4000:]
    compiled = first.result()
    assert compiled["outcome"] == "compiled", compiled
    assert compiled["gpu_memory_bytes"] == 0
    server = last_result(first.podman.wait(first.name, "vllm", seconds=400).log)
    assert (server["outcome"], server["reason"]) == ("hit", "every module came from the cache"), server
    assert server["aot_keys"] == compiled["aot_keys"]

    second = pods.play(pods.render(values))
    hit = second.result()
    assert (hit["outcome"], hit["request_key"]) == ("hit", compiled["request_key"])
    assert any(compiled["aot_keys"][0] in line for line in second.server().log.splitlines())


def test_a_store_that_is_down_lets_the_server_start(pods: Pods) -> None:
    """Not even an attempt to compile is asked for: the reason is told, and the init container ends well."""
    played = pods.play(pods.render(merge_init(STORE_DOWN, onMiss="skip")))
    assert played.code == 0, played.said
    assert played.init().exit_code == 0
    result = played.result()
    assert result["outcome"] == "failed"
    assert result["error"] == "StoreUnavailable"
    assert played.server().exit_code == 0


def test_fail_closed_keeps_the_server_from_starting(pods: Pods) -> None:
    played = pods.play(pods.render(merge_init(STORE_DOWN, onMiss="skip", failClosed=True)))
    assert played.code != 0
    assert played.init().exit_code == 75
    assert not played.podman.container(played.name, "vllm").log


def test_a_miss_without_compiling_is_told(pods: Pods) -> None:
    values = merge_init(_claimed(fresh_claim()), onMiss="skip")
    played = pods.play(pods.render(values))
    assert played.result()["outcome"] == "miss"
    assert played.server().exit_code == 0


def test_the_deadline_ends_a_compile_and_the_server_starts_cold(pods: Pods) -> None:
    """A pass that cannot be done in the time is given up; nothing half-made lies in the server's cache."""
    values = merge_init(_claimed(fresh_claim()), deadline="6s")
    begin = time.monotonic()
    played = pods.play(pods.render(values))
    assert played.init().exit_code == 0, played.init().log[-3000:]
    result = played.result()
    assert (result["outcome"], result["error"]) == ("failed", "DeadlineExceeded")
    assert result["seconds"] <= 7
    assert time.monotonic() - begin < 60
    assert played.server().log.strip() == ""


def test_sigterm_ends_the_compile_drops_the_claim_and_leaves_nothing(pods: Pods) -> None:
    """The pod is deleted while it compiles. Another pod with the same store gets the claim at once."""
    store = fresh_claim()
    name = pods.name()
    process = pods.podman.start(name, pods.render(_claimed(store)), pods.folder)
    try:
        _until(lambda: "compil" in pods.podman.container(name, "warmstart").log)
        time.sleep(2)
        pods.podman.stop(name, "warmstart")
        process.wait(60)
    finally:
        process.kill()
    ended = pods.podman.container(name, "warmstart")
    assert ended.exit_code == 143, ended.log[-3000:]
    assert last_result(ended.log)["outcome"] == "terminated"

    look = pods.render(merge_init(_claimed(store), onMiss="skip"))
    (init,) = look["initContainers"]
    init["command"] = ["/bin/sh", "-c", f"find /warmstart/store {CACHE} -type f | sort; cat /warmstart/store/claims/*/*"]
    *files, claimed = pods.play(look).init().log.splitlines()
    assert json.loads(claimed)["released"] is True
    assert [file for file in files if "/claims/" not in file] == ["/warmstart/store/warmstart-store.json"]


def test_the_termination_message_is_what_kubectl_shows(pods: Pods) -> None:
    """Compact JSON below 4096 bytes in the file that the kubelet reads."""
    env = [*STORE_DOWN["init"]["extraEnv"], {"name": "WARMSTART_TERMINATION_LOG", "value": f"{CACHE}/termination"}]
    values = merge_init(STORE_DOWN, onMiss="skip", extraEnv=env)
    spec = pods.render(values)
    spec["containers"][0]["command"] = ["/bin/cat", f"{CACHE}/termination"]
    spec["containers"][0]["args"] = []
    told = pods.play(spec).server().log
    assert len(told) < 4096
    assert json.loads(told)["error"] == "StoreUnavailable"


def _claimed(claim: str) -> dict[str, Any]:
    return {"store": {"url": "", "claim": {"existingClaim": claim}}, "init": {"deadline": "9m"}}


def merge_init(values: dict[str, Any], **init: Any) -> dict[str, Any]:
    """Return values with some of `init` replaced."""
    return {**values, "init": {**values.get("init", {}), **init}}


def _until(look: Any, *, seconds: float = 120) -> None:
    give_up = time.monotonic() + seconds
    while True:
        try:
            if look():
                return
        except LookupError:
            pass
        assert time.monotonic() < give_up
        time.sleep(0.2)
