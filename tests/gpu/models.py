"""Configurations of the models that are proved on a GPU: published shapes with a few layers, and narrow ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compile.models import EXAMPLE, NARROW

Config = dict[str, Any]
Model = Callable[[Path], Path]

_TOKENS_AT_MOST = 4096
_GRANITE = Path(__file__).parents[1] / "compile/matrix/models/granite-4.0-h-micro/config.json"
_NOT_LLAMA = ("use_sliding_window", "sliding_window", "max_window_layers")
FP8_BLOCK: Config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
FP8_STATIC: Config = {"quant_method": "fp8", "activation_scheme": "static"}


def write(folder: Path, config: Config) -> Path:
    """Write a model that is its configuration and a tokenizer of whole words, and return its folder.

    Every number is a token: the word `t17` is token 17. So prompts can be given as token ids, and random ones made of text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    words = {f"t{number}": number for number in range(min(config["vocab_size"], _TOKENS_AT_MOST))}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "eos_token": "t1", "pad_token": "t2"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def published(folder: Path) -> Path:
    """Write the published configuration of Qwen3-0.6B, all 28 layers."""
    return write(folder, _example())


def narrow(**changes: Any) -> Model:
    """Return a writer of Qwen3 with four narrow layers and `changes`."""
    return lambda folder: write(folder, {**_example(), **NARROW, "head_dim": 64, "hidden_size": 512, **changes})


def moe(**changes: Any) -> Model:
    """Return a writer of a Qwen3 mixture of eight narrow experts."""
    return narrow(**{**_MOE, **changes})


def with_draft(folder: Path) -> Path:
    """Write a target, and an EAGLE draft model beside it."""
    config = {**_example(), **NARROW, "head_dim": 64, "hidden_size": 512}
    draft = {name: value for name, value in config.items() if name not in _NOT_LLAMA}
    draft |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 1}
    write(folder.parent / "draft", draft)
    return write(folder, config)


def llama_8b(folder: Path) -> Path:
    """Write Llama 3.1 8B: its widths, four of its 32 layers."""
    return write(folder, _LLAMA_8B)


def llama_8b_whole(folder: Path) -> Path:
    """Write Llama 3.1 8B as published, all 32 layers: what its service takes is the GPU's time."""
    return write(folder, {**_LLAMA_8B, "num_hidden_layers": 32})


def qwen3_30b_a3b(folder: Path) -> Path:
    """Write Qwen3-30B-A3B: its widths and its 128 experts, four of its 48 layers."""
    return write(folder, {**_example(), **_MOE, **_QWEN3_30B})


def qwen3_next(folder: Path) -> Path:
    """Write a narrow Qwen3-Next: three gated-delta-net layers to one of attention, a mixture of experts in each."""
    return write(folder, _QWEN3_NEXT)


def granite_hybrid(folder: Path) -> Path:
    """Write Granite 4.0 H Micro: its widths, three layers of Mamba2 and one of attention."""
    return write(folder, json.loads(_GRANITE.read_text()))


def gemma3(folder: Path) -> Path:
    """Write Gemma 3 1B (text): its widths, six layers, five of them with sliding windows."""
    return write(folder, _GEMMA3)


def gpt_oss(folder: Path) -> Path:
    """Write gpt-oss-20b: its widths and its 32 MXFP4 experts, four layers."""
    return write(folder, _GPT_OSS)


def deepseek_v2_lite(folder: Path) -> Path:
    """Write DeepSeek-V2-Lite (MLA): its widths and its 64 experts, four layers, the first of them dense."""
    return write(folder, _DEEPSEEK_V2_LITE)


def mixtral(folder: Path) -> Path:
    """Write a narrow Mixtral."""
    return write(folder, _MIXTRAL)


def compressed(weights: Config, activations: Config | None, form: str) -> Config:
    """Return a compressed-tensors scheme for every linear layer but the head."""
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
        "global_compression_ratio": 1.0,
    }


def _scheme(bits: int, kind: str, strategy: str, *, dynamic: bool = False, group: int | None = None) -> Config:
    return {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "dynamic": dynamic,
        "symmetric": True,
        "group_size": group,
        "block_structure": None,
        "actorder": None,
        "observer": "minmax",
        "observer_kwargs": {},
    }


W4A16 = compressed(_scheme(4, "int", "group", group=128), None, "pack-quantized")
W8A8_FP8 = compressed(_scheme(8, "float", "channel"), _scheme(8, "float", "token", dynamic=True), "float-quantized")


def _example() -> Config:
    return dict(json.loads((EXAMPLE / "config.json").read_text()))


_MOE: Config = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
    "mlp_only_layers": [],
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}
_QWEN3_30B: Config = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 4,
    "max_window_layers": 4,
    "layer_types": ["full_attention"] * 4,
    "tie_word_embeddings": False,
}
_LLAMA_8B: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 4,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
_QWEN3_NEXT: Config = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 512,
    "initializer_range": 0.02,
    "intermediate_size": 1024,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 32768,
    "mlp_only_layers": [],
    "moe_intermediate_size": 256,
    "norm_topk_prob": True,
    "num_attention_heads": 8,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "output_router_logits": False,
    "partial_rotary_factor": 0.25,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 10000000,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 4096,
}
_GEMMA3: Config = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 1152,
    "intermediate_size": 6912,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 6,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000,
    "rope_theta": 1000000,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
    "layer_types": [*["sliding_attention"] * 5, "full_attention"],
    "torch_dtype": "bfloat16",
    "vocab_size": 262144,
}
_GPT_OSS: Config = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": 200002,
    "pad_token_id": 199999,
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "initial_context_length": 4096,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "output_router_logits": False,
    "quantization_config": {
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
        "quant_method": "mxfp4",
    },
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
    "router_aux_loss_coef": 0.9,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
_DEEPSEEK_V2_LITE: Config = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "aux_loss_alpha": 0.001,
    "bos_token_id": 100000,
    "eos_token_id": 100001,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "norm_topk_prob": False,
    "num_attention_heads": 16,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 4,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "greedy",
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 102400,
}
_MIXTRAL: Config = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "max_position_embeddings": 32768,
    "num_attention_heads": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "output_router_logits": False,
    "rms_norm_eps": 1e-05,
    "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.02,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 4096,
}
