"""What users turn on: adapters, speculation, caches, compile options, overrides, runners."""

import json
from typing import Any

from tests.compile.matrix.case import Case


def _speculate(**config: Any) -> tuple[str, ...]:
    return ("--speculative-config", json.dumps(config))


def _compile(**config: Any) -> tuple[str, ...]:
    return ("--compilation-config", json.dumps(config))


def _transfer(connector: str, role: str, **config: Any) -> tuple[str, ...]:
    return ("--kv-transfer-config", json.dumps({"kv_connector": connector, "kv_role": role, **config}))


def _small(name: str, *args: str, model: str = "llama-3.2-1b", **fields: Any) -> Case:
    return Case(name=name, topic="features", model=model, args=args, **fields)


# As small as a tokenizer can be that knows where reasoning begins and ends.
_WORDS = {"<unk>": 0, "<think>": 1, "</think>": 2}
_TOKENIZER = {
    "tokenizer.json": json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": _WORDS, "unk_token": "<unk>"},
        }
    ),
    "tokenizer_config.json": json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"}),
}


ADAPTERS = (
    _small("lora", "--enable-lora", "--max-lora-rank", "16"),
    _small("lora-moe", "--enable-lora", "--max-lora-rank", "16", model="qwen3-30b-a3b"),
)
SPECULATION = (
    _small("ngram", *_speculate(method="ngram", num_speculative_tokens=3, prompt_lookup_max=4)),
    _small(
        "eagle",
        *_speculate(method="eagle", model="matrix/eagle-llama-3.1-8b", num_speculative_tokens=3),
        model="llama-3.1-8b",
        drafts=("eagle-llama-3.1-8b",),
        modules=2,
    ),
    _small(
        "eagle3",
        *_speculate(method="eagle3", model="matrix/eagle3-llama-3.1-8b", num_speculative_tokens=3),
        model="llama-3.1-8b",
        drafts=("eagle3-llama-3.1-8b",),
        modules=2,
    ),
    _small(
        "eagle3-moe",
        *_speculate(method="eagle3", model="matrix/eagle3-qwen3-30b-a3b", num_speculative_tokens=3),
        model="qwen3-30b-a3b",
        drafts=("eagle3-qwen3-30b-a3b",),
        modules=2,
    ),
    _small(
        "draft-model",
        *_speculate(method="draft_model", model="matrix/llama-3.2-1b", num_speculative_tokens=3),
        model="llama-3.1-8b",
        drafts=("llama-3.2-1b",),
        modules=2,
    ),
    _small("mtp-deepseek", *_speculate(method="mtp", num_speculative_tokens=1), model="deepseek-v3", modules=2),
    # vLLM has no compiled form of this draft module: its target alone is.
    _small("mtp-glm", *_speculate(method="mtp", num_speculative_tokens=1), model="glm-4.5-air"),
    _small(
        "mtp-qwen3-next",
        *_speculate(method="mtp", num_speculative_tokens=2),
        model="qwen3-next-80b-a3b",
        config={"num_nextn_predict_layers": 1},
        modules=2,
    ),
    _small(
        "mtp-qwen3.5",
        *_speculate(method="mtp", num_speculative_tokens=2),
        "--language-model-only",
        model="qwen3.5-35b-a3b",
        modules=2,
    ),
)
CACHES = (
    _small("no-prefix-caching", "--no-enable-prefix-caching"),
    _small("prefix-caching-hybrid", "--enable-prefix-caching", model="granite-4.0-h-micro"),
    _small("no-chunked-prefill", "--no-enable-chunked-prefill"),
    _small("chunked-prefill-512", "--max-num-batched-tokens", "512"),
    _small(
        "kv-producer", *_transfer("ExampleConnector", "kv_producer", kv_connector_extra_config={"shared_storage_path": "kv"})
    ),
    _small(
        "kv-consumer", *_transfer("ExampleConnector", "kv_consumer", kv_connector_extra_config={"shared_storage_path": "kv"})
    ),
    _small(
        "kv-both-offloading",
        *_transfer("OffloadingConnector", "kv_both", kv_connector_extra_config={"cpu_bytes_to_use": 1 << 30}),
    ),
    _small("block-size-32", "--block-size", "32"),
    _small("sleep-mode", "--enable-sleep-mode"),
)
OUTPUTS = (
    # With a reasoning parser vLLM asks the model's tokenizer for the tokens that end the reasoning.
    _small(
        "structured-outputs",
        "--structured-outputs-config",
        '{"backend": "xgrammar"}',
        "--reasoning-parser",
        "qwen3",
        files=_TOKENIZER,
    ),
    _small("tools", "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
)
COMPILATION = (
    _small("o0", "-O0", nothing="compilation is off"),
    _small("o1", "-O1"),
    _small("o3", "-O3"),
    _small("enforce-eager", "--enforce-eager", nothing="compilation is off"),
    _small("stock-torch-compile", *_compile(mode=1), nothing="keeps no artifacts"),
    # Its graphs lie beside the artifact then.
    _small("no-mega-artifact", env={"VLLM_USE_MEGA_AOT_ARTIFACT": "0"}),
    _small("cudagraph-none", *_compile(cudagraph_mode="NONE")),
    _small("cudagraph-full", *_compile(cudagraph_mode="FULL")),
    _small("compile-sizes", *_compile(compile_sizes=[1, 8])),
    _small("compile-ranges", *_compile(compile_ranges_endpoints=[256])),
    _small("graph-partition", *_compile(use_inductor_graph_partition=True)),
    _small("custom-rms-norm", *_compile(custom_ops=["none", "+rms_norm"])),
    _small("custom-ops-all", *_compile(custom_ops=["all"])),
    _small(
        "qk-norm-rope-fusion",
        *_compile(pass_config={"enable_qk_norm_rope_fusion": True}, custom_ops=["none", "+rotary_embedding"]),
        model="qwen3-0.6b",
        code=("fused_qk_norm_rope",),  # vLLM's match table leaves this pass out
    ),
    _small("mm-encoder", *_compile(compile_mm_encoder=True), model="qwen2.5-vl-7b", modules=4),
    _small("mm-encoder-qwen3-vl", *_compile(compile_mm_encoder=True), model="qwen3-vl-8b", modules=3),
    _small("mm-encoder-llama4", *_compile(compile_mm_encoder=True), model="llama-4-scout", modules=2),
)
MODEL = (
    _small("hf-overrides", "--hf-overrides", '{"num_hidden_layers": 2}'),
    _small(
        "rope-override",
        "--hf-overrides",
        '{"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}',
    ),
    _small("float16", "--dtype", "float16"),
    _small("float32", "--dtype", "float32"),
    _small("max-num-seqs-512", "--max-num-seqs", "512"),
    _small("tokens-16384", "--max-num-batched-tokens", "16384"),
    _small("v1-runner", env={"VLLM_USE_V2_MODEL_RUNNER": "0"}),
    # vLLM then takes its breakable CUDA graphs in place of compilation.
    _small("batch-invariant", env={"VLLM_BATCH_INVARIANT": "1"}, nothing="compilation is off"),
    _small("no-async-scheduling", "--no-async-scheduling"),
    _small("flashinfer-attention", "--attention-backend", "FLASHINFER", log=("FLASHINFER",)),
    _small("triton-attention", "--attention-backend", "TRITON_ATTN", log=("TRITON_ATTN",)),
    _small("flex-attention", "--attention-backend", "FLEX_ATTENTION", log=("FLEX_ATTENTION",)),
    _small("cpu-offload", "--cpu-offload-gb", "1"),
    _small("remote-code", "--trust-remote-code", model="remote-code"),
    _small(
        "transformers-backend",
        "--model-impl",
        "transformers",
        refused="UnsupportedError: vLLM compiles LlamaModel of this model without saving an artifact of it",
    ),
    _small("text-only-flag", "--limit-mm-per-prompt", '{"image": 0, "video": 0}', model="qwen3-vl-8b"),
)
POOLING = (
    Case(name="embedding", topic="models", model="qwen3-embedding-0.6b", args=("--runner", "pooling")),
    Case(
        name="embedding-of-a-generator",
        topic="models",
        model="llama-3.2-1b",
        args=("--runner", "pooling", "--convert", "embed"),
    ),
    Case(name="reward", topic="models", model="qwen2.5-math-rm-72b"),
    Case(name="bge-m3", topic="models", model="bge-m3"),
    Case(name="bge-base-en", topic="models", model="bge-base-en", max_len=512),
    Case(name="bge-reranker-v2-m3", topic="models", model="bge-reranker-v2-m3"),
    Case(name="modernbert-base", topic="models", model="modernbert-base"),
)
REFUSED = (
    _small("two-nodes", "--nnodes", "2", "--tensor-parallel-size", "16", refused="UnsupportedError: a server over 2 nodes"),
    _small("no-aot", env={"VLLM_USE_AOT_COMPILE": "0"}, refused="UnsupportedError: VLLM_USE_AOT_COMPILE=0"),
    _small("cache-off", env={"VLLM_DISABLE_COMPILE_CACHE": "1"}, nothing="VLLM_DISABLE_COMPILE_CACHE"),
    _small("heads-not-divisible", "--tensor-parallel-size", "3", refused="UsageError: "),
    _small("unknown-option", "--no-such-option", refused="UsageError: vllm serve does not accept these arguments"),
    _small("remote-code-not-trusted", model="remote-code", refused="UsageError: "),
    _small("too-long", "--hf-overrides", '{"max_position_embeddings": 2048}', refused="UsageError: "),
)

CASES = (*ADAPTERS, *SPECULATION, *CACHES, *OUTPUTS, *COMPILATION, *MODEL, *POOLING, *REFUSED)
