"""What each line of vLLM must compile: one server of each class, a published model with few layers, on an H200."""

from __future__ import annotations

import json
from typing import Any

from tests.compile.matrix.case import Case

MODEL = "qwen3-0.6b"
_EXPERTS: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 384,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
}
_BLOCK_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
_FUSED = "flashinfer_trtllm_fused_allreduce_norm"


def _case(name: str, *args: str, **fields: Any) -> Case:
    return Case(name=f"line-{name}", topic="lines", model=MODEL, args=args, **fields)


DENSE = _case("dense")
CASES = (
    DENSE,
    _case("dense-h100", gpu="h100-sxm5-80gb"),
    _case("dense-a100", gpu="a100-sxm4-80gb"),
    _case("moe", config=_EXPERTS),
    _case("tp2", "--tensor-parallel-size", "2", ranks=2, code=(_FUSED,)),
    _case("lora", "--enable-lora", "--max-lora-rank", "16"),
    _case("fp8", config={"quantization_config": _BLOCK_FP8}),
    # The default from torch 2.12 on; before, a way for a server to have whole artifacts.
    _case("whole", env={"VLLM_USE_MEGA_AOT_ARTIFACT": "1"}),
    _case("ngram", "--speculative-config", json.dumps(_NGRAM)),
)
