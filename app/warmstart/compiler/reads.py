"""Where vLLM asks a weight for its value and takes a branch on it, and which way a checkpoint's weights take that branch.

A pass has no weights. Each place below is one where libraries look at values while weights are loaded and post-processed; it
is answered as checkpoints of that kind answer it. A place that is not here makes the pass fail by name: the graph might be
another. Where checkpoints differ in the answer, and with it in the graph, the pass is refused: vLLM's own key does not tell
them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from warmstart.errors import UnsupportedError

MARK = 1.0009765625
"""What a weight's value is where code keeps it as a number: in generated code it would be seen. Exact in half precision."""


class Read(NamedTuple):
    """One place: module and function as `hybrid.place` names them, a beginning is enough.

    `answer` is what a comparison of values comes to. `refused` says why no answer would do.
    """

    place: str
    answer: bool
    why: str
    refused: str = ""


_HUMMING = (
    "humming on sm_90 lays these weights out by their values, and vLLM's key does not hold them; "
    "serve with --linear-backend marlin --moe-backend marlin, or let the server's first start compile"
)

READS: tuple[Read, ...] = (
    Read(
        "vllm.model_executor.layers.quantization.kv_cache",
        True,
        "scales of the KV cache, in the checkpoint or not, are numbers that attention reads; no layout depends on them",
    ),
    Read(
        "vllm.model_executor.layers.quantization.utils.w8a8_utils:all_close_1d",
        True,
        "scales that differ between experts only make vLLM warn",
    ),
    Read(
        "vllm.model_executor.layers.quantization.utils.w8a8_utils:requantize_with_max_scale",
        True,
        "whether the parts had one scale on disk or several decides their values after loading, not their layout",
    ),
    Read(
        "vllm.model_executor.layers.quantization.modelopt:KFp8StaticTensor.process",
        True,
        "parts with different scales are given the largest: other values, the same layout",
    ),
    Read(
        "vllm.model_executor.layers.quantization.modelopt:KNvfp4Static.process",
        False,
        "whether a scale was left unloaded (still NaN), which ends a server too",
    ),
    Read(
        "vllm.model_executor.layers.quantization.modelopt:ModelOptNvFp4FusedMoE.process_weights_after_loading",
        True,
        "experts whose two parts have different scales make vLLM warn; it takes the first",
    ),
    Read(
        "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors_moe."
        "compressed_tensors_moe_w4a4_nvfp4:CompressedTensorsW4A4Nvfp4MoEMethod.process_weights_after_loading",
        True,
        "experts whose two parts have different scales make vLLM warn; it takes the first",
    ),
    Read(
        "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4:nvfp4_marlin_process_scales",
        True,
        "scales below zero only make vLLM warn",
    ),
    Read(
        "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4:_nvfp4_compute_scale_factor",
        True,
        "the factor moves from one scale to another",
    ),
    Read(
        "vllm.model_executor.layers.quantization.modelopt:_DropInputScale.post_process",
        True,
        "whether a checkpoint holds a scale that is dropped, which vLLM warns of",
    ),
    Read(
        "vllm.model_executor.layers.quantization.modelopt_block_quant:",
        True,
        "whether scales are finite, without which a server ends too",
    ),
    Read(
        "vllm.model_executor.layers.quantization.utils.quant_utils:",
        True,
        "whether scales are finite and above zero, without which a server ends too",
    ),
    Read(
        "vllm.model_executor.layers.quantization.quark.quark_moe:",
        True,
        "experts whose two parts have different scales make vLLM warn; it takes the first",
    ),
    Read(
        "humming.schema.base:BaseWeightSchema",
        True,
        "tools that write NVFP4 give parts that are multiplied together one scale; with several, humming keeps one a channel",
        _HUMMING,
    ),
    Read(
        "humming.schema.humming:HummingWeightSchema.convert_symmetric_integer_weight",
        True,
        "a weight of the lowest code, which round-to-nearest and GPTQ write and symmetric training does not",
        _HUMMING,
    ),
)


def refuse_baked(code: Iterable[Path]) -> None:
    """Refuse generated code that holds a weight's value as a number.

    Raises:
        UnsupportedError: it does, so another checkpoint of the same configuration needs other code, and vLLM's key is the same.

    """
    for path in code:
        if str(MARK) in path.read_text(errors="replace"):
            raise UnsupportedError(
                f"the generated code holds the value of a weight as a constant ({path.name}), and a pass has no weights",
                hint="let the server's first start compile",
            )


def known(place: str) -> Read | None:
    """Return what is known of a place, None where nothing is."""
    return next((read for read in READS if place.startswith(read.place)), None)
