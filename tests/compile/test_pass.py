"""One real pass for a GPU that is not there, and what a server would find of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.compile.conftest import Pass, compiled, request

from warmstart.errors import UsageError

pytestmark = pytest.mark.compile


def artifacts(root: Path) -> list[Path]:
    return sorted(root.glob("torch_compile_cache/torch_aot_compile/*/rank_*/model"))


def test_every_module_is_compiled_and_saved_without_a_gpu(first: Pass) -> None:
    """One backbone, four identical layers around it: five pieces, three distinct binaries, no GPU memory."""
    report = first.report
    assert (report.outcome, report.gpu, report.vllm) == ("compiled", "NVIDIA H200", "0.33.0")
    (rank,) = report.ranks
    assert (rank.modules_found, rank.modules_compiled, rank.modules_saved, rank.modules_loaded) == (1, 1, 1, 0)
    assert (rank.graphs, rank.graphs_compiled) == (5, 5)
    assert report.gpu_memory_bytes == 0
    (artifact,) = artifacts(first.request.cache_root)
    assert artifact.parts[-3:-1] == (report.aot_keys[0], "rank_0_0")


def test_the_repeated_middle_layer_is_in_the_artifact(first: Pass) -> None:
    """The three pieces between attention layers are one binary, and each of the five pieces finds its own."""
    (event,) = [event for event in first.events if event["event"] == "report"]
    (module,) = event["modules"]
    assert (module["pieces"], module["entries"], module["artifacts"]) == (5, 5, 3)


def test_progress_is_told_phase_by_phase(first: Pass) -> None:
    """A caller can show what the pass is at, and how long each phase took."""
    phases = [event["name"] for event in first.events if event["event"] == "phase"]
    assert phases == ["import torch", "import inductor", "import vllm", "configuration", "worker", "model", "compile"]


def test_a_new_process_with_other_paths_loads_it_and_compiles_nothing(first: Pass, model: Path, tmp_path: Path) -> None:
    """What travels is the artifact and the model's inspection result; root, HOME and hash seed do not matter to the key."""
    root = tmp_path / "elsewhere"
    for path in [*artifacts(first.request.cache_root), *first.request.cache_root.glob("modelinfos/*.json")]:
        target = root / path.relative_to(first.request.cache_root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (tmp_path / "home").mkdir()
    env = {"HOME": str(tmp_path / "home"), "PYTHONHASHSEED": "7", "USER": "somebody", "VLLM_HOST_IP": "10.0.0.7"}
    second = compiled(request(model, root, env=env)).report
    (rank,) = second.ranks
    assert (second.outcome, rank.modules_loaded, rank.graphs, rank.graphs_compiled) == ("loaded", 1, 5, 0)
    assert second.aot_keys == first.report.aot_keys
    assert rank.factors == first.report.ranks[0].factors


def test_graphs_beside_their_artifact_are_found_at_the_servers_root(model: Path, tmp_path: Path) -> None:
    """A server may ask for that (the only way there is on older lines): the pass ran elsewhere, for the server's root."""
    env = {"VLLM_USE_MEGA_AOT_ARTIFACT": "0"}
    own, servers = tmp_path / "own", tmp_path / "servers"
    first = compiled(request(model, own, env=env, server_root=servers)).report
    own.rename(servers)
    for folder in servers.glob("torch_compile_cache/torch_aot_compile/*/inductor_cache"):
        shutil.rmtree(folder)
    second = compiled(request(model, servers, env=env)).report
    assert (first.outcome, second.outcome, second.aot_keys) == ("compiled", "loaded", first.aot_keys)
    assert [rank.graphs_compiled for rank in second.ranks] == [0]


def test_nothing_of_ours_is_in_the_factors_of_vllms_key(first: Pass) -> None:
    """Environment and Inductor factors, computed by a stock process without the pass, are the same."""
    stock = """
import hashlib, json
import vllm.envs as envs
from vllm.config.utils import hash_factors
from vllm.compilation.compiler_interface import get_inductor_factors
import torch
found = dict(zip(("system", "torch", "inductor", "functorch"), get_inductor_factors(), strict=True))
found["env"] = hash_factors(envs.compile_factors())
del found["system"]  # it names the device, and there is none here
print(json.dumps({name: hashlib.sha256(str(value).encode()).hexdigest()[:16] for name, value in found.items()}))
"""
    env = {**first.request.env, "VLLM_CACHE_ROOT": str(first.request.cache_root)}
    done = subprocess.run([sys.executable, "-c", stock], capture_output=True, text=True, env=env, check=True)
    expected = json.loads(done.stdout.splitlines()[-1])
    assert {name: first.report.ranks[0].factors[name] for name in expected} == expected


def test_another_gpu_type_has_another_key(first: Pass, model: Path, tmp_path: Path) -> None:
    """The same server on an H100 looks under another key: the device's name is a factor, and kernels are made for it."""
    other = compiled(request(model, tmp_path, gpu="h100-sxm5-80gb")).report
    assert set(other.aot_keys).isdisjoint(first.report.aot_keys)
    ours, theirs = first.report.ranks[0].factors, other.ranks[0].factors
    assert [name for name in ours if ours[name] != theirs[name]] == ["system"]


def test_a_hub_name_keeps_its_place_in_the_key(model: Path, tmp_path: Path) -> None:
    """With files handed over in a folder, no network is asked, and the key is that of the name, not of the folder."""
    asked = request("Acme/Narrow-Qwen", tmp_path / "cache", model_files=model, env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    named = compiled(asked).report
    assert named.outcome == "compiled"
    again = compiled(request("Acme/Narrow-Qwen", tmp_path / "cache", model_files=model)).report
    assert (again.outcome, again.aot_keys) == ("loaded", named.aot_keys)


def test_a_relative_path_is_the_servers_and_keeps_its_place_in_the_key(
    first: Pass, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pass works in a folder of its own, and finds the model where the server does."""
    monkeypatch.chdir(model.parent)
    found = compiled(request(f"./{model.name}", tmp_path)).report
    assert found.outcome == "compiled"
    assert set(found.aot_keys).isdisjoint(first.report.aot_keys)
    for outside in (f"../{model.parent.name}/{model.name}", "."):
        with pytest.raises(UsageError, match="is not below this folder"):
            compiled(request(outside, tmp_path))


def test_no_file_of_the_pass_is_left_in_the_working_folder(first: Pass, model: Path, tmp_path: Path) -> None:
    """The scratch folder goes when the pass ends; the stand-in for libcuda stays for the next one."""
    work = tmp_path / "work"
    work.mkdir()
    done = compiled(request(model, first.request.cache_root, work=work))
    assert done.report.outcome == "loaded"
    assert [path.name.split("-")[0] for path in work.iterdir()] == ["libcuda"]
    assert os.access(first.request.cache_root, os.W_OK)
