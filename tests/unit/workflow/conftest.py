"""A store, a cache root, a pod spec and a model on disk, and the command line to call on them."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow import standin

from warmstart import cli, report
from warmstart.workflow import compiling

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 28}
STANDIN = Path(standin.__file__)


def pod(*args: str, image: str = "vllm/vllm-openai:v0.33.0", env: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod that serves a model with these arguments on an H200."""
    container = {
        "name": "vllm",
        "image": image,
        "command": ["vllm", "serve", "Qwen/Qwen3-0.6B"],
        "args": list(args),
        "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "qwen", "namespace": "models"},
        "spec": {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"}, "containers": [container], **spec},
    }


@dataclasses.dataclass
class Done:
    """How a call ended."""

    code: int
    document: Any
    log: list[dict[str, Any]]
    out: str


class Place:
    """Everything that a call needs, below one temporary folder."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.root = folder / "cache"
        self.work = folder / "work"
        self.work.mkdir()
        self.spec = folder / "pod.json"
        self.termination = folder / "termination-log"
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        self._capture = capture
        self.serve("--max-model-len=4096")

    def serve(self, *args: str, **options: Any) -> None:
        """Write the pod spec."""
        self.spec.write_text(json.dumps(pod(*args, **options)))

    @property
    def env(self) -> dict[str, str]:
        """Return the settings that every call gets."""
        return {
            "WARMSTART_STORE": str(self.store),
            "WARMSTART_POD_SPEC": str(self.spec),
            "WARMSTART_MODEL_FILES": str(self.model),
            "WARMSTART_CACHE_ROOT": str(self.root),
            "WARMSTART_WORK_DIR": str(self.work),
            "WARMSTART_TERMINATION_LOG": str(self.termination),
            "WARMSTART_LOG_FORMAT": "json",
        }

    def call(self, *argv: str, **env: str) -> Done:
        """Call the command line in this process."""
        with pytest.MonkeyPatch.context() as patch:
            clean(patch)
            for name, value in {**self.env, **env}.items():
                patch.setenv(name, value)
            code = cli.main(list(argv))
        told = self._capture.readouterr()
        document = json.loads(told.out) if told.out.startswith(("{", "[")) else None
        return Done(code, document, [json.loads(line) for line in told.err.splitlines() if line.startswith("{")], told.out)

    def start(self, *argv: str, **env: str) -> subprocess.Popen[str]:
        """Start the command line, with the stand-in for the pass, as a process of its own.

        SIGINT reaches it also where these tests run in a shell's background, which has it ignored.
        """
        base = {name: value for name, value in os.environ.items() if not name.startswith("WARMSTART_")}
        return subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, str(STANDIN), *argv],
            env={**base, **self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def files(self, below: Path | None = None) -> set[str]:
        """Return the paths of all files below the cache root, or another folder."""
        top = below or self.root
        return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}

    def artifacts(self) -> list[Path]:
        """Return the AOT artifacts below the cache root."""
        return sorted(self.root.glob("torch_compile_cache/torch_aot_compile/*/rank_*/model"))

    def message(self) -> dict[str, Any]:
        """Return the termination message."""
        message: dict[str, Any] = json.loads(self.termination.read_text())
        return message

    def left_over(self) -> set[str]:
        """Return what a call left where work is in progress: in the work folder, and staged in the cache root."""
        files = self.files() if self.root.exists() else set()
        staged = {name for name in files if ".warmstart/" in name and not name.endswith(".json")}
        return staged | {path.name for path in self.work.iterdir()}


def clean(patch: pytest.MonkeyPatch) -> None:
    """Take settings of the caller's own, and variables that count, out of the environment."""
    for name in list(os.environ):
        if name.startswith(("WARMSTART_", "VLLM_", "TORCH", "TRITON", "KUBERNETES_")):
            patch.delenv(name)


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "start", standin.run_pass)
        patch.setattr(report, "TERMINATION_LOG", tmp_path / "no-termination-log")
        yield Place(tmp_path, capsys)
