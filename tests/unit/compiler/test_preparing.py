"""What the pass prepares without torch: the hub's stand-in, serve arguments, the libcuda stand-in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from warmstart.compiler import hub, stub
from warmstart.compiler.model import serve_args
from warmstart.errors import ModelFilesError, UsageError


def test_small_files_become_a_snapshot_and_weights_stay_behind(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    cache = hub.lay_out("Acme/Model", folder, tmp_path / "hub")
    repository = cache / "models--Acme--Model"
    snapshot = repository / "snapshots" / (repository / "refs" / "main").read_text()
    assert [path.name for path in snapshot.iterdir()] == ["config.json"]


def test_equal_files_are_the_same_snapshot_and_other_files_another(tmp_path: Path) -> None:
    names = []
    for index, text in enumerate(("{}", "{}", '{"a": 1}')):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / "config.json").write_text(text)
        cache = hub.lay_out("m", folder, tmp_path / f"hub{index}")
        names.append((cache / "models--m" / "refs" / "main").read_text())
    assert names[0] == names[1] != names[2]


def test_a_folder_without_configuration_and_a_name_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=r"holds no config\.json"):
        hub.lay_out("Acme/Model", tmp_path, tmp_path / "hub")
    with pytest.raises(UsageError, match="neither a folder nor a hub name"):
        hub.lay_out("../../etc", tmp_path, tmp_path / "hub")


def test_keyword_options_are_spelled_as_on_a_command_line() -> None:
    words = serve_args(
        {
            "tensor_parallel_size": 2,
            "enable_lora": True,
            "enforce_eager": False,
            "speculative_config": {"method": "ngram"},
            "seed": None,
        }
    )
    assert words == (
        *("--tensor-parallel-size", "2", "--enable-lora", "--no-enforce-eager"),
        *("--speculative-config", '{"method": "ngram"}'),
    )
    with pytest.raises(UsageError, match="option dtype is a object"):
        serve_args({"dtype": object()})


def test_the_stand_in_exports_what_extension_modules_bind_and_answers_no_device(tmp_path: Path) -> None:
    library = stub.ensure(tmp_path)
    assert stub.ensure(tmp_path) == library
    assert {"cuInit", "cuDeviceGet"} <= set(stub.symbols())
    # In a process of its own: loaded here, it would be this process's driver from now on.
    code = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]);"
        "sys.exit(not all(getattr(library, name)() == 100 for name in sys.argv[2:]))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(library), *stub.symbols()], check=False).returncode == 0


def test_without_a_compiler_and_without_a_prebuilt_one_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"no C compiler \(cc, gcc, clang\) on the PATH; use the warmstart image"):
        stub.ensure(tmp_path)
    prebuilt = tmp_path / "libcuda.so.1"
    prebuilt.write_bytes(b"")
    assert stub.ensure(tmp_path, prebuilt) == prebuilt
