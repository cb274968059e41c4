"""The model runner and its compiler settings: choices by timing, and what comes after the model has run once."""

from __future__ import annotations

from typing import Any

from warmstart.compiler.seams.base import Bench, stage


@stage("vllm", "runner.sampler", "the profile run ends with a sampler pass, whose Triton kernels take longer than some models")
def sampler(bench: Bench) -> None:
    """Put the sampler's dummy run off: it comes after the model, and what fails there does not fail the model's cache."""
    for module in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner"):
        runner = bench.module(module).GPUModelRunner
        run = runner._dummy_sampler_run

        def put_off(itself: Any, *args: Any, run: Any = run, **kwargs: Any) -> None:
            bench.later.append(lambda: run(itself, *args, **kwargs))

        bench.replace(runner, "_dummy_sampler_run", put_off)


@stage("vllm", "runner.flashinfer-sampler", "FlashInfer's sampling kernels are built with nvcc at first use")
def flashinfer_sampler(bench: Bench) -> None:
    """Return tokens without values, one for each row of logits."""
    import torch

    def sample(logits: Any, *_args: Any, **_kwargs: Any) -> Any:
        return torch.empty(logits.shape[0], dtype=torch.int32, device=logits.device)

    bench.replace_everywhere("vllm.v1.sample.ops.topk_topp_sampler", "flashinfer_sample", sample)


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
