"""Checkpoints of every quantisation method as configurations: real schemes on narrow layers, dense and with experts.

AWQ and GPTQ come with safetensors files that hold headers and no data: vLLM chooses the layers of those methods by the headers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.compile.models import narrow

WIDTH, INNER, HEAD, HEADS, KV_HEADS, EXPERTS, LAYERS, WORDS = 512, 1024, 128, 8, 4, 8, 2, 2048
_SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
    "num_hidden_layers": LAYERS,
    "vocab_size": WORDS,
}
_MIXTURE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": WIDTH,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}


def _tensors(bits: int, kind: str, strategy: str, **more: Any) -> dict[str, Any]:
    """Return how compressed-tensors describes one side of a matrix product."""
    return {"num_bits": bits, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **more}


def _compressed(layout: str, weights: dict[str, Any], activations: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "quantization_status": "compressed",
        "ignore": ["lm_head", "re:.*mlp.gate$"],
        "config_groups": {"group_0": group},
    }


def _modelopt(algorithm: str, **more: Any) -> dict[str, Any]:
    excluded = ["lm_head", "*mlp.gate"]
    producer = {"name": "modelopt", "version": "0.29.0"}
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": excluded, "producer": producer, **more}


def _gptq(bits: int = 4, *, ordered: bool = False) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": 128, "desc_act": ordered, "sym": True, "lm_head": False}


_TOKEN8 = _tensors(8, "float", "token", dynamic=True)
_GROUP4 = _tensors(4, "int", "group", group_size=128)
_NVFP4 = _tensors(4, "float", "tensor_group", group_size=16)

SCHEMES: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "fp8-static": {"quant_method": "fp8", "activation_scheme": "static"},
    "fp8-dynamic": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8-block": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "ct-int8": _compressed("int-quantized", _tensors(8, "int", "channel"), _tensors(8, "int", "token", dynamic=True)),
    "ct-int8-static": _compressed("int-quantized", _tensors(8, "int", "channel"), _tensors(8, "int", "tensor")),
    "ct-w4a16": _compressed("pack-quantized", _GROUP4),
    "ct-w4a16-zero-points": _compressed("pack-quantized", {**_GROUP4, "symmetric": False}),
    "ct-w8a16": _compressed("pack-quantized", _tensors(8, "int", "channel")),
    "ct-w4a8": _compressed("pack-quantized", _GROUP4, _TOKEN8),
    "ct-fp8": _compressed("float-quantized", _tensors(8, "float", "channel"), _TOKEN8),
    "ct-fp8-tensor": _compressed("float-quantized", _tensors(8, "float", "tensor"), _tensors(8, "float", "tensor")),
    "ct-fp8-block": _compressed(
        "float-quantized",
        _tensors(8, "float", "block", block_structure=[128, 128]),
        _tensors(8, "float", "group", group_size=128, dynamic=True),
    ),
    "ct-nvfp4": _compressed("nvfp4-pack-quantized", _NVFP4, {**_NVFP4, "dynamic": "local"}),
    "ct-nvfp4-weights": _compressed("nvfp4-pack-quantized", _NVFP4),
    "ct-mxfp4": _compressed(
        "mxfp4-pack-quantized", _tensors(4, "float", "group", group_size=32, scale_dtype="torch.uint8"), None
    ),
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
    "gptq": _gptq(),
    "gptq-8": _gptq(8),
    "gptq-ordered": _gptq(ordered=True),
    "modelopt-fp8": _modelopt("FP8", kv_cache_quant_algo=None),
    "modelopt-fp8-kv": _modelopt("FP8", kv_cache_quant_algo="FP8"),
    "modelopt-nvfp4": _modelopt("NVFP4", kv_cache_quant_algo=None, group_size=16),
    "modelopt-nvfp4-kv": _modelopt("NVFP4", kv_cache_quant_algo="FP8", group_size=16),
    "modelopt-mxfp8": _modelopt("MXFP8", kv_cache_quant_algo=None, group_size=32),
}
ONLINE = ("fp8", "fp8_per_block", "fp8_per_channel", "int8_per_channel_weight_only", "mxfp8", "nvfp4_per_token")
"""What `--quantization` makes of an unquantised checkpoint while it is loaded."""


def checkpoint(folder: Path, scheme: str, *, experts: bool = False, headers: bool = True, **changes: Any) -> Path:
    """Write the configuration of a checkpoint in `scheme` into `folder` and return it; AWQ and GPTQ with their headers."""
    changed = {**_SIZES, **(_MIXTURE if experts else {}), **changes}
    if SCHEMES[scheme]:
        changed["quantization_config"] = SCHEMES[scheme]
    narrow(folder, **changed)
    if headers and scheme.startswith(("awq", "gptq")):
        tensors = packed_tensors(layers=LAYERS, experts=EXPERTS if experts else 0)
        (folder / "model.safetensors").write_bytes(only_headers(tensors))
    return folder


def packed_tensors(*, layers: int, experts: int) -> dict[str, str]:
    """Return the dtypes of a 4-bit checkpoint's tensors by name. Embeddings, norms and routers are not packed."""
    tensors = {"model.embed_tokens.weight": "BF16", "model.norm.weight": "BF16"}
    attention = [f"self_attn.{part}_proj" for part in "qkvo"]
    block = [f"mlp.experts.{index}" for index in range(experts)] or ["mlp"]
    inner = [f"{place}.{part}_proj" for place in block for part in ("gate", "up", "down")]
    for layer in range(layers):
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = "BF16"
        if experts:
            tensors[f"model.layers.{layer}.mlp.gate.weight"] = "BF16"
        for part in (*attention, *inner):
            for name, dtype in (("qweight", "I32"), ("qzeros", "I32"), ("scales", "F16")):
                tensors[f"model.layers.{layer}.{part}.{name}"] = dtype
    return tensors


def only_headers(tensors: Mapping[str, str]) -> bytes:
    """Return the beginning of a safetensors file of these tensors: a header that says where data would be."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for index, (name, dtype) in enumerate(tensors.items()):
        header[name] = {"dtype": dtype, "shape": [1], "data_offsets": [4 * index, 4 * index + 4]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def gpt_oss(folder: Path) -> Path:
    """Write a narrow gpt-oss, whose experts are MXFP4."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config = {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "attention_bias": True,
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": WIDTH,
        "initial_context_length": 4096,
        "intermediate_size": WIDTH,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 131072,
        "num_attention_heads": 8,
        "num_experts_per_tok": 4,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": 2,
        "num_local_experts": EXPERTS,
        "quantization_config": {"modules_to_not_convert": plain, "quant_method": "mxfp4"},
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
            "truncate": False,
        },
        "rope_theta": 150000,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": WORDS,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def deepseek(folder: Path, scheme: str = "fp8-block") -> Path:
    """Write a narrow DeepSeek V3: latent attention, grouped experts beside a shared one."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "attention_bias": False,
        "first_k_dense_replace": 1,
        "hidden_act": "silu",
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "kv_lora_rank": 512,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": WIDTH,
        "moe_layer_freq": 1,
        "n_group": 2,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 8,
        "num_experts_per_tok": 2,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": 8,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-6,
        "rope_scaling": {
            "beta_fast": 32,
            "beta_slow": 1,
            "factor": 40,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
        },
        "rope_theta": 10000,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "tie_word_embeddings": False,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
        "v_head_dim": 128,
        "vocab_size": WORDS,
    }
    if SCHEMES[scheme]:
        config["quantization_config"] = SCHEMES[scheme]
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder
