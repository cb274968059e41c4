"""What cannot be compiled is said in one line, by the right error, and leaves nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.compile.conftest import compiled, request
from tests.compile.models import narrow

from warmstart.compiler import run_pass
from warmstart.errors import ModelFilesError, TemporaryError, UsageError, WarmstartError

pytestmark = pytest.mark.compile


def refused(asked: object, kind: type[WarmstartError], *words: str) -> None:
    with pytest.raises(kind) as caught:
        run_pass(asked)  # type: ignore[arg-type]
    line = str(caught.value)
    assert "\n" not in line
    assert all(word in line for word in words), line


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    """The message says in vLLM's own words which architecture it does not know."""
    model = narrow(tmp_path / "model", architectures=["NobodysForCausalLM"], model_type="qwen3")
    refused(request(model, tmp_path / "cache"), UsageError, "NobodysForCausalLM")


def test_a_folder_without_a_configuration_is_named(tmp_path: Path) -> None:
    """No config.json: the model and what to give instead."""
    (tmp_path / "model").mkdir()
    refused(request(tmp_path / "model", tmp_path / "cache"), UsageError, str(tmp_path / "model"))


def test_an_option_that_this_vllm_does_not_know_is_named(model: Path, tmp_path: Path) -> None:
    """The parser's own line."""
    refused(request(model, tmp_path, "--no-such-option", "1"), UsageError, "--no-such-option")


@pytest.mark.parametrize(
    ("args", "env", "words"),
    [(("--enforce-eager",), {}, "compilation is off"), ((), {"VLLM_DISABLE_COMPILE_CACHE": "1"}, "VLLM_DISABLE_COMPILE_CACHE")],
)
def test_a_server_that_compiles_nothing_is_no_failure(
    model: Path, tmp_path: Path, args: tuple[str, ...], env: dict[str, str], words: str
) -> None:
    """The outcome says so, and why."""
    report = compiled(request(model, tmp_path, *args, env=env)).report
    assert (report.outcome, report.ranks) == ("nothing-to-compile", ())
    assert words in report.reason


def test_a_quantised_checkpoint_without_headers_is_refused(tmp_path: Path) -> None:
    """AWQ's layers are chosen by the checkpoint's headers: guessing them would put a wrong graph under the right key."""
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True}
    model = narrow(tmp_path / "model", quantization_config=awq)
    refused(request(model, tmp_path / "cache"), ModelFilesError, "safetensors headers")


def test_a_pass_that_is_stopped_ends_its_processes(model: Path, tmp_path: Path) -> None:
    """The caller's word ends the pass within seconds, and the folder for its scratch files is gone."""
    stop = threading.Event()
    threading.Timer(3.0, stop.set).start()
    begin = time.monotonic()
    with pytest.raises(TemporaryError, match="stopped"):
        run_pass(request(model, tmp_path / "cache", work=tmp_path), stop=stop.is_set)
    assert time.monotonic() - begin < 60
    assert not list(tmp_path.glob("warmstart-pass-*"))


def test_a_pass_that_takes_longer_than_its_deadline_ends(model: Path, tmp_path: Path) -> None:
    """Out of time is a temporary failure that names the limit."""
    refused(request(model, tmp_path, deadline_seconds=2.0), TemporaryError, "2 s")


def test_relative_paths_are_those_of_the_caller(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass works in a folder of its own, and still writes where its caller pointed."""
    monkeypatch.chdir(tmp_path)
    asked = request(model, Path("cache"), "--enforce-eager", work=Path())
    assert compiled(asked).report.outcome == "nothing-to-compile"
    assert (tmp_path / "cache").is_dir()


def test_a_cache_root_that_cannot_be_written_is_named(model: Path, tmp_path: Path) -> None:
    """A file where the folder should be."""
    (tmp_path / "file").write_text("")
    refused(request(model, tmp_path / "file"), UsageError, str(tmp_path / "file"))
