"""vLLM's options without vLLM: equal spellings are equal, different meanings differ."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.podspec.argument_lists import ARGUMENTS, OPTIONS, given_option

from warmstart.errors import SpecError, UnsupportedError
from warmstart.podspec.neutral import NEUTRAL
from warmstart.podspec.options import canonical, compile_factors, destination, known, split, table

EQUAL = [
    (["--max-model-len", "8k"], ["--max_model_len=8000"]),
    (["--max-model-len", "auto"], ["--max-model-len", "-1"]),
    (["-tp", "2"], ["--tensor-parallel-size=2"]),
    (["-tp", "4", "-tp", "2"], ["--tensor_parallel_size", "2"]),
    (["-O3"], ["--optimization-level", "3"]),
    (["-O", "3"], ["-O=3"]),
    (["--no-enable-prefix-caching"], ["--disable-prefix-caching"]),
    (["--hf-overrides", '{"a": 1, "b": {"c": 2}}'], ["--hf-overrides.b.c", "2", "--hf-overrides.a=1"]),
    (["--hf-overrides", '{"a":1,"b":2}'], ["--hf-overrides", '{ "b": 2, "a": 1 }']),
    (["-cc.mode", "3"], ["--compilation-config.mode=3"]),
    (["-cc.cudagraph_capture_sizes+=1,2"], ["--compilation-config", '{"cudagraph_capture_sizes": ["1", "2"]}']),
    (["--kv-transfer-config.kv_buffer_size", "2k"], ["--kv-transfer-config", '{"kv_buffer_size": 2000}']),
    (["--moe-backend", "deep-gemm"], ["--moe-backend", "DEEP_GEMM"]),
    (["--quantization", "None"], []),
    (["--dtype", "auto", "--seed", "0", "--no-enforce-eager"], []),
    (["--enable-exp"], ["-ep"]),
]
DIFFERENT = [
    (["--max-model-len", "8k"], ["--max-model-len", "8K"]),
    (["--hf-overrides", '{"a": 1}'], ["--hf-overrides", '{"a": "1"}']),
    (["--hf-overrides", '{"a": 1}'], ["--hf-overrides", '{"a": true}']),
    (["--cudagraph-capture-sizes", "1", "2"], ["--cudagraph-capture-sizes", "2", "1"]),
    (["--enable-prefix-caching"], ["--disable-prefix-caching"]),
    (["--enable-prefix-caching"], []),
    (["--compilation-config", '{"mode": 3}', "-cc.x", "1"], ["--compilation-config", '{"mode": 3, "x": 1}']),
    (["--quantization", "fp8"], ["--quantization", "FP8"]),
]


def key(args: list[str]) -> str:
    """Return the canonical form as a key would hold it."""
    return json.dumps(canonical(args), sort_keys=True)


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_equal_spellings_are_equal(one: list[str], other: list[str]) -> None:
    """Aliases, underscores, units, repetition, dotted options, defaults."""
    assert key(one) == key(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_meanings_differ(one: list[str], other: list[str]) -> None:
    """What vLLM would read differently is never folded."""
    assert key(one) != key(other)


def _read(args: list[str]) -> str | None:
    try:
        return key(args)
    except SpecError:
        return None


@settings(max_examples=120, deadline=None)
@given(lists=st.lists(given_option(), max_size=4), data=st.data())
def test_the_order_of_different_options_does_not_matter(lists: list[list[str]], data: st.DataObject) -> None:
    """The order of the same option's uses does: the last wins."""
    found = _read([word for words in lists for word in words])
    assume(found is not None)
    dests = [destination(words[0]) for words in lists]
    assume(None not in dests and len(set(dests)) == len(dests))
    shuffled = data.draw(st.permutations(lists))
    assert _read([word for words in shuffled for word in words]) == found


