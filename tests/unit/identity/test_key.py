"""The key changes with everything that decides a compiled cache, and with nothing that differs from pod to pod."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.identity.conftest import CODE, FILES

from warmstart.errors import EntryInvalid, SpecError, UnsupportedError
from warmstart.gpus import GpuProfile, load_catalog
from warmstart.identity import CodeFingerprint, Identity, ModelFiles

Make = Callable[..., Identity]

NEUTRAL = {
    "the port": {"args": ("--max-model-len=4096", "--port=9000")},
    "the host": {"args": ("--max-model-len=4096", "--host", "10.1.2.3")},
    "the served name": {"args": ("--max-model-len=4096", "--served-model-name", "qwen")},
    "the order and spelling of options": {"args": ("--max_model_len", "4096")},
    "an option given twice": {"args": ("--max-model-len=1", "--max-model-len=4096")},
    "an option at its default": {"args": ("--max-model-len=4096", "--tensor-parallel-size=1")},
    "the API key": {"args": ("--max-model-len=4096", "--api-key=secret"), "env": {"VLLM_API_KEY": "secret"}},
    "the pod's IP": {"env": {"VLLM_HOST_IP": "10.0.0.7", "POD_IP": "10.0.0.7"}},
    "an address under a name that vLLM may read": {"env": {"VLLM_SOMETHING_NEW": "10.0.0.7"}},
    "an IPv6 address under such a name": {"env": {"VLLM_SOMETHING_NEW": "fd00::17"}},
    "the host name": {"env": {"HOSTNAME": "qwen-7d9f-abcde"}},
    "vLLM's port": {"env": {"VLLM_PORT": "30001", "VLLM_DP_MASTER_PORT": "29500"}},
    "the NIXL side channel": {"env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7"}},
    "HOME": {"env": {"HOME": "/home/other", "XDG_CACHE_HOME": "/var/cache"}},
    "paths of vLLM's own": {"env": {"VLLM_CACHE_ROOT": "/c", "VLLM_CONFIG_ROOT": "/d", "VLLM_ASSETS_CACHE": "/e"}},
    "Triton's and Inductor's folders": {"env": {"TRITON_CACHE_DIR": "/t", "TORCHINDUCTOR_CACHE_DIR": "/i"}},
    "the worker's number": {"env": {"LOCAL_RANK": "3", "VLLM_RAY_BUNDLE_INDICES": "1,2", "RANK": "7"}},
    "which devices are visible": {"env": {"CUDA_VISIBLE_DEVICES": "4,5"}},
    "the logging": {"env": {"VLLM_LOGGING_LEVEL": "DEBUG", "TORCH_LOGS": "+dynamo"}},
    "the hash seed": {"env": {"PYTHONHASHSEED": "123"}},
    "the node's rank": {"args": ("--max-model-len=4096", "--node-rank=1", "--master-addr=leader", "--headless")},
    "the container's name": {"container": "server"},
    "the image's name": {"image": "mirror.example/vllm-openai:v0.33.0"},
    "more GPUs than ranks": {"gpu_count": 8},
}

DECISIVE: dict[str, dict[str, Any]] = {
    "the model's name": {"files": dataclasses.replace(FILES, model="/models/qwen")},
    "a model file": {"files": dataclasses.replace(FILES, digests={"config.json": "22"})},
    "one more model file": {"files": dataclasses.replace(FILES, digests={"config.json": "11", "hf_quant_config.json": "3"})},
    "the draft model": {"files": dataclasses.replace(FILES, related={"speculative": FILES})},
    "vLLM's code": {"code": CodeFingerprint({**CODE.packages, "vllm": "0.33.0 sha256:ab"}, CODE.python)},
    "torch's code": {"code": CodeFingerprint({**CODE.packages, "torch": "2.14.0 sha256:ab"}, CODE.python)},
    "a package that appears": {"code": CodeFingerprint({**CODE.packages, "flashinfer-python": "0.7"}, CODE.python)},
    "Python's version": {"code": CodeFingerprint(CODE.packages, {**CODE.python, "version": "3.12"})},
    "the machine": {"code": CodeFingerprint(CODE.packages, {**CODE.python, "machine": "aarch64"})},
    "the model's length": {"args": ("--max-model-len=8192",)},
    "the quantisation": {"args": ("--max-model-len=4096", "--quantization=fp8")},
    "the dtype": {"args": ("--max-model-len=4096", "--dtype=float16")},
    "the KV cache's dtype": {"args": ("--max-model-len=4096", "--kv-cache-dtype=fp8")},
    "the batch limits": {"args": ("--max-model-len=4096", "--max-num-batched-tokens=2048")},
    "LoRA": {"args": ("--max-model-len=4096", "--enable-lora")},
    "the number of speculative tokens": {
        "args": ("--max-model-len=4096", '--speculative-config={"method":"ngram","num_speculative_tokens":3}')
    },
    "the compilation": {"args": ("--max-model-len=4096", "-O1")},
    "tensor parallelism": {"args": ("--max-model-len=4096", "-tp=2")},
    "pipeline parallelism": {"args": ("--max-model-len=4096", "-pp=2")},
    "data parallelism": {"args": ("--max-model-len=4096", "-dp=2")},
    "the number of nodes": {"args": ("--max-model-len=4096", "-tp=2", "--nnodes=2")},
    "the devices of a pod": {"args": ("--max-model-len=4096", "-tp=4"), "gpu_count": 2},
    "the revision asked for": {"args": ("--max-model-len=4096", "--revision=main")},
    "overrides of the config": {"args": ("--max-model-len=4096", '--hf-overrides={"num_hidden_layers": 2}')},
    "a variable of vLLM's": {"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}},
    "a variable that a later vLLM may read": {"env": {"VLLM_SOMETHING_NEW": "1"}},
    "the spread of layers": {"env": {"VLLM_PP_LAYER_PARTITION": "14,14"}},
    "a variable of torch's": {"env": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}},
    "a variable of Triton's": {"env": {"TRITON_DISABLE_LINE_INFO": "1"}},
    "a variable of FlashInfer's": {"env": {"FLASHINFER_CUDA_ARCH_LIST": "9.0a"}},
    "another hub": {"env": {"VLLM_USE_MODELSCOPE": "1"}},
    "the cache root, where it counts": {"cache_root": Path("/var/cache/vllm")},
}


@pytest.mark.parametrize("what", NEUTRAL)
def test_what_differs_from_pod_to_pod_does_not_change_the_key(make: Make, what: str) -> None:
    assert make(**NEUTRAL[what]).key == make().key


@pytest.mark.parametrize("what", DECISIVE)
def test_what_decides_the_artifact_changes_the_key(make: Make, what: str) -> None:
    assert make(**DECISIVE[what]).key != make().key


def test_all_decisive_changes_lead_to_different_keys(make: Make) -> None:
    keys = {make(**changes).key for changes in DECISIVE.values()}
    assert len(keys) == len(DECISIVE)


def test_every_gpu_type_of_the_catalog_has_a_key_of_its_own_unless_its_facts_are_equal(make: Make) -> None:
    facts: dict[str, str] = {}
    for profile in load_catalog():
        facts.setdefault(make(gpu=profile).key, profile.digest())
    assert len(facts) == len(set(facts.values())) == len({profile.digest() for profile in load_catalog()})


def test_each_fact_of_a_gpu_changes_the_key_and_its_name_in_the_catalog_does_not(make: Make, h200: GpuProfile) -> None:
    base = make().key
    assert make(gpu=dataclasses.replace(h200, id="other", verified=not h200.verified, sources={})).key == base
    for field, value in h200.facts().items():
        changed = {"name": "NVIDIA X", "capability": (9, 9)}.get(field) or (int(value) + 1)  # type: ignore[call-overload]
        assert make(gpu=dataclasses.replace(h200, **{field: changed})).key != base, field


def test_the_key_is_the_sha256_of_the_canonical_json(make: Make) -> None:
    identity = make()
    text = json.dumps(identity.factors, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert identity.key == hashlib.sha256(text.encode()).hexdigest()
    assert json.loads(text) == identity.factors


def test_the_pods_environment_goes_over_the_images(make: Make) -> None:
    image = {"VLLM_USAGE_SOURCE": "production-docker-image", "VLLM_X": "1", "PATH": "/bin"}
    identity = make(image_env=image, env={"VLLM_X": "2"})
    assert identity.factors["environment"] == {"VLLM_USAGE_SOURCE": "production-docker-image", "VLLM_X": "2"}


def test_what_looks_like_a_credential_is_published_as_a_digest_only(make: Make) -> None:
    identity = make(env={"VLLM_PLUGIN_SECRET_TOKEN": "hunter2"})
    assert "hunter2" not in json.dumps(identity.factors)
    assert identity.key != make(env={"VLLM_PLUGIN_SECRET_TOKEN": "hunter3"}).key


def test_data_parallel_ranks_of_one_pod_number_its_devices_on(make: Make) -> None:
    layout = make(args=("-tp=2", "-dp=4", "--data-parallel-size-local=2"), gpu_count=4).factors["layout"]
    assert layout == {"tensor": 2, "pipeline": 1, "data": 4, "nodes": 1, "ranks": 8, "devices_per_pod": 4}


def test_a_server_without_vllm_at_hand_has_no_key(make: Make) -> None:
    with pytest.raises(UnsupportedError, match="vllm is not installed here"):
        make(code=CodeFingerprint({"vllm": "absent"}, {}))


def test_a_vllm_whose_options_are_not_known_is_refused_by_its_version(make: Make) -> None:
    with pytest.raises(UnsupportedError, match=r"0\.99\.0"):
        make(code=CodeFingerprint({"vllm": "0.99.0 sha256:aa"}, {}))


def test_arguments_that_vllm_would_refuse_are_refused(make: Make) -> None:
    with pytest.raises(SpecError, match="no option --max-model-lenn"):
        make(args=("--max-model-lenn=1",))


def test_an_entry_whose_factors_give_another_key_is_invalid(make: Make) -> None:
    identity = make()
    assert Identity.from_factors(identity.factors, identity.key).key == identity.key
    with pytest.raises(EntryInvalid, match="give another key"):
        Identity.from_factors({**identity.factors, "pass": 99}, identity.key)


def test_text_that_is_not_unicode_still_gets_a_key(make: Make) -> None:
    assert make(files=ModelFiles(model="a\udcff", source="", digests={})).key != make().key
