"""What vLLM learns from a checkpoint's safetensors headers counts in the key; what the headers say besides does not."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.identity.conftest import CONFIG, REQUEST
from tests.unit.identity.hub_server import Hub, serve

from warmstart.errors import ModelFilesError
from warmstart.identity import request_files

PLAIN = {"model.embed_tokens.weight": "BF16", "model.layers.0.mlp.up_proj.weight": "BF16"}
PACKED = {"model.embed_tokens.weight": "BF16", "model.layers.0.mlp.up_proj.qweight": "I32"}
UNTIED = {**CONFIG, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
TIED = {**UNTIED, "tie_word_embeddings": True}
AWQ = {**UNTIED, "quantization_config": {"quant_method": "awq", "bits": 4}}


def weights(tensors: Mapping[str, str], data: int = 64) -> bytes:
    """Return a safetensors file: its header, and zeros for data."""
    header = {name: {"dtype": dtype, "shape": [1], "data_offsets": [0, 2]} for name, dtype in tensors.items()}
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(data)


def facts(folder: Path, config: Mapping[str, object], tensors: Mapping[str, str] | None, *args: str) -> dict[str, str]:
    """Return what of a checkpoint's headers counts for a server on a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        (folder / "model.safetensors").write_bytes(weights(tensors))
    request = dataclasses.replace(REQUEST, model=str(folder), args=args)
    digests = request_files(request, folder=None, env={}).digests
    return {name: value for name, value in digests.items() if name.startswith("headers: ")}


def test_an_lm_head_of_its_own_counts_where_the_configuration_says_that_it_is_tied(tmp_path: Path) -> None:
    """Then the embeddings are untied, and vLLM holds that in its key; tools that quantise or tune often keep such a copy."""
    head = {**PLAIN, "lm_head.weight": "BF16"}
    assert facts(tmp_path, TIED, head) == {"headers: lm_head of its own": "present"}
    assert facts(tmp_path, UNTIED, head) == {}
    assert facts(tmp_path, TIED, PLAIN) == {}
    assert facts(tmp_path, TIED, head, "--load-format", "dummy") == {}


def test_configuration_files_alone_give_the_key_of_a_checkpoint_that_tells_nothing_more(tmp_path: Path) -> None:
    assert facts(tmp_path / "alone", TIED, None) == facts(tmp_path / "weights", TIED, PLAIN) == {}


def test_the_layers_that_awq_and_gptq_cover_count(tmp_path: Path) -> None:
    """Which layers, not their sizes; and not where the configuration names them, for vLLM then does not look."""
    packed = facts(tmp_path, AWQ, PACKED)
    assert set(packed) == {"headers: quantised layers"}
    assert facts(tmp_path, AWQ, {**PACKED, "model.layers.0.mlp.up_proj.scales": "F16"}) == packed
    assert facts(tmp_path, AWQ, PLAIN) != packed
    named = {"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["self_attn.q_proj"]]}
    assert facts(tmp_path, {**UNTIED, "quantization_config": named}, PACKED) == {}
    assert set(facts(tmp_path, UNTIED, PACKED, "--quantization", "gptq_marlin")) == {"headers: quantised layers"}


def test_the_dtypes_count_where_the_configuration_names_none(tmp_path: Path) -> None:
    nameless = {name: value for name, value in UNTIED.items() if name != "torch_dtype"}
    assert facts(tmp_path, nameless, {"a.weight": "F32", "b.weight": "BF16"}) == {"headers: dtypes of its tensors": "BF16 F32"}
    assert facts(tmp_path, nameless, PLAIN, "--dtype", "float16") == {}
    assert facts(tmp_path, {**nameless, "text_config": {"dtype": "float16"}}, PLAIN) == {}


def test_consolidated_files_count_where_there_is_a_configuration_in_mistrals_format(tmp_path: Path) -> None:
    """By their names alone vLLM takes params.json instead of config.json."""
    (tmp_path / "params.json").write_text("{}")
    (tmp_path / "consolidated.safetensors").write_bytes(weights(PLAIN))
    assert facts(tmp_path, UNTIED, None) == {"headers: consolidated files": "present"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        struct.pack("<Q", 9) + b"{",
        struct.pack("<Q", 1 << 40) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"{..}",
        struct.pack("<Q", 7) + b'{"a":1}',
    ],
)
def test_a_file_that_holds_no_header_is_named(tmp_path: Path, content: bytes) -> None:
    """A Git LFS pointer, a download that was cut, a header longer than the format allows, and what is not JSON."""
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelFilesError, match=r"model\.safetensors") as caught:
        facts(tmp_path, TIED, None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sharded", [False, True])
def test_the_hub_is_asked_for_the_first_bytes_only_and_gives_the_same_facts(tmp_path: Path, *, sharded: bool) -> None:
    """Range requests of the header, whole weights never; one file, or the shards that the index names."""
    checkpoint = weights({**PLAIN, "lm_head.weight": "BF16"}, data=4 << 20)
    files = {"config.json": json.dumps(TIED).encode()}
    if sharded:
        files |= {"model-1.safetensors": checkpoint, "other.safetensors": b"not asked for"}
        files["model.safetensors.index.json"] = json.dumps({"weight_map": {"lm_head.weight": "model-1.safetensors"}}).encode()
    else:
        files["model.safetensors"] = checkpoint
    with serve(Hub(files)) as hub:
        digests = request_files(
            dataclasses.replace(REQUEST, args=()), folder=None, env={"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
        ).digests
        assert digests["headers: lm_head of its own"] == "present"
        assert hub.sent < 1 << 20


def test_a_checkpoint_without_safetensors_on_the_hub_has_no_facts(tmp_path: Path) -> None:
    with serve(Hub({"config.json": json.dumps(TIED).encode(), "pytorch_model.bin": b"pickled"})) as hub:
        files = request_files(
            dataclasses.replace(REQUEST, args=()), folder=None, env={"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path)}
        )
    assert set(files.digests) == {"config.json"}


def test_vllm_reads_headers_for_nothing_else() -> None:
    """Who in the installed vLLM asks for them: for the dtype, for packed layers, for an lm_head. Another one fails here."""
    package = importlib.util.find_spec("vllm")
    assert package is not None
    assert package.origin is not None
    root = Path(package.origin).parent
    asking = ("get_safetensors_params_metadata(", "checkpoint_has_lm_head(", "try_get_safetensors_metadata(")
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "safetensors_" in (text := path.read_text(encoding="utf-8", errors="replace")) or "checkpoint_has_lm_head" in text
        if any(call in text for call in asking)
    }
    assert found == {
        "config/model.py",
        "model_executor/layers/quantization/auto_awq.py",
        "model_executor/layers/quantization/auto_gptq.py",
        "transformers_utils/config.py",
        "transformers_utils/model_arch_config_convertor.py",
    }
