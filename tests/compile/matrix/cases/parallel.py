"""Worlds of several ranks: every rank is compiled, and its graph is that of its place."""

import json
from typing import Any

from tests.compile.matrix.case import Case


def _tp(size: int) -> tuple[str, ...]:
    return ("--tensor-parallel-size", str(size))


def _case(name: str, model: str, ranks: int, *args: str, **fields: Any) -> Case:
    return Case(name=name, topic="parallel", model=model, ranks=ranks, args=args, **fields)


_EP = ("--enable-expert-parallel",)
# The pass that fuses all-reduce with a norm is not in vLLM's match table: its operator is in the code of every rank.
_FUSED: dict[str, Any] = {"code": ("flashinfer_trtllm_fused_allreduce_norm",)}
_PLAIN: dict[str, Any] = {"code": (r"torch\.ops\.vllm\.all_reduce",), "never": ("flashinfer_trtllm_fused_allreduce_norm",)}
_SP = ("--compilation-config", json.dumps({"pass_config": {"enable_sp": True}}))

CASES = (
    _case("tp2", "llama-3.2-1b", 2, *_tp(2), **_FUSED),
    _case("tp4", "llama-3.2-1b", 4, *_tp(4), **_FUSED),
    _case("tp8", "llama-3.2-1b", 8, *_tp(8), **_FUSED),
    _case("tp2-a100", "llama-3.2-1b", 2, *_tp(2), gpu="a100-sxm4-80gb", **_PLAIN),
    _case("tp2-l4", "llama-3.2-1b", 2, *_tp(2), gpu="l4", **_PLAIN),
    _case("tp2-h100", "llama-3.1-8b", 2, *_tp(2), gpu="h100-sxm5-80gb", **_FUSED),
    _case("tp2-b200", "llama-3.2-1b", 2, *_tp(2), gpu="b200", **_FUSED),
    _case("tp2-o1", "llama-3.2-1b", 2, *_tp(2), "-O1", **_PLAIN),
    # vLLM 0.33 has taken its sequence-parallelism pass out; the option that named it is unknown.
    _case("tp2-sequence-parallel", "llama-3.3-70b", 0, *_tp(2), *_SP, refused="UsageError: vllm serve does not accept these"),
    _case("tp2-moe", "qwen3-30b-a3b", 2, *_tp(2), **_FUSED),
    _case("tp2-ep", "qwen3-30b-a3b", 2, *_tp(2), *_EP, **_FUSED),
    _case("tp2-eplb", "qwen3-30b-a3b", 2, *_tp(2), *_EP, "--enable-eplb"),
    _case("tp2-mla", "deepseek-v2-lite", 2, *_tp(2)),
    _case("tp2-gpt-oss", "gpt-oss-20b", 2, *_tp(2)),
    _case("tp2-hybrid", "qwen3-next-80b-a3b", 2, *_tp(2)),
    _case("tp2-lora", "llama-3.2-1b", 2, *_tp(2), "--enable-lora"),
    _case("tp2-vocabulary-uneven", "granite-3.3-8b", 2, *_tp(2)),
    _case("dcp2", "deepseek-v2-lite", 2, *_tp(2), "--decode-context-parallel-size", "2"),
    _case("pp2", "llama-3.2-1b", 2, "--pipeline-parallel-size", "2", config={"num_hidden_layers": 4}),
    _case("tp2-pp2", "llama-3.2-1b", 4, *_tp(2), "--pipeline-parallel-size", "2", config={"num_hidden_layers": 4}),
    _case("dp2-dense", "llama-3.2-1b", 2, "--data-parallel-size", "2"),
    _case("dp2-moe", "qwen3-30b-a3b", 2, "--data-parallel-size", "2"),
    _case("dp2-ep", "qwen3-30b-a3b", 2, "--data-parallel-size", "2", *_EP),
    _case("dp2-tp2-ep", "qwen3-30b-a3b", 4, "--data-parallel-size", "2", *_tp(2), *_EP),
)
