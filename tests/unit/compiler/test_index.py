"""vLLM's index of graphs names them by absolute paths: it is written for the place where the server will find them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from warmstart.compiler.index import write_for
from warmstart.errors import CompileError

GRAPH = "artifact_compile_range_1_8192_subgraph_0"


def index_of(root: Path, rank: int = 0, module: str = "backbone") -> Path:
    folder = root / f"torch_compile_cache/0123456789/rank_{rank}_0/{module}"
    folder.mkdir(parents=True)
    entry = {"graph_handle": (GRAPH, str(folder / GRAPH)), "cache_key": "a5en3"}
    index = folder / "vllm_compile_cache.py"
    index.write_text(repr({((1, 8192), 0, "inductor_standalone"): entry}))
    return index


def test_every_rank_and_module_is_written_for_the_server(tmp_path: Path) -> None:
    indexes = [index_of(tmp_path), index_of(tmp_path, rank=1), index_of(tmp_path, module="eagle_head")]
    assert write_for(Path("/cache/vllm"), tmp_path) == 3
    for index in indexes:
        (entry,) = ast.literal_eval(index.read_text()).values()
        folder = Path("/cache/vllm") / index.parent.relative_to(tmp_path)
        assert entry == {"graph_handle": (GRAPH, str(folder / GRAPH)), "cache_key": "a5en3"}
        assert [path.name for path in index.parent.iterdir()] == [index.name]


def test_a_cache_without_an_index_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "modelinfos").mkdir()
    assert write_for(Path("/cache"), tmp_path) == 0


@pytest.mark.parametrize("text", ["", "{", "[1]", "{1: {}}", "{1: {'graph_handle': 5}}", "__import__('os')"])
def test_what_is_no_index_is_named(tmp_path: Path, text: str) -> None:
    index = index_of(tmp_path)
    index.write_text(text)
    with pytest.raises(CompileError, match=r"index .*vllm_compile_cache\.py is not understood"):
        write_for(Path("/cache"), tmp_path)
    assert index.read_text() == text


def test_a_graph_outside_of_the_cache_is_not_taken_along(tmp_path: Path) -> None:
    index = index_of(tmp_path)
    index.write_text(index.read_text().replace(str(tmp_path), "/elsewhere"))
    with pytest.raises(CompileError, match="not understood"):
        write_for(Path("/cache"), tmp_path)
