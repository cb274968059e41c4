"""Whether a model that brings its own code also runs without it, on what vLLM and transformers hold themselves.

Their registries are read as text: importing them costs seconds, and this runs before anything else does.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmstart.errors import UsageError
from warmstart.pattern import pattern

_ARCHITECTURES = "vllm/model_executor/models/registry.py"
_MODEL_TYPES = (
    "vllm/transformers_utils/config.py",
    "transformers/models/auto/auto_mappings.py",
    "transformers/models/auto/configuration_auto.py",
)
_NAME = pattern(r"""["']([\w.\-]+)["']|\b(\w+)=""")


def refuse_remote_code(model: str, config: Mapping[str, Any]) -> None:
    """Raise UsageError for a model that vLLM will not load without --trust-remote-code; silent where that cannot be told."""
    auto_map = config.get("auto_map")
    if not isinstance(auto_map, dict) or not auto_map:
        return
    architectures, types = _words(_ARCHITECTURES), frozenset().union(*(_words(place) for place in _MODEL_TYPES))
    named = config.get("architectures")
    wanted = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if not architectures or not types or not wanted:
        return
    foreign = [name for name in wanted if name not in architectures]
    kind = config.get("model_type")
    # vLLM takes some checkpoints without a model type by their architecture; its table names those.
    configured = kind in types or "AutoConfig" not in auto_map or any(name in types for name in wanted)
    if len(foreign) < len(wanted) and configured:
        return
    what = f"architecture {foreign[0]}" if foreign else f"model type {kind}"
    raise UsageError(
        f"{model} runs code from its own repository ({what}), which vLLM refuses as it is called",
        hint="add --trust-remote-code to the server's arguments if you trust that code",
    )


@functools.cache
def _words(place: str) -> frozenset[str]:
    """Return every quoted word and keyword name of a source file on the import path; none where the file is not there."""
    for folder in sys.path:
        path = Path(folder or ".") / place
        if path.is_file():
            return frozenset(
                quoted or keyword for quoted, keyword in _NAME.findall(path.read_text(encoding="utf-8", errors="replace"))
            )
    return frozenset()
