"""The model runner and its compiler settings: choices by timing, and what comes after the model has run once."""

from __future__ import annotations

from typing import Any

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


@stage("vllm", "runner.gemm-choice", "for each of compile_sizes Inductor times GEMM candidates of several libraries")
def gemm_choice(bench: Bench) -> None:
    """Offer it the library's GEMM alone, which is what every other range uses; tuning of other kernels is the server's."""
    interface = bench.module("vllm.compilation.compiler_interface")
    configure = interface.set_inductor_config

    def without_timing(config: dict[str, Any], compile_range: Any) -> None:
        configure(config, compile_range)
        if compile_range.is_single_size():
            config["max_autotune_gemm_backends"] = "ATEN"

    bench.replace(interface, "set_inductor_config", without_timing)
