"""vLLM's index of compiled graphs, where they lie beside the AOT artifact: it names them by absolute paths.

vLLM reads `torch_compile_cache/<hash>/rank_<rank>_<dp rank>/<module>/vllm_compile_cache.py`, a Python literal
`{(range, graph, compiler): {"graph_handle": (name, path), "cache_key": key}}`, and opens each path as it stands. A cache that
was compiled below another root than the server's is found, and every graph in it compiled again. (Line information in the
graphs names that root too; nothing opens it.)
"""

from __future__ import annotations

import ast
import pprint
from pathlib import Path
from typing import Any

from warmstart.errors import CompileError, shorten

_INDEX = "torch_compile_cache/*/rank_*/*/vllm_compile_cache.py"


def write_for(server_root: Path, cache_root: Path) -> int:
    """Let every index below `cache_root` name its graphs as they will lie below `server_root`; returns how many there are.

    Raises:
        CompileError: an index is not what this module's docstring says, or names a graph outside of `cache_root`.

    """
    indexes = sorted(cache_root.glob(_INDEX))
    for index in indexes:
        try:
            entries = ast.literal_eval(index.read_text())
            moved = {key: _moved(entry, cache_root, server_root) for key, entry in entries.items()}
        except (SyntaxError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CompileError(f"vLLM's index {index} is not understood: {shorten(error, 120)}") from error
        scratch = index.with_suffix(".tmp")
        scratch.write_text(pprint.pformat(moved, indent=4))
        scratch.replace(index)
    return len(indexes)


def _moved(entry: dict[str, Any], cache_root: Path, server_root: Path) -> dict[str, Any]:
    name, path = entry["graph_handle"]
    return {**entry, "graph_handle": (name, str(server_root / Path(path).relative_to(cache_root)))}
