"""Requests and model files that the tests of identity start from."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from warmstart.gpus import GpuProfile, load_catalog
from warmstart.identity import CodeFingerprint, Identity, ModelFiles, identify
from warmstart.podspec import ServeRequest, Workload

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28}

REQUEST = ServeRequest(
    workload=Workload("Deployment", "models", "qwen"),
    container="vllm",
    image="vllm/vllm-openai:v0.33.0",
    model="Qwen/Qwen3-0.6B",
    args=("--max-model-len=4096",),
    env={},
    gpus=("h200",),
    gpu_count=1,
)
CODE = CodeFingerprint(
    {"vllm": "0.33.0 sha256:aa", "torch": "2.14.0 sha256:bb", "triton": "3.8.0 sha256:cc"},
    {"implementation": "cpython", "version": "3.11", "cache_tag": "cpython-311", "machine": "x86_64"},
)
FILES = ModelFiles(model="Qwen/Qwen3-0.6B", source="a folder", digests={"config.json": "11"})


@pytest.fixture(scope="session")
def h200() -> GpuProfile:
    return load_catalog().get("h200")


@pytest.fixture
def make(h200: GpuProfile) -> Callable[..., Identity]:
    """Identify the standard request with some of its parts replaced."""

    def identity(
        *,
        gpu: GpuProfile = h200,
        files: ModelFiles = FILES,
        code: CodeFingerprint = CODE,
        image_env: dict[str, str] | None = None,
        cache_root: Path | None = None,
        **changes: Any,
    ) -> Identity:
        request = dataclasses.replace(REQUEST, **changes)
        return identify(request, gpu, files, code=code, image_env=image_env, cache_root=cache_root)

    return identity


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "generation_config.json").write_text('{"top_k": 20}')
    (folder / "tokenizer.json").write_text("{}")
    return folder
