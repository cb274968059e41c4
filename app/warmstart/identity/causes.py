"""Likely causes of a differing factor, in words, and what to change: from reports that users of vLLM made in public.

The first rule that fits a factor's name and values is taken, so the special ones stand before the general ones.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, NamedTuple

_POD_NAME = re.compile(r"[a-z0-9-]+-([a-z0-9]{8,10}-)?[a-z0-9]{5}|[a-z0-9-]+-\d+")
_HOME_PATH = re.compile(r"/(root|home|\.cache|config|data|tmp|var|mnt|app|workspace|nonexistent)?(/|$)")


class Rule(NamedTuple):
    """What a factor whose name matches `factor` and whose values satisfy `values` tells."""

    factor: re.Pattern[str]
    values: Callable[[Any, Any], bool]
    cause: str
    change: str


def cause_of(factor: str, old: Any, new: Any) -> tuple[str, str]:
    """Return the likely cause of a difference, and what to change."""
    for rule in _RULES:
        if rule.factor.search(factor) and rule.values(old, new):
            return rule.cause, rule.change
    return "the two sides were given different values", "give both sides the same value"


def _any(_old: Any, _new: Any) -> bool:
    return True


def _address(old: Any, new: Any) -> bool:
    return any(_is_address(value) for value in (old, new))


def _is_address(value: Any) -> bool:
    try:
        ipaddress.ip_address(str(value).rpartition("@")[2].strip("[]"))
    except ValueError:
        return False
    return True


def _pod_names(old: Any, new: Any) -> bool:
    return all(isinstance(value, str) and _POD_NAME.fullmatch(value) for value in (old, new)) and old != new


def _paths(old: Any, new: Any) -> bool:
    """Two absolute paths with the same end: one folder seen from two roots."""
    if not (isinstance(old, str) and isinstance(new, str) and old.startswith("/") and new.startswith("/")):
        return False
    return old.rstrip("/").rpartition("/")[2] == new.rstrip("/").rpartition("/")[2] or bool(
        _HOME_PATH.match(old) and _HOME_PATH.match(new)
    )


def _one_side(old: Any, new: Any) -> bool:
    return (old is None) != (new is None)


def _rule(factor: str, cause: str, change: str, values: Callable[[Any, Any], bool] = _any) -> Rule:
    return Rule(re.compile(factor), values, cause, change)


_RULES: tuple[Rule, ...] = (
    _rule(
        r"^environment\.VLLM_NIXL_SIDE_CHANNEL_HOST",
        "the NIXL side channel's host is the pod's IP; vLLM before 0.22 puts it into its key, so every pod misses",
        "use vLLM 0.22 or newer, or set the variable inside the command, after the key is made",
    ),
    _rule(
        r"^environment\.MOONCAKE_REQUESTER_LOCAL_HOSTNAME",
        "the variable names the pod, and vLLM puts it into its key, so every pod misses",
        "take it out of the pod spec; Mooncake finds its own host name",
    ),
    _rule(
        r"^environment\.VLLM_RAY_BUNDLE_INDICES|^environment\.VLLM_RAY_PER_WORKER",
        "Ray gives each worker its own indices, and this vLLM puts them into its key, so every engine keeps a cache of its own",
        "use a vLLM that leaves the variable out of its key (0.20 or newer), or start the engine without Ray",
    ),
    _rule(
        r"^environment\.VLLM_(CONFIG_ROOT|XLA_CACHE_PATH|ASSETS_CACHE|CACHE_ROOT|TUNED_CONFIG_FOLDER|RPC_BASE_PATH)$",
        "a path that follows HOME or XDG_*; older vLLM (0.26 still) puts it into its key, so another HOME is another key",
        "run both sides with the same HOME, XDG_CACHE_HOME and XDG_CONFIG_HOME, or use a newer vLLM",
    ),
    _rule(
        r"^environment\.VLLM_PP_LAYER_PARTITION$",
        "the layers are spread differently over the pipeline's ranks, so each rank has another graph",
        "set the same partition for the compile and for the server",
    ),
    _rule(
        r"^environment\.(TORCH_CUDA_ARCH_LIST|\w*_ARCH(S|_LIST)?|\w*_GPU_ARCH)$",
        "an architecture variable is set on one side only, as it is done to build without a GPU; it became part of the key",
        "set it on both sides or on neither; the GPU type is a factor of its own",
        _one_side,
    ),
    _rule(
        r"^environment\.VLLM_USAGE_SOURCE$",
        "the image of one side sets this, that of the other does not, and vLLM puts it into its key",
        "compile in the server's own image",
    ),
    _rule(
        r"^environment\.",
        "the value is a pod's own address, so no two pods agree",
        "do not set the variable from status.podIP; if it must be, no cache can be shared",
        _address,
    ),
    _rule(
        r"^environment\.",
        "the value looks like a pod's own name, so no two pods agree",
        "do not set the variable from metadata.name",
        _pod_names,
    ),
    _rule(
        r"^environment\.",
        "the same folder under two roots: HOME, XDG_* or the mount path differ",
        "mount it at the same absolute path on both sides, and give both the same HOME and XDG_*",
        _paths,
    ),
    _rule(
        r"^environment\.",
        "a variable that vLLM or torch.compile reads is set on one side only",
        "set it on both sides or on neither",
        _one_side,
    ),
    _rule(r"^environment\.", "a variable that vLLM or torch.compile reads has another value", "give both sides the same value"),
    _rule(
        r"^arguments\.(kv_cache_memory_bytes|num_gpu_blocks_override|gpu_memory_utilization|kv_cache_dtype|block_size)",
        "an option of the KV cache differs; vLLM puts these into its key even where the graph stays the same",
        "compile with exactly the server's options, also those that only make it start faster",
    ),
    _rule(
        r"^arguments\.(max_num_batched_tokens|max_num_seqs|max_model_len)|^engine\.max_seq_len",
        "the batch limits differ, as they do between prefill and decode servers; each needs its own cache",
        "compile once for each role, with that role's options",
    ),
    _rule(
        r"^arguments\.kv_transfer_config",
        "the KV transfer differs, as it does between prefill and decode servers, or it holds an address of one pod",
        "compile once for each role; keep addresses and ports out of --kv-transfer-config",
    ),
    _rule(
        r"^arguments\.additional_config",
        "vLLM puts all of --additional-config into its key, whether it changes the graph or not",
        "give both sides the same --additional-config, without anything that is other in every pod",
    ),
    _rule(
        r"^arguments\.(enable_lora|max_loras|max_lora_rank|lora_\w+|fully_sharded_loras|max_cpu_loras)",
        "LoRA wraps the layers; with an artifact that was compiled without it the server fails in profiling",
        "compile with the server's LoRA options",
    ),
    _rule(
        r"^arguments\.(mm_\w+|limit_mm_per_prompt|language_model_only|interleave_mm_strings|video_pruning_rate|skip_mm_profiling)",
        "the multimodal options differ, and the encoder's graph and sizes follow them",
        "compile with the server's multimodal options",
    ),
    _rule(
        r"^arguments\.speculative_config|^model\.related\.speculative",
        "the speculation differs (method, number of tokens, draft model); vLLM's own key is known to miss the number of tokens",
        "compile with the server's --speculative-config",
    ),
    _rule(
        r"^arguments\.(compilation_config|optimization_level|cudagraph\w*)|^engine\.compilation_config",
        "the compilation itself is configured differently",
        "compile with the server's --compilation-config and -O level",
    ),
    _rule(
        r"^(arguments\.(tokenizer|model|model_weights|load_format)|model\.name)|^engine\.(model|tokenizer)$",
        "the model is named by another path; vLLM puts the name into its key, not the content",
        "name the model by the same string on both sides; with --load-format runai_streamer keep s3:// paths unchanged",
    ),
    _rule(
        r"^arguments\.(tensor|pipeline|data|decode_context|prefill_context)_parallel|^arguments\.enable_expert_parallel|^layout\.",
        "the ranks are laid out differently, and the device's number is in the generated code",
        "compile for the layout that the server runs",
    ),
    _rule(r"^arguments\.", "an option of the server differs", "compile with exactly the server's options"),
    _rule(
        r"^model\.files\.headers: ",
        "one side saw the headers of the checkpoint's safetensors files and the other did not, or another checkpoint's; "
        "vLLM chooses by them",
        "hand both sides the same .safetensors files (their headers are enough), or compile by the hub name",
    ),
    _rule(
        r"^model\.files\.",
        "a file that the model's configuration is made from is missing or differs: another revision, or an edited copy",
        "pin --revision, or hand both sides the same files",
    ),
    _rule(r"^gpu\.", "another GPU type", "compile for this type too: `warmstart precompile --gpu NAME`"),
    _rule(
        r"^code\.",
        "another build of this package is installed, or a patched one, or its files were changed in place",
        "compile in the server's own image (same digest)",
    ),
    _rule(r"^python\.", "another Python, for which the saved code does not load", "compile in the server's own image"),
    _rule(
        r"^cache_root$",
        "the cache was compiled below another root, and absolute paths are part of the inner keys",
        "set the same VLLM_CACHE_ROOT for the compile and for the server",
    ),
    _rule(r"^(format|pass)$", "the entry was made by another version of warmstart", "compile again with this version"),
    _rule(
        r"vllm_key\.env_hash",
        "a variable that vLLM hashes differs; the hash does not say which",
        "compare the two cache_key_factors.json, or start the server with VLLM_LOGGING_LEVEL=DEBUG",
    ),
    _rule(
        r"vllm_key\.config_hash",
        "the engine's configuration differs: an option, the model's config.json, or a default that depends on the GPU",
        "compare the servers' logs (`non-default args`), and compile with the server's options and files",
    ),
    _rule(
        r"vllm_key\.code_hash",
        "a source file that the model's graph was traced from differs or lies at another path",
        "compile in the server's own image; do not patch files in one of the two",
    ),
    _rule(
        r"vllm_key\.compiler_hash",
        "torch, Triton, their configuration, or the GPU differs",
        "compile in the server's own image, for the server's GPU type",
    ),
    _rule(r"^vllm$", "another vLLM version", "compile in the server's own image"),
    _rule(r"^engine\.", "the engine's configuration differs", "compile with exactly the server's options"),
)
