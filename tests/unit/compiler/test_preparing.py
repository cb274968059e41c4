"""What the pass prepares without torch: the hub's stand-in, serve arguments, the libcuda stand-in."""

from __future__ import annotations

import json
import struct
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


def safetensors(tensors: dict[str, str], data: bytes = b"weights") -> bytes:
    header = {name: {"dtype": dtype, "shape": [1], "data_offsets": [0, 2]} for name, dtype in tensors.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay a model with weights out as a hub cache, and let the hub's client look there only; returns its snapshot."""
    from huggingface_hub import constants

    folder = tmp_path / "files"
    (folder / "original").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(safetensors({"a.weight": "BF16", "lm_head.weight": "F32"}))
    (folder / "broken.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    (folder / "original" / "params.json").write_text("{}")
    cache = hub.lay_out("Acme/Model", folder, tmp_path / "hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    repository = cache / "models--Acme--Model"
    return repository / "snapshots" / (repository / "refs" / "main").read_text()


def test_the_headers_of_weights_come_along_without_their_data(snapshot: Path) -> None:
    """What vLLM reads of a checkpoint before it loads it, byte for byte; files without a header stay behind."""
    assert (snapshot / "model.safetensors").read_bytes() == safetensors({"a.weight": "BF16", "lm_head.weight": "F32"}, b"")
    assert not (snapshot / "broken.safetensors").exists()


@pytest.mark.usefixtures("snapshot")
def test_the_hubs_client_answers_from_the_snapshot_what_the_hub_would() -> None:
    """Which files there are and what their headers say; of repositories that were not handed over it knows nothing."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    from warmstart.compiler.snapshot import SnapshotApi

    api = SnapshotApi()
    assert api.list_repo_files("Acme/Model") == ["config.json", "model.safetensors", "original/params.json"]
    metadata = api.get_safetensors_metadata("Acme/Model")
    assert {name: tensor.dtype for name, tensor in metadata.files_metadata["model.safetensors"].tensors.items()} == {
        "a.weight": "BF16",
        "lm_head.weight": "F32",
    }
    with pytest.raises(OfflineModeIsEnabled, match="Acme/Other was not handed over"):
        api.list_repo_files("Acme/Other")
