"""Which environment variables belong in the key, and which do not, each with its reason.

Every VLLM_* variable counts unless it is listed, so that one which a later release adds costs a miss, never a wrong hit. The
list is that of the newest vLLM's own `envs.compile_factors()`, which decides vLLM's key, and a test compares them; where ours
differs the table says why. What older versions hash beyond that is in their tables of options (`Table.hashed`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from warmstart.errors import UsageError
from warmstart.pattern import pattern
from warmstart.podspec.options import DEFAULT_VERSION, table

_PLACE = "where files lie, not what is compiled"
_ADDRESS = "an address or port, other in every pod"
_LOG = "what is logged or measured"
_MEDIA = "how the HTTP server fetches and decodes media, before the model"
_SERVER = "behaviour of the HTTP server and its processes"
_CPU = "of the CPU back end"
_SECRET = "a credential"  # noqa: S105 - the reason, not a password
_RANK = "which device or bundle a process takes; other in every worker"
_TUNING = "how long or on what something is tuned at run time, not what is compiled"

IGNORED: Mapping[str, str] = {
    "MAX_JOBS": _TUNING,
    "VLLM_TRITON_JIT_WARMUP_NUM_THREADS": _TUNING,
    "VLLM_RPC_BASE_PATH": _PLACE,
    "VLLM_RINGBUFFER_WARNING_INTERVAL": _LOG,
    "VLLM_DEBUG_DUMP_PATH": _PLACE,
    "VLLM_PORT": _ADDRESS,
    "VLLM_CACHE_ROOT": _PLACE,
    "VLLM_ENABLE_STARTUP_PLAN": _TUNING,
    "VLLM_XLA_CACHE_PATH": _PLACE,
    "VLLM_CONFIG_ROOT": _PLACE,
    "LD_LIBRARY_PATH": _PLACE,
    "VLLM_SERVER_DEV_MODE": _SERVER,
    "VLLM_DP_MASTER_IP": _ADDRESS,
    "VLLM_DP_MASTER_PORT": _ADDRESS,
    "VLLM_NIXL_SIDE_CHANNEL_HOST": _ADDRESS,
    "VLLM_RANDOMIZE_DP_DUMMY_INPUTS": _TUNING,
    "VLLM_HOST_IP": _ADDRESS,
    "VLLM_RAY_BUNDLE_INDICES": _RANK,
    "VLLM_CHAT_TEMPLATE_FUEL": _SERVER,
    "VLLM_ELASTIC_EP_SCALE_UP_LAUNCH": _RANK,
    "VLLM_FORCE_AOT_LOAD": "whether a miss ends the server; the artifact is the same",
    "S3_ACCESS_KEY_ID": _SECRET,
    "S3_SECRET_ACCESS_KEY": _SECRET,
    "S3_ENDPOINT_URL": _ADDRESS,
    "VLLM_API_KEY": _SECRET,
    "VLLM_USAGE_STATS_SERVER": _LOG,
    "VLLM_NO_USAGE_STATS": _LOG,
    "VLLM_DO_NOT_TRACK": _LOG,
    "VLLM_LOGGING_LEVEL": _LOG,
    "VLLM_LOGGING_PREFIX": _LOG,
    "VLLM_LOGGING_STREAM": _LOG,
    "VLLM_LOGGING_CONFIG_PATH": _LOG,
    "VLLM_LOGGING_COLOR": _LOG,
    "VLLM_LOG_STATS_INTERVAL": _LOG,
    "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": _LOG,
    "VLLM_TUNED_CONFIG_FOLDER": _PLACE,
    "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": _PLACE,
    "VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS": _TUNING,
    "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": _SERVER,
    "VLLM_HTTP_MAX_REQUEST_BODY_SIZE": _SERVER,
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": _SERVER,
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": _SERVER,
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": _SERVER,
    "VLLM_IMAGE_FETCH_TIMEOUT": _MEDIA,
    "VLLM_VIDEO_FETCH_TIMEOUT": _MEDIA,
    "VLLM_AUDIO_FETCH_TIMEOUT": _MEDIA,
    "VLLM_MEDIA_CACHE": _MEDIA,
    "VLLM_MEDIA_CACHE_MAX_SIZE_MB": _MEDIA,
    "VLLM_MEDIA_CACHE_TTL_HOURS": _MEDIA,
    "VLLM_MEDIA_FETCH_MAX_RETRIES": _MEDIA,
    "VLLM_MEDIA_URL_ALLOW_REDIRECTS": _MEDIA,
    "VLLM_MEDIA_LOADING_THREAD_COUNT": _MEDIA,
    "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB": _MEDIA,
    "VLLM_MAX_AUDIO_DECODE_DURATION_S": _MEDIA,
    "VLLM_MAX_AUDIO_DECODE_BYTES": _MEDIA,
    "VLLM_MAX_AUDIO_PREPROCESS_WORKERS": _MEDIA,
    "VLLM_MAX_EMBED_DECODE_BYTES": _MEDIA,
    "VLLM_MAX_IMAGE_PIXELS": _MEDIA,
    "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES": _MEDIA,
    "VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB": _MEDIA,
    "VLLM_VIDEO_LOADER_BACKEND": _MEDIA,
    "VLLM_MEDIA_CONNECTOR": _MEDIA,
    "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": _PLACE,
    "VLLM_ASSETS_CACHE": _PLACE,
    "VLLM_ASSETS_CACHE_MODEL_CLEAN": _PLACE,
    "VLLM_WORKER_MULTIPROC_METHOD": _SERVER,
    "VLLM_ENABLE_V1_MULTIPROCESSING": _SERVER,
    "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE": _SERVER,
    "VLLM_CPU_KVCACHE_SPACE": _CPU,
    "VLLM_CPU_MOE_PREPACK": _CPU,
    "VLLM_ZENTORCH_WEIGHT_PREPACK": _CPU,
    "VLLM_TEST_FORCE_LOAD_FORMAT": "how weights are read, not what they are",
    "VLLM_ENABLE_CUDA_COMPATIBILITY": _PLACE,
    "VLLM_CUDA_COMPATIBILITY_PATH": _PLACE,
    "VLLM_SKIP_MODEL_NAME_VALIDATION": _SERVER,
    "LOCAL_RANK": _RANK,
    "CUDA_VISIBLE_DEVICES": _RANK,
    "NO_COLOR": _LOG,
    "VLLM_SKIP_VERSION_SUFFIX": _LOG,
    "FORCE_COLOR": _LOG,
    "VLLM_REQUEST_BODY_LOG_LEVEL": _LOG,
    # Beyond vLLM's list: of torch and Triton, which vLLM's key does not ask for at all.
    "TORCHINDUCTOR_CACHE_DIR": "vLLM sets it itself, below its cache root",
    "TRITON_HOME": _PLACE,
    "TRITON_CACHE_DIR": _PLACE,
    "TRITON_DUMP_DIR": _PLACE,
    "TORCH_HOME": _PLACE,
    "TORCH_EXTENSIONS_DIR": _PLACE,
    "TORCH_LOGS": _LOG,
    "TORCH_LOGS_OUT": _LOG,
    "TORCH_TRACE": _LOG,
    "TORCH_SHOW_CPP_STACKTRACES": _LOG,
    "TORCH_CPP_LOG_LEVEL": _LOG,
    "TORCH_DISTRIBUTED_DEBUG": _LOG,
    "TORCH_FR_BUFFER_SIZE": _LOG,
    "TORCH_COMPILE_DEBUG_DIR": _PLACE,
}

STRICTER: Mapping[str, str] = {
    "VLLM_USE_MODELSCOPE": "names another hub, so another model under the same name",
    "VLLM_MODEL_REDIRECT_PATH": "names another model",
}
"""Ignored by vLLM, which sees their effect elsewhere; counted here."""

PER_POD: Mapping[str, str] = {
    "MOONCAKE_REQUESTER_LOCAL_HOSTNAME": "vLLM puts it into its own key, and it is other in every pod",
}
"""In vLLM's key although they differ from pod to pod: no cache can be shared while they are set. See `hazards`."""

