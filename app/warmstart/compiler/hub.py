"""A folder of model files, laid out as a hub cache: so that vLLM finds a hub model's configuration without the network."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from warmstart.errors import ModelFilesError, UsageError

_NAME = re.compile(r"^[\w.-]+(/[\w.-]+)?$")
_SMALL = 64 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack")


def lay_out(model: str, folder: Path, cache: Path, revision: str = "main") -> Path:
    """Copy the small files of `folder` into `cache` as the snapshot of `model`, and return `cache` (an HF_HUB_CACHE).

    Weights are left out: a pass reads none. The snapshot is named by the content of its files.

    Raises:
        ModelFilesError: there is no config.json in the folder.
        UsageError: `model` is not a hub name.

    """
    if not _NAME.match(model):
        raise UsageError(f"{model!r} is neither a folder nor a hub name")
    if not (folder / "config.json").is_file() and not (folder / "params.json").is_file():
        raise ModelFilesError(
            f"{folder} holds no config.json", hint="give the folder with the model's config.json and companions"
        )
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in _WEIGHTS and path.stat().st_size <= _SMALL
    ]
    commit = hashlib.sha1(usedforsecurity=False)
    for path in files:
        commit.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    repository = cache / f"models--{model.replace('/', '--')}"
    snapshot = repository / "snapshots" / commit.hexdigest()
    for path in files:
        target = snapshot / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / revision).write_text(commit.hexdigest())
    return cache
