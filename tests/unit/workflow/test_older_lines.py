"""A server of an older vLLM: its own options, what only its key holds, and a cache that must be made for the server's root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.conftest import Place, pod

from warmstart.workflow import compiling

IMAGE = "vllm/vllm-openai:v0.26.0"
OLDER = {"HOME": "/root"}


@pytest.fixture
def older(place: Place) -> Place:
    """Return a place whose server runs vLLM 0.26.0, which hashes paths and whose artifacts hold no graphs."""
    code = {"vllm": "0.26.0 sha256:aa", "torch": "2.11.0 sha256:bb"}
    python = {"implementation": "cpython", "version": "3.12.1", "cache_tag": "cpython-312", "machine": "x86_64"}
    (place.folder / "code.json").write_text(json.dumps({"code": code, "python": python}))
    place.serve("--max-model-len=4096", image=IMAGE, env=OLDER)
    return place


def call(place: Place, *argv: str, **env: str) -> Any:
    return place.call(*argv, WARMSTART_CODE_FILE=str(place.folder / "code.json"), **env)


def key(place: Place, **env: str) -> str:
    found: str = call(place, "plan", **env).document[0]["request_key"]
    assert found
    return found


def test_its_cache_is_made_for_the_servers_root_and_its_environment(older: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    start = compiling.start

    def noted(request: Any, stop: Any) -> Any:
        asked.append(request)
        return start(request, stop)

    monkeypatch.setattr(compiling, "start", noted)
    assert call(older, "run").document["outcome"] == "compiled"
    (request,) = asked
    assert request.server_root == older.root != request.cache_root
    assert request.env["VLLM_CONFIG_ROOT"] == "/root/.config/vllm"
    assert request.env["VLLM_XLA_CACHE_PATH"] == "/root/.cache/vllm/xla_cache"


def test_another_root_is_another_key_and_for_a_newer_server_it_is_not(older: Place) -> None:
    assert key(older) != key(older, WARMSTART_CACHE_ROOT=str(older.folder / "other"))
    plan = [older.call("plan", WARMSTART_CACHE_ROOT=str(older.folder / name)).document[0] for name in ("one", "other")]
    older.serve("--max-model-len=4096", env=OLDER)
    newer = [older.call("plan", WARMSTART_CACHE_ROOT=str(older.folder / name)).document[0] for name in ("one", "other")]
    assert plan[0]["state"] == "problem"
    assert newer[0]["request_key"] == newer[1]["request_key"]


def test_with_whole_artifacts_asked_for_the_root_does_not_matter(older: Place) -> None:
    older.serve("--max-model-len=4096", image=IMAGE, env={**OLDER, "VLLM_USE_MEGA_AOT_ARTIFACT": "1"})
    assert key(older) == key(older, WARMSTART_CACHE_ROOT=str(older.folder / "other"))


def test_a_home_that_is_not_known_is_refused_with_the_way_out(older: Place) -> None:
    older.serve("--max-model-len=4096", image=IMAGE)
    (plan,) = call(older, "plan").document
    assert plan["state"] == "problem"
    assert "VLLM_CONFIG_ROOT" in plan["reason"]
    assert "set HOME" in plan["reason"]
    paths = {"VLLM_CONFIG_ROOT": "/config", "VLLM_XLA_CACHE_PATH": "/xla"}
    older.serve("--max-model-len=4096", image=IMAGE, env=paths)
    assert key(older)


def test_another_home_is_another_key(older: Place) -> None:
    found = key(older)
    older.serve("--max-model-len=4096", image=IMAGE, env={"HOME": "/home/vllm"})
    assert key(older) != found


def test_its_api_key_is_part_of_its_key_and_is_not_published(older: Place) -> None:
    found = key(older)
    older.serve("--max-model-len=4096", image=IMAGE, env={**OLDER, "VLLM_API_KEY": "sk-hunter2"})
    document = call(older, "plan", "--factors").document[0]
    assert document["request_key"] != found
    assert document["factors"]["environment"]["VLLM_API_KEY"].startswith("sha256:")
    assert "hunter2" not in json.dumps(document["factors"])


def test_an_api_key_that_is_not_known_here_is_refused(older: Place, tmp_path: Path) -> None:
    spec = pod("--max-model-len=4096", image=IMAGE, env=OLDER)
    secret = {"secretKeyRef": {"name": "server", "key": "api-key"}}
    spec["spec"]["containers"][0]["env"].append({"name": "VLLM_API_KEY", "valueFrom": secret})
    path = tmp_path / "secret.json"
    path.write_text(json.dumps(spec))
    (plan,) = call(older, "plan", "-f", str(path)).document
    assert plan["state"] == "problem"
    assert "VLLM_API_KEY is not known here" in plan["reason"]


def test_arguments_are_read_by_its_own_options(older: Place) -> None:
    older.serve("--sleep-mode-backend=x", image=IMAGE, env=OLDER)
    refused = call(older, "run").document
    assert "vLLM 0.26.0 has no option --sleep-mode-backend" in refused["reason"]
