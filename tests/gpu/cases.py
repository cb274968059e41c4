"""The servers that are proved on a GPU: real architectures with dummy weights, and what is special about each.

Each case is a model's configuration and the options and environment of `vllm serve`; everything else is the same for all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.gpu import models

# Weights are random numbers of a fixed seed. A KV cache of fixed size lets many servers share a GPU.
COMMON = (
    *("--max-model-len", "4096", "--load-format", "dummy"),
    *("--kv-cache-memory-bytes", str(2 << 30), "--gpu-memory-utilization", "0.3"),
)
# Without the network; FlashInfer's sampler, which is not part of torch.compile, would be built at the first start.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
# DeepGEMM would compile every kernel that it may ever need, for minutes, before the server is ready.
NO_WARMUP = (("VLLM_DEEP_GEMM_WARMUP", "skip"),)
# Workspaces of the fused all-reduce that need no NVLink multicast: it is shared with every other program on the host.
NO_MULTICAST = (("VLLM_FLASHINFER_ALLREDUCE_BACKEND", "trtllm"), ("VLLM_ALLREDUCE_USE_SYMM_MEM", "0"))


@dataclasses.dataclass(frozen=True)
class Case:
    """One server. `model` writes its configuration into a folder and returns the folder that `vllm serve` is given.

    `{folder}` in `args` stands for that folder's parent, where further models lie. `fused` are words that the generated code
    of every rank must hold. `beside` are kernels of functions that a layer compiles by itself when it runs, outside of what
    vLLM keeps. `timed` says that a server chooses matrix products by timing them, which a pass without a GPU cannot.
    """

    name: str
    model: Callable[[Path], Path]
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    modules: int = 1
    gpus: int = 1
    fused: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    timed: bool = False

    def server(self, folder: Path) -> Server:
        """Write the model below `folder` and return the server."""
        model = self.model(folder / "model")
        args = tuple(word.replace("{folder}", str(folder)) for word in self.args)
        return Server(str(model), (*COMMON, *args), {**ENVIRONMENT, **dict(self.env)}, self.gpus)


@dataclasses.dataclass(frozen=True)
class Server:
    """What `vllm serve MODEL ARGS` is given, the variables that are set for it, and how many GPUs it takes."""

    model: str
    args: tuple[str, ...]
    env: dict[str, str]
    gpus: int = 1

    def pod(self) -> dict[str, Any]:
        """Return a pod that runs it, as `warmstart` is handed one."""
        container = {
            "name": "vllm",
            "image": "vllm",
            "command": ["vllm", "serve", self.model],
            "args": list(self.args),
            "env": [{"name": name, "value": value} for name, value in self.env.items()],
            "resources": {"limits": {"nvidia.com/gpu": self.gpus}},
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proof"}, "spec": {"containers": [container]}}


def _compilation(**settings: Any) -> tuple[str, ...]:
    return ("--compilation-config", json.dumps(settings))


_EAGLE = json.dumps({"method": "eagle", "model": "FOLDER/draft", "num_speculative_tokens": 3}).replace("FOLDER", "{folder}")
_NGRAM = json.dumps({"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4})
_TRITON_GDN = ("--additional-config", json.dumps({"gdn_prefill_backend": "triton"}))
# The activation of shared experts.
_ACTIVATION = ("triton_poi_fused_mul_silu_slice_0",)
# The rank of a token, for log probabilities (batched_count_greater_than): compiled by the first request for one.
_RANK = ("triton_red_fused_ge_sum_0",)
_FUSED = ("flashinfer_trtllm_fused_allreduce_norm",)

CASES = (
    Case("dense", models.published),
    Case("llama-8b", models.llama_8b),
    Case("llama-8b-whole", models.llama_8b_whole, ("--kv-cache-memory-bytes", str(8 << 30))),
    Case("gemma3", models.gemma3),
    Case("qwen3-30b-a3b", models.qwen3_30b_a3b),
    Case("mixtral", models.mixtral),
    Case("gpt-oss-mxfp4", models.gpt_oss, ("--dtype", "bfloat16")),
    Case("deepseek-mla", models.deepseek_v2_lite, beside=_ACTIVATION),
    Case("qwen3-next-gdn", models.qwen3_next),
    Case("qwen3-next-gdn-triton", models.qwen3_next, _TRITON_GDN, beside=_ACTIVATION),
    Case("granite-mamba2", models.granite_hybrid),
    Case("fp8-online", models.narrow(), ("--quantization", "fp8")),
    Case("fp8-block", models.narrow(quantization_config=models.FP8_BLOCK), env=NO_WARMUP),
    Case("fp8-static", models.narrow(quantization_config=models.FP8_STATIC)),
    Case("fp8-block-moe", models.moe(quantization_config=models.FP8_BLOCK), env=NO_WARMUP),
    Case("fp8-kv-cache", models.narrow(), ("--kv-cache-dtype", "fp8")),
    Case("compressed-fp8", models.narrow(quantization_config=models.W8A8_FP8)),
    Case("compressed-w4a16", models.narrow(quantization_config=models.W4A16)),
    Case("lora", models.narrow(), ("--enable-lora", "--max-lora-rank", "16")),
    Case("eagle", models.with_draft, ("--speculative-config", _EAGLE), modules=2),
    Case("ngram", models.narrow(), ("--speculative-config", _NGRAM)),
    Case("v1-runner", models.narrow(), env=(("VLLM_USE_V2_MODEL_RUNNER", "0"),), beside=_RANK),
    Case("o1", models.narrow(), ("-O1",)),
    Case("o3", models.narrow(), ("-O3",)),
    Case("ranges", models.narrow(), _compilation(compile_ranges_endpoints=[512])),
    Case("sizes", models.narrow(), _compilation(compile_sizes=[1, 8]), timed=True),
    Case("long", models.narrow(), ("--max-model-len", "32768")),
    Case("batches", models.narrow(), ("--max-num-batched-tokens", "2048", "--max-num-seqs", "64")),
    Case("float16", models.narrow(), ("--dtype", "float16")),
    Case("tp2", models.published, ("--tensor-parallel-size", "2"), NO_MULTICAST, gpus=2, fused=_FUSED),
    Case(
        "tp2-ep", models.moe(), ("--tensor-parallel-size", "2", "--enable-expert-parallel"), NO_MULTICAST, gpus=2, fused=_FUSED
    ),
    Case("pp2", models.narrow(), ("--pipeline-parallel-size", "2"), NO_MULTICAST, gpus=2),
)
