"""Each class of model on each compute capability that vLLM serves; 9.0 is that of every other file."""

from tests.compile.matrix.case import Case

GPUS = ("t4", "a100-sxm4-80gb", "a10g", "l4", "b200", "rtx-pro-6000-blackwell-server")
CLASSES = {
    "dense": "llama-3.2-1b",
    "moe": "qwen3-30b-a3b",
    "mxfp4": "gpt-oss-20b",
    "mla": "deepseek-v2-lite",
    "gdn": "qwen3.5-35b-a3b",
    "multimodal": "qwen2.5-vl-7b",
    "encoder": "bge-m3",
}
EXTRA: dict[str, tuple[str, ...]] = {
    "gdn": ("--language-model-only",),
}
# vLLM refuses bfloat16 before compute capability 8.0; users there ask for float16.
HALF = ("--dtype", "half")
_NATIVE_HALF = ("encoder",)
REFUSED = {
    "mxfp4-t4": "UsageError: The quantization method gpt_oss_mxfp4 is not supported for the current GPU",
}
# What vLLM's own order of preference comes to, where it is not FlashAttention: Turing has none, Blackwell's data-centre GPUs
# prefer FlashInfer, FlashAttention 2 knows no attention sinks (gpt-oss), and latent attention has kernels of its own.
ATTENTION = {
    "t4": "TRITON_ATTN",
    "b200": "FLASHINFER",
    "mla": "TRITON_MLA",
    "mla-b200": "FLASHINFER_MLA",
    "mxfp4": "TRITON_ATTN",
    "mxfp4-b200": "FLASHINFER",
    "mxfp4-rtx-pro-6000-blackwell-server": "FLASHINFER",
    "encoder-t4": "TRITON_ATTN",
    "encoder-b200": "FLASH_ATTN",
}
EXPERTS = {
    "moe": "Using TRITON Unquantized MoE backend",
    "gdn": "Using TRITON Unquantized MoE backend",
    "mla": "Using TRITON Unquantized MoE backend",
    "moe-rtx-pro-6000-blackwell-server": "Using FlashInfer CUTLASS Unquantized MoE backend",
    "gdn-rtx-pro-6000-blackwell-server": "Using FlashInfer CUTLASS Unquantized MoE backend",
    "mla-rtx-pro-6000-blackwell-server": "Using FlashInfer CUTLASS Unquantized MoE backend",
    "moe-b200": "Using FlashInfer TRTLLM Unquantized MoE backend",
    "gdn-b200": "Using FlashInfer TRTLLM Unquantized MoE backend",
    "mla-b200": "Using FlashInfer CUTLASS Unquantized MoE backend",  # its router is none of TRTLLM's
    "mxfp4": "Using 'MARLIN' Mxfp4 MoE backend",
    "mxfp4-b200": "Using 'FLASHINFER_TRTLLM_MXFP4_BF16' Mxfp4 MoE backend",
}


def _chosen(kind: str, gpu: str) -> tuple[str, ...]:
    name = f"{kind}-{gpu}"
    attention = ATTENTION.get(name) or ATTENTION.get(kind) or ATTENTION.get(gpu, "FLASH_ATTN")
    experts = EXPERTS.get(name) or EXPERTS.get(kind)
    return tuple(filter(None, (f"Using {attention} attention backend", experts)))


def _case(kind: str, gpu: str) -> Case:
    half = HALF if gpu == "t4" and kind not in _NATIVE_HALF else ()
    refused = REFUSED.get(f"{kind}-{gpu}", "")
    return Case(
        name=f"{kind}-{gpu}",
        topic="gpus",
        model=CLASSES[kind],
        gpu=gpu,
        args=(*EXTRA.get(kind, ()), *half),
        refused=refused,
        log=_chosen(kind, gpu),
    )


CASES = (
    *(_case(kind, gpu) for gpu in GPUS for kind in CLASSES),
    Case(
        name="bfloat16-t4",
        topic="gpus",
        model="llama-3.2-1b",
        gpu="t4",
        args=("--dtype", "bfloat16"),
        refused="UsageError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0",
    ),
    Case(name="dense-h100-mig", topic="gpus", model="llama-3.2-1b", gpu="h100-sxm5-80gb-mig-3g.40gb"),
    Case(name="dense-h100", topic="gpus", model="llama-3.2-1b", gpu="h100-sxm5-80gb"),
    Case(name="moe-h100", topic="gpus", model="qwen3-30b-a3b", gpu="h100-sxm5-80gb"),
    Case(name="dense-gh200", topic="gpus", model="llama-3.2-1b", gpu="gh200-480gb"),
    Case(name="dense-b300", topic="gpus", model="llama-3.2-1b", gpu="b300"),
    Case(name="dense-rtx-5090", topic="gpus", model="llama-3.2-1b", gpu="rtx-5090"),
    Case(name="dense-gb10", topic="gpus", model="llama-3.2-1b", gpu="gb10"),
)
