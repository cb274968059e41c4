"""Triton: compile for the catalog's GPU, load and launch nothing."""

from __future__ import annotations

from typing import Any

from warmstart.compiler.seams.base import Bench, stage


class _Utilities:
    """What Triton asks of the driver about a device; loading a binary gives empty handles."""

    def __init__(self, bench: Bench) -> None:
        self._gpu = bench.gpu

    def get_device_properties(self, _device: int) -> dict[str, int]:
        gpu = self._gpu
        return {
            "max_shared_mem": gpu.shared_memory_per_block_optin,
            "max_num_regs": gpu.registers_per_multiprocessor,
            "multiprocessor_count": gpu.multiprocessors,
            "warpSize": gpu.warp_size,
            "sm_clock_rate": gpu.clock_khz,
            "mem_clock_rate": gpu.memory_clock_khz,
            "mem_bus_width": gpu.memory_bus_bits,
        }

    def load_binary(self, *_args: Any) -> tuple[int, int, int, int, int]:
        # module, function, registers, spills, most threads
        return 0, 0, 32, 0, 1024

    def unload_module(self, *_args: Any) -> None: ...


class _Driver:
    """The active driver of a GPU that is not there."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.utils = _Utilities(bench)

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._bench.gpu.sm, self._bench.gpu.warp_size)

    def get_current_device(self) -> int:
        return self._bench.device

    def set_current_device(self, _device: int) -> None: ...

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_device_capability(self, _device: int) -> tuple[int, int]:
        return self._bench.gpu.capability

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", self._bench.device)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def launcher_cls(self, *_args: Any, **_kwargs: Any) -> Any:
        return lambda *_args, **_kwargs: None

    def get_benchmarker(self) -> Any:
        raise RuntimeError("a kernel was to be timed, and there is no GPU in this pass")

    def is_active(self) -> bool:
        return True


@stage(
    "torch",
    "triton.driver",
    "triton.compile takes its target from the active driver; ptxas comes with Triton and needs no GPU",
    where="no-device",
)
def triton_driver(bench: Bench) -> None:
    """Make a driver active that knows its target and nothing else."""
    driver = bench.module("triton").runtime.driver
    driver.set_active(_Driver(bench))


@stage(
    "torch",
    "triton.launch",
    "kernels that run outside compiled modules (weight repacking, the sampler) would be launched on a device",
)
def triton_launch(bench: Bench) -> None:
    """Launch nothing, compile what `bench.launches` asks for. Outputs of such kernels are fake tensors that nobody reads."""
    jit = bench.module("triton.runtime.jit").JITFunction
    tuner = bench.module("triton.runtime.autotuner").Autotuner
    compile_and_launch, launches = jit.run, bench.launches

    def compile_only(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        return compile_and_launch(kernel, *args, **{**kwargs, "warmup": True})

    def tune(itself: Any, *args: Any, **kwargs: Any) -> None:
        # Each configuration is compiled, as a server does that times them; some of vLLM's kernels ask which one was best.
        itself.best_config = itself.configs[0]
        if launches.folder is not None:
            itself.warmup(*args, **{name: value for name, value in kwargs.items() if name != "warmup"})

    bench.replace(jit, "run", lambda kernel, *args, **kwargs: launches.compile(compile_only, kernel, args, kwargs))
    bench.replace(tuner, "run", tune)