@settings(max_examples=120, deadline=None)
@given(args=ARGUMENTS, model=st.sampled_from(["M", "Qwen/Qwen3-8B", "/mnt/models", "2", "auto"]), place=st.integers(0, 3))
def test_the_model_is_found_wherever_it_stands(args: list[str], model: str, place: int) -> None:
    """First, last, or as an option, the rest of the list is untouched."""
    assume(_read(args) is not None)
    assert split([model, *args]) == (model, tuple(args))
    assert split([*args, "--model", model]) == (model, tuple(args))
    assert split([f"--model={model}", *args]) == (model, tuple(args))
    assert split(["--port", str(place), model, *args]) == (model, ("--port", str(place), *args))


@settings(max_examples=200, deadline=None)
@given(args=ARGUMENTS)
def test_compile_factors_are_the_canonical_form_without_neutral_options(args: list[str]) -> None:
    """Nothing else is left out."""
    if _read(args) is not None:
        full = canonical(args)
        assert compile_factors(args) == {dest: value for dest, value in full.items() if dest not in NEUTRAL}
        assert list(full) == sorted(full)


def test_neutral_options_are_options_and_each_has_a_reason() -> None:
    """A name that vLLM no longer has would hide a mistake."""
    assert set(NEUTRAL) <= {option.dest for option in table().options}
    assert all(reason.strip() for reason in NEUTRAL.values())


@pytest.mark.parametrize(
    "dest",
    [
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_model_len", "dtype", "quantization",
        "seed", "compilation_config", "optimization_level", "enforce_eager", "enable_lora", "max_lora_rank",
        "speculative_config",
        "max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization", "trust_remote_code", "revision", "hf_overrides",
        "load_format", "device_ids", "enable_layerwise_nvtx_tracing", "additional_config", "worker_cls", "nnodes",
    ],
)  # fmt: skip
def test_what_can_change_an_artifact_is_never_neutral(dest: str) -> None:
    """These stay in the key whatever is added to the list."""
    assert dest not in NEUTRAL
    assert dest in {option.dest for option in OPTIONS}


def test_what_differs_from_pod_to_pod_is_neutral() -> None:
    """Addresses, ports, names, credentials, ranks."""
    args = [
        "--host",
        "10.0.0.1",
        "--port",
        "1",
        "--api-key",
        "k",
        "--served-model-name",
        "a",
        "b",
        "--node-rank",
        "1",
        "--headless",
    ]
    assert compile_factors(args) == {}


def test_a_build_of_a_version_has_its_options_and_a_patch_release_those_of_its_line() -> None:
    """What a patch release may have changed, a default, is never left out as one."""
    default = ["--seed", "0", "--max-model-len", "8k"]
    assert canonical(default, "0.33.0+cu129") == canonical(default, "0.33.0") == {"max_model_len": 8000}
    assert canonical(default, "0.33.1") == {"max_model_len": 8000, "seed": 0}
    assert canonical(default, "0.26.2rc1") == {"max_model_len": 8000, "seed": 0}
    assert table("0.33.1").vllm == "0.33.0"


def test_each_line_reads_its_own_options() -> None:
    """An option that came later is none of an older version, by its name."""
    assert canonical(["--sleep-mode-backend", "x"], "0.33.0") == {"sleep_mode_backend": "x"}
    with pytest.raises(SpecError, match=r"vLLM 0\.32\.0 has no option --sleep-mode-backend"):
        canonical(["--sleep-mode-backend", "x"], "0.32.0")


def test_a_version_that_is_not_known_is_read_by_the_newest_options_until_it_is_refused() -> None:
    """A pod spec can be shown before its key is asked for."""
    assert [known(version) for version in ("0.26.0", "0.33.7", "0.34.0", "", "0.3")] == [
        "0.26.0", "0.33.7", "0.33.0", "0.33.0", "0.33.0",
    ]  # fmt: skip


def test_a_vllm_version_without_a_table_is_refused_by_name() -> None:
    """The message says what is supported."""
    with pytest.raises(UnsupportedError, match=r"vLLM 0\.1\.2 are not known; supported: 0\.33\.0"):
        canonical([], "0.1.2")
