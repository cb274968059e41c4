"""Checkpoints whose layers vLLM chooses by their safetensors headers: from the hub by range requests, and from a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.compile.conftest import Pass, compiled, request
from tests.compile.quantised import checkpoint
from tests.unit.identity.hub_server import Hub, serve

from warmstart.compiler import run_pass
from warmstart.errors import ModelFilesError

pytestmark = pytest.mark.compile
MODEL = "Acme/Packed"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a GPTQ checkpoint: a configuration, and weights of which there are headers only."""
    return checkpoint(tmp_path_factory.mktemp("packed"), "gptq")


@pytest.fixture(scope="module")
def handed_over(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Pass:
    """Compile for a hub name with files from a folder, and no network."""
    env = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    return compiled(request(MODEL, tmp_path_factory.mktemp("cache"), model_files=packed, env=env))


def test_the_packed_layers_are_compiled_as_such(handed_over: Pass) -> None:
    """The quantised product is in the generated code: with no header read, every layer would have been a plain one."""
    (rank,) = handed_over.report.ranks
    assert (handed_over.report.outcome, rank.modules_saved) == ("compiled", 1)
    code = handed_over.request.cache_root.glob("torch_compile_cache/torch_aot_compile/*/inductor_cache/**/*.py")
    assert any("machete_mm" in path.read_text() for path in code)


def test_the_hub_is_asked_for_headers_and_gives_the_same_key(packed: Path, handed_over: Pass, tmp_path: Path) -> None:
    """A server that reaches the hub asks it for the first bytes; a pass with those in a folder comes to the same."""
    whole = (packed / "model.safetensors").read_bytes() + bytes(8 << 20)
    with serve(Hub({"config.json": (packed / "config.json").read_bytes(), "model.safetensors": whole}, model=MODEL)) as hub:
        env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
        asked = compiled(request(MODEL, handed_over.request.cache_root, env=env))
        assert any(path.endswith("/model.safetensors") for path in hub.asked)
        assert hub.sent < 4 << 20
    assert (asked.report.outcome, asked.report.aot_keys) == ("loaded", handed_over.report.aot_keys)


def test_layers_without_headers_and_a_dtype_without_any_are_refused(tmp_path: Path) -> None:
    """Guessing would put a wrong graph under the right key; each line says what to give."""
    awq = checkpoint(tmp_path / "awq", "awq", headers=False)
    with pytest.raises(ModelFilesError, match=r"layers that \w+ covers by the checkpoint's safetensors headers"):
        run_pass(request(awq, tmp_path / "cache"))
    plain = checkpoint(tmp_path / "plain", "none")
    config = json.loads((plain / "config.json").read_text())
    config.pop("torch_dtype")
    (plain / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFilesError, match=r"names no dtype.*or serve with --dtype"):
        run_pass(request(plain, tmp_path / "cache"))
