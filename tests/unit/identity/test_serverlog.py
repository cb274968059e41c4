"""vLLM's own words are understood: those of the installed version, with colours, prefixes and cut lines around them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from warmstart.errors import UsageError
from warmstart.identity import serverlog
from warmstart.identity.serverlog import read_factors, read_log, split_config

PATH = "/c/torch_compile_cache/torch_aot_compile/" + "a" * 64 + "/rank_0_0/model"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("compilation/decorators.py", "%sDirectly load AOT compilation from path %s"),
        ("compilation/decorators.py", "%sCompiling model again due to a load failure from %s, reason: %s"),
        ("compilation/decorators.py", "%ssaved AOT compiled function to %s"),
        ("compilation/decorators.py", "%sunable to save AOT compiled function to %s: %s"),
        ("compilation/backends.py", "%sCompiling a graph for compile range %s takes %.2f s"),
        ("compilation/backends.py", "%sUsing cache directory: %s for vLLM's torch.compile"),
        ("compilation/backends.py", "%svLLM's torch.compile cache is disabled."),
        ("compilation/backends.py", "torch.compile cache factors: env=%s cfg=%s comp=%s code=%s dir=%s"),
        ("v1/engine/core.py", "Initializing a V1 LLM engine (v%s) with config: %s"),
        ("entrypoints/common/startup.py", "non-default args: %s"),
    ],
)
def test_the_installed_vllm_still_says_it_in_these_words(file: str, message: str) -> None:
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    assert message in (Path(next(iter(spec.submodule_search_locations))) / file).read_text()


def test_a_warm_start_is_read() -> None:
    log = read_log(
        [
            "\x1b[36m(EngineCore)\x1b[0;0m INFO [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='m'\n",
            f"(Worker pid=9) INFO 11-30 [decorators.py:326] [backbone] Directly load AOT compilation from path {PATH}\n",
        ]
    )
    assert log.vllm == "0.33.0"
    assert log.loaded == [PATH]
    assert not log.saved
    assert log.graphs_compiled == 0


def test_a_cold_start_is_read() -> None:
    log = read_log(
        [
            f"WARNING Compiling model again due to a load failure from {PATH}, reason: Compile cache file corrupted.",
            "INFO Using cache directory: /c/torch_compile_cache/0123456789/rank_0_0/backbone for vLLM's torch.compile",
            "DEBUG torch.compile cache factors: env=aa cfg=bb comp=cc code=dd dir=/c",
            "INFO Compiling a graph for compile range (1, 8192) takes 12.34 s",
            f"INFO saved AOT compiled function to {PATH}",
        ]
    )
    assert log.refused == {PATH: "Compile cache file corrupted."}
    assert log.factors == {"env_hash": "aa", "config_hash": "bb", "compiler_hash": "cc", "code_hash": "dd"}
    assert log.graphs_compiled == 1
    assert log.saved == [PATH]


def test_a_log_of_something_else_says_nothing() -> None:
    assert not read_log(["hello", "", "\x00\xff", "x" * 100_000]).started


def test_arguments_that_are_cut_short_are_read_as_far_as_they_go() -> None:
    log = read_log(["non-default args: {'model_tag': 'm', 'compilation_config': <object at 0x1>, 'port': 1}"])
    assert "port" not in log.document().get("arguments", {})


def test_a_configuration_is_split_outside_of_brackets_and_quotes() -> None:
    text = "model='a, b', speculative_config=None, compilation_config={'mode': 3, 'sizes': [1, 2]}, device_config=cuda, "
    assert split_config(text) == {
        "model": "'a, b'",
        "speculative_config": "None",
        "compilation_config": "{'mode': 3, 'sizes': [1, 2]}",
        "device_config": "cuda",
    }


@pytest.mark.parametrize("text", ["", "(", "a='", "]]]", "=,=,=", "a=[1"])
def test_a_broken_configuration_is_no_error(text: str) -> None:
    assert isinstance(split_config(text), dict)


def test_factors_are_read_and_enums_unpacked() -> None:
    content = b'{"env": {"A": ["vllm.x.Kind", 2], "B": null}, "config_hash": "1", "code_hash": "2", "compiler_hash": "3"}'
    assert read_factors(content, "f")["environment"] == {"A": 2, "B": None}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"env": 1, "config_hash": ""}', b"\xff"])
def test_what_is_no_factors_file_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match="some/file"):
        read_factors(content, "some/file")


def test_a_log_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serverlog, "_MOST_LINES", 2)
    assert read_log(["a", "b", f"saved AOT compiled function to {PATH}"]).saved == []
