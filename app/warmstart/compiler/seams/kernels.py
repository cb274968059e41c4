"""Operators and queries outside the compiled graph that have no fake implementation: what they would answer, by shape."""

from __future__ import annotations

from typing import Any

from warmstart.compiler.seams.base import Bench, stage
from warmstart.errors import UnsupportedError


def _ceil(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@stage(
    "vllm", "kernels.shared-memory", "a CUDA call of vLLM's extension asks the device for its shared memory", where="no-device"
)
def shared_memory(bench: Bench) -> None:
    """Answer from the catalog, in bytes per block (opt-in)."""
    answer = bench.gpu.shared_memory_per_block_optin
    bench.replace("vllm._custom_ops", "get_max_shared_memory_per_block_device_attribute", lambda _device=0: answer)


@stage(
    "vllm", "kernels.deep-gemm-layout", "DeepGEMM's layout transform of block scales runs on a device and has no fake kernel"
)
def deep_gemm_layout(bench: Bench) -> None:
    """Return an empty tensor of the layout that it produces: float32 column-major on sm_90, packed int32 on sm_100."""
    import torch

    before_blackwell = bench.gpu.capability[0] < 10

    def transform(sf: Any, mn: int, k: int, recipe: Any = None, *_args: Any, is_sfa: bool = False, **_kwargs: Any) -> Any:
        rows = recipe[0] if is_sfa else recipe[1]
        if before_blackwell and rows != 1:
            return sf.contiguous()
        columns = sf.shape[-1] if before_blackwell else _ceil(-(-k // recipe[2]), 4) // 4
        batch, aligned = list(sf.shape[:-2]), _ceil(mn, 4)
        return torch.empty_strided(
            [*batch, mn, columns],
            [*([aligned * columns] * len(batch)), 1, aligned],
            dtype=torch.float32 if before_blackwell else torch.int32,
            device=sf.device,
        )

    bench.replace_everywhere("vllm.utils.deep_gemm", "transform_sf_into_required_layout", transform)


@stage("vllm", "kernels.deep-gemm-pdl", "setting DeepGEMM's launch attributes asks the device for its properties")
def deep_gemm_pdl(bench: Bench) -> None:
    """Leave launch attributes alone: nothing is launched, and no graph names them."""
    bench.replace("vllm.utils.deep_gemm", "_apply_pdl", lambda _module, _enable=True: None)


@stage("vllm", "kernels.block-scale-interleave", "FlashInfer builds this weight-preparation kernel with nvcc at first use")
def block_scale_interleave(bench: Bench) -> None:
    """Return an empty tensor of the interleaved size: rows padded to 128, columns to 4, flattened."""
    import torch

    quantization = bench.module("flashinfer.quantization.fp4_quantization")

    def interleave(scales: Any, *_args: Any, **_kwargs: Any) -> Any:
        experts = scales.shape[0] if scales.dim() == 3 else 1
        size = experts * _ceil(scales.shape[-2], 128) * _ceil(scales.shape[-1], 4)
        return torch.empty(size, dtype=scales.dtype, device=scales.device)

    for name in ("block_scale_interleave", "nvfp4_block_scale_interleave"):
        before = getattr(quantization, name)
        bench.replace(quantization, name, interleave)
        for package in ("flashinfer", "vllm"):
            _rebind(bench, package, name, before, interleave)


@stage(
    "vllm",
    "kernels.w4a8-packing",
    "vLLM 0.33's own fakes of CUTLASS's W4A8 packing do not give the shapes that the operators give",
)
def w4a8_packing(bench: Bench) -> None:
    """Return what csrc/quantization/cutlass_w4a8 returns: scales eight times over in one dimension, weights as they lie.

    For experts the operator also returns a table of layouts, whose size is that of a type in C++: refused.
    """
    import torch

    def pack_scales(scales: Any) -> Any:
        return torch.empty(scales.numel() * 8, dtype=scales.dtype, device=scales.device)

    def grouped(_weights: Any) -> Any:
        raise UnsupportedError(
            "experts with 4-bit weights and 8-bit activations (W4A8) are packed by an operator whose result only a GPU tells",
            hint="let the server's first start compile",
        )

    bench.replace("vllm._custom_ops", "cutlass_pack_scale_fp8", pack_scales)
    bench.replace("vllm._custom_ops", "cutlass_encode_and_reorder_int4b", torch.empty_like)
    bench.replace("vllm._custom_ops", "cutlass_encode_and_reorder_int4b_grouped", grouped)


@stage("vllm", "kernels.fa3-schedule", "FlashAttention 3 plans its work on a device")
def fa3_schedule(bench: Bench) -> None:
    """Return an empty plan: a counter, and four numbers for each sequence of a batch rounded up to four."""
    import torch

    def plan(*args: Any, **kwargs: Any) -> Any:
        batch = args[0] if args else kwargs["batch_size"]
        return torch.empty(1 + _ceil(batch, 4) * 4, dtype=torch.int32, device=f"cuda:{bench.device}")

    bench.replace_everywhere("vllm.vllm_flash_attn.flash_attn_interface", "get_scheduler_metadata", plan)


@stage("vllm", "kernels.flash-attention", "in an attention layer, which the warm-up enters, FlashAttention runs on a device")
def flash_attention(bench: Bench) -> None:
    """Return empty outputs: a row for each query, as wide as the values, and sums' logarithms where they are asked."""
    import torch

    def attend(q: Any, k: Any, v: Any, *_args: Any, out: Any = None, return_softmax_lse: bool = False, **_kwargs: Any) -> Any:
        del k
        result = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype, device=q.device) if out is None else out
        if not return_softmax_lse:
            return result
        return result, torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)

    bench.replace_everywhere("vllm.vllm_flash_attn.flash_attn_interface", "flash_attn_varlen_func", attend)


def _rebind(bench: Bench, package: str, name: str, before: Any, after: Any) -> None:
    import sys

    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").split(".")[0] == package and vars(module).get(name) is before:
            bench.replace(module, name, after)
