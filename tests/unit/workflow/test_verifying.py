"""Beside a started server: whether it used what was installed, and which factor differs where it did not."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests.unit.workflow import standin
from tests.unit.workflow.conftest import Place

AOT = "torch_compile_cache/torch_aot_compile"


@pytest.fixture
def installed(place: Place) -> Place:
    """Return a place where the init container has installed."""
    place.call("run")
    for path in place.artifacts():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    time.sleep(0.02)
    return place


def log(place: Place, *lines: str) -> str:
    """Write a server's log and return its path."""
    path = place.folder / "server.log"
    path.write_text("\n".join(["INFO [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='m'", *lines]))
    return str(path)


def loaded(path: Path) -> str:
    return f"INFO [decorators.py:326] Directly load AOT compilation from path {path}"


def test_a_server_that_loaded_everything_used_it(installed: Place) -> None:
    (artifact,) = installed.artifacts()
    done = installed.call("verify", "--server-log", log(installed, loaded(artifact)))
    assert (done.code, done.document["outcome"]) == (0, "used")
    assert done.document["request_key"]


def test_a_server_that_loaded_and_compiled_used_it_partly(installed: Place) -> None:
    (artifact,) = installed.artifacts()
    other = str(artifact).replace(artifact.parent.parent.name, "b" * 64)
    done = installed.call(
        "verify", "--server-log", log(installed, loaded(artifact), f"INFO saved AOT compiled function to {other}")
    )
    assert (done.code, done.document["outcome"]) == (10, "partly")
    assert "bbbbbbbbbbbb" in done.document["reason"]


def test_graphs_that_were_compiled_are_told(installed: Place) -> None:
    (artifact,) = installed.artifacts()
    done = installed.call(
        "verify",
        "--server-log",
        log(installed, loaded(artifact), "INFO Compiling a graph for compile range (1, 8192) takes 12.34 s"),
    )
    assert (done.code, done.document["outcome"]) == (10, "partly")
    assert "compiled 1 graphs" in done.document["reason"]


def test_a_server_that_refused_the_artifact_says_why(installed: Place) -> None:
    (artifact,) = installed.artifacts()
    line = f"WARNING Compiling model again due to a load failure from {artifact}, reason: Source code has changed"
    done = installed.call("verify", "--server-log", log(installed, line))
    assert (done.code, done.document["outcome"]) == (10, "ignored")
    assert "Source code has changed" in done.document["reason"]


def test_a_server_with_another_key_is_explained_by_its_arguments(installed: Place) -> None:
    done = installed.call(
        "verify",
        "--server-log",
        log(
            installed,
            "INFO non-default args: {'model_tag': 'Qwen/Qwen3-0.6B', 'max_model_len': 8192}",
            f"INFO saved AOT compiled function to {installed.root}/{AOT}/{'c' * 64}/rank_0_0/model",
        ),
    )
    assert (done.code, done.document["outcome"]) == (10, "ignored")
    (warning,) = done.document["warnings"]
    assert warning.startswith("arguments.max_model_len:")


def test_a_server_whose_cache_is_off_says_so(installed: Place) -> None:
    done = installed.call("verify", "--server-log", log(installed, "INFO vLLM's torch.compile cache is disabled."))
    assert (done.code, done.document["outcome"]) == (10, "ignored")
    assert "disabled" in done.document["reason"]


@pytest.mark.parametrize("content", ["", "nothing of vLLM's\n"])
def test_a_server_that_has_not_come_that_far_is_asked_again(installed: Place, content: str) -> None:
    path = installed.folder / "early.log"
    path.write_text(content)
    done = installed.call("verify", "--server-log", str(path))
    assert done.code == 75


def test_a_log_that_only_begins_is_not_judged(installed: Place) -> None:
    assert installed.call("verify", "--server-log", log(installed)).code == 75


def test_a_log_that_is_not_there_is_a_wrong_call(installed: Place) -> None:
    assert installed.call("verify", "--server-log", "/nowhere.log").code == 2


def test_where_nothing_was_installed_there_is_nothing_to_use(place: Place) -> None:
    done = place.call("verify")
    assert done.code == 10
    assert "nothing was installed" in done.document["reason"]


# Without a log, by the cache folder


def test_a_folder_that_nobody_touched_says_nothing_yet(installed: Place) -> None:
    assert installed.call("verify").code == 75


def test_the_folder_that_vllm_makes_beside_an_artifact_shows_its_use(installed: Place) -> None:
    (artifact,) = installed.artifacts()
    (artifact.parent.parent / "inductor_cache").mkdir()
    done = installed.call("verify")
    assert (done.code, done.document["outcome"]) == (0, "used")


