"""Compile a vLLM model's torch.compile cache without weights or a GPU, and install it before the server starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmstart.compiler.report import CompileReport

__version__ = "0.1.0"

__all__ = ["__version__", "compile_model"]


def compile_model(model: str, *, gpu: str | None = None, **engine_args: Any) -> CompileReport:
    """Compile `model` for a GPU type into VLLM_CACHE_ROOT, as `vllm serve` would look it up.

    Args:
        model: a folder that holds config.json, or a hub name; exactly as the server will be given it.
        gpu: a name of the GPU catalog (`warmstart gpus`); may be left out where one GPU type is in sight.
        **engine_args: options of `vllm serve`, with underscores (`tensor_parallel_size=2`).

    Returns:
        What was compiled: keys, modules, graphs, bytes and seconds of each rank.

    Raises:
        UsageError: the GPU, the model's files or an option cannot be used.
        CompileError: the pass failed, or its result is not what the server would load.

    """
    from warmstart.compiler import compile_model as _compile_model

    return _compile_model(model, gpu=gpu, **engine_args)
