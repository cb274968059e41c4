"""The model runner: what a worker does after its model has run once, and no artifact depends on."""

from __future__ import annotations

from warmstart.compiler.seams.base import Bench, stage


@stage(
    "vllm",
    "runner.sampler",
    "the profile run ends with a sampler pass whose FlashInfer kernels are built with nvcc at first use",
)
def sampler(bench: Bench) -> None:
    """Leave out the sampler's dummy run; it comes after the model and is not compiled."""
    for module in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner"):
        bench.replace(bench.module(module).GPUModelRunner, "_dummy_sampler_run", lambda _self, *_args, **_kwargs: None)
