"""What a warm start opens is what travels: measured with a real pass, against the rules of archive/rules.py."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.cache import KEY

from warmstart.archive import Compiled, install, link_kernels, pack
from warmstart.archive.kernels import FOLDER
from warmstart.archive.rules import RULES, decide
from warmstart.compiler import run_pass
from warmstart.compiler.report import CompileReport, CompileRequest
from warmstart.gpus import load_catalog

MODEL = Path(__file__).resolve().parents[2] / "examples/qwen3-0.6b/model"
LONG_AGO = 10**9
KEPT_FOR_EXPLAIN = "cache_key_factors.json"
OF_A_GRAPH = re.compile(rf"{FOLDER}/[A-Z2-7]{{52}}/(__grp__)?triton_\w+\.(cubin|json)")
LAUNCHES = re.compile(rf"{FOLDER}/[A-Z2-7]{{52}}/cuda_utils\.[\w-]+\.so")


def compile_into(root: Path, model: Path) -> CompileReport:
    gpu = load_catalog().get("h200")
    return run_pass(CompileRequest(model=str(model), args=("--max-model-len", "2048"), env={}, gpu=gpu, cache_root=root))


def files(root: Path) -> dict[str, os.stat_result]:
    found = (path for path in root.rglob("*") if path.is_file() and ".warmstart" not in path.parts)
    return {str(path.relative_to(root)): path.stat() for path in found}


@pytest.mark.compile
def test_a_start_from_what_travelled_compiles_nothing_and_opens_all_of_it(tmp_path: Path) -> None:
    """Access times tell what was opened: they are set to long ago, and a file system with relatime moves those of read files.

    Both passes use the same path: it is part of vLLM's own keys.
    """
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**settings, "num_hidden_layers": 2}))
    root = tmp_path / "root"
    first = compile_into(root, model)
    facts = Compiled(
        model="Qwen/Qwen3-0.6B", gpu=first.gpu, vllm=first.vllm, torch=first.torch, aot_keys=first.aot_keys,
        outcome=first.outcome, ranks=1, modules=first.modules, graphs=first.graphs,
    )  # fmt: skip
    packed = pack(root, tmp_path / "work", key=KEY, factors={}, facts=facts)
    shutil.rmtree(root)
    blobs = {item.layer.digest: item.path for item in packed.layers}

    def fetch(digest: str, size: int) -> Iterator[bytes]:
        del size
        yield blobs[digest].read_bytes()

    install(packed.manifest, fetch, root)
    kernels = link_kernels(root, f"{root}/{FOLDER}")
    for path, status in files(root).items():
        os.utime(root / path, ns=(LONG_AGO, status.st_mtime_ns))
    installed = files(root)

    second = compile_into(root, model)

    assert second.outcome == "loaded"
    assert second.aot_keys == first.aot_keys
    assert [rank.graphs_compiled for rank in second.ranks] == [0]
    of_graphs = {path for path in installed if OF_A_GRAPH.fullmatch(path)}
    binaries = [path for path in of_graphs if path.endswith(".cubin")]
    assert binaries
    assert [(rank.kernels, rank.kernels_reason) for rank in second.ranks] == [(kernels - len(binaries), "")]
    after = files(root)
    assert {path for path in after if path.startswith(FOLDER)} == {path for path in installed if path.startswith(FOLDER)}
    # A kernel of a graph is loaded when a GPU is to run it; that its file is there keeps torch from writing it. Triton's module
    # that launches them is loaded with a GPU's driver, under one of its names (tests/compile/test_kernels.py).
    for_a_gpu = of_graphs | {path for path in installed if LAUNCHES.fullmatch(path)}
    assert len(for_a_gpu) > len(of_graphs)
    unread = {path for path in installed if after[path].st_atime_ns == LONG_AGO} - for_a_gpu
    assert {Path(path).name for path in unread} <= {KEPT_FOR_EXPLAIN}
    groups = {path for path in installed if Path(path).name.startswith("__grp__")}
    assert len(groups) == kernels >= 20 + len(binaries)
    assert all(decide(path) in RULES for path in installed), "no file travels only because no rule knows it"
    assert packed.folder_bytes / packed.stored_bytes >= 40