# Read by vLLM's compile_factors() beside VLLM_*; and what torch, Triton and the kernel libraries read when they compile.
_ALSO = frozenset({"NVCC_THREADS", "CMAKE_BUILD_TYPE", "VERBOSE", "CUDA_HOME", "MOONCAKE_PREFERRED_SEGMENT"})
# Read by vLLM's kernels and by those it carries, outside the list that its own key is made of.
_KERNELS = frozenset({"CUDA_PATH", "FORCE_NUM_KV_SPLITS", "LAMPORT_RS_SCONV"})
# Read by torch's Inductor and functorch settings, which vLLM's key holds whole: names without a telling prefix.
_TORCH = frozenset(
    {
        "CI",
        "CXX",
        "CUTEDSL_ENABLE_AUTOTUNING",
        "CUTLASS_EPILOGUE_FUSION",
        "ENABLE_HOST_SIDE_TMA",
        "ENABLE_PERSISTENT_TMA_MATMUL",
        "ENABLE_TEMPLATE_AUTOWS",
        "ENABLE_TEMPLATE_TMA_STORE",
        "ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE",
        "FAKE_ALLOW_META",
        "LOG_AUTOTUNE_RESULTS",
        "LOG_TLPARSE",
        "AOT_PARTITIONER_DEBUG",
        "DUMP_AOTI_MINIFIER",
        "PARTITIONER_MEMORY_BUDGET_PARETO",
        "PARTITIONER_MEMORY_BUDGET_PARETO_DIR",
    }
)
_PREFIXES = (
    "AOT_INDUCTOR_",
    "AOTINDUCTOR_",
    "VLLM_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
    "INDUCTOR_",
    "FLASHINFER_",
    "FLASH_ATTENTION_",
    "FA_",
    "HUMMING_",
    "INKLING_",
    "DG_",
    "TILELANG_",
    "CUTE_DSL_",
    "RAY_EXPERIMENTAL_NOSET_",
)
_QUIET_PREFIXES = ("TORCH_NCCL_", "TORCH_GLOO_", "TORCHELASTIC_", "VLLM_LOGGING_")
_ADDRESS_LIKE = pattern(r"[0-9a-fA-F.:]{2,45}(%\w+)?")
_SECRETIVE = pattern(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY)", re.IGNORECASE)