def test_an_artifact_of_another_key_shows_that_it_was_ignored(installed: Place) -> None:
    standin.write_cache(installed.root, "what the server compiled", 1)
    done = installed.call("verify")
    assert (done.code, done.document["outcome"]) == (10, "ignored")


def test_an_artifact_that_was_overwritten_shows_that_it_was_refused(installed: Place) -> None:
    (artifact,) = installed.artifacts()
    artifact.write_bytes(b"compiled again")
    assert installed.call("verify").document["outcome"] == "ignored"


def test_the_factors_that_the_server_left_are_compared(installed: Place) -> None:
    standin.write_cache(installed.root, "what the server compiled", 1)
    folder = installed.root / "torch_compile_cache" / "0123456789" / "rank_0_0" / "backbone"
    folder.mkdir(parents=True)
    env = {"MOONCAKE_REQUESTER_LOCAL_HOSTNAME": "qwen-0"}
    document = {"env": env, "config_hash": "a", "code_hash": "b", "compiler_hash": "c"}
    (folder / "cache_key_factors.json").write_text(json.dumps(document))
    (warning,) = installed.call("verify").document["warnings"]
    assert "every pod misses" in warning


# explain


def test_explain_compares_an_entry_and_a_plan_and_a_cache_root(installed: Place) -> None:
    key = installed.call("plan").document[0]["request_key"]
    installed.serve("--max-model-len=8192")
    plan = installed.folder / "plan.json"
    plan.write_text(installed.call("plan", "--factors").out)
    for a in (key, key[:12], str(installed.root)):
        done = installed.call("explain", a, str(plan))
        assert done.code == 0
        assert not done.document["equal"]
        (difference,) = done.document["differences"]
        assert (difference["factor"], difference["old"], difference["new"]) == ("arguments.max_model_len", 4096, 8192)
    text = installed.call("explain", key, str(plan), "--output=text").out
    assert "cause: the batch limits differ" in text
    assert "no factor differs" in installed.call("explain", key, str(installed.root), "--output=text").out


def test_explain_takes_a_servers_factors_and_its_log(installed: Place) -> None:
    factors = installed.folder / "cache_key_factors.json"
    factors.write_text(json.dumps({"env": {"VLLM_X": 1}, "config_hash": "a", "code_hash": "b", "compiler_hash": "c"}))
    other = installed.folder / "other.json"
    other.write_text(json.dumps({"env": {"VLLM_X": 2}, "config_hash": "a", "code_hash": "b", "compiler_hash": "c"}))
    assert [one["factor"] for one in installed.call("explain", str(factors), str(other)).document["differences"]] == [
        "environment.VLLM_X"
    ]
    assert installed.call("explain", str(installed.root), log(installed)).code == 0


def test_factors_that_came_with_the_entry_are_not_taken_for_the_servers(installed: Place) -> None:
    key = installed.call("plan").document[0]["request_key"]
    document = {"env": {"VLLM_X": 1}, "config_hash": "a", "code_hash": "b", "compiler_hash": "c"}
    factors = installed.root / "cache_key_factors.json"
    factors.write_text(json.dumps(document))
    os.utime(factors, (1_700_000_000, 1_700_000_000))
    assert installed.call("explain", key, str(installed.root)).document["b"].startswith("the factors in")
    factors.touch()
    assert installed.call("explain", key, str(installed.root)).document["b"].startswith("vLLM's factors in")


def test_explain_takes_a_line_of_a_log(installed: Place) -> None:
    line = "DEBUG [backends.py:1127] torch.compile cache factors: env=aa cfg=bb comp=cc code=dd dir=/c"
    done = installed.call("explain", line, line.replace("cfg=bb", "cfg=xx"))
    assert [one["factor"] for one in done.document["differences"]] == ["vllm_key.config_hash"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("", "none of what can be compared"), ("{}", "none of what"), ("[1]", "none of what"), ("\xff", "none of what")],
)
def test_explain_refuses_what_it_cannot_read(installed: Place, content: str, reason: str) -> None:
    path = installed.folder / "odd.txt"
    path.write_text(content)
    done = installed.call("explain", str(path), str(installed.root))
    assert done.code == 2
    assert reason in done.document["reason"]


def test_explain_of_names_that_are_nothing(installed: Place) -> None:
    assert installed.call("explain", "/nowhere", str(installed.root)).code == 2
    assert installed.call("explain", "0" * 64, str(installed.root)).code == 10
    assert installed.call("explain", str(installed.store), str(installed.root)).code == 2


def test_explain_of_a_document_with_several_servers_asks_for_one(installed: Place) -> None:
    plan = installed.folder / "plan.json"
    plan.write_text(installed.call("plan", "--factors", "--gpu=h200,l4").out)
    done = installed.call("explain", str(plan), str(installed.root))
    assert done.code == 2
    assert "factors of 2 servers" in done.document["reason"]
