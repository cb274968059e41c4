"""Choices that vLLM leaves to a checkpoint's safetensors headers: made by vLLM itself, refused where it found none."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.errors import ModelFilesError

if TYPE_CHECKING:
    from warmstart.compiler.seams.base import Bench

_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 100_000_000  # the longest header that the format allows
_GIVE = "give a hub name, or a folder whose .safetensors files begin with their headers (no weights are read)"


def without_data(folder: Path) -> dict[str, bytes]:
    """Return each .safetensors file of `folder` by name, as far as its header reaches; what begins with none is left out."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            start = file.read(_LENGTH.size)
            size = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
            header = file.read(size) if size <= _MOST_BYTES else b""
        if len(header) == size and header.startswith(b"{"):
            found[path.name] = start + header
    return found


class HeaderReads:
    """Who in vLLM asked for headers and got none, by the function that asked."""

    def __init__(self) -> None:
        self.unanswered: dict[str, str] = {}

    def install(self, bench: Bench) -> None:
        """Watch the one function through which vLLM reads headers, of a folder or of the hub."""
        module = "vllm.transformers_utils.config"
        with bench.named("headers.watched"):
            read = bench.module(module).get_safetensors_params_metadata

            def watched(model: str, *args: Any, **kwargs: Any) -> Any:
                found = read(model, *args, **kwargs)
                if not found:
                    self.unanswered[sys._getframe(1).f_code.co_qualname] = str(model)
                return found

            bench.replace_everywhere(module, "get_safetensors_params_metadata", watched)

    def refuse(self, *, quantization: str | None, dtype: str) -> None:
        """Refuse a configuration that unread headers would have decided.

        Raises:
            ModelFilesError: vLLM chooses layers or the dtype by headers, and there were none.

        """
        for asked, model in self.unanswered.items():
            if asked.endswith(".maybe_update_config"):
                raise ModelFilesError(
                    f"vLLM chooses the layers that {quantization} covers by the checkpoint's safetensors headers, "
                    f"and {model} has none here",
                    hint=_GIVE,
                )
            if dtype == "auto" and asked.endswith((".get_torch_dtype", ".parse")):
                raise ModelFilesError(
                    f"the configuration of {model} names no dtype, so vLLM takes it from the checkpoint's safetensors headers, "
                    "and there are none here",
                    hint=f"{_GIVE}, or serve with --dtype",
                )
