"""Every quantisation method, dense and with experts, on the GPU types where vLLM takes other kernels for it.

Each case names the kernels that vLLM's own selection takes on that GPU, read off its log; a pass that took others fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.compile.matrix.case import MODELS, Case
from tests.compile.quantised import SCHEMES, only_headers, packed_tensors

DENSE, EXPERTS = "qwen3-0.6b", "qwen3-30b-a3b"
A100, L4, T4, A10, B200, RTX = "a100-sxm4-80gb", "l4", "t4", "a10", "b200", "rtx-pro-6000-blackwell-server"
_OPEN = "UnsupportedError: HummingWeightSchema.convert_symmetric_integer_weight chooses a layout by the values of weights"


def _headers(model: str) -> bytes:
    """Return the header of a checkpoint of this model whose layers are all packed."""
    config = json.loads((MODELS / model / "config.json").read_text())
    return only_headers(packed_tensors(layers=config["num_hidden_layers"], experts=config.get("num_experts", 0)))


def _case(
    scheme: str,
    model: str,
    *log: str,
    gpu: str = "h200",
    args: tuple[str, ...] = (),
    code: tuple[str, ...] = (),
    refused: str = "",
) -> Case:
    """Return the case of a checkpoint in one of the schemes of tests/compile/quantised.py."""
    kind = "dense" if model == DENSE else "moe" if model == EXPERTS else model
    config: Mapping[str, Any] = {"quantization_config": SCHEMES[scheme]} if SCHEMES[scheme] else {}
    backend = "-".join(word.removeprefix("--").replace("_", "-") for word in args if word not in {"--dtype", "half"})
    return Case(
        name="-".join(filter(None, [kind, scheme if scheme != "none" else "", backend, gpu])),
        topic="quantisation",
        model=model,
        gpu=gpu,
        args=(*args, "--dtype", "half") if gpu == T4 else args,
        config=config,
        files={"model.safetensors": _headers(model)} if scheme.startswith(("awq", "gptq")) else {},
        log=log,
        code=code,
        refused=refused,
    )


def _online(method: str, model: str, *log: str, gpu: str = "h200") -> Case:
    return _case("none", model, *log, gpu=gpu, args=("--quantization", method))


_CUTLASS8 = "Selected CutlassFP8ScaledMMLinearKernel"
_MARLIN8 = "Selected MarlinFP8ScaledMMLinearKernel"
_MARLIN4 = "Using MarlinLinearKernel for mixed-precision linear"
_MACHETE = "Using MacheteLinearKernel for mixed-precision linear"
_INT8 = "Selected CutlassInt8ScaledMMLinearKernel"
_NVFP4 = "Using FlashInferCuteDslNvFp4LinearKernel for NVFP4 GEMM"

CASES = (
    # Hopper
    _case("fp8-static", DENSE, _CUTLASS8),
    _case("fp8-dynamic", DENSE, _CUTLASS8),
    _case("fp8-block", DENSE, "Selected FlashInferFp8DeepGEMMDynamicBlockScaledKernel"),
    _case("ct-fp8", DENSE, _CUTLASS8),
    _case("ct-fp8-tensor", DENSE, _CUTLASS8),
    _case("ct-fp8-block", DENSE, "Selected FlashInferFp8DeepGEMMDynamicBlockScaledKernel"),
    _case("ct-int8", DENSE, _INT8),
    _case("ct-int8-static", DENSE, _INT8),
    _case("ct-w4a16", DENSE, _MACHETE),
    _case("ct-w4a16-zero-points", DENSE, _MACHETE),
    _case("ct-w8a16", DENSE, _MACHETE),
    _case("ct-nvfp4", DENSE, "Using HummingNvFp4LinearKernel for NVFP4 GEMM"),
    _case("ct-nvfp4", DENSE, "Using MarlinNvFp4LinearKernel for NVFP4 GEMM", args=("--linear-backend", "marlin")),
    _case("awq", DENSE, _MACHETE),
    _case("gptq", DENSE, _MACHETE),
    _case("gptq", DENSE, _MARLIN4, args=("--linear-backend", "marlin")),
    _case("gptq-8", DENSE, _MACHETE),
    _case("gptq-ordered", DENSE, refused="UsageError: vLLM refuses this configuration"),
    _case("modelopt-fp8", DENSE, _CUTLASS8),
    _case("modelopt-fp8-kv", DENSE, _CUTLASS8),
    _online("fp8", DENSE, _CUTLASS8),
    _online("fp8_per_block", DENSE),
    _online("fp8_per_channel", DENSE),
    _online("int8_per_channel_weight_only", EXPERTS, "Using TRITON"),
    _online("mxfp8", DENSE),
    _case("ct-w4a8", DENSE, "Using CutlassW4A8LinearKernel for mixed-precision linear"),
    _case("ct-w4a8", EXPERTS, refused="UnsupportedError: experts with 4-bit weights and 8-bit activations"),
    _case("none", DENSE, args=("--kv-cache-dtype", "fp8")),
    _case("fp8-static", EXPERTS, "Using FLASHINFER_CUTLASS Fp8 MoE backend"),
    _case("fp8-block", EXPERTS, "Using TRITON Fp8 MoE backend"),
    _case("ct-fp8", EXPERTS, "Fp8 MoE backend"),
    _case("ct-int8", EXPERTS, "Using TRITON Int8 MoE backend"),
    _case("ct-w4a16", EXPERTS, refused=_OPEN),
    _case("ct-w4a16", EXPERTS, "Using 'MARLIN' WNA16 MoE backend", args=("--moe-backend", "marlin")),
    _case("awq", EXPERTS, "Using 'HUMMING' WNA16 MoE backend"),
    _case("gptq", EXPERTS, refused=_OPEN),
    _case("ct-nvfp4", EXPERTS, refused="UnsupportedError: BaseWeightSchema._may_process_global_scale chooses a layout"),
    _case("ct-nvfp4", EXPERTS, "Using 'MARLIN' NvFp4 MoE backend", args=("--moe-backend", "marlin")),
    _online("fp8", EXPERTS, "Using TRITON Fp8 MoE backend"),
    # Blackwell
    _case("fp8-static", DENSE, "Selected FlashInferFP8ScaledMMLinearKernel", gpu=B200),
    _case("fp8-block", DENSE, "Selected DeepGemmFp8BlockScaledMMKernel", gpu=B200),
    _case("ct-fp8", DENSE, _CUTLASS8, gpu=B200),
    _case("ct-nvfp4", DENSE, _NVFP4, gpu=B200),
    _case("modelopt-nvfp4", DENSE, _NVFP4, gpu=B200),
    _case("modelopt-fp8", DENSE, "Selected FlashInferFP8ScaledMMLinearKernel", gpu=B200),
    _case("modelopt-mxfp8", DENSE, "Using FlashInferCutedslMxfp8LinearKernel for MXFP8 GEMM", gpu=B200),
    _case("awq", DENSE, _MARLIN4, gpu=B200),
    _case("fp8-block", EXPERTS, "Using FLASHINFER_TRTLLM Fp8 MoE backend", gpu=B200),
    _case("ct-fp8", EXPERTS, "Using VLLM_CUTLASS Fp8 MoE backend", gpu=B200),
    _case("ct-nvfp4", EXPERTS, "Using 'FLASHINFER_TRTLLM' NvFp4 MoE backend", gpu=B200),
    _case("modelopt-nvfp4", EXPERTS, "Using 'FLASHINFER_TRTLLM' NvFp4 MoE backend", gpu=B200),
    _case("modelopt-fp8-kv", EXPERTS, "Using FLASHINFER_TRTLLM Fp8 MoE backend", gpu=B200),
    _case("ct-w4a16", EXPERTS, "Using 'MARLIN' WNA16 MoE backend", gpu=B200),
    _case("none", DENSE, args=("--kv-cache-dtype", "fp8"), gpu=B200),
    # vLLM 0.33 has it no more.
    Case(
        name="dense-bitsandbytes-h200",
        topic="quantisation",
        model=DENSE,
        args=("--quantization", "bitsandbytes"),
        refused="UsageError: vLLM refuses this configuration",
    ),
    Case(
        name="dense-without-flashinfer-cubin-b200",
        topic="quantisation",
        model=DENSE,
        gpu=B200,
        env={"VLLM_HAS_FLASHINFER_CUBIN": "0"},
        refused="UnsupportedError: vLLM chooses attention kernels here by whether the server's machine reaches",
    ),
    _case("modelopt-nvfp4", DENSE, "Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM", gpu=RTX),
    _case("fp8-block", DENSE, "Selected .*Fp8", gpu=RTX),
    _case("ct-nvfp4", EXPERTS, "Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend", gpu=RTX),
    _case("awq", DENSE, _MARLIN4, gpu=RTX),
    # Ampere, Ada, Turing
    _case("fp8-dynamic", DENSE, _MARLIN8, gpu=A100),
    _case("fp8-block", EXPERTS, "Using MARLIN Fp8 MoE backend", gpu=A100),
    _case("ct-fp8", DENSE, gpu=A100, code=("humming",)),
    _case("ct-int8", DENSE, _INT8, gpu=A100),
    _case("ct-w4a16", EXPERTS, "Using 'MARLIN' WNA16 MoE backend", gpu=A100),
    _case("ct-nvfp4", DENSE, "Using MarlinNvFp4LinearKernel for NVFP4 GEMM", gpu=A100),
    _case("awq", DENSE, _MARLIN4, gpu=A100),
    _case("gptq", DENSE, _MARLIN4, gpu=A100),
    _case("gptq", EXPERTS, "Using 'MARLIN' WNA16 MoE backend", gpu=A100),
    _case("fp8-dynamic", DENSE, _CUTLASS8, gpu=L4),
    _case("fp8-block", EXPERTS, "Fp8 MoE backend", gpu=L4),
    _case("ct-int8", DENSE, _INT8, gpu=L4),
    _case("awq", DENSE, _MARLIN4, gpu=L4),
    _case("gptq", DENSE, _MARLIN4, gpu=A10),
    _case("awq", DENSE, "mixed-precision linear", gpu=T4),
    _case("ct-w4a16", DENSE, "mixed-precision linear", gpu=T4),
)