def counts(name: str, version: str = DEFAULT_VERSION) -> bool:
    """Return whether a variable belongs in the key of a server of this vLLM version."""
    if name in STRICTER or name in _ALSO or name in _TORCH or name in _KERNELS or name in table(version).hashed:
        return True
    return name.startswith(_PREFIXES) and name not in IGNORED and name not in PER_POD and not name.startswith(_QUIET_PREFIXES)


def listed_by_vllm(name: str) -> bool:
    """Return whether vLLM lists a variable among its own factors, with its default where it is not set."""
    return name in _ALSO or name.startswith(("VLLM_", "RAY_EXPERIMENTAL_NOSET_"))


def relevant(env: Mapping[str, str], version: str = DEFAULT_VERSION) -> dict[str, str]:
    """Return the part of an environment that belongs in the key. An IP address decides no code, and is other in every pod."""
    return {name: env[name] for name in sorted(env) if counts(name, version) and not _is_address(env[name])}


def factors(env: Mapping[str, str], version: str = DEFAULT_VERSION) -> dict[str, str]:
    """Return `relevant(env)` fit to be published: what looks like a credential by its name stands as a digest.

    Raises UsageError as `paths` does.
    """
    counted = {**relevant(env, version), **paths(env, version)}
    return {name: _veiled(value) if _SECRETIVE.search(name) else value for name, value in counted.items()}


_PATHS: Mapping[str, tuple[str, str, str]] = {
    "VLLM_CONFIG_ROOT": ("XDG_CONFIG_HOME", ".config", "vllm"),
    "VLLM_XLA_CACHE_PATH": ("XDG_CACHE_HOME", ".cache", "vllm/xla_cache"),
}


def paths(env: Mapping[str, str], version: str) -> dict[str, str]:
    """Return the paths that this vLLM version puts into its own key, as a server with this environment has them.

    Most versions hash none. Where they do, the defaults follow XDG_* and HOME, so that these decide vLLM's key.

    Raises UsageError where a default follows HOME and that is not known.
    """
    found: dict[str, str] = {}
    for name in sorted(_PATHS.keys() & table(version).hashed):
        base, below_home, rest = _PATHS[name]
        value = env.get(name) or f"{env.get(base) or f'~/{below_home}'}/{rest}"
        if value == "~" or value.startswith("~/"):
            if not env.get("HOME"):
                raise UsageError(
                    f"vLLM {version} puts {name} into its key, and where that is follows the server's HOME, which is not known",
                    hint=f"set HOME, or {name}, in the server's env",
                )
            value = env["HOME"].rstrip("/") + value[1:]
        found[name] = value
    return found


def hazards(env: Mapping[str, str], unresolved: Mapping[str, str] | None = None, version: str = DEFAULT_VERSION) -> list[str]:
    """Return warnings about variables under which a server will not use, or not find, a shared cache.

    `unresolved` are variables whose values come from a field of the running pod, by name, with where from.
    """
    warnings = [
        f"{name} is set: {PER_POD[name]}; take it out of the pod spec"
        for name in sorted({*env, *(unresolved or {})})
        if name in PER_POD
    ]
    warnings += [
        f"{name} comes from {source} and is part of vLLM's cache key: servers of one Deployment will not share a cache"
        for name, source in sorted((unresolved or {}).items())
        if counts(name, version)
    ]
    return warnings


def _is_address(value: str) -> bool:
    if not _ADDRESS_LIKE.fullmatch(value):
        return False
    import ipaddress

    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _veiled(value: str) -> str:
    return f"sha256:{hashlib.sha256(value.encode(errors='surrogateescape')).hexdigest()}"
