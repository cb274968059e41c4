"""Which environment variables can change what is compiled, judged by name, for values that are not known.

Judged generously: a name that could matter does. What certainly does not (credentials, addresses, logging) is listed.
"""

from __future__ import annotations

_PREFIXES = (
    "VLLM_",
    "TORCH",
    "PYTORCH_",
    "TRITON",
    "CUDA",
    "NCCL_",
    "NVIDIA_",
    "INDUCTOR",
    "FLASHINFER_",
    "DEEP_GEMM_",
    "DG_",
    "TRANSFORMERS_",
    "HF_",
    "HUGGINGFACE_",
    "XDG_",
    "PYTHON",
    "CUBLAS",
    "CUDNN",
    "CUTLASS",
    "CUTE_",
    "NVCC_",
    "NVRTC_",
    "LMCACHE_",
    "AOT_",
    "MKL_",
    "OMP_",
)
_NAMES = frozenset("HOME PATH LD_LIBRARY_PATH LD_PRELOAD CC CXX TMPDIR USER MAX_JOBS VIRTUAL_ENV".split())  # noqa: SIM905
_HARMLESS = frozenset(
    [
        "HF_TOKEN",
        "HUGGINGFACE_TOKEN",
        "HUGGINGFACE_HUB_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "VLLM_API_KEY",
        "VLLM_HOST_IP",
        "VLLM_LOOPBACK_IP",
        "VLLM_PORT",
        "VLLM_RPC_BASE_PATH",
        "VLLM_DP_MASTER_IP",
        "VLLM_DP_MASTER_PORT",
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "VLLM_NIXL_SIDE_CHANNEL_PORT",
        "VLLM_LOGGING_LEVEL",
        "VLLM_LOGGING_PREFIX",
        "VLLM_CONFIGURE_LOGGING",
        "VLLM_LOGGING_CONFIG_PATH",
        "VLLM_NO_USAGE_STATS",
        "VLLM_DO_NOT_TRACK",
        "VLLM_USAGE_SOURCE",
        "VLLM_USAGE_STATS_SERVER",
        "NCCL_DEBUG",
        "NCCL_SOCKET_IFNAME",
        "NCCL_IB_HCA",
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
        "PYTHONUNBUFFERED",
    ]
)
_SECRET_ENDINGS = ("_TOKEN", "_API_KEY", "_SECRET", "_PASSWORD", "_SECRET_KEY", "_ACCESS_KEY", "_ACCESS_KEY_ID")


def changes_compilation(name: str) -> bool:
    """Say whether a variable of this name can change what is compiled, or where the cache lies."""
    if name in _HARMLESS or name.endswith(_SECRET_ENDINGS):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)
