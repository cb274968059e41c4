"""Host memory that the driver pins or maps: there is no driver."""

from __future__ import annotations

import contextlib
from typing import Any

from warmstart.compiler.seams.base import Bench, stage


@stage("vllm", "memory.pinned", "pinned host memory and its device views are made by the driver")
def pinned(bench: Bench) -> None:
    """Use pageable memory; a device view of a host tensor is a fake tensor of its shape."""
    import torch

    def device_view(tensor: Any, *_args: Any, **_kwargs: Any) -> Any:
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device=f"cuda:{bench.device}")

    utils = "vllm.utils.torch_utils"
    bench.replace_everywhere(utils, "get_accelerator_view_from_cpu_tensor", device_view)
    bench.replace_everywhere(utils, "PIN_MEMORY", False)
    bench.replace_everywhere("vllm.utils.platform_utils", "is_pin_memory_available", lambda *_args: False)
    bench.replace_everywhere("vllm.utils.platform_utils", "is_uva_available", lambda *_args: True)
    bench.replace(torch.Tensor, "pin_memory", lambda self, *_args: self)


@stage(
    "vllm",
    "memory.pool",
    "with --enable-sleep-mode weights are loaded into a memory pool of the driver's",
    where="no-device",
)
def pool(bench: Bench) -> None:
    """Use no pool: fake tensors take no device memory, so nothing could be laid into it or slept out of it."""
    allocator = bench.module("vllm.device_allocator.cumem").CuMemAllocator
    bench.replace(allocator, "use_memory_pool", lambda _self, **_tag: contextlib.nullcontext())
