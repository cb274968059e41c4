"""Inductor: generate and compile every kernel as on the GPU, but load, time and run none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from warmstart.compiler.cubin import registers
from warmstart.compiler.seams.base import Bench, stage


@stage(
    "torch",
    "inductor.launchers",
    "after compiling a kernel Inductor loads the cubin on a device to make its launcher",
    where="no-device",
)
def launchers(bench: Bench) -> None:
    """Compile kernels, make no launchers; the artifact holds compile results, and the server makes its own launchers."""
    bench.replace("torch._inductor.runtime.triton_helpers", "set_driver_to_gpu", lambda: None)
    autotuner = bench.module("torch._inductor.runtime.triton_heuristics").CachingAutotuner
    bench.replace(autotuner, "_make_launchers", lambda _self: None)
    scale = autotuner._dynamic_scale_rblock

    def with_registers(self: Any) -> None:
        """Where registers limit the occupancy, a reduction is compiled with half its block as well: a server finds it made."""
        # torch 2.11 has no such property: it asks inside of what follows, and leaves other kernels alone.
        for result in self.compile_results if getattr(self, "_could_rblock_scale", True) else ():
            if getattr(result.kernel, "n_regs", None) is None:
                result.kernel.n_regs = registers(_cubin(result.kernel))
        scale(self)

    bench.replace(autotuner, "_dynamic_scale_rblock", with_registers)


def _cubin(kernel: Any) -> bytes:
    """Return the binary of a kernel of Triton's, or of Inductor's static launcher."""
    if hasattr(kernel, "asm"):
        return bytes(kernel.asm["cubin"])
    raw: bytes | None = getattr(kernel, "cubin_raw", None)
    return raw or Path(kernel.cubin_path).read_bytes()


def define_only(wrapper: Any) -> None:
    """Compile the kernels of a tuning block and run none."""
    wrapper.kernel_autotune_defs.splice(
        """
        async_compile.wait(globals())
        del async_compile
        """
    )
    exec(wrapper.kernel_autotune_defs.getvalue(), {})  # noqa: S102 - Inductor's own generated code, as Inductor runs it


@stage(
    "torch",
    "inductor.autotune-block",
    "standalone compile runs every kernel once on random inputs to choose among its configurations",
    where="no-device",
)
def autotune_block(bench: Bench) -> None:
    """Define (and so compile) the kernels of the tuning block, leave out its calls; all configurations stay in the artifact."""
    wrapper = bench.module("torch._inductor.codegen.wrapper").PythonWrapperCodegen
    bench.replace(wrapper, "generate_and_run_autotune_block", define_only)


@stage(
    "torch",
    "inductor.combo-kernels",
    "with benchmark_combo_kernel on, Inductor times a combined kernel against its parts",
    where="no-device",
)
def combo_kernels(bench: Bench) -> None:
    """Combine, which is what the timing answers for every kernel that takes less than 0.3 ms (all but the very largest)."""
    scheduler = bench.module("torch._inductor.scheduler").Scheduler
    bench.replace(scheduler, "speedup_by_combo_kernel", lambda _self, _nodes: True)


@stage(
    "torch",
    "inductor.matrix-padding",
    "for a compute-bound product of misaligned sizes Inductor times it with and without padding",
    where="no-device",
)
def matrix_padding(bench: Bench) -> None:
    """Pad, as if it had been timed before: tensor cores want aligned sizes, and reading and writing costs little here."""
    bench.replace("torch._inductor.fx_passes.pad_mm", "get_cached_should_pad", lambda _key: True)


@stage(
    "torch",
    "inductor.tuning-paths",
    "an artifact names the files of its kernels' tuning by absolute paths: the pass's, which no server looks at",
)
def tuning_paths(bench: Bench) -> None:
    """Pickle these paths as what they are below Inductor's cache folder, so that a server finds them below its own.

    Where a kernel has several configurations, a server keeps the fastest in such a file and looks there at its next start.
    """
    autotuner = bench.module("torch._inductor.runtime.triton_heuristics").CachingAutotuner
    cache = bench.module("torch._inductor.runtime.autotune_cache").AutotuneCache
    of_kernel, of_cache = autotuner.__getstate__, cache.__getstate__

    def kernel_state(self: Any) -> dict[str, Any]:
        state = of_kernel(self)
        return {**state, "filename": _below_cache(state["filename"])}

    def cache_state(self: Any) -> dict[str, Any]:
        state: dict[str, Any] = of_cache(self)
        if state.get("local_cache"):
            files, path = state["local_cache"]
            state = {**state, "local_cache": (files, _below_cache(path))}
        return state

    bench.replace(autotuner, "__getstate__", kernel_state)
    bench.replace(cache, "__getstate__", cache_state)


def _below_cache(path: str | None) -> str | None:
    """Return a path so that it is unpickled below whatever is Inductor's cache folder then, or as it is, if it is elsewhere."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder = cache_dir()
    return _BelowCache(path) if path and Path(path).is_relative_to(folder) else path


class _BelowCache(str):
    """A path below Inductor's cache folder. What unpickles it calls nothing but torch's `cache_dir` and `os.path.join`."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        return os.path.join, (_CacheFolder(), os.path.relpath(self, cache_dir()))


class _CacheFolder:
    def __reduce__(self) -> tuple[Any, ...]:
        from torch._inductor.runtime.cache_dir_utils import cache_dir

        return cache_dir, ()


@stage(
    "torch", "inductor.constant-folding", "the joint-graph pass evaluates aten.full and scalar_tensor on the node's own device"
)
def constant_folding(bench: Bench) -> None:
    """Evaluate uniform constants on the CPU: the value is what the pass wants, and it does not depend on the device."""
    import torch

    folder = bench.module("torch._inductor.fx_passes.joint_graph").UniformValueConstantFolder
    deduce = folder._deduce_value
    constants = (torch.ops.aten.full.default, torch.ops.aten.scalar_tensor.default)

    def on_cpu(self: Any, node: Any) -> Any:
        device = node.kwargs.get("device") if node.op == "call_function" and node.target in constants else None
        if getattr(device, "type", None) != "cuda":
            return deduce(self, node)
        kwargs = node.kwargs
        node.kwargs = {**kwargs, "device": torch.device("cpu")}
        try:
            return deduce(self, node)
        finally:
            node.kwargs = kwargs

    bench.replace(folder, "_deduce_value", on_cpu)
    find = folder._add_peephole_patterns

    class FullOnCpu(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **{**(kwargs or {}), **({"device": "cpu"} if function is torch.full else {})})

    def find_on_cpu(self: Any) -> None:
        with FullOnCpu():
            find(self)

    bench.replace(folder, "_add_peephole_patterns", find_on_cpu)


@stage(
    "torch",
    "inductor.triton-cache",
    "each device index has a Triton cache of its own, so that ranks compile equal kernels again",
)
def triton_cache(bench: Bench) -> None:
    """Keep one for all ranks: Triton's own key does not hold the index, and its cache is made for several writers."""
    utils = "torch._inductor.runtime.runtime_utils"
    of_device = bench.module(utils).triton_cache_dir
    bench.replace_everywhere(utils, "triton_cache_dir", lambda _device: of_device(0), within="torch")
