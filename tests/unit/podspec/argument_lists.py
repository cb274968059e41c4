"""Hypothesis strategies for argument lists of `vllm serve`, drawn from the table of options, in every spelling vLLM takes."""

from __future__ import annotations

import importlib.metadata
import json

from hypothesis import strategies as st

from warmstart.podspec.options import Option, known, table

VERSION = known(importlib.metadata.version("vllm"))
_LEFT_OUT = ("model", "config", "lora_modules", "log_config_file")
OPTIONS = [option for option in table(VERSION).options if option.dest not in _LEFT_OUT]
CONFIG_FIELDS = {
    "compilation_config": [
        ("mode", "3"),
        ("cudagraph_capture_sizes+", "1,2,4"),
        ("pass_config.fuse_norm_quant", "true"),
        ("cache_dir", "/c"),
    ],
    "speculative_config": [("method", "ngram"), ("num_speculative_tokens", "3"), ("prompt_lookup_max", "4")],
    "kv_transfer_config": [("kv_connector", "NixlConnector"), ("kv_role", "kv_both"), ("kv_buffer_size", "2k")],
    "hf_overrides": [("num_hidden_layers", "2"), ("text_config.hidden_size", "1k")],
    "eplb_config": [("window_size", "100"), ("step_interval", "2k")],
    "limit_mm_per_prompt": [("image", "2"), ("video.count", "1")],
}
WORDS = st.sampled_from(
    ["auto", "x", "a b", "None", "", "none", "bfloat16", "-1", "0.5", "$PORT", "a.b", "a=b", "/m/x", "Qwen/Qwen3-8B", "ä"]
)
NUMBERS = st.integers(-2, 9999).map(str)
READABLE = st.one_of(NUMBERS, st.sampled_from(["8k", "8K", "2.5k", "1.5K", "1m", "3G", "1.1t", " 7 ", "x", "auto", "AUTO"]))
JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "1k", "x_y"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b", "c_d"]), inner, max_size=2),
    max_leaves=4,
).map(json.dumps)
BY_TYPE = {
    "str": WORDS,
    "int": st.one_of(NUMBERS, WORDS),
    "float": st.one_of(NUMBERS, st.sampled_from(["0.9", "1e-3", "nan", ".5", "x"])),
    "json": st.one_of(JSON_TEXT, WORDS),
    "human_int": READABLE,
    "human_int_or_auto": READABLE,
    "config": st.one_of(JSON_TEXT, WORDS),
    "json_or_str": st.one_of(JSON_TEXT, WORDS),
    "device_ids": st.sampled_from(["0", "0,1", " 2 , GPU-x ", ""]),
    "backend": st.sampled_from(["auto", "Cutlass", "deep-gemm", "triton", "x"]),
    "reasoning_parser": st.sampled_from(["none", "NONE", "qwen3"]),
}


@st.composite
def spelled(draw: st.DrawFn, option: Option) -> str:
    """Draw one spelling of an option's name: an alias, underscores, or an abbreviation."""
    name = draw(st.sampled_from(option.strings))
    how = draw(st.sampled_from(["as it is", "as it is", "underscores", "abbreviated"]))
    if how == "underscores" and name.startswith("--"):
        return "--" + name[2:].replace("-", "_")
    if how == "abbreviated" and name.startswith("--"):
        short = name[: draw(st.integers(len(name) // 2, len(name)))]
        return name if short == "--model" else short  # that is the model, not an option
    return name


@st.composite
def given_option(draw: st.DrawFn) -> list[str]:
    """Draw one option with its value or values."""
    if draw(st.integers(0, 9)) == 0:
        return draw(
            st.sampled_from([["-O3"], ["-O", "2"], ["-O=1"], ["-O.mode=3"], ["-O0"], ["--nope"], ["-x"], ["--seed"], ["-tp=4"]])
        )
    if draw(st.integers(0, 4)) == 0:
        dest = draw(st.sampled_from(sorted(CONFIG_FIELDS)))
        option = next(option for option in OPTIONS if option.dest == dest)
        field, value = draw(st.sampled_from(CONFIG_FIELDS[dest]))
        name = draw(spelled(option))
        return draw(st.sampled_from([[f"{name}.{field}={value}"], [f"{name}.{field}", value]]))
    option = draw(st.sampled_from(OPTIONS))
    name = draw(spelled(option))
    if option.action in ("switch", "store_true"):
        return [name]
    values = st.sampled_from(option.choices).map(str) if option.choices and draw(st.booleans()) else BY_TYPE[option.type]
    if option.nargs == "?" and draw(st.booleans()):
        return [name]
    if option.nargs == "+":
        return [name, *draw(st.lists(values, min_size=1, max_size=3))]
    value = draw(values)
    return draw(st.sampled_from([[name, value], [f"{name}={value}"]]))


ARGUMENTS = st.lists(given_option(), max_size=5).map(lambda lists: [word for words in lists for word in words])
