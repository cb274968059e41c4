"""The servers that are proved on a GPU: real architectures with dummy weights, and what is special about each.

Each case is a model's configuration and the options and environment of `vllm serve`; everything else is the same for all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compile.models import EXAMPLE, narrow

# Weights are random numbers and there is no tokenizer, so that a config.json is a whole model. A small share of the memory will
# do: nothing is asked of the servers.
COMMON = (
    *("--max-model-len", "4096", "--load-format", "dummy", "--skip-tokenizer-init"),
    *("--gpu-memory-utilization", "0.4"),
)
# Without the network; and FlashInfer's sampler, which is not part of torch.compile, would be built at the first start.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}

_NOT_LLAMA = ("use_sliding_window", "sliding_window", "max_window_layers")


@dataclasses.dataclass(frozen=True)
class Case:
    """One server. `model` writes its configuration into a folder and returns the folder that `vllm serve` is given.

    `{folder}` in `args` stands for that folder's parent, where further models lie.
    """

    name: str
    model: Callable[[Path], Path]
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    modules: int = 1

    def server(self, folder: Path) -> Server:
        """Write the model below `folder` and return the server."""
        model = self.model(folder / "model")
        args = tuple(word.replace("{folder}", str(folder)) for word in self.args)
        return Server(str(model), (*COMMON, *args), {**ENVIRONMENT, **dict(self.env)})


@dataclasses.dataclass(frozen=True)
class Server:
    """What `vllm serve MODEL ARGS` is given, and the variables that are set for it."""

    model: str
    args: tuple[str, ...]
    env: dict[str, str]

    def pod(self) -> dict[str, Any]:
        """Return a pod that runs it, as `warmstart` is handed one."""
        container = {
            "name": "vllm",
            "image": "vllm",
            "command": ["vllm", "serve", self.model],
            "args": list(self.args),
            "env": [{"name": name, "value": value} for name, value in self.env.items()],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "proof"}, "spec": {"containers": [container]}}


def published(_folder: Path) -> Path:
    """Return the published configuration of Qwen3-0.6B."""
    return EXAMPLE


def moe(folder: Path) -> Path:
    """Write a Qwen3 mixture of eight narrow experts."""
    return narrow(
        folder,
        architectures=["Qwen3MoeForCausalLM"],
        model_type="qwen3_moe",
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=256,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        mlp_only_layers=[],
        output_router_logits=False,
        router_aux_loss_coef=0.001,
    )


def fp8_block(folder: Path) -> Path:
    """Write a model whose checkpoint is FP8 with scales for blocks of 128 by 128."""
    scheme = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
    return narrow(folder, quantization_config=scheme)


def with_draft(folder: Path) -> Path:
    """Write a target, and an EAGLE draft model beside it."""
    draft = narrow(
        folder.parent / "draft",
        architectures=["LlamaForCausalLMEagle"],
        model_type="llama",
        num_hidden_layers=1,
        head_dim=64,
    )
    config = json.loads((draft / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in _NOT_LLAMA}
    (draft / "config.json").write_text(json.dumps(kept, indent=1))
    return narrow(folder)


_EAGLE = json.dumps({"method": "eagle", "model": "FOLDER/draft", "num_speculative_tokens": 3}).replace("FOLDER", "{folder}")

CASES = (
    Case("dense", published),
    Case("moe", moe),
    Case("fp8-online", narrow, ("--quantization", "fp8")),
    Case("fp8-block", fp8_block),
    Case("lora", narrow, ("--enable-lora", "--max-lora-rank", "16")),
    Case("eagle", with_draft, ("--speculative-config", _EAGLE), modules=2),
    Case("v1-runner", narrow, env=(("VLLM_USE_V2_MODEL_RUNNER", "0"),)),
    Case("o1", narrow, ("-O1",)),
    Case("ranges", narrow, ("--compilation-config", '{"compile_ranges_endpoints":[512]}')),
)
