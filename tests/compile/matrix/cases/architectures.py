"""Every text architecture as served on one H200, with the defaults of `vllm serve`."""

import dataclasses

from tests.compile.matrix.case import Case, names

_TEXT = names("""
    qwen3-0.6b llama-3.1-8b llama-3.2-1b llama-3.3-70b qwen2.5-7b qwen3-8b qwen3-30b-a3b qwen3-next-80b-a3b
    mistral-7b-v0.3 ministral-8b mixtral-8x7b gemma-2-9b gemma-3-1b phi-4 phi-4-mini gpt-oss-20b deepseek-v2-lite
    deepseek-v3 deepseek-v3.2 kimi-k2 glm-4-9b glm-4.5-air glm-4.7 glm-4.7-flash minimax-m2 nemotron-nano-9b-v2
    nemotron-3-nano-30b-a3b granite-4.0-h-small granite-4.0-h-micro granite-3.3-8b jamba-1.5-mini olmo-2-7b
    olmo-3-7b olmoe-1b-7b command-r-v01 command-a falcon-h1-7b seed-oss-36b ernie-4.5-0.3b ernie-4.5-21b-a3b
    hunyuan-7b hunyuan-a13b exaone-4.0-32b smollm3-3b lfm2-1.2b starcoder2-7b opt-125m mimo-7b kimi-linear-48b-a3b
""")

# Of these vLLM itself switches compilation off, in favour of its breakable CUDA graphs.
_OFF = ("deepseek-v3.2", "kimi-linear-48b-a3b")

# vLLM 0.33 serves these by its Transformers backend, of which it saves no artifact.
_TRANSFORMERS = names("olmo-2-7b olmo-3-7b seed-oss-36b smollm3-3b starcoder2-7b hunyuan-7b hunyuan-a13b")
_EXPERTS = r"Using (TRITON|'TRITON') \w+ MoE backend"


def _chosen(case: Case) -> Case:
    """Say what vLLM chooses on a Hopper GPU: FlashAttention, of its own kind for latent attention, and Triton experts."""
    operators = case.operators
    mla = any("mla" in name for name in operators)
    attention = "Using FLASH_ATTN_MLA attention backend" if mla else "Using FLASH_ATTN attention backend"
    experts = (_EXPERTS,) if any(name.startswith("moe_forward") for name in operators) else ()
    return case if case.nothing or case.refused else dataclasses.replace(case, log=(attention, *experts))


_CASES = (
    *(
        Case(
            name=name,
            topic="models",
            model=name,
            args=("--trust-remote-code",) if name == "mimo-7b" else (),
            max_len=2048 if name == "opt-125m" else 4096,
            nothing="compilation is off" if name in _OFF else "",
            refused="UnsupportedError: without saving an artifact of it" if name in _TRANSFORMERS else "",
        )
        for name in _TEXT
    ),
    # Without them too: its class has nothing that vLLM compiles.
    Case(
        name="deepseek-v3.2-compiled",
        topic="models",
        model="deepseek-v3.2",
        env={"VLLM_USE_BREAKABLE_CUDAGRAPH": "0"},
        nothing="no module that vLLM compiles",
    ),
)

CASES = tuple(_chosen(case) for case in _CASES)
