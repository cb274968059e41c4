"""What vLLM learns from a checkpoint's safetensors headers before it builds a model, and so what of them decides the graph.

A header is the JSON at the start of a .safetensors file: names, dtypes and shapes of its tensors. vLLM 0.33 asks it for the
layers that AWQ and GPTQ cover, for the dtype where the configuration names none, and for an lm_head where the configuration
says that there is none of its own. Only these facts count, not the headers: a folder of configuration files alone gives the key
of a checkpoint that tells nothing more.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from warmstart.errors import ModelFilesError, shorten

if TYPE_CHECKING:
    from warmstart.identity.files import Source

MOST_HEADER_BYTES = 100_000_000
"""The longest header that the safetensors format allows."""

_LENGTH = struct.Struct("<Q")
_UNTIED = "lm_head of its own"
_LAYERS = "quantised layers"
_DTYPES = "dtypes of its tensors"
_FORMAT = "consolidated files"
# These read no checkpoint, or one of vLLM's own making, and vLLM does not look for an lm_head there.
_NO_CHECKPOINT = frozenset({"dummy", "sharded_state", "runai_streamer_sharded"})
_BY_HEADERS = ("awq", "gptq")
_NAMED_LAYERS = ("modules_to_not_convert", "modules_in_block_to_quantize")
_PLAIN = frozenset({"F16", "BF16", "F32"})


def facts(source: Source, documents: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]) -> dict[str, str]:
    """Return the facts of a checkpoint's headers that vLLM's choices for this server rest on, by name.

    `documents` are the parsed configuration files by name, `options` the server's arguments. Headers are read only where one of
    the choices is open; a checkpoint without them has none of the facts. Raises what the source raises.
    """
    found: dict[str, str] = {}
    config = documents.get("config.json", {})
    if "params.json" in documents and any(_is_consolidated(name) for name in source.names()):
        found[_FORMAT] = "present"
    untied = _may_be_untied(config, options)
    packed = _chooses_layers(documents, options)
    typed = options.get("dtype", "auto") == "auto" and not _names_dtype(documents)
    if not (untied or packed or typed):
        return found
    tensors = source.headers()
    if untied and any(name.endswith("lm_head.weight") for name in tensors):
        found[_UNTIED] = "present"
    if packed and tensors:
        found[_LAYERS] = _layers(tensors)
    if typed and tensors:
        found[_DTYPES] = " ".join(sorted(set(tensors.values())))
    return found


def read_header(file: BinaryIO, where: str) -> bytes:
    """Return the header at the start of a safetensors file, as it stands there.

    Raises:
        ModelFilesError: the file does not begin with one, as where Git LFS left a pointer.

    """
    start = file.read(_LENGTH.size)
    size = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
    header = file.read(size) if 2 <= size <= MOST_HEADER_BYTES else b""
    if not header or len(header) != size or not header.startswith(b"{"):
        raise ModelFilesError(
            f"{where} does not begin with a safetensors header", hint="is it a Git LFS pointer, or a download that was cut?"
        )
    return header


def as_file(header: bytes) -> bytes:
    """Return a safetensors file that holds a header and no data: enough for who looks at names and dtypes."""
    return _LENGTH.pack(len(header)) + header


def tensors(header: bytes, where: str) -> dict[str, str]:
    """Return the dtypes of a header's tensors by name. Raises ModelFilesError where it is not one."""
    try:
        document = json.loads(header)
        return {name: str(entry["dtype"]) for name, entry in document.items() if name != "__metadata__"}
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise ModelFilesError(f"the safetensors header of {where} is broken: {shorten(error, 120)}") from error


def _layers(tensors: Mapping[str, str]) -> str:
    """Return a digest of which layers hold something packed, and which do not."""
    packed: dict[str, bool] = {}
    for name, dtype in tensors.items():
        layer = name.rpartition(".")[0]
        packed[layer] = packed.get(layer, False) or dtype not in _PLAIN
    return hashlib.sha256(json.dumps(sorted(packed.items())).encode()).hexdigest()


def _may_be_untied(config: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    if options.get("load_format", "auto") in _NO_CHECKPOINT:
        return False
    return config.get("tie_word_embeddings") is not False or bool(options.get("hf_overrides"))


def _chooses_layers(documents: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]) -> bool:
    """Tell whether the quantisation is AWQ's or GPTQ's and its configuration does not name the layers."""
    schemes = [scheme for scheme in _schemes(documents) if _named(scheme.get("quant_method"))]
    if any(scheme.get(name) for scheme in schemes for name in _NAMED_LAYERS):
        return False
    companions = any(name in documents for name in ("quantize_config.json", "quant_config.json"))
    return bool(schemes) or companions or _named(options.get("quantization"))


def _schemes(documents: Mapping[str, Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Yield the quantisation sections of a configuration, the ones of inner models included."""
    config = documents.get("config.json", {})
    inner = [value for value in config.values() if isinstance(value, dict)]
    for place in (config, *inner, documents.get("params.json", {})):
        scheme = place.get("quantization_config") or place.get("quantization")
        if isinstance(scheme, dict):
            yield scheme


def _named(method: object) -> bool:
    return isinstance(method, str) and any(word in method.lower() for word in _BY_HEADERS)


def _names_dtype(documents: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether the configuration says of which dtype the model is, at its top or in one of its parts."""
    for document in (documents.get("config.json", {}), documents.get("params.json", {})):
        parts = [document, *(value for value in document.values() if isinstance(value, dict))]
        if any(part.get("dtype") or part.get("torch_dtype") for part in parts):
            return True
    return False


def _is_consolidated(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.startswith("consolidated") and file.endswith(".safetensors")
