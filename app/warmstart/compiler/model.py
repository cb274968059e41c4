"""`warmstart.compile_model`: the pass as a function call."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from warmstart.compiler.driver import run_pass
from warmstart.compiler.report import CompileReport, CompileRequest
from warmstart.errors import UnknownGpuError, UsageError
from warmstart.gpus import describe, load_catalog


def compile_model(
    model: str,
    *,
    gpu: str | None = None,
    cache_root: str | Path | None = None,
    model_files: str | Path | None = None,
    **engine_args: Any,
) -> CompileReport:
    """Compile `model` into the cache root (VLLM_CACHE_ROOT, or vLLM's own default); see `warmstart.compile_model`."""
    catalog = load_catalog()
    if gpu is None:
        try:
            gpu = describe().name
        except UsageError as error:
            raise UnknownGpuError(
                "no GPU is in sight to take the type from", hint="name it: gpu='H200'; `warmstart gpus` lists them"
            ) from error
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WARMSTART_")}
    return run_pass(
        CompileRequest(
            model=model,
            args=serve_args(engine_args),
            env=environment,
            gpu=catalog.parse(gpu),
            cache_root=Path(cache_root or environment.get("VLLM_CACHE_ROOT") or default_cache_root(environment)),
            model_files=Path(model_files) if model_files else None,
        )
    )


def serve_args(options: dict[str, Any]) -> tuple[str, ...]:
    """Return keyword options as `vllm serve` arguments: True and False are flags, mappings JSON, lists several words.

    Raises:
        UsageError: a value has no spelling on a command line.

    """
    words: list[str] = []
    for name, value in options.items():
        option = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif isinstance(value, dict):
            words += [f"--{option}", json.dumps(value)]
        elif isinstance(value, (list, tuple)):
            words += [f"--{option}", *map(str, value)]
        elif isinstance(value, (str, int, float, Path)):
            words += [f"--{option}", str(value)]
        else:
            raise UsageError(f"option {name} is a {type(value).__name__}, which vllm serve has no spelling for")
    return tuple(words)


def default_cache_root(environment: dict[str, str]) -> Path:
    """Return where vLLM keeps its cache when VLLM_CACHE_ROOT is not set."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm"
