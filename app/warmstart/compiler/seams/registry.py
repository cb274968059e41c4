"""The model registry: vLLM looks at a model class in a second interpreter, to keep CUDA out of this one."""

from __future__ import annotations

from warmstart.compiler.seams.base import Bench, stage


@stage(
    "vllm",
    "registry.in-process",
    "inspecting the model class starts a second interpreter that imports vLLM again (tens of seconds)",
)
def in_process(bench: Bench) -> None:
    """Look at the class here: this process imports it in a moment anyway, and there is no CUDA to initialise."""
    bench.replace("vllm.model_executor.models.registry", "_run_in_subprocess", lambda function: function())
