"""What a case of the matrix is: a model, a server's arguments, a GPU type, and what must hold of the graph."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent / "models"
HUB = "matrix"
"""The hub organisation under which the models are laid out: vLLM's key holds the model's name, so no path may be in it."""

# What a server image has: nvcc, ninja (both come as packages of the lock file) and flashinfer-cubin, so that FlashInfer counts
# as present.
SERVER: Mapping[str, str] = {
    "CUDA_HOME": str(next(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/cu13"))),
    "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
    "VLLM_HAS_FLASHINFER_CUBIN": "1",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One server, and what its pass must come to.

    `model` is a folder of models/ (published shapes, few layers); `config` is merged into its config.json, `files` are written
    beside it, `drafts` are other folders of models/ that `args` name as `matrix/NAME`. `topic` is where the case stands in the
    table.

    What must hold: `ranks` and `modules` of each; `passes`, names in vLLM's match table with at least one match; regular
    expressions found in the server's `log` (attention backend, MoE and linear kernels) and in the generated `code`, beside the
    operators that models/index.json names for the model; none of `never` in either. With `refused`, the pass must instead end
    with that error and these words: "UsageError: words". With `nothing`, a server of this kind compiles nothing, and the reason
    holds these words.
    """

    name: str
    topic: str
    model: str
    gpu: str = "h200"
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    files: Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)
    drafts: tuple[str, ...] = ()
    max_len: int = 4096
    ranks: int = 1
    modules: int = 1
    passes: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    refused: str = ""
    nothing: str = ""

    @property
    def hub_name(self) -> str:
        """The model's name in the hub cache of the run: the folder's own, or the case's where it changes the model."""
        return f"{HUB}/{self.name if self.config or self.files else self.model}"

    @property
    def serve_args(self) -> tuple[str, ...]:
        """The arguments after `vllm serve MODEL`."""
        return ("--max-model-len", str(self.max_len), *self.args)

    @property
    def environment(self) -> dict[str, str]:
        """The server's environment; cases that share it and the GPU type share a process."""
        return {**SERVER, **self.env}

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the operators that a graph of this architecture holds: attention, state space, experts."""
        return tuple(json.loads((MODELS / "index.json").read_text())[self.model]["operators"])

    def write_model(self, folder: Path) -> Path:
        """Write the model's files into `folder` and return it."""
        copy(self.model, folder)
        if self.config:
            path = folder / "config.json"
            path.write_text(json.dumps(merge(json.loads(path.read_text()), self.config), indent=1))
        for name, content in self.files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder


def names(text: str) -> tuple[str, ...]:
    """Return the words of a text: names are easier to read a line at a time than one in each."""
    return tuple(text.split())


def copy(model: str, folder: Path) -> Path:
    """Copy a folder of models/ and return the copy."""
    source = MODELS / model
    for path in source.rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return folder


def merge(config: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config` with `changes`: mappings are merged, None removes, everything else replaces."""
    merged = dict(config)
    for name, value in changes.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(name), dict):
            merged[name] = merge(merged[name], value)
        else:
            merged[name] = value
    return merged
