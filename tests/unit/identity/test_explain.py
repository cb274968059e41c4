"""Why two keys differ: the factor, both values, the cause in words, what to change. Cases are those that users reported."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.identity.conftest import CODE, FILES

from warmstart.gpus import load_catalog
from warmstart.identity import CodeFingerprint, Difference, Identity, explain
from warmstart.identity.serverlog import read_factors, read_log

Make = Callable[..., Identity]


def factors(env: dict[str, Any], **hashes: str) -> dict[str, Any]:
    """Return what `read_factors` makes of a cache_key_factors.json with these variables."""
    document = {"env": env, "config_hash": "c", "code_hash": "d", "compiler_hash": "e", **hashes}
    return read_factors(json.dumps(document).encode(), "cache_key_factors.json")


def one(a: Any, b: Any) -> Difference:
    (difference,) = explain(a, b)
    return difference


# Between two cache_key_factors.json of vLLM: what users met

REPORTED = [
    # dynamo#10695: a volume is mounted, and every pod has a new hash
    ("VLLM_NIXL_SIDE_CHANNEL_HOST", "10.4.0.7", "10.4.0.8", "pod's IP", "0.22"),
    # vllm#47573: same stack, other HOME and XDG paths, full recompile
    ("VLLM_CONFIG_ROOT", "/root/.config/vllm", "/home/app/.config/vllm", "HOME or XDG", "same HOME"),
    ("VLLM_XLA_CACHE_PATH", "/root/.cache/vllm/xla_cache", "/cache/vllm/xla_cache", "HOME or XDG", "same HOME"),
    # SkyRL#2167: the cache splits by engine
    ("VLLM_RAY_BUNDLE_INDICES", "0", "1", "Ray", "leaves the variable out"),
    # vllm#14953: launch error after another partition
    ("VLLM_PP_LAYER_PARTITION", "14,14", "20,8", "layers are spread", "same partition"),
    # FlyDSL#624: architecture variables set only where the cache was built
    ("TORCH_CUDA_ARCH_LIST", "9.0a", None, "one side only", "both sides or on neither"),
    ("VLLM_FLASHINFER_GPU_ARCH", None, "gfx942", "one side only", "both sides or on neither"),
    # an own variable with the pod's address or name
    ("VLLM_PLUGIN_PEER", "10.4.0.7", "10.4.0.8", "own address", "podIP"),
    ("VLLM_PLUGIN_PEER", "qwen-7c9d8f7b5-x2x9q", "qwen-7c9d8f7b5-8hk2p", "pod's own name", "metadata.name"),
    ("MOONCAKE_REQUESTER_LOCAL_HOSTNAME", "a", "b", "names the pod", "take it out"),
    # other mount points of one folder
    ("VLLM_PLUGIN_TABLES", "/mnt/a/tables", "/mnt/b/tables", "two roots", "same absolute path"),
    ("VLLM_USAGE_SOURCE", "unknown", "production-docker-image", "the image of one side", "own image"),
    ("VLLM_USE_V2_MODEL_RUNNER", True, False, "another value", "same value"),
]


@pytest.mark.parametrize(("name", "old", "new", "cause", "change"), REPORTED)
def test_a_variable_that_differs_is_explained(name: str, old: Any, new: Any, cause: str, change: str) -> None:
    difference = one(factors({name: old, "VLLM_SAME": 1}), factors({name: new, "VLLM_SAME": 1}))
    assert difference.factor == f"environment.{name}"
    assert (difference.old, difference.new) == (old, new)
    assert cause in difference.cause
    assert change in difference.change


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("config_hash", "engine's configuration"),
        ("code_hash", "source file"),
        ("compiler_hash", "torch, Triton"),
    ],
)
def test_a_hash_of_vllms_that_differs_says_where_to_look(name: str, cause: str) -> None:
    difference = one(factors({}), factors({}, **{name: "x"}))
    assert difference.factor == f"vllm_key.{name}"
    assert cause in difference.cause


# Between two identities of ours

OPTIONS = [
    # vllm#47356: a flag for a faster start changes the key
    ("--kv-cache-memory-bytes=8G", "KV cache", "exactly the server's options"),
    ("--num-gpu-blocks-override=512", "KV cache", "exactly the server's options"),
    # modelexpress: a prefill worker was handed a decode worker's cache
    ("--max-num-batched-tokens=16384", "prefill and decode", "each role"),
    ('--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_producer"}', "KV transfer", "each role"),
    ('--additional-config={"run": "2026-11-30"}', "all of --additional-config", "other in every pod"),
    # vllm#55383: LoRA wrapping is not in vLLM's key
    ("--enable-lora", "LoRA wraps", "LoRA options"),
    # vllm#32842: the encoder's mode was not hashed
    ("--mm-encoder-tp-mode=data", "multimodal", "multimodal options"),
    ('--speculative-config={"method":"ngram","num_speculative_tokens":3}', "speculation", "--speculative-config"),
    ("-O1", "configured differently", "-O level"),
    # vllm#24922: the streamer turned s3:// into unstable paths
    ("--load-format=runai_streamer", "another path", "s3:// paths"),
    ("--dtype=float16", "an option of the server", "exactly the server's options"),
]


@pytest.mark.parametrize(("option", "cause", "change"), OPTIONS)
def test_an_option_that_differs_is_explained(make: Make, option: str, cause: str, change: str) -> None:
    difference = one(make(args=()), make(args=(option,)))
    assert difference.factor.startswith("arguments.")
    assert difference.old is None
    assert cause in difference.cause
    assert change in difference.change


def test_parallelism_shows_as_option_and_as_layout(make: Make) -> None:
    found = {difference.factor: difference for difference in explain(make(), make(args=("--max-model-len=4096", "-tp=2")))}
    assert set(found) == {"arguments.tensor_parallel_size", "layout.tensor", "layout.ranks"}
    assert all("device's number" in difference.cause for difference in found.values())


def test_another_model_path_is_explained(make: Make) -> None:
    difference = one(make(), make(files=dataclasses.replace(FILES, model="/mnt/models/qwen")))
    assert difference.factor == "model.name"
    assert "named by another path" in difference.cause


def test_another_revision_shows_by_the_file_that_differs(make: Make) -> None:
    difference = one(make(), make(files=dataclasses.replace(FILES, digests={"config.json": "22"})))
    assert difference.factor == "model.files.config.json"
    assert "pin --revision" in difference.change


def test_another_build_is_explained(make: Make) -> None:
    # pytorch#144859: carried to a second machine, not used, nobody could say why
    difference = one(make(), make(code=CodeFingerprint({**CODE.packages, "torch": "2.14.0 sha256:zz"}, CODE.python)))
    assert difference.factor == "code.torch"
    assert "another build" in difference.cause


def test_another_gpu_shows_fact_by_fact(make: Make) -> None:
    found = explain(make(), make(gpu=load_catalog().get("h100-sxm")))
    assert "gpu.name" in {difference.factor for difference in found}
    assert all("--gpu" in difference.change for difference in found)


def test_another_root_is_explained(make: Make, tmp_path: Any) -> None:
    # marin#7615: the root is part of the inner keys
    difference = one(make(), make(cache_root=tmp_path))
    assert difference.factor == "cache_root"
    assert "same VLLM_CACHE_ROOT" in difference.change


def test_equal_identities_have_no_differences(make: Make) -> None:
    assert explain(make(), make()) == []


# Between an identity and what a server says


def test_an_entry_against_a_servers_factors_shows_what_was_set_differently(make: Make) -> None:
    ours = make(env={"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_ONLY_HERE": "1", "VLLM_EQUAL": "1"})
    server = factors({"VLLM_USE_V2_MODEL_RUNNER": True, "VLLM_EQUAL": True, "VLLM_DEFAULT": 5, "VLLM_HOST_IP": "10.0.0.1"})
    found = {difference.factor: (difference.old, difference.new) for difference in explain(ours, server)}
    assert found == {"environment.VLLM_USE_V2_MODEL_RUNNER": ("0", True), "environment.VLLM_ONLY_HERE": ("1", None)}


def test_a_per_pod_variable_in_the_servers_factors_is_told(make: Make) -> None:
    difference = one(make(), factors({"MOONCAKE_REQUESTER_LOCAL_HOSTNAME": "qwen-1"}))
    assert "every pod misses" in difference.cause


def test_an_entry_against_a_servers_log_shows_its_options(make: Make) -> None:
    line = (
        "(APIServer pid=1) INFO 11-30 07:00:00 [startup.py:96] non-default args: {'model_tag': 'Qwen/Qwen3-0.6B', "
        "'port': 8001, 'model': 'Qwen/Qwen3-0.6B', 'max_model_len': 8192, 'enable_lora': True}"
    )
    log = read_log([line])
    found = {difference.factor: (difference.old, difference.new) for difference in explain(make(), log.document())}
    assert found == {"arguments.max_model_len": (4096, 8192), "arguments.enable_lora": (None, True)}


def test_two_logs_show_the_engines_configuration() -> None:
    line = "INFO [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='m', dtype=torch.{}, max_seq_len=4096"
    a, b = (read_log([line.format(dtype)]).document() for dtype in ("bfloat16", "float16"))
    assert one(a, b).factor == "engine.dtype"


def test_a_difference_reads_as_text() -> None:
    text = one(factors({"VLLM_A": None}), factors({"VLLM_A": "x" * 500})).text()
    assert "(not set)" in text
    assert len(max(text.splitlines(), key=len)) < 250
