"""A folder of model files, laid out as a hub cache: so that vLLM finds a hub model's configuration without the network."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from warmstart.compiler.headers import without_data
from warmstart.errors import ModelFilesError, UsageError

_NAME = re.compile(r"^[\w.-]+(/[\w.-]+)?$")
_SMALL = 64 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack")


def lay_out(model: str, folder: Path, cache: Path, revision: str = "main") -> Path:
    """Copy the small files of `folder` into `cache` as the snapshot of `model`, and return `cache` (an HF_HUB_CACHE).

    Of weights only the safetensors headers are there: vLLM makes some choices by them, and a pass reads nothing else of them.
    The snapshot is named by the content of its files.

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
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in files} | without_data(folder)
    commit = hashlib.sha1(usedforsecurity=False)
    for name, content in contents.items():
        commit.update(f"{name}\0".encode() + content)
    repository = cache / f"models--{model.replace('/', '--')}"
    for name, content in contents.items():
        target = repository / "snapshots" / commit.hexdigest() / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / revision).write_text(commit.hexdigest())
    return cache
