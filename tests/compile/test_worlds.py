"""Worlds of several ranks and several modules: all of them, each with the graph that the server would trace."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.compile.conftest import compiled, request
from tests.compile.models import narrow

pytestmark = pytest.mark.compile
# FlashInfer counts as present where nvcc and ninja are: both come as packages of the lock file.
TOOLCHAIN = {
    "CUDA_HOME": str(next(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/cu13"))),
    "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
}


def generated(root: Path, rank: int) -> str:
    """Return the code that Inductor generated for a device."""
    files = root.glob("torch_compile_cache/torch_aot_compile/*/inductor_cache/**/*.py")
    return "\n".join(
        text for text in (path.read_text() for path in files) if f"cuda:{rank}" in text or f"device_index={rank}" in text
    )


def test_two_tensor_parallel_ranks_get_the_fused_all_reduce(model: Path, tmp_path: Path) -> None:
    """On a Hopper node with FlashInfer the all-reduce is fused with the norm after it, on every rank."""
    done = compiled(request(model, tmp_path, "--tensor-parallel-size", "2", env=TOOLCHAIN)).report
    assert [(rank.rank, rank.modules_saved, rank.graphs) for rank in done.ranks] == [(0, 1, 5), (1, 1, 5)]
    assert len(done.aot_keys) == 1
    ranks = sorted(path.parent.name for path in tmp_path.glob("torch_compile_cache/torch_aot_compile/*/rank_*/model"))
    assert ranks == ["rank_0_0", "rank_1_0"]
    for rank in (0, 1):
        assert "flashinfer_trtllm_fused_allreduce_norm" in generated(tmp_path, rank)
    assert shutil.which("nvcc", path=f"{TOOLCHAIN['CUDA_HOME']}/bin"), "the fused graph was not expected without nvcc"


def test_a_draft_model_is_compiled_beside_its_target(model: Path, tmp_path: Path) -> None:
    """EAGLE: the backbone and the draft head are two modules with two artifacts."""
    draft = narrow(tmp_path / "draft", architectures=["LlamaForCausalLM"], model_type="llama", num_hidden_layers=1, head_dim=64)
    speculative = json.dumps({"method": "eagle", "model": str(draft), "num_speculative_tokens": 3})
    done = compiled(request(model, tmp_path / "cache", "--speculative-config", speculative)).report
    (rank,) = done.ranks
    assert (rank.modules_found, rank.modules_saved) == (2, 2)
    assert len(done.aot_keys) == 2
