"""With a GPU in sight: what Inductor tunes by running kernels runs on the device, on real memory of a limited amount."""

from __future__ import annotations

from typing import Any

from warmstart.compiler.seams.base import Bench, stage


@stage(
    "torch",
    "tuning.outside-fakes",
    "the pass's tensors are fake, and a kernel is tuned on real ones of random numbers",
    where="device",
)
def outside_fakes(bench: Bench) -> None:
    """Leave the fake mode while Inductor runs its tuning block or times a combined kernel.

    A block that needs more memory than the pass may take is only compiled, as without a GPU: all configurations stay in the
    artifact, and the server chooses at its first run. Combined kernels are timed where there is no limit.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    from warmstart.compiler.device import Device
    from warmstart.compiler.seams.inductor import define_only

    wrapper = bench.module("torch._inductor.codegen.wrapper").PythonWrapperCodegen
    scheduler = bench.module("torch._inductor.scheduler").Scheduler
    bundler = bench.module("torch._inductor.triton_bundler").TritonBundler
    run, faster = wrapper.generate_and_run_autotune_block, scheduler.speedup_by_combo_kernel

    def tune(self: Any) -> None:
        definitions = self.kernel_autotune_defs.getvalue()
        try:
            with _disable_current_modes():
                run(self)
            Device.tuned += 1
        except RuntimeError as error:  # Inductor wraps what ended the block
            if not isinstance(error.__cause__, torch.cuda.OutOfMemoryError):
                raise
            Device.left += 1
            # Kernels that had been tuned by then would be the only ones to be kept.
            if bundler._winners is not None:
                bundler._winners.clear()
            self.kernel_autotune_defs.clear()
            self.kernel_autotune_defs.splice(definitions)
            define_only(self)
        torch.cuda.empty_cache()

    def combine(self: Any, nodes: Any) -> bool:
        if bench.tuning_bytes:
            return True
        with _disable_current_modes():
            return bool(faster(self, nodes))

    bench.replace(wrapper, "generate_and_run_autotune_block", tune)
    bench.replace(scheduler, "speedup_by_combo_kernel", combine)


@stage(
    "torch",
    "tuning.one-stream",
    "with the first stream asked for, torch makes a pool of 32: 73 MB of an H200, for a pass that runs nothing there",
    where="device",
)
def one_stream(bench: Bench) -> None:
    """Give the device's default stream to whoever asks for a new one."""
    import torch

    make = torch.cuda.Stream.__new__

    def default(cls: Any, device: Any = None, priority: int = 0, **existing: Any) -> Any:
        if not existing:
            stream = torch.cuda.default_stream(device)
            existing = {name: getattr(stream, name) for name in ("stream_id", "device_index", "device_type")}
        return make(cls, device, priority, **existing)

    bench.replace(torch.cuda.Stream, "__new__", staticmethod(default))
